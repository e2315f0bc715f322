"""A server's session over a channel (stdio, WebSocket, HTTP+SSE, memory), which serves both eras.

A request that names its version in `_meta` belongs to the stateless era and describes its caller
itself; any other request belongs to the session that `initialize` opened. The dispatcher
distinguishes the two kinds of requests.
"""

import asyncio
from collections.abc import Mapping
from os import urandom
from typing import Any

from ..errors import ConnectionClosed, InvalidRequest, ProtocolError, ToolError
from ..jsonrpc.messages import Notification, Request
from ..logs import get_logger
from ..ports import Call, Caller, Network, PendingAdmission, RequestIdentity, Service
from ..protocol.base import Params
from ..protocol.lifecycle import ProgressParams
from ..protocol.methods import METHODS, Method
from ..revisions import Revision
from . import stateless
from .connection import Connection, OnProgress, PeerError
from .dispatcher import Dispatcher
from .input_requests import ClientRefused
from .multi_round_trip import MultiRoundTrip

log = get_logger("connection")

ANONYMOUS = RequestIdentity()
"""The identity of the process that is connected over stdio."""


class ServerSession:
    """The dispatcher's source of all messages from one channel."""

    outlives_requests = True
    """Whether the channel can carry messages outside a request."""
    reports_malformed = True
    answers_requests = True
    header_revision = None
    check_headers = None
    check_call = None

    def __init__(
        self,
        service: Service,
        connection: Connection,
        state: Any,
        round_trips: MultiRoundTrip,
        identity: RequestIdentity = ANONYMOUS,
    ) -> None:
        self._connection, self._opened_by = connection, identity
        self.identity = identity
        """The identity of the newest message's sender."""
        self._has_identities = hasattr(connection.channel, "identity")
        """Whether each message on the channel has its own identity, as in HTTP+SSE."""
        self._has_parents = hasattr(connection.channel, "parent")
        """Whether the client may be a server in this process in which this one is mounted."""
        self.limits, self.redact = service.limits, service.redact
        self.max_notifications = service.limits.in_flight
        self.open_calls = connection.open_calls
        self.caller: Caller | None = None
        """The caller that `initialize` described, or None before `initialize`."""
        self._last_revision: Revision | None = None
        self._unread_bytes = 0
        """The number of bytes sent since the channel became full."""
        self.admission: PendingAdmission | None = None
        """The check that has to pass before the reply to `initialize` is sent, if it takes time."""
        self._is_ready = False
        """Whether `notifications/initialized` has arrived. From then on, the server may send
        messages."""
        self._initialized_at: float | None = None
        self.initialized: asyncio.Event | None = None
        """An event that is set when the server may send requests to the session that `initialize`
        opened."""
        self.dispatcher = Dispatcher(
            service, state, connection.encoder, self._notify_caller, round_trips
        )
        self.start, self.forget = self.dispatcher.start, self.dispatcher.forget
        self.cancel_request = connection.cancel
        self.loop = self.dispatcher.loop
        self.headers: Mapping[str, str] = getattr(connection.channel, "headers", {})
        """The HTTP headers with which the channel was opened, if any."""

    @property
    def revision(self) -> Revision | None:
        """The revision of the handshake or, without a handshake, of the last request. This revision
        is used to encode errors for unreadable messages."""
        return self._last_revision if self.caller is None else self.caller.revision

    @revision.setter
    def revision(self, revision: Revision | None) -> None:
        self._last_revision = revision

    @property
    def network(self) -> Network | None:
        """The network over which the channel runs, if known."""
        return getattr(self._connection.channel, "network", None)

    # for the connection

    def on_request(self, request: Request) -> Call | bytes:
        """Turn a request into a call, or return its reply. Raise an error to reject the request."""
        if self._has_identities:
            self._update_identity()
        call = self.dispatcher.accept(request, self)
        if self._has_parents and type(call) is Call:
            self._set_parent(call)
        return call

    def _set_parent(self, call: Call) -> None:
        """Let a call of the server in which this one is mounted have the same caller."""
        parent = self._connection.channel.parent  # type: ignore[attr-defined]
        if isinstance(parent, Call):
            call.parent, call.address = parent.parent or parent, parent.address
            call.principal = parent.principal or parent.caller.principal

    def on_notification(self, notification: Notification) -> None:
        """Handle a notification."""
        if self._has_identities:
            self._update_identity()
        self.dispatcher.on_notification(notification, self)

    def _update_identity(self) -> None:
        newest: RequestIdentity | None = getattr(self._connection.channel, "identity", None)
        self.identity = newest or self._opened_by

    def on_close(self, reason: Exception | None) -> None:
        """End the session."""
        self.dispatcher.close()
        if self._initialized_at is not None and self.caller is not None:
            self.dispatcher.service.session_ended(
                self.caller, self.network, self.loop.time() - self._initialized_at
            )
            self._initialized_at = None

    # for the dispatcher

    def initialize(self, request: Request) -> bytes:
        """Open the connection's only session."""
        if self.caller is not None:
            raise InvalidRequest("This connection is already initialized")
        caller, reply, self.admission = self.dispatcher.initialize(request, self.identity)
        caller.session_id = urandom(8).hex()
        self.caller = caller
        self._initialized_at = self.loop.time()
        self.initialized = asyncio.Event()
        return reply

    def on_refused(self) -> None:
        """Take back the session that `initialize` opened, because its check has failed. The client
        may try again."""
        self.caller = self._initialized_at = self.initialized = None
        self._is_ready = False

    def missing_revision(self, method: str) -> ProtocolError:
        """Return the error for a request that precedes `initialize` and names no version."""
        return stateless.missing_version(method)

    def on_progress(self, params: ProgressParams) -> None:
        """Pass on the progress of a request that was sent to the client."""
        self._connection.on_progress(params)

    def on_roots_changed(self) -> None:
        """Discard the cached roots of the client."""
        if self.caller is not None:
            self.caller.invalidate_roots()
            self.dispatcher.service.roots_changed(self.caller)

    def on_initialized(self) -> None:
        """Allow requests and notifications to be sent."""
        self._is_ready = self.caller is not None
        if self.initialized is not None:
            self.initialized.set()

    def on_exit(self) -> None:
        """End the session, as the draft dialect's `exit` requests."""
        self._connection.cancel_calls()
        self._connection.disconnect()

    # for handlers

    def notify(self, call: Call, method: str, params: Any) -> None:
        """Send a notification that belongs to a call, unless the call has finished."""
        self._send(self.dispatcher.encode_call_notification(call, method, params))

    async def ask(
        self, call: Call, method: Method, params: Any, on_progress: OnProgress | None
    ) -> Any:
        """Send a request to the client on behalf of a handshake-era call."""
        try:
            return await self._connection.request(
                call.caller.revision, method, params, on_progress=on_progress
            )
        except PeerError as refusal:
            raise ClientRefused(method.name, refusal.code, refusal.message, refusal.data) from None
        except ConnectionClosed:
            raise ToolError(f"The client disconnected before it answered {method.name}") from None

    def close_stream(self, call: Call) -> None:
        """Do nothing, because the channel is the only stream."""

    async def ping(self, timeout: float) -> None:
        """Ping the client if it has a session whose revision supports pings. Without a session, a
        server may not send requests."""
        if self.caller is not None and self._is_ready and self.caller.revision.pings:
            await self._connection.request(
                self.caller.revision, METHODS["ping"], None, timeout=timeout
            )

    async def drain(self) -> None:
        """Wait until the channel's queue has room."""
        await self._connection.channel.drain()

    def _notify_caller(self, method: str, params: Params) -> None:
        caller = self.caller
        if (
            caller is not None
            and self._is_ready
            and self.dispatcher.is_subscribed(caller, self._opened_by.principal, method, params)
        ):
            self._send(self.dispatcher.encode_notification(caller.revision, method, params))

    def _send(self, data: bytes | None) -> None:
        """Send a notification. A client that never reads would exhaust memory, so it is
        disconnected when too many bytes are buffered (`Limits.events`)."""
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
                "Closing the connection: the client is not reading (%d bytes buffered)",
                self._unread_bytes,
            )
            self._connection.disconnect()
