"""The server's end of a conversation, both eras on one connection.

A request that names its version in `_meta` is of the stateless era and carries its caller along; any other belongs to the
handshake that came before it. From there on, nobody can tell the difference.
"""

import asyncio
import logging
from typing import Any

import msgspec

from ..errors import InvalidParams, MethodNotFound
from ..jsonrpc.messages import Notification, Request
from ..ports import Answer, Call, Caller, Service
from ..protocol.base import EmptyResult, Params
from ..protocol.lifecycle import DiscoverResult, ProgressParams, ShutdownResult
from ..protocol.logging import SEVERITY
from ..protocol.meta import PROGRESS_TOKEN, PROTOCOL_VERSION
from ..protocol.methods import METHODS, Method
from ..protocol.resources import UriParams
from ..revisions import Revision, decode
from . import handshake, stateless
from .connection import Connection
from .listening import Listening, merge
from .progress import Progress

log = logging.getLogger("dovetail.connection")


class Serving:
    """What requests and notifications mean to a server."""

    complains = True
    replies = True

    def __init__(self, service: Service, connection: Connection, state: Any = None) -> None:
        self._service = service
        self._connection = connection
        self._state = state
        self._caller: Caller | None = None
        self._spoken: Revision | None = None
        self._phase: str = handshake.NEW
        self._listening = Listening(connection.limits.subscriptions)
        self._changes: dict[tuple[str, str], Params] = {}
        self.loop = asyncio.get_running_loop()
        self._local: dict[str, Answer] = {
            "server/discover": self._discover,
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._listening.subscribe,
            "resources/unsubscribe": self._listening.unsubscribe,
            "subscriptions/listen": self._listening.listen,
            "shutdown": self._shutdown,
        }
        self._unlisten = service.listen(self._changed)

    @property
    def revision(self) -> Revision | None:
        """The revision of the handshake, or else of the last request: what tells how to answer the unreadable."""
        return self._spoken if self._caller is None else self._caller.revision

    def accept(self, request: Request) -> Call | bytes:
        """Find out what is asked, in which revision and by whom."""
        name = request.method
        caller = self._caller
        method = caller.revision.method(name) if caller is not None else None
        if method is None:
            method = METHODS.get(name)
        if method is None or method.result is None or method.sender == "server":
            raise MethodNotFound(f"There is no method {name!r} here")
        if method.name == "initialize":
            return self._greet(request)
        try:
            params = _lift(caller, method, request.params)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidParams(f"{name}: {error}") from None
        meta = params.meta
        if meta is not None and PROTOCOL_VERSION in meta:
            caller = stateless.caller_of(meta, self._service, self._state)
            self._spoken = caller.revision
        elif caller is None:
            if method.name == "ping":
                return self._connection.outgoing.result(request.id, {})
            raise stateless.missing(name)
        if method.name not in caller.revision.methods:
            raise MethodNotFound(f"There is no method {name!r} in revision {caller.revision.version}")
        if method.name == "ping":
            return self._connection.outgoing.result(request.id, {})
        call = Call(request.id, method, params, caller, self)
        call.local = self._local.get(method.name)
        if (meta is not None and PROGRESS_TOKEN in meta) or caller.revision.progress_by_id:
            self._follow(call)
        return call

    async def answer(self, call: Call) -> Any:
        """Let the server answer, and sign the result where the revision wants it signed."""
        result = await self._service.answer(call)
        if call.caller.revision.stateless and isinstance(result, msgspec.Struct):
            return stateless.signed(result, self._service.info, call.caller.revision)
        return result

    def emit(self, call: Call, method: str, params: Any) -> None:
        """Send a notification that belongs to a call, as long as somebody waits for it."""
        row = METHODS[method]
        revision = call.caller.revision
        if not call.over and method in revision.methods:
            self._connection.notify(revision, row, params)

    async def ping(self, timeout: float) -> None:
        """Ask whether the client is there, where a server may ask that."""
        if self._caller is not None and self._phase == handshake.READY:
            await self._connection.request(self._caller.revision, METHODS["ping"], None, timeout=timeout)

    async def drain(self) -> None:
        """Wait until the peer has read some of what was sent."""
        await self._connection.channel.drain()

    def _follow(self, call: Call) -> None:
        if call.caller.revision.progress_by_id:
            if not call.caller.capabilities.get("supportsProgress"):
                return
            token: Any = call.id
        else:
            token = call.params.meta[PROGRESS_TOKEN]
            if not isinstance(token, str) and type(token) is not int:
                raise InvalidParams(f"A progress token must be a string or an integer, not {token!r}")

        def send(params: ProgressParams) -> None:
            params.progress_token = token
            self.emit(call, "notifications/progress", params)

        call.progress = Progress(send, self._connection.limits.progress_interval)

    # the handshake

    def _greet(self, request: Request) -> bytes:
        if self._phase != handshake.NEW:
            raise handshake.again()
        self._caller, result = handshake.welcome(request.params, self._service, self._state)
        self._phase = handshake.TRANSITIONS[self._phase, "initialize"]
        lowered = self._caller.revision.lower_result(METHODS["initialize"], result)
        return self._connection.outgoing.result(request.id, lowered)

    def hear(self, notification: Notification) -> None:
        """What a client may tell: that it is ready, that it no longer waits, how far it has come."""
        caller = self._caller
        name = notification.method
        method = (caller.revision.method(name) if caller else None) or METHODS.get(name)
        if method is None or method.result is not None:
            log.debug("Ignored the unknown notification %s", name)
            return
        params = _lift(caller, method, notification.params)
        if method.name == "notifications/cancelled":
            self._connection.cancel(params.request_id, params.reason)
        elif method.name == "notifications/progress":
            self._connection.progressed(params)
        elif method.name == "exit" and caller is not None and "exit" in caller.revision.methods:
            self._connection.stop()
            self._connection.leave()
        self._phase = handshake.TRANSITIONS.get((self._phase, method.name), self._phase)

    # what only the connection can answer

    async def _discover(self, call: Call) -> DiscoverResult:
        return stateless.discovery(self._service)

    async def _set_level(self, call: Call) -> EmptyResult:
        call.caller.log_level = SEVERITY[call.params.level]
        return EmptyResult()

    async def _shutdown(self, call: Call) -> ShutdownResult:
        return ShutdownResult()

    # changes

    def _changed(self, method: str, params: Params) -> None:
        """A change, from any thread."""
        try:
            self.loop.call_soon_threadsafe(self._note, method, params)
        except RuntimeError:
            pass  # the loop is closed: nobody is left to be told

    def _note(self, method: str, params: Params) -> None:
        """Changes of one turn of the loop go out as one."""
        if not self._changes:
            self.loop.call_soon(self._tell)
        key = (method, params.uri if isinstance(params, UriParams) else "")
        self._changes[key] = merge(self._changes.get(key), params)

    def _tell(self) -> None:
        changes, self._changes = self._changes, {}
        for (method, _), params in changes.items():
            caller = self._caller
            ready = caller is not None and self._phase == handshake.READY and method in caller.revision.methods
            if ready and caller is not None and self._listening.hears(method, params):
                self._connection.notify(caller.revision, METHODS[method], params)
            for call, tagged in self._listening.streams(method, params):
                self.emit(call, method, tagged)

    def ended(self, reason: Exception | None) -> None:
        """Nothing more will come."""
        self._unlisten()
        self._listening.end()


def _lift(caller: Caller | None, method: Method, raw: Any) -> Any:
    if caller is not None:
        return caller.revision.lift_params(method, raw)
    return decode(raw, method.params)
