"""The entry point of a server, which accepts every message from every transport.

A transport passes each request to `accept` and each notification to `on_notification`, together
with its `MessageSource`. The source is a `ServerSession` (stdio, WebSocket, HTTP+SSE, memory) or
the `PostResponse` of one HTTP POST. The source provides the information that the message itself
does not contain: the session's caller, the sender's identity, the revision named in a header, and
the table of calls in flight. The HTTP transport also has to check its headers, and provides hooks
for these checks.

    message ─→ find the method ─→ decode the params ─→ the source's header checks ─→ era and caller
            ─→ limits of the in-flight table ─→ service.admit ─→ Call ─→ task: answer ─→ reply

If `service.admit` cannot decide at once, because many processes share a limit, the rest of its
check is the first step of the task (`Call.admission`).

The dispatcher answers requests about the protocol itself (discovery, log levels, subscriptions) and
lets the `Service` answer the rest. The dispatcher also sends the server's notifications. It
coalesces the changes from one iteration of the event loop, then sends them to each
`subscriptions/listen` stream and, through `notify_sessions`, to handshake-era sessions.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from ..errors import (
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ProtocolError,
    UrlRequired,
)
from ..jsonrpc.messages import ErrorResponse, Id, Notification, Request, Response, encode
from ..logs import get_logger
from ..ports import (
    Call,
    Caller,
    CallHandler,
    PendingAdmission,
    Principal,
    RequestIdentity,
    Service,
)
from ..protocol.base import (
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    EmptyResult,
    Implementation,
    Meta,
    Params,
    Result,
)
from ..protocol.lifecycle import (
    DiscoverResult,
    InputRequired,
    InputRequiredResult,
    ProgressParams,
    ShutdownResult,
)
from ..protocol.methods import METHODS, Method
from ..protocol.raw import RawObject
from ..protocol.tasks import EXTENSION as TASKS
from ..protocol.utilities import SEVERITY, ListenResult
from ..revisions import DRAFT_DIALECT, Revision, decode
from . import handshake, stateless
from .answer import cancel, check_id, new_task, run_call
from .connection import Reply
from .encode import MessageEncoder
from .input_requests import ClientRefused, identify_request
from .multi_round_trip import MultiRoundTrip
from .notifications import NotificationRunner, ProgressThrottle, read_progress_token
from .subscriptions import (
    ServerSubscriptions,
    changed_resources,
    coalescing_key,
    is_subscribed,
    merge_changes,
)

log = get_logger("connection")

Notify = Callable[[str, Params], None]
RESOURCES_CHANGED = "resources/changed"
_QUESTIONS = InputRequired, UrlRequired


class MessageSource(Protocol):
    """The source of a message, which also receives the output of its call.

    A handler's context accesses it as `call.connection`, which has more members than those listed
    here (`notify`, `ask`, `drain`, `headers`, `limits`, …).
    """

    revision: Revision | None
    """The revision used to encode an error. The dispatcher sets this revision when a message names
    one."""

    @property
    def header_revision(self) -> Revision | None:
        """The revision of a request without a session, if the transport can determine it."""

    @property
    def open_calls(self) -> dict[Id, Call] | None:
        """The session's table of calls in flight, or None if there is no session. Ids need not be
        unique without a session."""

    @property
    def max_notifications(self) -> int:
        """The maximum number of handlers for extension notifications that run at the same time."""

    @property
    def check_headers(self) -> Callable[[str, Method | None, Any, bool], None] | None:
        """A function that raises an error if the headers do not match the message. Its arguments
        are the method's name, the method if known, the params, and whether the message is a
        request."""

    @property
    def check_call(self) -> Callable[[Method, Any, Caller], None] | None:
        """A function that raises an error if the transport cannot accept a call."""

    @property
    def caller(self) -> Caller | None:
        """The session's caller, or None before the session is initialized."""

    @property
    def identity(self) -> RequestIdentity:
        """The identity of the sender."""

    def initialize(self, request: Request) -> bytes:
        """Open a session and return the reply."""

    def missing_revision(self, method: str) -> ProtocolError:
        """Return the error for a request that belongs to no session and names no revision."""

    def cancel_request(self, id: Id | None, reason: str | None) -> None:
        """Cancel a call in this session."""

    def on_progress(self, params: ProgressParams) -> None:
        """Handle the progress of a request that the server sent."""

    def on_roots_changed(self) -> None:
        """Discard the cached roots of the client."""

    def on_initialized(self) -> None:
        """Allow requests and notifications to be sent."""

    def on_exit(self) -> None:
        """End the session."""


