"""The server's end of a conversation, both eras on one connection.

A request that names its version in `_meta` is of the stateless era and carries its caller along;
any other belongs to the handshake that came before it. From there on, nobody can tell the
difference.
"""

import logging
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Any

import msgspec

from ..errors import ConnectionClosed, InvalidParams, MethodNotFound, ToolError
from ..jsonrpc.messages import Notification, Request
from ..ports import Call, Caller, Network, RequestIdentity, Service
from ..protocol.base import PROTOCOL_VERSION, Params
from ..protocol.methods import METHODS, Method
from ..revisions import Revision, decode
from ..sealing import KeyRing, key_ring
from . import handshake, stateless
from .connection import Connection, PeerError
from .dispatcher import Dispatcher
from .input_requests import client_refused

log = logging.getLogger("dovetail.connection")

ANONYMOUS = RequestIdentity()
"""Whoever started this process, on its stdio."""


class ServerSession:
    """What requests and notifications mean to a server."""

    outlives_requests = True
    """What belongs to no request can be sent here too."""
    reports_malformed = True
    answers_requests = True

    def __init__(
        self,
        service: Service,
        connection: Connection,
        state: Any = None,
        ring: Callable[[], KeyRing] = key_ring,
        visitor: RequestIdentity = ANONYMOUS,
    ) -> None:
        self._connection, self._opened_by = connection, visitor
        self.limits, self.redact = service.limits, service.redact
        self._unread_bytes = 0
        """Bytes that it was told while it left too much unread."""
        self._caller: Caller | None = None
        self._last_revision: Revision | None = None
        self._phase: str = handshake.NEW
        self._initialized_at: float | None = None
        """When the session began, in the handshake era."""
        self._dispatcher = Dispatcher(service, state, connection.encoder, self._notify_caller, ring)
        self.answer = self._dispatcher.answer
        self.notify_change = self._dispatcher.notify
        self.loop = self._dispatcher.loop
        self.headers: Mapping[str, str] = getattr(connection.channel, "headers", {})
        """The HTTP headers that the conversation began with, where it began with any."""

    @property
    def _identity(self) -> RequestIdentity:
        """Who speaks: who opened the conversation, unless its messages say it one by one."""
        return getattr(self._connection.channel, "identity", None) or self._opened_by

    @property
    def network(self) -> Network | None:
        """What the conversation goes over, where its channel knows that."""
        return getattr(self._connection.channel, "network", None)

    @property
    def revision(self) -> Revision | None:
        """The revision of the handshake, or else of the last request: what tells how to answer the
        unreadable."""
        return self._last_revision if self._caller is None else self._caller.revision

    def on_request(self, request: Request) -> Call | bytes:
        """Find out what is asked, in which revision and by whom."""
        name = request.method
        caller = self._current_caller()
        spoken = None if caller is None else self._dispatcher.find_method(name, caller.revision)
        method = spoken or self._dispatcher.find_method(name, None)
        if method is None or method.result is None or method.sender == "server":
            raise MethodNotFound(f"There is no method {name!r} here")
        if method.name == "initialize":
            return self._initialize(request)
        params = _asked(caller, method, request)
        meta = params.meta
        if meta is not None and PROTOCOL_VERSION in meta:
            caller = self._dispatcher.stateless_caller(meta)
            spoken = self._dispatcher.find_method(name, caller.revision)
            caller.principal, caller.address = self._identity.principal, self._identity.address
            self._last_revision = caller.revision
        elif caller is None:
            if method.name == "ping":
                return self._connection.encoder.encode_result(request.id, {})
            raise stateless.missing_version(name)
        if spoken is None:
            raise MethodNotFound(
                f"There is no method {name!r} in revision {caller.revision.version}"
            )
        if spoken is not method:  # both eras have one of that name
            method, params = spoken, _asked(caller, spoken, request)
        if method.name == "ping":
            return self._connection.encoder.encode_result(request.id, {})
        return self._dispatcher.call(request.id, method, params, caller, self)

    def notify(self, call: Call, method: str, params: Any) -> None:
        """Send a notification that belongs to a call, as long as somebody waits for it."""
        self._send(self._dispatcher.encode_call_notification(call, method, params))

    async def ask(self, call: Call, method: Method, params: Any) -> Any:
        """Put a question to the client, on behalf of a call of the handshake era."""
        try:
            return await self._connection.request(call.caller.revision, method, params)
        except PeerError as refusal:
            raise client_refused(method.name, refusal.code, refusal.message) from None
        except ConnectionClosed:
            raise ToolError(f"The client left before it answered {method.name}") from None

    def close_stream(self, call: Call) -> None:
        """There is one stream, and it stays."""

    async def ping(self, timeout: float) -> None:
        """Ask whether the client is there, where a server may ask that."""
        if self._caller is not None and self._phase == handshake.READY:
            await self._connection.request(
                self._caller.revision, METHODS["ping"], None, timeout=timeout
            )

    async def drain(self) -> None:
        """Wait until the peer has read some of what was sent."""
        await self._connection.channel.drain()

    # the handshake

    def _current_caller(self) -> Caller | None:
        """The caller of the handshake, as whoever speaks for it now."""
        caller = self._caller
        if caller is not None and (caller.principal is not None or caller.address is not None):
            visitor = self._identity
            caller.principal, caller.address = visitor.principal, visitor.address
        return caller

    def _initialize(self, request: Request) -> bytes:
        if self._phase != handshake.NEW:
            raise handshake.already_initialized()
        self._caller, reply = self._dispatcher.initialize(request, self._identity)
        self._caller.session_id = token_hex(8)
        self._phase, self._initialized_at = (
            handshake.TRANSITIONS[self._phase, "initialize"],
            self.loop.time(),
        )
        return reply

    def on_notification(self, notification: Notification) -> None:
        """What a client may tell: that it is ready, that it no longer waits, how far it has
        come."""
        caller = self._current_caller()
        name = notification.method
        spoken = None if caller is None else self._dispatcher.find_method(name, caller.revision)
        method = spoken or self._dispatcher.find_method(name, None)
        if method is None or method.result is not None:
            log.debug("Ignored the unknown notification %s", name)
            return
        params = _lift(caller, method, notification.params)
        if method.name == "notifications/cancelled":
            self._connection.cancel(params.request_id, params.reason)
        elif method.name == "notifications/progress":
            self._connection.on_progress(params)
        elif method.name == "notifications/roots/list_changed" and caller is not None:
            caller.invalidate_roots()
        elif method.name == "exit" and caller is not None and "exit" in caller.revision.methods:
            self._connection.cancel_calls()
            self._connection.disconnect()
        else:
            self._notice(method, params)
        self._phase = handshake.TRANSITIONS.get((self._phase, method.name), self._phase)

    def _notice(self, method: Method, params: Any) -> None:
        """What only an extension may want to hear. In the stateless era it says itself who tells
        it, as a request does."""
        caller, meta = self._caller, params.meta
        if meta is not None and PROTOCOL_VERSION in meta:
            caller = self._dispatcher.stateless_caller(meta)
            caller.principal, caller.address = self._identity.principal, self._identity.address
        if caller is not None:
            self._dispatcher.handle_notification(
                method, params, caller, self, self.limits.in_flight
            )

    def _notify_caller(self, method: str, params: Params) -> None:
        """A change, to the caller of the handshake era."""
        caller = self._caller
        if (
            caller is not None
            and self._phase == handshake.READY
            and self._dispatcher.is_subscribed(caller, method, params)
        ):
            self._send(self._dispatcher.encode_notification(caller.revision, method, params))

    def _send(self, data: bytes | None) -> None:
        """Tell what nobody asked for. A client that listens and does not read would fill our
        memory, so it is left."""
        if data is None:
            return
        channel = self._connection.channel
        self._unread_bytes = (
            self._unread_bytes + len(data) if getattr(channel, "full", False) else 0
        )
        if self._unread_bytes <= self.limits.events:
            channel.send(data)
        elif not self._connection.closed.done():
            log.warning(
                "The client does not read, and %d more bytes wait for it: it is left",
                self._unread_bytes,
            )
            self._connection.disconnect()

    def on_close(self, reason: Exception | None) -> None:
        """Nothing more will come."""
        self._dispatcher.close()
        if self._initialized_at is not None and self._caller is not None:
            self._dispatcher.service.session_ended(
                self._caller, self.network, self.loop.time() - self._initialized_at
            )
            self._initialized_at = None


def _asked(caller: Caller | None, method: Method, request: Request) -> Any:
    try:
        return _lift(caller, method, request.params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams(f"{request.method}: {error}") from None


def _lift(caller: Caller | None, method: Method, raw: Any) -> Any:
    if caller is not None:
        return caller.revision.lift_params(method, raw)
    return decode(raw, method.params)
