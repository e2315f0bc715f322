"""The response to one POST.

The notifications and the result of a call are sent in the response to its POST. If the client
polls, it receives the notifications in a poll instead. Until something has been sent, the response
can be one JSON body. The response becomes an event stream when the first notification is sent, or
when the call has run for `Limits.stream_after` seconds. In the handshake era, the stream belongs to
the session and outlives its connection. In the stateless era, the stream ends when the connection
does, and cannot be resumed.
"""

import asyncio
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from ....errors import CannotAsk, InvalidRequest, ProtocolError
from ....jsonrpc.messages import ErrorResponse, Id, Request, Response
from ....limits import Limits
from ....ports import HTTP, Call, Caller, PendingAdmission, Redact, RequestIdentity
from ....protocol.lifecycle import CancelledParams, ProgressParams, with_progress_token
from ....protocol.methods import Method
from ....protocol.tasks import related_task_meta
from ..headers import PARAM
from .asgi import RequestRefused
from .event_store import EventStore, EventStream
from .message_checks import check_message
from .policy import RequestHead
from .sessions import HttpSession, OnProgress, OpenRequest

if TYPE_CHECKING:
    from .endpoint import Endpoint


class PostResponse:
    """The response to one POST, and the dispatcher's source of its messages."""

    network = HTTP

    __slots__ = (
        "_changed", "_dispatcher", "_endpoint", "_events", "_reader", "admission", "batch",
        "caller", "closing", "gone", "head", "header_revision", "identity", "loop",
        "new_session_id", "on_change", "open", "open_calls", "polls", "replies", "revision",
        "session", "stream", "streams",
    )  # fmt: skip

    def __init__(
        self,
        endpoint: "Endpoint",
        head: RequestHead,
        session: HttpSession | None,
        identity: RequestIdentity,
    ) -> None:
        self._endpoint, self._dispatcher = endpoint, endpoint.dispatcher
        self.loop = endpoint.loop
        self.head = head
        self.identity = identity
        self.polls = (
            endpoint.rules.poll
            and session is not None
            and endpoint.get_streams.replaces_stream(session, head)
        )
        """Whether the client polls for its calls' messages."""
        self.streams = head.streams and not endpoint.json_only and not self.polls
        """Whether the response may become an event stream."""
        self.session = session
        # Attributes, not properties: the dispatcher reads them several times for each request.
        self.caller: Caller | None = None
        self.open_calls: dict[Id, Call] | None = None
        self._events: EventStore | None = None
        if session is None:
            self.revision = endpoint.revisions.get(head.version or "")
            """The revision used to encode an error."""
            self.header_revision = (
                endpoint.default_revision if head.version is None else self.revision
            )
        else:
            self.caller, self.open_calls = session.caller, session.open_calls
            self.revision = self.header_revision = session.caller.revision
            self._events = endpoint.events
        self.admission: PendingAdmission | None = None
        """The check that has to pass before the reply to `initialize` is sent, if it takes time."""
        self.new_session_id: str | None = None
        """The id of the session that this POST opened."""
        self.stream: EventStream | None = None
        self.open = 0
        """The number of calls that have no result yet."""
        self.batch = False
        """Whether the results are sent together, as a batch."""
        self.replies: list[bytes] = []
        self.gone = False
        """Whether the client has disconnected."""
        self.closing = False
        """Whether to close the connection while the stream continues."""
        self.on_change: Callable[[], None] | None = None
        """Called when the response is complete or becomes a stream, before it has an ASGI scope."""
        self._changed: asyncio.Future[None] | None = None
        self._reader: asyncio.Future[None] | None = None

    # for the dispatcher

    @property
    def max_notifications(self) -> int:
        """The maximum number of handlers for extension notifications that run at the same time."""
        return self.limits.calls

    def check_headers(self, name: str, method: Method | None, params: Any, request: bool) -> None:
        """Raise an error if the headers do not match the message."""
        named = "" if method is None or not request else method.named
        rejected = check_message(
            self._endpoint.rules, self.head, name, params, named, request=request
        )
        if rejected is not None:
            raise RequestRefused(rejected)

    def check_call(self, method: Method, params: Any, caller: Caller) -> None:
        """Raise an error if the endpoint cannot accept a call."""
        self._endpoint.check_call(self, method, params, caller)

    def initialize(self, request: Request) -> bytes:
        """Open a session if the endpoint supports sessions."""
        if self.batch:
            raise InvalidRequest("initialize must not be part of a batch")
        sessions = self._endpoint.sessions
        caller, reply, self.admission = self._dispatcher.initialize(
            request, self.identity, can_notify=sessions is not None
        )
        if sessions is None and caller.revision.dialects:
            raise InvalidRequest(
                "The dialect of this request (`mcpVersion`) requires a session, but this server "
                "does not support sessions (sessions=False). Send `protocolVersion`, "
                "`capabilities` and `clientInfo`, as the published revisions do, or use another "
                "transport."
            )
        if sessions is not None:
            self.new_session_id = sessions.mint(caller, caller.principal)
        return reply

    def missing_revision(self, method: str) -> ProtocolError:
        """Return the error for a request without a revision."""
        return InvalidRequest(
            "MCP-Protocol-Version is missing: each request must name its revision"
        )

    def cancel_request(self, id: Id | None, reason: str | None) -> None:
        """Cancel a call in this session, regardless of which process runs it."""
        if self.session is not None and self._endpoint.sessions is not None:
            self._endpoint.sessions.cancel_request(self.session, id)

    def on_progress(self, params: ProgressParams) -> None:
        """Pass progress on to the process that sent the request to the client."""
        if self.session is not None and self._endpoint.sessions is not None:
            self._endpoint.sessions.deliver_progress(self.session, params)

    def on_roots_changed(self) -> None:
        """Drop the cached roots of the client in every process."""
        if self.session is not None and self._endpoint.sessions is not None:
            self._endpoint.sessions.roots_changed(self.session)

    def on_initialized(self) -> None:
        """Start sending requests. A session receives notifications after it opens a stream."""
        if self.session is not None and self._endpoint.sessions is not None:
            self._endpoint.sessions.on_initialized(self.session)

    @property
    def initialized(self) -> asyncio.Event | None:
        """An event that is set when the server may send requests, or None if this process did not
        open the session."""
        if self.session is None or self._endpoint.sessions is None:
            return None
        return self._endpoint.sessions.uninitialized.get(self.session.key)

    def on_exit(self) -> None:
        """End the session, as the draft dialect's `exit` message requests."""
        if self.session is not None and self._endpoint.sessions is not None:
            self._endpoint.sessions.end_soon(self.session)

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of the request, without its credentials."""
        secret = self._endpoint.secret_headers
        seen = ((name, value) for name, value in self.head.headers.items() if name not in secret)
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in seen}

    @property
    def header_params(self) -> Mapping[str, str]:
        """The `Mcp-Param-*` headers of the request, without its credentials."""
        names = [name for name in self.head.headers if name.startswith(PARAM)]
        if not names:
            return {}
        headers = self.headers
        shown = [name.decode("latin-1") for name in names]
        return {name: headers[name] for name in shown if name in headers}

    @property
    def resumable(self) -> bool:
        """Whether the client can resume the stream."""
        return self._events is not None

    @property
    def primes(self) -> bool:
        """Whether the client understands an empty first event."""
        return self.session is not None and self.resumable and self.session.caller.revision.priming

    # for the call

    def notify(self, call: Call, method: str, params: Any) -> None:
        """Send a notification that belongs to the call, if the client accepts a stream or polls."""
        if self._can_send:
            data = self._dispatcher.encode_call_notification(call, method, params)
            if data is not None:
                self._send(data)
                if self.stream is not None and self.stream.has_missed and not self.resumable:
                    # The client has missed a message, and cannot resume the stream.
                    self._dispatcher.cancel(call)

    @property
    def _can_send(self) -> bool:
        return self.polls or (self.streams and (self.stream is not None or not self.gone))

    def _send(self, data: bytes) -> None:
        """Send a call's message, on the response's stream or in a poll."""
        if self.polls and self.session is not None:
            self._endpoint.get_streams.send_by_poll(self.session, data)
        else:
            self.begin().push(data)
            self._wake()

    @property
    def limits(self) -> Limits:
        """The server's limits."""
        return self._dispatcher.service.limits

    @property
    def redact(self) -> Redact | None:
        """The server's redaction rule."""
        return self._dispatcher.service.redact

    async def ask(
        self, call: Call, method: Method, params: Any, on_progress: OnProgress | None
    ) -> Any:
        """Send a request to the client on the call's stream, or in a poll. The response arrives in
        another POST, which any process may receive."""
        session = self.session
        if session is None or not self._can_send:
            raise CannotAsk(
                f"{method.name} requires a session and a client that accepts an event stream"
            )
        id = f"{session.key[:8]}-{token_hex(8)}"
        answer: asyncio.Future[Response | ErrorResponse] = self.loop.create_future()
        session.open_requests[id] = OpenRequest(answer, on_progress)
        if on_progress is not None:
            params = with_progress_token(params, id)
        try:
            self._send(self._dispatcher.encoder.encode_request(id, call.revision, method, params))
            return self._dispatcher.read_answer(method, await answer)
        except asyncio.CancelledError:
            end = CancelledParams(
                request_id=id,
                reason="The server no longer needs an answer",
                meta=related_task_meta(params),
            )
            withdrawn = self._dispatcher.encode_notification(
                call.caller.revision, "notifications/cancelled", end
            )
            if withdrawn is not None and (self.polls or self.stream is not None):
                self._send(withdrawn)
            raise
        finally:
            session.end_request(id)

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        if self.stream is not None:
            await self.stream.drain()

    def close_stream(self, call: Call) -> None:
        """Close the connection if the client can resume the stream."""
        if not self.streams or not self.resumable or call.finished:
            return
        if not self.primes and (self.stream is None or self.stream.count == 0):
            return  # the client has no event id yet from which it could resume
        if not self.gone:
            self.closing = True
            self.begin().wake()
            self._wake()
        elif self.stream is not None:
            self.stream.release()  # the client has already resumed

    # for the endpoint

    def begin(self) -> EventStream:
        """Turn the response into a stream."""
        if self.stream is None:
            if self._events is not None and self.session is not None:
                self.stream = self._events.open(self.session.key)
                self.stream.on_drop = self._dropped
            else:
                self.stream = EventStream("", self.limits.events, "")
            # Senders have to wait until the connection reads the stream.
            self._reader = self.stream.attach(0)
            for data in self.replies:
                self.stream.push(data)
        return self.stream

    def overdue(self) -> None:
        """Turn a slow response into a stream if the client accepts streams. If the last result has
        just arrived, the response is about to be sent."""
        if self.open and self.streams and not self.gone:
            self.begin()
            self._wake()

    def on_disconnect(self) -> None:
        """Record that the client has disconnected."""
        self.gone = True
        if self.stream is not None:
            self.stream.wake()
            self.stream.detach(self._reader)
        self._wake()

    def _dropped(self) -> None:
        """Cancel the calls that are waiting for an answer on this stream, because the client has
        not resumed it."""
        for call in list(self.session.open_calls.values()) if self.session is not None else ():
            if call.connection is self and call.open_questions:
                self._dispatcher.cancel(call)

    def stops(self) -> bool:
        """Return whether this connection has nothing more to send."""
        return self.gone or self.closing

    def finish(self, data: bytes | None) -> None:
        """Record that a call has its result or was cancelled."""
        self.open -= 1
        if data is not None:
            if self.stream is None:
                self.replies.append(data)
            else:
                self.stream.push(data)
        if self.stream is not None and self.open == 0:
            self.stream.finish()
        self._wake()

    async def change(self) -> None:
        """Wait until the response is complete or has become a stream."""
        if self.open and self.stream is None and not self.gone:
            self._changed = self.loop.create_future()
            await self._changed

    def _wake(self) -> None:
        if self.on_change is not None:
            self.on_change()
        elif self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
