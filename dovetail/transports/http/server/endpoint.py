"""The MCP endpoint, as plain ASGI: one URL, every era.

    POST    a request (or a notification): judged by the ladder of `policy.py`, answered by the desk
    GET     handshake era: the stream for what belongs to no request, the rest of a broken stream,
            or a long poll
    DELETE  handshake era: the end of a session

The head of a request is judged before its body is read, and its params are decoded once. A call
runs in a task of its own; most are done one turn of the loop later and go out as one JSON body,
without a queue, a timer or a second task. Only for those that are not is a watcher started that
notices when the client goes away. In the stateless era that cancels the call; in the handshake era
it does not, and the client may come back for the rest (`event_store.py`).
"""

import asyncio
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ....errors import (
    Forbidden,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    Overloaded,
    ProtocolError,
)
from ....jsonrpc.codec import Malformed, decode, encode
from ....jsonrpc.messages import Batch, ErrorResponse, Message, Notification, Request, Response
from ....limits import Limits
from ....ports import Bus, Call, HttpResponse, RequestIdentity
from ....protocol.base import PROTOCOL_VERSION, Params
from ....protocol.lifecycle import ClientCapabilities
from ....protocol.methods import METHODS, Method
from ....revisions import HEADERLESS, Revision
from ....revisions import decode as decode_params
from .. import headers as names
from . import policy
from .asgi import (
    ClientGone,
    Headers,
    Patience,
    Receive,
    Refused,
    Scope,
    Send,
    begin_stream,
    cors,
    give,
    gone,
    preflight,
    pump,
    read_body,
    refused,
    reply,
)
from .event_store import Events
from .get_streams import Standing
from .policy import Head, Policy, Reject
from .post_response import Turn
from .sessions import Session, Sessions

if TYPE_CHECKING:
    from ....connection.dispatcher import Dispatcher


LISTEN = "subscriptions/listen"
SUBSCRIBING = ("resources/subscribe", "resources/unsubscribe")
Outcome = Call | tuple[bytes, Headers]
"""What a request comes to: a call, or the reply to it at once and headers to go with that."""
BEGUN = "dovetail.begun"
"""Where an ASGI scope has what was begun before there was one."""


class Gate(Protocol):
    """Where a guard stands in the way."""

    @property
    def secrets(self) -> Collection[bytes]:
        """The headers that are its business only."""

    async def admit(
        self, scope: Scope, path: str, headers: Mapping[bytes, bytes]
    ) -> RequestIdentity | HttpResponse:
        """Who sent this request, or how it is refused."""

    async def wait_expired(self, visitor: RequestIdentity) -> None:
        """Wait until a visitor may not stay any longer."""

    def challenge(self, visitor: RequestIdentity, scopes: tuple[str, ...]) -> Headers:
        """The headers of a refusal for want of these scopes."""


class Begun:
    """A request that was begun before there was an ASGI scope for it."""

    __slots__ = ("came_to", "head", "turn")

    def __init__(self, head: Head, turn: Turn, came_to: Call | Exception) -> None:
        self.head, self.turn, self.came_to = head, turn, came_to

    @property
    def answer(self) -> bytes | None:
        """All of the response, head and body, where it is a plain one and there already."""
        turn, call = self.turn, self.came_to
        if (
            turn.open
            or turn.stream is not None
            or not turn.replies
            or not isinstance(call, Call)
            or call.error_code is not None
        ):
            return None
        body = turn.replies[0]
        return (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )


