"""The MCP endpoint: a plain ASGI application that serves every era at one URL.

    POST    a request (or a notification): checked by `policy.py` and `message_checks.py`,
            answered by the dispatcher
    GET     handshake era: a stream for other messages, the rest of a broken stream,
            or a long poll
    DELETE  handshake era: ends a session

The head of a request is checked before its body is read, and its params are decoded once. Each call
runs in its own task. Most calls finish within one loop iteration and are answered with one JSON
body, without a queue, a timer or a second task. For other calls, a watcher task notices when the
client disconnects. In the stateless era, a disconnection cancels the call. In the handshake era,
the call continues and the client may resume the stream (`event_store.py`).
"""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ....errors import (
    BackendAway,
    Forbidden,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    Overloaded,
    ProtocolError,
    TooLarge,
)
from ....jsonrpc.messages import (
    Batch,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    decode,
    encode,
)
from ....limits import Limits
from ....ports import Bus, Call, Caller, HttpResponse, RequestIdentity
from ....protocol.methods import Method
from ....revisions import HEADERLESS, Revision
from .. import headers as names
from .asgi import (
    BodyTimeouts,
    ClientGone,
    Headers,
    Receive,
    RequestRefused,
    Scope,
    Send,
    begin_stream,
    cors,
    preflight,
    read_body,
    refuse,
    send_body,
    send_response,
    send_stream,
    wait_disconnected,
)
from .event_store import EventStore, EventStream
from .get_streams import GetStreams
from .message_checks import (
    check_bare,
    check_header_params,
    is_stateless,
    rejection_for,
    status_for,
)
from .policy import Policy, Rejection, RequestHead, check_head
from .post_response import PostResponse
from .sessions import HttpSession, SessionTable

if TYPE_CHECKING:
    from ....connection.dispatcher import Dispatcher
    from ....serve.auth_gate import AuthGate


LISTEN = "subscriptions/listen"
SUBSCRIBING = ("resources/subscribe", "resources/unsubscribe")
ABORT_SECONDS = 0.5
"""How long a shutdown waits until aborted calls have answered."""
EARLY_REQUEST = "dovetail.early"
"""The ASGI scope key of a request that was started before its scope was created."""


class EarlyRequest(Struct, eq=False):
    """A request that was started before its ASGI scope was created."""

    post: PostResponse
    outcome: Call | Exception
    started: float = 0.0
    """When the call was started, by the clock of the event loop."""

    @property
    def is_running(self) -> bool:
        """Whether the call has neither a result nor a stream yet."""
        return bool(self.post.open) and self.post.stream is None and not self.post.gone

    @property
    def answer(self) -> bytes | None:
        """The whole response, head and body, if the call has already succeeded without a stream."""
        post, call = self.post, self.outcome
        if (
            post.open
            or post.stream is not None
            or not post.replies
            or not isinstance(call, Call)
            or call.error_code is not None
        ):
            return None
        body = post.replies[0]
        return (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )


