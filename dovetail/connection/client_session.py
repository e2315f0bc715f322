"""The client's side of a session: opening it, typed requests, and messages from the server.

`era_detection.py` finds out which revision the server speaks.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..errors import (
    ConnectionClosed,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
)
from ..jsonrpc.messages import Id, Notification, Request, encode
from ..logs import get_logger
from ..ports import Call, Caller, CallHandler, PendingAdmission
from ..protocol.base import (
    CLIENT_CAPABILITIES,
    LOG_LEVEL,
    OWN_META,
    Implementation,
    Meta,
    Params,
    Result,
)
from ..protocol.lifecycle import (
    ClientCapabilities,
    DiscoverResult,
    InitializeParams,
    InitializeResult,
    InputRequiredResult,
    ProgressParams,
    ServerCapabilities,
)
from ..protocol.methods import METHODS, Method
from ..protocol.raw import RawObject, keep_meta, with_meta
from ..protocol.tasks import related_task_meta
from ..protocol.utilities import ListenParams
from ..revisions import (
    DRAFT_DIALECT,
    Revision,
    decode,
    error_from_wire,
)
from . import handshake, stateless
from .answer import check_id, new_task, run_call
from .connection import Connection, OnProgress, PeerError, PendingRequest, Reply
from .era_detection import EraDetection
from .extension import Extensions
from .notifications import NotificationRunner, ProgressThrottle, read_progress_token
from .rediscovery import Rediscovery

log = get_logger("connection")

IMPLIED = {
    "notifications/tools/list_changed": frozenset({"tools"}),
    "notifications/resources/list_changed": frozenset({"resources", "completions"}),
    "notifications/prompts/list_changed": frozenset({"prompts", "completions"}),
    "resources/changed": frozenset({"resources"}),
}
"""The capabilities that a server may have after each notification, even if it did not declare them
because it had no components of that kind when the connection opened."""
OPENING_BRACE = ord("{")
OnNotification = Callable[[str, Any, PendingRequest | None], None]
"""A function that receives the method name and the params of a notification, and the request to
which it belongs, if the transport can tell."""


class ClientSession:
    """The client's side of a session."""

    reports_malformed = False
    admission: PendingAdmission | None = None

    def __init__(
        self,
        connection: Connection,
        info: Implementation,
        capabilities: ClientCapabilities,
        answers: Mapping[str, CallHandler],
        on_notification: OnNotification,
        on_close: Callable[["ClientSession", Exception | None], None],
        extensions: Extensions,
    ) -> None:
        self.connection = connection
        self.loop = asyncio.get_running_loop()
        self.server_info: Implementation | None = None
        self.server_capabilities = ServerCapabilities()
        self._announced: frozenset[str] = frozenset()
        """The capabilities implied by changes to the server's lists."""
        self._rediscovery = Rediscovery(self)
        self._usable: dict[Method, ServerCapabilities] = {}
        """The methods that may be sent, with the server's capabilities at the time of the check."""
        self.instructions: str | None = None
        self.supported_versions: list[str] = []
        """The revisions that the server listed (stateless era)."""
        self.log_level: str | None = None
        """The log level sent with each request in the stateless era."""
        self.revision: Revision | None = None
        """The agreed revision, or None before the handshake."""
        self.era_is_known = True
        """Whether the server's answers determined its era. If the server did not answer, the next
        connection has to probe again."""
        self._info = info
        self._capabilities = capabilities
        self._answers = answers
        self._deliver = on_notification
        self._on_close = on_close
        self.extensions = extensions
        self._set_meta({})
        self._notification_runner = NotificationRunner(connection.limits.in_flight)
        connection.start(self)

    def on_refused(self) -> None:
        """Do nothing, because a server sends no `initialize`."""

    @property
    def answers_requests(self) -> bool:
        """Whether the server may send requests, which is not allowed in the stateless era."""
        return self.revision is None or not self.revision.stateless

    @property
    def agreed_revision(self) -> Revision:
        """The agreed revision. The session must be open."""
        assert self.revision is not None
        return self.revision

    # opening

    async def open(
        self, wanted: tuple[Revision, ...], *, probe: bool, probe_timeout: float, timeout: float
    ) -> None:
        """Agree with the server on one of the wanted revisions. Raise ProbeFailed if a new
        connection is required."""
        detection = EraDetection(self, wanted)
        answer = await detection.run(probe=probe, probe_timeout=probe_timeout, timeout=timeout)
        self.era_is_known = detection.is_certain
        if isinstance(answer, InitializeResult):
            self._accept_greeting(answer, detection.handshake_revisions)
        else:
            self._accept_discovery(*answer)

    def _accept_discovery(self, revision: Revision, found: DiscoverResult) -> None:
        self.use_revision(revision)
        self.server_info = stateless.server_info(found.meta)
        self.server_capabilities = found.capabilities
        self.instructions = found.instructions
        self.supported_versions = found.supported_versions

    def begin_handshake(self, revision: Revision) -> InitializeParams:
        """Return the params of `initialize` in this revision, which is used from now on."""
        self.revision = revision
        self._set_meta({})
        return InitializeParams(
            protocol_version=revision.version,
            capabilities=self._declared_capabilities(revision),
            client_info=self._info,
        )

    def _accept_greeting(self, greeting: InitializeResult, old: tuple[Revision, ...]) -> None:
        if self.revision is not DRAFT_DIALECT:
            self.revision = handshake.agreed_revision(old[-1], greeting, old)
        self._set_meta({})
        self.server_info = greeting.server_info
        self.server_capabilities = greeting.capabilities
        self.instructions = greeting.instructions
        self.connection.notify(self.revision, METHODS["notifications/initialized"], None)

    def use_revision(self, revision: Revision) -> None:
        """Send requests in this revision from now on."""
        self.revision = revision
        self._set_meta(self.describe(revision))

    def _set_meta(self, meta: dict[str, Any]) -> None:
        """Set the `_meta` that each request carries."""
        self._meta, self._encoded_meta = meta, Raw(encode(meta))
        self._declared: tuple[ClientCapabilities, Meta, Raw] | None = None

    def describe(self, revision: Revision) -> dict[str, Any]:
        """Return the `_meta` that each request carries in this revision, encoded once."""
        meta = stateless.request_meta(
            revision, self._info, self._declared_capabilities(revision), self.log_level
        )
        return {key: Raw(encode(value)) for key, value in meta.items()}

    def _declared_capabilities(self, revision: Revision) -> ClientCapabilities:
        extensions = self.extensions.declared_for(revision.stateless)
        if extensions is None:
            return self._capabilities
        declared = {**(self._capabilities.extensions or {}), **extensions}
        return ClientCapabilities.of({**self._capabilities, "extensions": declared})

    def set_level(self, level: str | None) -> None:
        """Set the log level that later requests carry."""
        self.log_level = level
        if self.revision is not None and self.revision.stateless:
            self._set_meta(self.describe(self.revision))

    # requests to the server

    async def request(
        self,
        method: Method,
        params: Any,
        timeout: float | None,
        on_progress: OnProgress | None = None,
        started: Callable[[Id], None] | None = None,
        capabilities: ClientCapabilities | None = None,
        log_level: str | None = None,
        parent: Any = None,
    ) -> Any:
        """Send a request and return its typed result. An error from the server is raised as the
        matching exception type. Messages that belong to this request carry its `parent`.

        If the params are a RawObject, return the raw result in the form of the newest revision. In
        this case, `capabilities` and `log_level` replace those of the client (stateless era only).
        """
        revision = self.revision
        assert revision is not None
        if self._usable.get(method) is not self.server_capabilities:
            self._check(method, revision)
            if self.offers(method):
                self._usable[method] = self.server_capabilities
            else:
                timeout = await self._require_offer(method, timeout)
        lift = self._lift
        if type(params) is RawObject:
            params, lift = self._with_own_meta(params, capabilities, log_level), self._lift_raw
        elif revision.stateless:
            params = self._with_meta(params)
        try:
            raw = await self.connection.request(
                revision,
                method,
                params,
                timeout=timeout,
                on_progress=on_progress,
                started=started,
                parent=parent,
            )
        except PeerError as refusal:
            raise error_from_wire(
                method.name, refusal.code, refusal.message, refusal.data
            ) from None
        return lift(revision, method, raw)

    def _with_own_meta(
        self, params: RawObject, capabilities: ClientCapabilities | None, log_level: str | None
    ) -> RawObject:
        """Return relayed params with the `_meta` that describes this client, and without the
        `_meta` keys that describe another client."""
        fields, own = params.fields, self._meta
        encoded: Raw | None = self._encoded_meta
        if capabilities is not None and own:
            own, encoded = self._declare(capabilities)
        if log_level is not None and own:
            own = {key: value for key, value in own.items() if key != LOG_LEVEL}
            own, encoded = own if log_level == "off" else own | {LOG_LEVEL: log_level}, None
        if "_meta" in fields:
            try:
                kept = keep_meta(fields["_meta"], OWN_META)
            except msgspec.MsgspecError as problem:
                raise InvalidParams(f"_meta: {problem}", parameter="_meta") from None
            if kept:
                own, encoded = {**kept, **own}, None
        if own:
            fields = {**fields, "_meta": encoded or Raw(encode(own))}
        elif "_meta" in fields:
            fields = {key: value for key, value in fields.items() if key != "_meta"}
        return RawObject(params.type, fields)

    def _declare(self, capabilities: ClientCapabilities) -> tuple[Meta, Raw]:
        """Return the `_meta` that declares these capabilities, and the same encoded. Calls often
        declare the same as the one before."""
        if self._declared is None or self._declared[0] is not capabilities:
            lowered = self.agreed_revision.lower(capabilities)
            meta = self._meta | {CLIENT_CAPABILITIES: Raw(encode(lowered))}
            self._declared = capabilities, meta, Raw(encode(meta))
        return self._declared[1:]

    def _with_meta(self, params: Any) -> Any:
        """Return params with the `_meta` that describes this client."""
        params = Params() if params is None else params
        return replace(params, meta={**self._meta, **(params.meta or {})})

    def _lift_raw(self, revision: Revision, method: Method, raw: Raw) -> Raw:
        problem = "it is not an object"
        try:
            lifted = revision.lift_raw_result(method, raw) if revision.dialects else raw
            if memoryview(lifted)[0] == OPENING_BRACE:
                return lifted
        except msgspec.MsgspecError as error:
            problem = str(error)
        raise InvalidRequest(f"The answer to {method.name} is malformed: {problem}")

    def _lift(self, revision: Revision, method: Method, raw: Any) -> Any:
        try:
            result = revision.lift_result(method, raw)
            kind = result.result_type if revision.stateless else None
        except msgspec.MsgspecError as problem:
            kind = _kind_of(raw) if revision.stateless else None
            if kind in (None, "complete"):
                raise InvalidRequest(
                    f"The answer to {method.name} is malformed: {problem}"
                ) from None
        if kind in (None, "complete"):
            return result
        added = self.extensions.find_kind(kind, method)
        if kind == "input_required" and method.asks:
            type_: type[Result] = InputRequiredResult
        elif added is not None:
            type_ = added.type
        else:
            raise InvalidRequest(
                f"The answer to {method.name} has an unknown result type: {kind!r}"
            )
        try:
            return decode(raw, type_)
        except msgspec.MsgspecError as problem:
            raise InvalidRequest(
                f"The answer to {method.name} (type {kind!r}) is malformed: {problem}"
            ) from None

    def _check(self, method: Method, revision: Revision) -> None:
        """Raise MethodNotFound if the revision does not define a method or the server did not
        declare its extension."""
        if self.extensions.extension_method(method.name, revision.stateless) is method:
            self.extensions.check(method, self.server_capabilities)
        elif method.name not in revision.methods:
            raise MethodNotFound(f"Revision {revision.version} does not define {method.name}")

    def offers(self, method: Method) -> bool:
        """Return whether the server declared what a method needs, or has announced it since."""
        where: Any = self.server_capabilities
        for key in method.capability.split(".") if method.capability else ():
            where = where.get(key) if isinstance(where, dict) else None
            if where is None or where is False:
                return self._is_exempt(method)
        return True

    def _is_exempt(self, method: Method) -> bool:
        """Return whether a method may be sent although the server did not declare it."""
        revision, kind = self.agreed_revision, method.capability.partition(".")[0]
        return (
            kind in self._announced
            # the first revision has completion, but no capability for it
            or (kind == "completions" and kind in revision.absent.get(ServerCapabilities, ()))
            or self.extensions.extension_method(method.name, revision.stateless) is method
        )

    async def _require_offer(self, method: Method, timeout: float | None) -> float | None:
        """Raise MethodNotFound if the server still does not offer a method; otherwise, return the
        time left. In the stateless era, ask the server, because a client without a notification
        stream is not told of changes."""
        if self.agreed_revision.stateless:
            began = monotonic()
            await self._rediscovery.run(method, timeout)
            timeout = None if timeout is None else timeout - (monotonic() - began)
        if not self.offers(method):
            raise MethodNotFound(f"{method.name}: the server does not offer {method.capability}")
        return timeout

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification if the revision or an extension defines it."""
        assert self.revision is not None
        added = self.extensions.extension_method(method, self.revision.stateless)
        if added is not None:
            self.extensions.check(added, self.server_capabilities)
            if self.revision.stateless:  # otherwise the server would not know the sender
                params = self._with_meta(params)
        if added is not None or method in self.revision.methods:
            self.connection.notify(self.revision, added or METHODS[method], params)

    # messages from the server

    def on_request(self, request: Request) -> Call | bytes:
        """Turn a server's request into a call. The request must be a ping or use a feature that the
        client declared."""
        revision = self.revision
        method = self._method(request.method)
        if method is None or method.result is None or method.sender == "client":
            raise MethodNotFound(f"This client does not support the method {request.method!r}")
        if method.name == "ping":
            return self.connection.encoder.encode_result(request.id, {})
        handler = self.extensions.find_handler(
            method, self.server_capabilities
        ) or self._answers.get(method.name)
        if handler is None or revision is None:
            raise MethodNotFound(
                f"This client did not declare support for {method.capability or method.name}"
            )
        try:
            params = revision.lift_params(method, request.params)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise InvalidParams.from_decoding(method.name, problem) from None
        calls = self.connection.open_calls
        check_id(calls, request.id)
        call = self._call(request.id, method, params, request.params)
        call.protocol_handler = partial(self._ask_handler, handler, self.connection.current_request)
        self._track_progress(call)
        calls[request.id] = call
        return call

    def _track_progress(self, call: Call) -> None:
        token = read_progress_token(call.params)
        if token is None:
            return

        def send(update: ProgressParams) -> None:
            if not (call.finished or self.connection.closed.done()):
                update.progress_token, update.meta = token, related_task_meta(call.params)
                self.notify("notifications/progress", update)

        call.progress = ProgressThrottle(send, self.connection.limits.progress_interval)

    def start(self, call: Call, reply: Reply) -> None:
        """Answer a call in its own task."""
        work = run_call(call, self._answer, self.connection.encoder, self._finish, reply)
        call.task = new_task(work, self.loop)

    def forget(self, call: Call) -> None:
        """Remove an unstarted call from the in-flight table."""
        del self.connection.open_calls[call.id]

    def _finish(self, call: Call, reply: Reply, data: bytes | None) -> None:
        call.finished = True
        calls = self.connection.open_calls
        if calls.get(call.id) is call:
            del calls[call.id]
        reply(call, data)

    def _call(self, id: Id, method: Method, params: Any, raw_params: Raw) -> Call:
        """Return a call from the server, with the capabilities that the server declared."""
        return Call(
            id,
            method,
            params,
            Caller(self.agreed_revision, self.server_info, self.peer_capabilities),
            self,
            parent=self.connection.current_parent,
            raw_params=raw_params,
        )

    @property
    def peer_capabilities(self) -> ClientCapabilities:
        """The server's capabilities, converted to the type used for callers."""
        return ClientCapabilities.of(self.server_capabilities)

    async def _answer(self, call: Call) -> Result:
        """Answer a request with the client's callback. The answer to a task's question names the
        task:
        https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks#related-task-metadata"""
        assert call.protocol_handler is not None
        result: Result = await call.protocol_handler(call)
        mark = related_task_meta(call.params)
        return result if mark is None else with_meta(result, mark)

    async def _ask_handler(
        self, handler: CallHandler, belongs_to: PendingRequest | None, call: Call
    ) -> Any:
        """Call a handler. The server is not slow while the user thinks, so this time does not count
        against the request that the question belongs to, or any request if that is not known."""
        self.connection.pause_deadlines(True, belongs_to)
        try:
            return await handler(call)
        finally:
            self.connection.pause_deadlines(False, belongs_to)

    def on_notification(self, notification: Notification) -> None:
        """Pass progress on to its request, and all other notifications to the client."""
        revision = self.revision
        method = self._method(notification.method)
        if method is None or method.result is not None:
            log.debug("Ignored an unknown notification: %s", notification.method)
            return
        params = (
            decode(notification.params, method.params)
            if revision is None
            else revision.lift_params(method, notification.params)
        )
        if method.name == "notifications/progress":
            if not self.connection.on_progress(params):
                self._deliver(method.name, params, None)  # of a task, which outlives its request
        elif method.name == "notifications/cancelled":
            self.connection.cancel(params.request_id, params.reason)
            ended = ConnectionClosed(
                f"The server ended the subscription: {params.reason or 'no reason given'}"
            )
            self.connection.fail_request(params.request_id, "subscriptions/listen", ended)
        else:
            self._announced |= IMPLIED.get(method.name, frozenset())
            if isinstance(params, ListenParams):
                self._rediscovery.on_confirmed(params)
            handler = self.extensions.find_handler(method, self.server_capabilities)
            if handler is not None:
                self._notification_runner.run(
                    handler,
                    self._call(0, method, params, notification.params),
                    self.connection.limits.in_flight,
                )
            self._deliver(method.name, params, self.connection.current_request)

    def _method(self, name: str) -> Method | None:
        revision = self.revision
        if revision is None:
            return METHODS.get(name)
        return self.extensions.find_method(name, revision)

    def on_close(self, reason: Exception | None) -> None:
        """End the session."""
        self._on_close(self, reason)


def _kind_of(raw: Any) -> str | None:
    try:
        return decode(raw, Result).result_type  # type: ignore[no-any-return]
    except msgspec.MsgspecError:
        return None