class Endpoint:
    """One endpoint, in one event loop."""

    def __init__(
        self,
        dispatcher: "Dispatcher",
        rules: Policy,
        limits: Limits,
        *,
        sessions: Sessions | None,
        standing: Standing,
        events: Events,
        bus: Bus,
        json_only: bool = False,
        gate: Gate | None = None,
    ) -> None:
        self._dispatcher, self._rules, self._limits, self._bus = dispatcher, rules, limits, bus
        self._sessions, self._standing, self._events = sessions, standing, events
        self._json_only, self._gate = json_only, gate
        self._loop = asyncio.get_running_loop()
        self.patience = Patience(limits)
        self._running: set[Call] = set()
        self._listening: set[Call] = set()
        """Calls that are event streams for changes, and no work."""
        self._served = {
            one.version: one for one in dispatcher.service.revisions if not one.dialects
        }
        self._verbs = {"POST": self._post, "GET": self._get, "DELETE": self._delete}
        self._closing = False
        bus.on("cancel", self._cancelled_elsewhere)
        bus.on("answer", self._answered_elsewhere)

    async def __call__(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        """Answer one HTTP request. The path is that below the mount point."""
        method, server = scope["method"], scope.get("server")
        name = server[0] if server else None
        if method == "OPTIONS" and self._rules.origins:
            await self._preflight(scope, name, send)
            return
        head = policy.head(self._rules, method, scope["headers"], name)
        if isinstance(head, Reject):
            version = dict(scope["headers"]).get(names.VERSION, b"").decode("latin-1").strip()
            await self._refuse(send, head, revision=self._served.get(version))
            return
        if self._gate is None:
            client = scope.get("client")
            visitor = RequestIdentity(client[0] if client else None)
        else:
            admitted = await self._gate.admit(scope, path, head.headers)
            if isinstance(admitted, HttpResponse):
                await give(send, admitted, cors(self._rules, head))
                return
            visitor = admitted
        begun: Begun | None = scope.get(BEGUN)
        try:
            if begun is not None:
                await self._go_on(begun, receive, send)
            else:
                await self._verbs[method](head, visitor, receive, send)
        except Refused as refusal:
            revision = refusal.revision or self._named(head)
            headers = cors(self._rules, head)
            if isinstance(refusal.reject.error, Forbidden):
                headers += self._challenge(visitor, refusal.reject.error.scopes)
            await self._refuse(send, refusal.reject, refusal.id, revision, headers)
        except ClientGone:
            pass

    def _challenge(self, visitor: RequestIdentity, scopes: tuple[str, ...]) -> Headers:
        return [] if self._gate is None else self._gate.challenge(visitor, scopes)

    async def _preflight(self, scope: Scope, name: str | None, send: Send) -> None:
        headers = [
            pair for pair in scope["headers"] if pair[0] != b"content-type"
        ]  # there is no content yet
        head = policy.head(
            self._rules, "POST", [*headers, (b"content-type", b"application/json")], name
        )
        if isinstance(head, Reject):
            await self._refuse(send, head)
        else:
            await reply(send, b"", 204, preflight(self._rules, head))

    async def _refuse(
        self,
        send: Send,
        reject: Reject,
        id: Any = None,
        revision: Revision | None = None,
        headers: Headers | None = None,
    ) -> None:
        body = self._dispatcher.encode_failure(id, reject.error, revision)
        await reply(send, body, reject.status, [*reject.headers, *(headers or ())])

    # POST

    async def _post(
        self, head: Head, visitor: RequestIdentity, receive: Receive, send: Send
    ) -> None:
        session = await self._session(head, visitor)
        try:
            message = decode(await read_body(receive, self._limits, self.patience))
        except Malformed as malformed:
            error = malformed.failure.error
            raise refused(ProtocolError(error.code, error.message), malformed.failure.id) from None
        if type(message) is Request:
            turn = self._turn(head, session, visitor)
            outcome = self._accept(message, head, session, turn)
            if isinstance(outcome, Call):
                await self._answer([outcome], turn, head, receive, send)
            else:
                as_event = turn.streams and not head.json
                await reply(
                    send, outcome[0], 200, outcome[1] + cors(self._rules, head), as_event=as_event
                )
        elif isinstance(message, Batch):
            await self._batch(message, head, session, visitor, receive, send)
        else:
            await self._take(message, head, session, visitor)
            await reply(send, b"", 202, cors(self._rules, head))

    def begin(
        self, headers: Headers, server: str | None, client: str | None, body: bytes
    ) -> Begun | None:
        """Begin the usual request, without ASGI and without waiting for anything; None, and nothing
        was done, for others. Where it does not end well or soon, the scope that is made for it has
        what was begun."""
        head = policy.head(self._rules, "POST", headers, server)
        if (
            isinstance(head, Reject)
            or not head.json
            or names.ORIGIN in head.headers
            or len(body) > self._limits.incoming
        ):
            return None
        session = None
        if head.session is not None and self._sessions is not None and not policy.era(head, None):
            session = self._sessions.find(head.session)
            if session is None or not session.met:
                return None
        try:
            message = decode(body)
        except Malformed:
            return None
        if type(message) is not Request or message.method in ("initialize", "ping"):
            return None
        turn = self._turn(head, session, RequestIdentity(client))
        try:
            call = self._accept(message, head, session, turn)
        except Exception as trouble:
            return Begun(head, turn, trouble)
        assert isinstance(call, Call)
        self._dispatcher.start(call, self._run(call, turn))
        return Begun(head, turn, call)

    async def _go_on(self, begun: Begun, receive: Receive, send: Send) -> None:
        if isinstance(begun.came_to, Exception):
            raise begun.came_to
        await self._see_through([begun.came_to], begun.turn, begun.head, receive, send)

    async def _session(self, head: Head, visitor: RequestIdentity) -> Session | None:
        if head.session is None or self._sessions is None or policy.era(head, None):
            return None
        session = self._sessions.find(head.session, visitor.principal)
        if session is None or not (session.met or await self._sessions.meet(session)):
            text = (
                "This session has ended, or was never opened here: send `initialize` "
                "again, without Mcp-Session-Id"
            )
            raise Refused(Reject(404, InvalidRequest(text)))
        return session

    def _turn(
        self, head: Head, session: Session | None, visitor: RequestIdentity, *, silent: bool = False
    ) -> Turn:
        streams, events = (
            head.streams and not self._json_only and not silent,
            None if session is None else self._events,
        )
        secrets = () if self._gate is None else self._gate.secrets
        return Turn(
            self._loop, self._dispatcher, head.headers, streams, session, events, visitor, secrets
        )

    def _accept(self, request: Request, head: Head, session: Session | None, turn: Turn) -> Outcome:
        """Find out what is asked, in which revision and by whom; Refused where it is not to be
        had."""
        name = request.method
        caller = None if session is None else session.caller
        spoken = None if caller is None else caller.revision
        named = spoken or self._named(head)
        row = self._dispatcher.find_method(name, named)
        try:
            # A greeting is read by whoever welcomes it: it may be in another dialect.
            params = _params(spoken, None if name == "initialize" else row, request)
            reject = policy.body(self._rules, head, name, params, "" if row is None else row.named)
            if reject is not None:
                raise Refused(reject, request.id, spoken)
            stateless = policy.era(head, params.meta)
            if stateless:
                caller = self._dispatcher.stateless_caller(params.meta)
                spoken = caller.revision
            if row is None or row.result is None or row.sender == "server":
                raise MethodNotFound(f"There is no method {name!r} here")
            if row.name == "initialize" and (spoken is None or not spoken.stateless):
                return self._welcome(request, turn)
            if caller is None:
                caller = self._dispatcher.session_caller(
                    self._spoken(head), None, ClientCapabilities()
                )
            spoken = caller.revision
            if spoken is not named and self._dispatcher.find_method(name, spoken) is not row:
                raise MethodNotFound(f"There is no method {name!r} in revision {spoken.version}")
            if row.name == "ping":
                return encode(Response(request.id, {})), []
            self._check(row, request, session, turn)
            caller.principal, caller.address = turn.identity.principal, turn.identity.address
            if stateless and row.name == "tools/call":
                self._check_mirrors(request, params, head)
            call = self._dispatcher.call(request.id, row, params, caller, turn)
            if row.name == LISTEN:
                self._standing.enter(None)
        except ProtocolError as error:
            raise refused(error, request.id, spoken or named) from None
        except Refused as refusal:
            raise Refused(refusal.reject, request.id, refusal.revision or spoken) from None
        if session is not None:
            session.begin(call)
        (self._listening if row.name == LISTEN else self._running).add(call)
        turn.open += 1
        return call

    def _welcome(self, request: Request, turn: Turn) -> Outcome:
        if turn.batch:
            raise InvalidRequest("initialize must not be part of a batch")
        caller, data = self._dispatcher.initialize(
            request, turn.identity, tells=self._sessions is not None
        )
        if self._sessions is None:
            return data, []
        return data, [(b"mcp-session-id", self._sessions.mint(caller, caller.principal).encode())]

    def _spoken(self, head: Head) -> Revision:
        """The revision of a request that belongs to no session: its header tells, or else it is as
        old as such headers."""
        named = self._named(head)
        if (
            named is None
            and head.version is None
            and HEADERLESS in self._dispatcher.service.revisions
        ):
            return HEADERLESS
        if named is None:
            raise InvalidRequest(
                "MCP-Protocol-Version is missing: each request must name its revision"
            )
        return named

    def _named(self, head: Head) -> Revision | None:
        return None if head.version is None else self._served.get(head.version)

    def _check(self, row: Method, request: Request, session: Session | None, turn: Turn) -> None:
        """What is left to go wrong before a call begins."""
        if self._closing:
            raise Overloaded("This server is shutting down")
        if len(self._running) >= self._limits.calls and row.name != LISTEN:
            raise Overloaded(
                f"{len(self._running)} requests are being answered; the limit is "
                f"{self._limits.calls}"
            )
        if session is not None:
            if request.id in session.answering:
                raise InvalidRequest(f"Request id {request.id!r} is still in flight")
            if len(session.answering) >= self._limits.in_flight:
                raise Overloaded(
                    f"{len(session.answering)} requests are in flight; the limit is "
                    f"{self._limits.in_flight}"
                )
        if row.name in SUBSCRIBING and self._sessions is None:
            raise MethodNotFound(f"There is no {row.name} without sessions: nothing could be told")
        if row.name == LISTEN and not turn.streams:
            remedy = (
                "this server answers in JSON only"
                if self._json_only
                else "accept text/event-stream"
            )
            raise InvalidRequest(f"Changes are told on an event stream only: {remedy}")

    def _check_mirrors(self, request: Request, params: Any, head: Head) -> None:
        mirrors = self._dispatcher.service.header_params(params.name)
        reject = policy.mirrors(head, mirrors, params.arguments) if mirrors else None
        if reject is not None:
            raise Refused(reject, request.id)

    async def _answer(
        self, calls: list[Call], turn: Turn, head: Head, receive: Receive, send: Send
    ) -> None:
        if turn.streams and not head.json:
            stream = turn.begin()  # it takes nothing else
            if not calls:
                stream.finish()
        for call in calls:
            self._dispatcher.start(call, self._run(call, turn))
        try:
            if turn.open:
                await asyncio.sleep(0)  # most calls are done now
        except asyncio.CancelledError:
            self._left(calls, turn)
            raise
        await self._see_through(calls, turn, head, receive, send)

    async def _see_through(
        self, calls: list[Call], turn: Turn, head: Head, receive: Receive, send: Send
    ) -> None:
        if not turn.open and turn.stream is None:
            await self._send_replies(calls, turn, head, send)
            return
        watcher = self._loop.create_task(gone(receive))
        watcher.add_done_callback(lambda _: self._left(calls, turn))
        overdue = self._loop.call_later(self._limits.stream_after, turn.overdue)
        try:
            await turn.change()
            if not turn.gone and turn.stream is not None:
                await self._send_stream(calls, turn, head, send)
            elif not turn.gone:
                await self._send_replies(calls, turn, head, send)
        finally:
            overdue.cancel()
            # which also ends what nobody waits for, where the server gave up on us
            watcher.cancel()

    async def _run(self, call: Call, turn: Turn) -> None:
        data = await self._dispatcher.reply(call)
        call.finished = True
        self._running.discard(call)
        if call in self._listening:
            self._listening.discard(call)
            self._standing.leave(None)
        session = turn.session
        if session is not None and session.answering.get(call.id) is call:
            del session.answering[call.id]
            if self._sessions is not None and call.error_code is None:
                self._sessions.share(session, call)
        turn.finish(data)

    def _left(self, calls: list[Call], turn: Turn) -> None:
        """The client has gone. In the stateless era that is how it cancels."""
        turn.leave()
        for call in calls:
            if not call.finished and call.caller.revision.stateless:
                self._dispatcher.cancel(call)

    async def _send_replies(self, calls: list[Call], turn: Turn, head: Head, send: Send) -> None:
        headers = cors(self._rules, head)
        if (
            not turn.replies and turn.streams
        ):  # cancelled: there is nothing to say, but a request is due JSON or a stream
            await begin_stream(send, headers)
            await send({"type": "http.response.body", "body": b""})
        elif not turn.replies:
            await reply(send, b"", 202, headers)
        elif turn.batch:
            await reply(send, b"[" + b",".join(turn.replies) + b"]", 200, headers)
        else:
            failed, stateless = calls[0].error_code, calls[0].caller.revision.stateless
            status = 200 if failed is None else policy.status(failed, stateless, refused=False)
            if status == 403:
                headers += self._challenge(turn.identity, calls[0].missing_scopes)
            await reply(send, turn.replies[0], status, headers)

    async def _send_stream(self, calls: list[Call], turn: Turn, head: Head, send: Send) -> None:
        assert turn.stream is not None
        await begin_stream(send, cors(self._rules, head))
        staying = (
            None
            if self._gate is None
            else self._loop.create_task(self._stay(self._gate, calls, turn))
        )
        try:
            await pump(
                turn.stream,
                0,
                send,
                self._limits,
                turn.stops,
                ids=turn.resumable,
                prime=turn.primes,
            )
        finally:
            if staying is not None:
                staying.cancel()

    async def _stay(self, gate: Gate, calls: list[Call], turn: Turn) -> None:
        """Who may not stay hears of no more changes, and comes back for what else there is with
        something better."""
        await gate.wait_expired(turn.identity)
        for call in calls:
            self._dispatcher.end_subscription(call)
        turn.close_stream(calls[-1])

    # batches, notifications, answers

    async def _batch(
        self,
        batch: Batch,
        head: Head,
        session: Session | None,
        visitor: RequestIdentity,
        receive: Receive,
        send: Send,
    ) -> None:
        try:
            revision = self._spoken(head) if session is None else session.caller.revision
            if not revision.batching:
                raise InvalidRequest(
                    f"There are no JSON-RPC batches in revision {revision.version}"
                )
        except InvalidRequest as error:
            raise refused(error) from None
        turn = self._turn(head, session, visitor)
        turn.batch = True
        turn.replies = [encode(failure) for failure in batch.refused]
        calls: list[Call] = []
        asked = any(type(message) is Request for message in batch.messages)
        for message in batch.messages:
            try:
                if type(message) is not Request:
                    await self._take(message, head, session, visitor)
                    continue
                outcome = self._accept(message, head, session, turn)
            except Refused as refusal:
                if not asked:
                    raise  # there is no reply to put it in
                turn.replies.append(
                    self._dispatcher.encode_failure(refusal.id, refusal.reject.error, revision)
                )
                continue
            if isinstance(outcome, Call):
                calls.append(outcome)
            else:
                turn.replies.append(outcome[0])
        if calls or turn.replies:
            await self._answer(calls, turn, head, receive, send)
        else:
            await reply(send, b"", 202, cors(self._rules, head))

    async def _take(
        self, message: Message, head: Head, session: Session | None, visitor: RequestIdentity
    ) -> None:
        """A notification, or the answer to a question, which another process may have asked. Where
        nobody did, the client hears so."""
        if isinstance(message, Notification):
            self._hear(message, head, session, visitor)
            return
        if (
            session is not None
            and isinstance(message, Response | ErrorResponse)
            and await self._settled(message, session)
        ):
            return
        hint = (
            "; if another process asked, they need a bus between them (`workers=`)"
            if self._bus.alone
            else ""
        )
        raise refused(InvalidRequest(f"Nobody here waits for this answer{hint}"))

    async def _settled(self, message: Response | ErrorResponse, session: Session) -> bool:
        return session.answered(message) or bool(
            await self._bus.ask("answer", (session.key, encode(message)))
        )

    def _answered_elsewhere(self, payload: Any) -> bool | None:
        session = self._sessions.by_key(payload[0]) if self._sessions is not None else None
        message = decode(payload[1])
        return (
            session is not None
            and isinstance(message, Response | ErrorResponse)
            and session.answered(message)
        ) or None

    def _hear(
        self, message: Notification, head: Head, session: Session | None, visitor: RequestIdentity
    ) -> None:
        """A notification."""
        revision = None if session is None else session.caller.revision
        row = self._dispatcher.find_method(message.method, revision)
        try:
            params = _params(revision, row, message)
        except ProtocolError as error:
            raise Refused(
                Reject(400, error), None, revision
            ) from None  # no reply says what is wrong: the status must
        reject = policy.body(self._rules, head, message.method, params, request=False)
        if reject is not None:
            raise Refused(reject)
        name = None if session is None or row is None else row.name
        if session is not None and name == "notifications/cancelled":
            call = session.answering.get(params.request_id)
            if call is not None:
                self._dispatcher.cancel(call)
            else:
                self._bus.publish("cancel", (session.key, params.request_id))
        elif (
            session is not None
            and self._sessions is not None
            and name == "notifications/roots/list_changed"
        ):
            self._sessions.roots_changed(session)
        elif session is not None and name == "exit" and name in session.caller.revision.methods:
            self._end(session)
        elif row is not None and METHODS.get(row.name) is not row:
            self._notice(row, params, head, session, visitor)

    def _notice(
        self,
        row: Method,
        params: Any,
        head: Head,
        session: Session | None,
        visitor: RequestIdentity,
    ) -> None:
        """What only an extension may want to hear, from whoever says who they are."""
        if session is None and PROTOCOL_VERSION not in (params.meta or {}):
            return
        try:
            caller = (
                self._dispatcher.stateless_caller(params.meta)
                if session is None
                else session.caller
            )
            caller.principal, caller.address = visitor.principal, visitor.address
            turn = self._turn(head, session, visitor, silent=True)
            self._dispatcher.handle_notification(row, params, caller, turn, self._limits.calls)
        except ProtocolError as error:
            raise Refused(
                policy.refusal(error, stateless=True)
            ) from None  # no reply says it: the status must

    def _cancelled_elsewhere(self, payload: Any) -> None:
        session = self._sessions.by_key(payload[0]) if self._sessions is not None else None
        call = session.answering.get(payload[1]) if session is not None else None
        if call is not None:
            self._dispatcher.cancel(call)

    # GET and DELETE

    async def _get(
        self, head: Head, visitor: RequestIdentity, receive: Receive, send: Send
    ) -> None:
        session, headers = await self._needed(head, visitor), cors(self._rules, head)
        session.caller.principal = visitor.principal
        if head.streams:
            outstayed = None if self._gate is None else partial(self._gate.wait_expired, visitor)
            await self._standing.get(session, head, headers, receive, send, outstayed)
        else:
            await self._standing.poll(session, headers, receive, send)

    async def _delete(
        self, head: Head, visitor: RequestIdentity, receive: Receive, send: Send
    ) -> None:
        self._end(await self._needed(head, visitor))
        await reply(send, b"", 204, cors(self._rules, head))

    def _end(self, session: Session) -> None:
        assert self._sessions is not None
        self._sessions.end(session)

    async def _needed(self, head: Head, visitor: RequestIdentity) -> Session:
        if policy.era(head, None):
            raise Refused(
                Reject(
                    405,
                    InvalidRequest("There are no sessions in this revision"),
                    ((b"allow", b"POST"),),
                )
            )
        reject = policy.bare(self._rules, head)
        if reject is not None:
            raise Refused(reject)
        session = await self._session(head, visitor)
        assert session is not None
        return session

    # the end

    async def close(self, grace: float) -> None:
        """End every stream, then give the calls that are running some time, and cancel the rest."""
        self._closing = True
        self._standing.close()
        calls = self._running | self._listening
        tasks = [call.task for call in calls if call.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for call in (self._running | self._listening) & calls:
            self._dispatcher.abort(
                call, Overloaded(f"{call.name} was cut off: the server is shutting down")
            )


def _params(revision: Revision | None, row: Method | None, message: Request | Notification) -> Any:
    try:
        if row is None:
            return decode_params(message.params, Params)
        return (
            revision.lift_params(row, message.params)
            if revision is not None
            else decode_params(message.params, row.params)
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams(f"{message.method}: {error}") from None