class Endpoint:
    """An endpoint in one event loop."""

    def __init__(
        self,
        dispatcher: "Dispatcher",
        rules: Policy,
        limits: Limits,
        *,
        sessions: SessionTable | None,
        get_streams: GetStreams,
        events: EventStore,
        bus: Bus,
        json_only: bool,
        gate: "AuthGate | None",
    ) -> None:
        self.dispatcher, self.rules, self._limits, self._bus = dispatcher, rules, limits, bus
        self.sessions, self.get_streams, self.events = sessions, get_streams, events
        self.json_only, self._gate = json_only, gate
        self.secret_headers: Collection[bytes] = () if gate is None else gate.secrets
        self.loop = asyncio.get_running_loop()
        self.body_timeouts = BodyTimeouts(limits)
        self._listening: set[Call] = set()
        """The `subscriptions/listen` calls, which do not count as running."""
        self.revisions = {
            one.version: one for one in dispatcher.service.revisions if not one.dialects
        }
        """The supported revisions, keyed by the value of the version header."""
        self.default_revision = HEADERLESS if HEADERLESS in dispatcher.service.revisions else None
        """The revision of a request that has neither a session nor a version header."""
        self._verbs = {"POST": self._post, "GET": self._get, "DELETE": self._delete}
        self._closing = False

    async def __call__(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        """Answer one HTTP request. `path` is relative to the mount point."""
        method, server = scope["method"], scope.get("server")
        name = server[0] if server else None
        if method == "OPTIONS" and self.rules.origins:
            await self._preflight(scope, name, send)
            return
        early: EarlyRequest | None = scope.get(EARLY_REQUEST)
        if early is not None:
            head, identity = early.post.head, early.post.identity
        else:
            checked = check_head(self.rules, method, scope["headers"], name)
            if isinstance(checked, Rejection):
                version = dict(scope["headers"]).get(names.VERSION, b"").decode("latin-1").strip()
                await self._refuse(send, checked, revision=self.revisions.get(version))
                return
            head, admitted = checked, await self._identify(scope, path, checked)
            if isinstance(admitted, HttpResponse):
                await send_response(send, admitted, cors(self.rules, head))
                return
            identity = admitted
        try:
            if early is None:
                await self._verbs[method](head, identity, receive, send)
            elif isinstance(early.outcome, Exception):
                raise early.outcome
            else:
                waited = self.loop.time() - early.started
                await self._await_calls([early.outcome], early.post, receive, send, waited)
        except RequestRefused as refusal:
            revision = refusal.revision or self.revisions.get(head.version or "")
            headers = cors(self.rules, head)
            if isinstance(refusal.reject.error, Forbidden):
                headers += self._challenge(identity, refusal.reject.error.scopes)
            await self._refuse(send, refusal.reject, refusal.id, revision, headers)
        except BackendAway as error:
            headers = cors(self.rules, head)
            revision = self.revisions.get(head.version or "")
            await self._refuse(send, rejection_for(error, False), None, revision, headers)
        except ClientGone:
            pass

    async def _identify(
        self, scope: Scope, path: str, head: RequestHead
    ) -> RequestIdentity | HttpResponse:
        """Return the sender of a request, or the response that refuses it."""
        if self._gate is not None:
            return await self._gate.admit(scope, path, head.headers)
        client, query = scope.get("client"), scope.get("query_string", b"")
        return RequestIdentity(client[0] if client else None, query=query)

    def _challenge(self, identity: RequestIdentity, scopes: tuple[str, ...]) -> Headers:
        return [] if self._gate is None else self._gate.challenge(identity, scopes)

    async def _preflight(self, scope: Scope, name: str | None, send: Send) -> None:
        # A preflight request has no content type, so add that of the actual request.
        headers = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
        head = check_head(
            self.rules, "POST", [*headers, (b"content-type", b"application/json")], name
        )
        if isinstance(head, Rejection):
            await self._refuse(send, head)
        else:
            await send_body(send, b"", 204, preflight(self.rules, head))

    async def _refuse(
        self,
        send: Send,
        reject: Rejection,
        id: Any = None,
        revision: Revision | None = None,
        headers: Headers | None = None,
    ) -> None:
        body = self.dispatcher.encoder.encode_failure(id, reject.error, revision)
        await send_body(send, body, reject.status, [*reject.headers, *(headers or ())])

    # POST

    async def _post(
        self, head: RequestHead, identity: RequestIdentity, receive: Receive, send: Send
    ) -> None:
        session = await self._session(head, identity)
        try:
            message = decode(await read_body(receive, self._limits, self.body_timeouts))
        except Malformed as malformed:
            error = malformed.failure.error
            raise refuse(ProtocolError(error.code, error.message), malformed.failure.id) from None
        post = PostResponse(self, head, session, identity)
        if type(message) is Request:
            outcome = self._accept(message, post)
            if isinstance(outcome, Call):
                await self._answer([outcome], post, receive, send)
            else:
                await self._await_admission(message, post)
                headers = cors(self.rules, head)
                if post.new_session_id is not None:
                    headers = [(b"mcp-session-id", post.new_session_id.encode()), *headers]
                as_event = post.streams and not head.json
                await send_body(send, outcome, 200, headers, as_event=as_event)
        elif isinstance(message, Batch):
            await self._batch(message, post, receive, send)
        else:
            await self._accept_other(message, post)
            await send_body(send, b"", 202, cors(self.rules, head))

    def begin(self, scope: Scope, path: str, body: bytes) -> EarlyRequest | None:
        """Start an ordinary request without a task and without waiting. For any other request, do
        nothing and return None. If the request fails or does not finish immediately, it is passed
        on in its ASGI scope."""
        server, client = scope["server"], scope["client"]
        head = check_head(self.rules, "POST", scope["headers"], server[0] if server else None)
        if (
            isinstance(head, Rejection)
            or not head.json
            or names.ORIGIN in head.headers
            or len(body) > self.rules.limit
        ):
            return None
        identity: RequestIdentity | None
        if self._gate is None:
            identity = RequestIdentity(client[0] if client else None)
        else:
            # 5 µs; a task for the guard and the rest of the ASGI way cost 36.
            scope = {**scope, "method": "POST", "path": path}
            identity = self._gate.admit_now(scope, path, head.headers)
            if identity is None:
                return None
        session = None
        if head.session is not None and self.sessions is not None:
            session = self.sessions.find(head.session, identity.principal)
            if session is None or not session.is_synced:
                return None
        try:
            message = decode(body)
        except Malformed:
            return None
        if type(message) is not Request or message.method in ("initialize", "ping"):
            return None
        post = PostResponse(self, head, session, identity)
        try:
            call = self._accept(message, post)
        except Exception as trouble:
            return EarlyRequest(post, trouble)
        assert isinstance(call, Call)
        self.dispatcher.start(call, self._reply)
        return EarlyRequest(post, call, self.loop.time())

    async def _session(self, head: RequestHead, identity: RequestIdentity) -> HttpSession | None:
        if head.session is None or self.sessions is None:
            return None
        session = self.sessions.find(head.session, identity.principal)
        if session is None or not (session.is_synced or await self.sessions.sync(session)):
            text = (
                "This session has ended or was never opened on this server. Send `initialize` "
                "again, without Mcp-Session-Id."
            )
            raise RequestRefused(Rejection(404, InvalidRequest(text)))
        return session

    def _accept(self, request: Request, post: PostResponse) -> Call | bytes:
        """Turn a request into a call, or return its response. A RequestRefused error contains the
        status."""
        try:
            outcome = self.dispatcher.accept(request, post)
            if isinstance(outcome, bytes):
                return outcome
            if outcome.method.name == LISTEN:
                self._enter_listening(outcome)
        except ProtocolError as error:
            raise refuse(error, request.id, post.revision) from None
        except RequestRefused as refusal:
            refusal.id, refusal.revision = request.id, refusal.revision or post.revision
            raise
        post.open += 1
        return outcome

    async def _await_admission(self, request: Request, post: PostResponse) -> None:
        """Wait for the check that has to pass before `initialize` is answered, if there is one."""
        if post.admission is not None:
            try:
                await post.admission()
            except ProtocolError as error:
                raise refuse(error, request.id, post.revision) from None

    def _enter_listening(self, call: Call) -> None:
        try:
            self.get_streams.enter(None)
        except RequestRefused:
            self.dispatcher.forget(call)
            raise
        self._listening.add(call)

    def check_call(self, post: PostResponse, method: Method, params: Any, caller: Caller) -> None:
        """Raise an error if the endpoint cannot accept a call."""
        if self._closing:
            raise Overloaded("This server is shutting down")
        calls = post.open_calls
        if calls is not None and len(calls) >= self._limits.in_flight:
            raise Overloaded(
                f"This session already has {len(calls)} requests in flight (Limits.in_flight). "
                "Try again later."
            )
        name = method.name
        running = len(self.dispatcher.running) - len(self._listening)
        if running >= self._limits.calls and name != LISTEN:
            raise Overloaded(
                f"The server is already handling {running} requests (Limits.calls). Try again "
                "later."
            )
        if name in SUBSCRIBING and self.sessions is None:
            raise MethodNotFound(
                f"{name} requires a session, but this server does not support sessions"
            )
        if name == LISTEN and not post.streams:
            remedy = (
                "this server is configured for JSON only"
                if self.json_only
                else "send Accept: text/event-stream"
            )
            raise InvalidRequest(f"{name} requires an event stream: {remedy}")
        if name == "tools/call" and caller.revision.stateless:
            mirrored = self.dispatcher.service.header_params(params.name)
            reject = (
                check_header_params(post.head, mirrored, params.arguments) if mirrored else None
            )
            if reject is not None:
                raise RequestRefused(reject)

    async def _answer(
        self, calls: list[Call], post: PostResponse, receive: Receive, send: Send
    ) -> None:
        if post.streams and not post.head.json:
            stream = post.begin()  # the client accepts nothing else
            if not calls:
                stream.finish()
        for call in calls:
            self.dispatcher.start(call, self._reply)
        try:
            if post.open:
                await asyncio.sleep(0)  # most calls finish during this
        except asyncio.CancelledError:
            self._on_disconnect(calls, post)
            raise
        await self._await_calls(calls, post, receive, send)

    async def _await_calls(
        self,
        calls: list[Call],
        post: PostResponse,
        receive: Receive,
        send: Send,
        waited: float = 0.0,
    ) -> None:
        if not post.open and post.stream is None:
            await self._send_replies(calls, post, send)
            return
        watcher = self.loop.create_task(wait_disconnected(receive))
        watcher.add_done_callback(lambda _: self._on_disconnect(calls, post))
        overdue = self.loop.call_later(self._limits.stream_after - waited, post.overdue)
        try:
            await post.change()
            if not post.gone and post.stream is not None:
                await self._send_stream(calls, post, post.stream, send)
            elif not post.gone:
                await self._send_replies(calls, post, send)
        finally:
            overdue.cancel()
            # This runs `_on_disconnect`, even if the ASGI server has cancelled this task.
            watcher.cancel()

    def _reply(self, call: Call | None, data: bytes | None) -> None:
        """Pass a call's result to its HTTP response."""
        assert call is not None
        post: PostResponse = call.connection
        if call in self._listening:
            self._listening.discard(call)
            self.get_streams.leave(None)
        if post.session is not None and self.sessions is not None and call.error_code is None:
            self.sessions.share(post.session, call)
        post.finish(data)

    def _on_disconnect(self, calls: list[Call], post: PostResponse) -> None:
        """Handle a client's disconnection, which cancels its calls in the stateless era."""
        post.on_disconnect()
        for call in calls:
            if not call.finished and call.caller.revision.stateless:
                self.dispatcher.cancel(call)

    async def _send_replies(self, calls: list[Call], post: PostResponse, send: Send) -> None:
        headers = cors(self.rules, post.head)
        if not post.replies and post.streams:
            # The call was cancelled. It has no result, but the response must be JSON or a stream.
            await begin_stream(send, headers)
            await send({"type": "http.response.body", "body": b""})
        elif not post.replies:
            await send_body(send, b"", 202, headers)
        elif post.batch:
            await send_body(send, b"[" + b",".join(post.replies) + b"]", 200, headers)
        else:
            call = calls[0]
            code, stateless = call.error_code, call.caller.revision.stateless
            status = 200 if code is None else status_for(code, stateless, refused=False)
            if call.refusal is not None:
                rejection = rejection_for(call.refusal, stateless)
                status, headers = rejection.status, [*rejection.headers, *headers]
            elif status == 403:
                headers += self._challenge(post.identity, call.missing_scopes)
            await send_body(send, post.replies[0], status, headers)

    async def _send_stream(
        self, calls: list[Call], post: PostResponse, stream: EventStream, send: Send
    ) -> None:
        await begin_stream(send, cors(self.rules, post.head))
        expiry = None if self._gate is None else self.loop.create_task(self._expire(calls, post))
        try:
            await send_stream(
                stream, 0, send, self._limits, post.stops, ids=post.resumable, prime=post.primes
            )
        finally:
            if expiry is not None:
                expiry.cancel()

    async def _expire(self, calls: list[Call], post: PostResponse) -> None:
        """End the subscriptions and close the connection when the client's access expires. The
        client resumes other streams with a new token."""
        assert self._gate is not None
        await self._gate.wait_expired(post.identity)
        for call in calls:
            self.dispatcher.subscriptions.end_stream(call)
        post.close_stream(calls[-1])

    # batches, notifications, responses

    async def _batch(self, batch: Batch, post: PostResponse, receive: Receive, send: Send) -> None:
        revision = post.header_revision if post.caller is None else post.caller.revision
        if revision is None:
            raise refuse(post.missing_revision("batch"))
        if not revision.batching:
            raise refuse(
                InvalidRequest(f"Revision {revision.version} does not support JSON-RPC batches")
            )
        post.batch = True
        post.replies = [encode(failure) for failure in batch.refused]
        calls: list[Call] = []
        has_requests = any(type(message) is Request for message in batch.messages)
        for message in batch.messages:
            try:
                if type(message) is not Request:
                    await self._accept_other(message, post)
                    continue
                outcome = self._accept(message, post)
            except RequestRefused as refusal:
                if not has_requests:
                    raise  # there is no response that could contain the refusal
                outcome = self.dispatcher.encoder.encode_failure(
                    refusal.id, refusal.reject.error, revision
                )
            if isinstance(outcome, Call):
                calls.append(outcome)
            else:
                post.replies.append(outcome)
        if calls or post.replies:
            await self._answer(calls, post, receive, send)
        else:
            await send_body(send, b"", 202, cors(self.rules, post.head))

    async def _accept_other(self, message: Message, post: PostResponse) -> None:
        """Accept a notification, or a response to a request from this process or another. Reject a
        response for which no process is waiting."""
        if isinstance(message, Notification):
            source = PostResponse(self, post.head, post.session, post.identity)
            source.streams = False  # a notification has no response that could become a stream
            try:
                self.dispatcher.on_notification(message, source)
            except InvalidParams as error:  # no response can report it, so the status does
                raise RequestRefused(Rejection(400, error), None, source.revision) from None
            except ProtocolError as error:
                raise RequestRefused(rejection_for(error, stateless=True)) from None
            return
        try:
            if (
                post.session is not None
                and self.sessions is not None
                and isinstance(message, Response | ErrorResponse)
                and await self.sessions.deliver_response(post.session, message)
            ):
                return
        except TooLarge as error:
            raise refuse(error) from None
        hint = (
            " If another process is waiting for it, use workers= or a shared bus."
            if self._bus.alone
            else ""
        )
        raise refuse(InvalidRequest(f"This server is not waiting for this response.{hint}"))

    # GET and DELETE

    async def _get(
        self, head: RequestHead, identity: RequestIdentity, receive: Receive, send: Send
    ) -> None:
        session, headers = await self._require_session(head, identity), cors(self.rules, head)
        if head.streams:
            expiry = None if self._gate is None else partial(self._gate.wait_expired, identity)
            await self.get_streams.get(
                session, identity.principal, head, headers, receive, send, expiry
            )
        else:
            await self.get_streams.poll(session, identity.principal, headers, receive, send)

    async def _delete(
        self, head: RequestHead, identity: RequestIdentity, receive: Receive, send: Send
    ) -> None:
        session = await self._require_session(head, identity)
        assert self.sessions is not None
        try:
            await self.sessions.end(session)
        except Overloaded as error:
            raise refuse(error) from None
        await send_body(send, b"", 204, cors(self.rules, head))

    async def _require_session(self, head: RequestHead, identity: RequestIdentity) -> HttpSession:
        if is_stateless(head, None):
            raise RequestRefused(
                Rejection(
                    405,
                    InvalidRequest("This revision has no sessions. Use POST."),
                    ((b"allow", b"POST"),),
                )
            )
        reject = check_bare(self.rules, head)
        if reject is not None:
            raise RequestRefused(reject)
        session = await self._session(head, identity)
        assert session is not None
        return session

    # the end

    async def close(self, grace: float) -> None:
        """End all streams, give running calls time to finish, and cancel the rest."""
        self._closing = True
        self.get_streams.close()
        calls = set(self.dispatcher.running)
        tasks = [call.task for call in calls if call.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for call in self.dispatcher.running & calls:
            self.dispatcher.abort(
                call, Overloaded(f"{call.name} was cancelled: the server is shutting down")
            )
        if aborted := [task for task in tasks if not task.done()]:
            await asyncio.wait(aborted, timeout=ABORT_SECONDS)