class Dispatcher:
    """The dispatcher for one server in one event loop, which accepts messages and sends
    notifications."""

    def __init__(
        self,
        service: Service,
        state: Any,
        encoder: MessageEncoder,
        notify_sessions: Notify,
        round_trips: MultiRoundTrip,
    ) -> None:
        self.service = service
        self.encoder = encoder
        self.loop = asyncio.get_running_loop()
        self.find_method = service.extensions.find_method
        self.subscriptions = ServerSubscriptions(service)
        self.round_trips = round_trips
        self.state = state
        self._stateless = {one.version: one for one in service.revisions if one.stateless}
        self._notify_sessions = notify_sessions
        self._has_draft_dialect = DRAFT_DIALECT in service.revisions
        self.running: set[Call] = set()
        """The calls from all sources that are being answered."""
        self._signatures: dict[Revision, tuple[Implementation, Raw]] = {}
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

    def accept(self, request: Request, source: MessageSource) -> Call | bytes:
        """Turn a request into a call, or return its reply if no handler has to run.

        The call is in flight from now on, so call `start` or `forget` next. A rejected request
        raises a ProtocolError, or the exception raised by one of the source's hooks.
        """
        name, caller = request.method, source.caller
        if caller is not None and caller.is_shut_down:
            raise InvalidRequest("This session has been shut down. Only `exit` is accepted now.")
        known = source.header_revision if caller is None else caller.revision
        row = self.find_method(name, known)
        check_headers = source.check_headers
        if check_headers is None:  # inlined, because every request passes here
            found = row or self.find_method(name, None)
            if found is None or found.result is None or found.sender == "server":
                raise _no_method(name)
        # `initialize` is decoded where it is handled: it may be written in a dialect.
        params = _lift(request, None if name == "initialize" else row, caller)
        if check_headers is not None:
            check_headers(name, row, params, True)
        meta = params.meta
        if meta is not None and PROTOCOL_VERSION in meta:
            caller = self.stateless_caller(meta)
            source.revision = caller.revision
        elif row is not None and row.name == "initialize":
            return source.initialize(request)
        elif caller is None:
            if row is None or row.result is None or row.sender == "server":
                raise _no_method(name)
            if known is None:
                if row.name == "ping":
                    return self.encoder.encode_result(request.id, {})
                raise source.missing_revision(name)
            caller = Caller(known, state=self.state)
        if caller.revision is not known:
            found = self.find_method(name, caller.revision)
            if found is not row and found is not None:  # both eras have a method of that name
                params = _lift(request, found, caller)
            row = found
        if row is None or row.result is None or row.sender == "server":
            unknown = row is not None or self.find_method(name, None) is None
            raise _no_method(name, None if unknown else caller.revision)
        if row.name == "ping":
            check_id(source.open_calls or {}, request.id)
            return self.encoder.encode_result(request.id, {})
        return self._open_call(request, row, params, caller, source)

    def _open_call(
        self, request: Request, method: Method, params: Any, caller: Caller, source: MessageSource
    ) -> Call:
        id, calls = request.id, source.open_calls
        if calls is not None:
            check_id(calls, id)
        if source.check_call is not None:
            source.check_call(method, params, caller)
        identity = source.identity
        caller.principal, caller.address = identity.principal, identity.address
        admission = self.service.admit(method, params, caller)
        call = Call(
            id,
            method,
            params,
            caller,
            source,
            admission=admission,
            protocol_handler=self._local.get(method.name),
            principal=identity.principal,
            address=identity.address,
            raw_params=request.params,
        )
        by_id = caller.revision.progress_by_id
        if by_id or (params.meta is not None and PROGRESS_TOKEN in params.meta):
            self._track_progress(call, by_id)
        if calls is not None:
            calls[id] = call
        self.running.add(call)
        return call

    def start(self, call: Call, reply: Reply) -> None:
        """Answer a call in its own task, then pass on the reply."""
        work = run_call(call, self.answer, self.encoder, self._finish, reply)
        call.task = new_task(work, self.loop)

    def _finish(self, call: Call, reply: Reply, data: bytes | None) -> None:
        call.finished = True
        self.running.discard(call)
        calls = call.connection.open_calls
        if calls is not None and calls.get(call.id) is call:
            del calls[call.id]
        reply(call, data)

    def forget(self, call: Call) -> None:
        """Remove an unstarted call from the in-flight tables."""
        self.running.discard(call)
        if (calls := call.connection.open_calls) is not None:
            del calls[call.id]

    def stateless_caller(self, meta: Meta) -> Caller:
        """Return the caller that a stateless-era request describes."""
        return stateless.caller_of(meta, self._stateless, self.service, self.state)

    def initialize(
        self, request: Request, identity: RequestIdentity, *, can_notify: bool = True
    ) -> tuple[Caller, bytes, PendingAdmission | None]:
        """Return the caller that an `initialize` request describes, and the reply to it. If a check
        is pending, it has to pass before the reply is sent.

        `can_notify` says whether notifications can reach this client outside a request. If
        `can_notify` is false, the reply does not offer notifications.
        """
        caller, result = handshake.accept_initialize(
            request.params, self.service, self.state, can_notify=can_notify
        )
        caller.principal, caller.address = identity.principal, identity.address
        admission = self.service.admit(METHODS["initialize"], None, caller)
        lowered = caller.revision.lower_result(METHODS["initialize"], result)
        return caller, self.encoder.encode_result(request.id, lowered), admission

    async def answer(self, call: Call) -> Any:
        """Answer a call with the server's handler. In the stateless era, add the server's name to
        the result. A relayed result (RawObject) loses the name of the server that it came from."""
        if call.admission is not None:
            try:
                await call.admission()
            except ProtocolError as error:
                call.refusal = error
                raise
        handle, revision = self.service.answer, call.caller.revision
        if revision.stateless and self.round_trips.applies_to(call):
            result = await self.round_trips.answer(call, handle)
        else:
            asks = revision.stateless and call.method.asks
            request_key = identify_request(call) if asks else None
            try:
                result = await handle(call)
            except UrlRequired as error:
                result = error
            if isinstance(result, _QUESTIONS):
                result = await self.round_trips.answer_explicit(call, handle, result, request_key)
        if type(result) is RawObject:
            return stateless.sign_raw_result(result, self._signature(revision))
        if isinstance(result, Result):
            if isinstance(result, InputRequiredResult) and result.request_state is not None:
                stored = self.service.expect_round(call, result.request_state)
                if stored is not None:
                    await stored
            if revision.stateless:
                return stateless.sign_result(result, self._signature(revision), revision)
        return result

    def _signature(self, revision: Revision) -> Raw | None:
        """Return the server's info as it is sent in each result, or None if it is not sent."""
        if not revision.stateless:
            return None
        info = self.service.info
        found = self._signatures.get(revision)
        if found is None or found[0] is not info:
            found = self._signatures[revision] = info, Raw(encode(revision.lower(info)))
        return found[1]

    def encode_call_notification(self, call: Call, method: str, params: Any) -> bytes | None:
        """Encode a notification that belongs to a call. Return None if the call has ended or its
        revision does not define the method."""
        revision = call.caller.revision
        row = None if call.finished else self.find_method(method, revision)
        if row is None or not self.service.extensions.is_offered_to(row, call.caller.capabilities):
            return None
        return self.encoder.encode_notification(revision, row, params)

    def read_answer(self, method: Method, answer: Response | ErrorResponse) -> Any:
        """Return the client's answer. If the answer is an error, raise it."""
        if isinstance(answer, ErrorResponse):
            error = answer.error
            raise ClientRefused(method.name, error.code, error.message, error.data)
        return answer.result

    def cancel(self, call: Call) -> None:
        """Cancel a call whose client is no longer waiting for the reply."""
        cancel(call)

    def abort(self, call: Call, reason: ProtocolError) -> None:
        """End a call whose client is still waiting for the reply, and send this error to the
        client."""
        if call.task is not None and call.abort_error is None and not call.cancelled:
            call.abort_error = reason
            self.loop.call_soon(call.task.cancel)

    def _track_progress(self, call: Call, by_id: bool) -> None:
        if by_id:
            if not call.caller.capabilities.get("supportsProgress"):
                return
            token: Any = call.id
        else:
            token = read_progress_token(call.params)

        def send(params: ProgressParams) -> None:
            params.progress_token = token
            call.connection.notify(call, "notifications/progress", params)

        call.progress = ProgressThrottle(send, self.service.limits.progress_interval)

    async def _discover(self, call: Call) -> DiscoverResult:
        return DiscoverResult(
            supported_versions=handshake.version_names(self.service.revisions),
            capabilities=self.service.capabilities,
            instructions=self.service.instructions,
        )

    async def _listen(self, call: Call) -> ListenResult:
        if TASKS not in (self.service.extensions.declared or {}):
            call.params.notifications.task_ids = None
        return await self.subscriptions.listen(call)

    # notifications from the client

    def on_notification(self, notification: Notification, source: MessageSource) -> None:
        """Handle a notification. Raise an error if the source's checks fail or an extension's
        handler cannot run. No reply is sent."""
        name, caller = notification.method, source.caller
        row = None if caller is None else self.find_method(name, caller.revision)
        row = row or self.find_method(name, None)
        params = _lift(notification, row, caller)
        if source.check_headers is not None:
            source.check_headers(name, row, params, False)
        if row is None or row.result is not None:
            log.debug("Ignored an unknown notification: %s", name)
        elif caller is not None and caller.is_shut_down and row.name != "exit":
            log.debug("Ignored %s after shutdown", name)
        elif METHODS.get(row.name) is not row:
            self._run_notification_handler(notification, row, params, source)
        elif row.name == "notifications/cancelled":
            source.cancel_request(params.request_id, params.reason)
        elif row.name == "notifications/progress":
            source.on_progress(params)
        elif row.name == "notifications/initialized":
            source.on_initialized()
        elif row.name == "notifications/roots/list_changed" and caller is not None:
            source.on_roots_changed()
        elif row.name == "exit" and caller is not None and "exit" in caller.revision.methods:
            source.on_exit()

    def _run_notification_handler(
        self, notification: Notification, method: Method, params: Any, source: MessageSource
    ) -> None:
        """Run an extension's handler. In the stateless era, the notification itself describes its
        caller, as a request does."""
        caller, meta = source.caller, params.meta
        if meta is not None and PROTOCOL_VERSION in meta:
            caller = self.stateless_caller(meta)
        if caller is None:
            return
        caller.principal, caller.address = source.identity.principal, source.identity.address
        handler = self.service.extensions.find_handler(method, caller.capabilities)
        if handler is None or self.find_method(method.name, caller.revision) is not method:
            return
        admission = self.service.admit(method, params, caller)
        if admission is not None:
            handler = _after(admission, handler)
        call = Call(
            0,
            method,
            params,
            caller,
            source,
            finished=True,  # there is no reply
            principal=caller.principal,
            address=caller.address,
            raw_params=notification.params,
        )
        self._notification_runner.run(handler, call, source.max_notifications)

    # notifications to the client

    def notify_threadsafe(self, method: str, params: Params) -> None:
        """Notify subscribers of a change. You may call this method from any thread."""
        try:
            self.loop.call_soon_threadsafe(self.notify, method, params)
        except RuntimeError:
            pass  # the loop is closed: there are no subscribers left

    def notify(self, method: str, params: Params) -> None:
        """Notify subscribers of a change in the next iteration of the event loop."""
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
        if self._has_draft_dialect:
            # Resources with scopes are not named together: a caller may read some, but not others.
            for params in changed_resources(changes, together=not self.service.scopes):
                self._notify_sessions(RESOURCES_CHANGED, params)

    def is_subscribed(
        self, caller: Caller, reader: Principal | None, method: str, params: Params
    ) -> bool:
        """Return whether a handshake-era caller is notified of this change. `reader` opened the
        stream on which the notification is sent, possibly with a different token from the one in
        the caller's newest request."""
        if method not in METHODS:
            row = self.find_method(method, caller.revision)
            return row is not None and self.service.extensions.is_offered_to(
                row, caller.capabilities
            )
        return is_subscribed(caller, method, params) and self.service.may_notify(
            reader, method, params
        )

    def encode_notification(self, revision: Revision, method: str, params: Params) -> bytes | None:
        """Encode a change for handshake-era callers."""
        row = self.find_method(method, revision)
        return None if row is None else self.encoder.encode_notification(revision, row, params)

    def close(self) -> None:
        """Stop listening for changes, and end every subscription, streams normally."""
        self._unlisten()
        self.subscriptions.close()


def _lift(message: Request | Notification, method: Method | None, caller: Caller | None) -> Any:
    try:
        if method is None:
            return decode(message.params, Params)
        if caller is None:
            return decode(message.params, method.params)
        return caller.revision.lift_params(method, message.params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams.from_decoding(message.method, error) from None


def _no_method(name: str, revision: Revision | None = None) -> MethodNotFound:
    where = "by this server" if revision is None else f"in revision {revision.version}"
    return MethodNotFound(f"The method {name!r} is not supported {where}")


def _after(admission: PendingAdmission, handler: CallHandler) -> CallHandler:
    """Return a handler that runs after a check has passed."""

    async def handle(call: Call) -> None:
        try:
            await admission()
        except ProtocolError as refusal:
            log.debug("Rejected a %s: %s", call.name, refusal)
        else:
            await handler(call)

    return handle


async def _set_level(call: Call) -> EmptyResult:
    call.caller.log_level = SEVERITY[call.params.level]
    return EmptyResult()


async def _shutdown(call: Call) -> ShutdownResult:
    call.caller.is_shut_down = True
    return ShutdownResult()
