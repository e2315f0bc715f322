"""Where a server takes requests, whoever brought them: what both its ends have in common, a
connection (`serving.py`) and an HTTP endpoint (`http/server/endpoint.py`), where each request
comes by itself.

A desk turns a request into a `Call`, answers what is the protocol's own business (discovery,
levels, subscriptions), lets the server answer the rest, and hears of the server's changes. Changes
of one turn of the loop go out as one: to each stream of `subscriptions/listen` from here, to
callers of the handshake era through `tell`, which the end provides.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..errors import InvalidParams, ProtocolError, UrlRequired
from ..jsonrpc.messages import NO_PARAMS, ErrorResponse, Id, Request
from ..jsonrpc.messages import Response as Reply
from ..ports import Call, Caller, CallHandler, RequestIdentity, Service
from ..protocol.base import PROGRESS_TOKEN, EmptyResult, Meta, Params, Result
from ..protocol.lifecycle import DiscoverResult, InputRequired, ProgressParams, ShutdownResult
from ..protocol.methods import METHODS, Method
from ..protocol.tasks import EXTENSION as TASKS
from ..protocol.utilities import SEVERITY, ListenResult
from ..revisions import Revision
from ..sealing import KeyRing, key_ring
from . import handshake, stateless
from .answer import answer, cancel, start_task
from .encode import MessageEncoder
from .input_requests import client_refused, request_key
from .multi_round_trip import MultiRoundTrip
from .notifications import NotificationRunner, ProgressThrottle
from .subscriptions import ServerSubscriptions, coalescing_key, is_subscribed, merge_changes

Tell = Callable[[str, Params], None]


class Dispatcher:
    """Takes requests on behalf of one server, in one event loop."""

    def __init__(
        self,
        service: Service,
        state: Any,
        outgoing: MessageEncoder,
        tell: Tell,
        ring: Callable[[], KeyRing] = key_ring,
    ) -> None:
        self.service = service
        self.encoder = outgoing
        self.loop = asyncio.get_running_loop()
        self.find_method = service.extensions.find_method
        self.subscriptions = ServerSubscriptions(service.limits.subscriptions)
        self.round_trips = MultiRoundTrip(service, ring)
        self._state = state
        self._stateless = stateless.served_revisions(service)
        self._notify_sessions = tell
        self._changes: dict[tuple[str, str], Params] = {}
        self._notification_runner = NotificationRunner(service.limits.in_flight)
        self._local: dict[str, CallHandler] = {
            "server/discover": self._discover,
            "logging/setLevel": _set_level,
            "resources/subscribe": self.subscriptions.subscribe,
            "resources/unsubscribe": self.subscriptions.unsubscribe,
            "subscriptions/listen": self._listen,
            "shutdown": _shutdown,
        }
        self._unlisten = service.add_listener(self.notify_threadsafe)

    # requests

    def handle_notification(
        self, method: Method, params: Any, caller: Caller, connection: Any, most: int
    ) -> None:
        """A notification that an extension hears of, unless `most` are being heard; raises where it
        may not be told."""
        hear = self.service.extensions.find_handler(method, caller.capabilities)
        if hear is None or self.find_method(method.name, caller.revision) is not method:
            return
        self.service.admit(method, params, caller)
        call = Call(0, method, params, caller, connection, finished=True)  # nobody waits for it
        call.principal, call.address = caller.principal, caller.address
        self._notification_runner.run(hear, call, most)

    def stateless_caller(self, meta: Meta) -> Caller:
        """Who is calling, as a request of the stateless era says itself."""
        return stateless.caller_of(meta, self._stateless, self.service, self._state)

    def session_caller(self, revision: Revision, info: Any, capabilities: Any) -> Caller:
        """Who is calling, as a session says that was opened before."""
        return Caller(revision, info, capabilities, state=self._state)

    def initialize(
        self, request: Request, visitor: RequestIdentity, *, tells: bool = True
    ) -> tuple[Caller, bytes]:
        """The caller that an `initialize` describes, and the reply to it. `tells`: whether it can
        be told of changes."""
        caller, result = handshake.accept_initialize(
            request.params, self.service, self._state, can_notify=tells
        )
        caller.principal, caller.address = visitor.principal, visitor.address
        self.service.admit(METHODS["initialize"], None, caller)
        lowered = caller.revision.lower_result(METHODS["initialize"], result)
        return caller, self.encoder.encode_result(request.id, lowered)

    def call(self, id: Id, method: Method, params: Any, caller: Caller, connection: Any) -> Call:
        """A request as the call that it makes. `connection` is where what belongs to it goes."""
        self.service.admit(method, params, caller)
        call = Call(id, method, params, caller, connection)
        call.protocol_handler, call.principal, call.address = (
            self._local.get(method.name),
            caller.principal,
            caller.address,
        )
        by_id = caller.revision.progress_by_id
        if by_id or (params.meta is not None and PROGRESS_TOKEN in params.meta):
            self._track_progress(call, by_id)
        return call

    async def answer(self, call: Call) -> Any:
        """Let the server answer, and sign the result where the revision wants it signed."""
        handle = self.service.answer
        if self.round_trips.applies_to(call):
            result = await self.round_trips.answer(call, handle)
        else:
            whose = (
                request_key(call) if call.method.asks and call.caller.revision.stateless else None
            )
            try:
                result = await handle(call)
            except UrlRequired as error:
                result = error
            if isinstance(result, InputRequired | UrlRequired):
                result = await self.round_trips.answer_explicit(call, handle, result, whose)
        if call.caller.revision.stateless and isinstance(result, Result):
            return stateless.sign_result(result, self.service.info, call.caller.revision)
        return result

    def reply(self, call: Call) -> Coroutine[Any, Any, bytes | None]:
        """The reply to a call as bytes; None where nobody waits for one any more."""
        return answer(call, self.answer, self.encoder)

    def start(self, call: Call, work: Coroutine[Any, Any, None]) -> None:
        """Answer a call in a task of its own."""
        start_task(call, work, self.loop)

    def encode_failure(
        self, id: Id | None, error: ProtocolError, revision: Revision | None
    ) -> bytes:
        """The reply to a request that is refused."""
        unnamed = revision is not None and revision.unnamed_errors
        return self.encoder.encode_failure(
            id, error, revision.code(error) if revision else error.code, unnamed=unnamed
        )

    def encode_call_notification(self, call: Call, method: str, params: Any) -> bytes | None:
        """A notification that belongs to a call, as long as somebody waits for it and its revision
        has it."""
        revision = call.caller.revision
        row = None if call.finished else self.find_method(method, revision)
        if row is None or not self.service.extensions.is_offered_to(row, call.caller.capabilities):
            return None
        return self.encoder.encode_notification(revision, row, params)

    def encode_question(self, call: Call, id: Id, method: Method, params: Any) -> bytes:
        """A question to the client of a call, as bytes."""
        revision = call.caller.revision
        wire = revision.lower_params(method, params)
        return self.encoder.encode(
            Request(id, revision.wire_name(method.name), NO_PARAMS if wire is None else wire)
        )

    def read_answer(self, method: Method, answer: Reply | ErrorResponse) -> Any:
        """What the client answered to it; raises where that was an error."""
        if isinstance(answer, ErrorResponse):
            raise client_refused(method.name, answer.error.code, answer.error.message)
        return answer.result

    def cancel(self, call: Call) -> None:
        """Nobody waits for this call any more."""
        cancel(call)

    def abort(self, call: Call, reason: ProtocolError) -> None:
        """End a call that somebody still waits for; this is what it is told."""
        if call.task is not None and call.abort_error is None and not call.cancelled:
            call.abort_error = reason
            self.loop.call_soon(call.task.cancel)

    def _track_progress(self, call: Call, by_id: bool) -> None:
        if by_id:
            if not call.caller.capabilities.get("supportsProgress"):
                return
            token: Any = call.id
        else:
            token = call.params.meta[PROGRESS_TOKEN]
            if not isinstance(token, str) and type(token) is not int:
                raise InvalidParams(
                    f"A progress token must be a string or an integer, not {token!r}"
                )

        def send(params: ProgressParams) -> None:
            params.progress_token = token
            call.connection.notify(call, "notifications/progress", params)

        call.progress = ProgressThrottle(send, self.service.limits.progress_interval)

    async def _discover(self, call: Call) -> DiscoverResult:
        return stateless.discover_result(self.service)

    async def _listen(self, call: Call) -> ListenResult:
        if TASKS not in (self.service.capabilities.extensions or {}):
            call.params.notifications.task_ids = None
        return await self.subscriptions.listen(call)

    # changes

    def notify_threadsafe(self, method: str, params: Params) -> None:
        """A change, from any thread."""
        try:
            self.loop.call_soon_threadsafe(self.notify, method, params)
        except RuntimeError:
            pass  # the loop is closed: nobody is left to be told

    def notify(self, method: str, params: Params) -> None:
        """A change, to be told in the next turn of the loop."""
        if not self._changes:
            self.loop.call_soon(self._notify_subscribers)
        key = (method, coalescing_key(params))
        self._changes[key] = merge_changes(self._changes.get(key), params)

    def _notify_subscribers(self) -> None:
        changes, self._changes = self._changes, {}
        for (method, _), params in changes.items():
            self._notify_sessions(method, params)
            for call, tagged in self.subscriptions.matching_streams(method, params):
                if self.service.may_notify(call.principal, method, params):
                    call.connection.notify(call, method, tagged)

    def end_subscription(self, call: Call) -> None:
        """End a stream of changes in good order."""
        self.subscriptions.end_streams(call)

    def is_subscribed(self, caller: Caller, method: str, params: Params) -> bool:
        """Whether a caller of the handshake era is told of this change."""
        if method not in METHODS:
            row = self.find_method(method, caller.revision)
            return row is not None and self.service.extensions.is_offered_to(
                row, caller.capabilities
            )
        return is_subscribed(caller, method, params) and self.service.may_notify(
            caller.principal, method, params
        )

    def encode_notification(self, revision: Revision, method: str, params: Params) -> bytes | None:
        """A change as such callers are told of it."""
        row = self.find_method(method, revision)
        return None if row is None else self.encoder.encode_notification(revision, row, params)

    def close(self) -> None:
        """Hear of nothing more, and end every stream of changes in good order."""
        self._unlisten()
        self.subscriptions.end_streams()
        self.round_trips.close()


async def _set_level(call: Call) -> EmptyResult:
    call.caller.log_level = SEVERITY[call.params.level]
    return EmptyResult()


async def _shutdown(call: Call) -> ShutdownResult:
    return ShutdownResult()
