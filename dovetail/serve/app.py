"""The ASGI application of a server: every era, and where switched on the old SSE pair and WebSocket, side by side.

It needs no ASGI lifespan: the first request starts it, a task of its own holds the server's lifespan, and the end of the
event loop ends it. Where the ASGI server does have a lifespan, it starts and ends with that. Everything bound to a loop is
in `Here`, one per event loop, so one application may run on several.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from msgspec import MsgspecError, Struct, json
from msgspec.structs import fields, replace

from ..connection.bus import Alone
from ..connection.desk import ServerDesk
from ..connection.outgoing import Outgoing
from ..errors import ConfigError, Forbidden, InternalError, InvalidRequest, Overloaded
from ..jsonrpc.codec import encode
from ..limits import KIB
from ..ports import PARTED, Bus, Channel, Guard, HttpResponse, Service, Visitor
from ..protocol.base import Params
from ..revisions import decode
from ..sealing import KeyRing, key_ring
from ..transports.http import policy
from ..transports.http.policy import Head, Policy, Reject, cors
from ..transports.http.replies import ClientGone, Headers, Receive, Refused, Scope, Send, give, read_body, reply
from ..transports.http.server import Begun, Endpoint
from ..transports.http.sessions import Sessions
from ..transports.http.standing import Standing
from ..transports.http.streams import Events, MemoryEvents
from .conversation import Lifespan, Note, serve
from .gate import Gate, raw
from .life import Life
from .metrics import CONTENT_TYPE, Exposition, Metrics

if TYPE_CHECKING:
    from ..transports.http.sse import Pairs

log = logging.getLogger("dovetail.http")

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
Address = tuple[str, int | None] | None

BODILESS = ("GET", "HEAD", "OPTIONS")
PAGE = 64 * KIB
"""The longest body that is read for a page of the guard's."""


class Options(Struct, frozen=True, kw_only=True):
    """How a server is served over HTTP."""

    path: str = ""
    """Where the endpoint is, below the place that the application is mounted at."""
    sse: str | bool = False
    """Whether (or where) the old SSE pair is served: True is `/sse`, with `/message` beside it."""
    websocket: str | bool = False
    """Whether (or where) WebSocket is served: True is `/ws`."""
    health: str | None = "/health"
    """Where a balancer may ask whether the server is alive."""
    metrics: str | None = None
    """Where Prometheus may ask what the server has done; None does not offer it."""
    metrics_auth: bool | str = True
    """Who may ask that, where there is a guard: whoever it lets in, only those with this scope, or (False) anybody."""
    hosts: Sequence[str] = ()
    """Names that the server goes by, besides its address and localhost; "*" takes any."""
    origins: Sequence[str] = ()
    """Web pages of other origins that may call it, and read the answers (CORS); "*" takes any."""
    public_url: str | None = None
    """The URL that the world knows it by: its name and origin are allowed."""
    sessions: bool = True
    """Whether clients of the handshake era get a session; without, they get neither GET streams nor resumption."""
    json_only: bool = False
    """Whether a POST is always answered by one JSON body. What a call tells on its way is then left out."""
    long_polling: float | None = None
    """How many seconds a GET that accepts only JSON waits for messages; None does not offer it."""
    keys: Sequence[str | bytes] | None = None
    """What session ids are sealed with, newest first; else `DOVETAIL_KEYS`, else what the processes of a program share."""
    events: Callable[[], Events] | None = None
    """Makes the store of event streams; by default a bounded one in memory."""
    bus: Callable[[], Awaitable[Bus]] | None = None
    """Joins the processes of one server; `run(workers=…)` brings one."""
    bound: Sequence[str] = ()

    @classmethod
    def of(cls, **options: Any) -> "Options":
        """The options by name; ConfigError for one that there is not, or that makes no sense."""
        known = {field.name for field in fields(cls)}
        unknown = [name for name in options if name not in known]
        if unknown:
            raise ConfigError(f"There is no option {', '.join(unknown)} for HTTP; there are {', '.join(sorted(known))}")
        for name in ("hosts", "origins"):
            if isinstance(options.get(name), str):
                options[name] = [options[name]]
        for name in ("path", "health", "metrics", "sse", "websocket"):
            value = options.get(name)
            if isinstance(value, str) and value and not value.startswith("/"):
                raise ConfigError(f"{name}={value!r}: a path begins with a slash")
        if options.get("metrics") and options["metrics"] in (options.get("path"), options.get("sse"), options.get("health")):
            raise ConfigError(f"metrics={options['metrics']!r}: there is something else at that path already")
        return cls(**options)

    def rules(self, service: Service) -> Policy:
        """The ladder's facts."""
        hosts, origins = list(self.hosts), list(self.origins)
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ConfigError(f"public_url={self.public_url!r} is no URL such as 'https://mcp.example.com'")
            hosts.append(f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname)
            if origins != ["*"]:
                origins.append(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
        return Policy(
            service.revisions,
            limits=service.limits,
            hosts=hosts,
            origins=origins,
            bound=self.bound,
            sessions=self.sessions,
            poll=self.long_polling is not None,
        )


class Here:
    """The application in one event loop."""

    def __init__(
        self,
        service: Service,
        options: Options,
        rules: Policy,
        ring: KeyRing,
        events: Events,
        bus: Bus,
        state: Any,
        gate: Gate | None,
        metrics: Metrics | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._service, self._bus, self._state, self._gate = service, bus, state, gate
        limits = service.limits
        self._ring = lambda: ring
        self.desk = ServerDesk(service, state, Outgoing(limits.outgoing, service.redact), self._tell, self._ring)
        self.standing = Standing(self.desk, limits, events, bus, options.long_polling)
        self.sessions: Sessions | None = None
        if rules.sessions:
            if ring.origin == "process" and bus.alone and _several_processes():
                log.warning(
                    "Several workers do not share a key for session ids: set DOVETAIL_KEYS, the same for all of them"
                )
            self.sessions = Sessions(self.desk, ring, limits, bus, self.standing.ended)
        self.endpoint = Endpoint(
            self.desk, rules, limits, sessions=self.sessions, standing=self.standing, events=events, bus=bus,
            json_only=options.json_only, gate=gate,
        )  # fmt: skip
        self._conversations: set[asyncio.Task[None]] = set()
        self._notes: set[Note] = set()
        self._pairs: Pairs | None = None
        bus.on("change", self._changed_elsewhere)
        bus.on(PARTED, self._parted)
        self.exposition = None if metrics is None else Exposition(metrics, self._standing_now, bus)
        self._unlisten: Callable[[], None] = lambda: None
        if not isinstance(bus, Alone):
            self._unlisten = service.listen(self._changed, watched=False)  # each process looks at the files by itself

    # conversations over a channel

    async def converse(self, channel: Channel, visitor: Visitor) -> None:
        """Hold a conversation of WebSocket or of the old pair, as part of this application's life, until the client leaves
        or may not stay."""
        conversation = serve(
            self._service, channel, lambda: nullcontext(self._state), grace=0, notes=self._notes, ring=self._ring,
            visitor=visitor,
        )  # fmt: skip
        task = asyncio.create_task(conversation)
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)
        staying = [] if self._gate is None else [asyncio.create_task(self._gate.outstayed(visitor))]
        try:
            await asyncio.wait([task, *staying], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (task, *staying):
                one.cancel()  # where it was us who were cancelled, or it is not to go on
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    @property
    def full(self) -> bool:
        """Whether there are as many conversations as there may be."""
        return len(self._conversations) >= self._service.limits.streams

    @property
    def pairs(self) -> "Pairs":
        """The conversations of the old SSE pair."""
        if self._pairs is None:
            from ..transports.http.sse import Pairs

            limits = self._service.limits
            self._pairs = Pairs(limits, self.converse, self._bus, limit=limits.streams, keepalive=limits.keepalive)
        return self._pairs

    def _standing_now(self) -> dict[str, float]:
        return {
            "mcp_server_sessions": 0 if self.sessions is None else len(self.sessions),
            "mcp_server_streams": self.standing.open,
            "mcp_server_conversations": len(self._conversations),
        }

    # changes, from here and elsewhere

    def _tell(self, method: str, params: Params) -> None:
        self.standing.tell(method, params)

    def _changed(self, method: str, params: Params) -> None:
        """A change in this process, from any thread: the others have clients that want to hear of it too."""
        try:
            self.loop.call_soon_threadsafe(self._bus.publish, "change", (method, encode(params)))
        except RuntimeError:
            pass  # the loop is closed

    def _changed_elsewhere(self, payload: Any) -> None:
        method, raw = payload
        row = self.desk.method(method, None)
        if row is None:
            return  # of an extension that this process was not given
        params = decode(raw, row.params)
        for note in (self.desk.note, *self._notes):
            note(method, params)

    def _parted(self, _: Any) -> None:
        self.standing.parted()
        if self.sessions is not None:
            self.sessions.parted()

    async def close(self, grace: float) -> None:
        """End every stream and conversation, then the calls, all within the grace."""
        self._unlisten()
        self.desk.close()
        for task in list(self._conversations):
            task.cancel()
        await self.endpoint.close(grace)
        await self._bus.close()


class App:
    """The ASGI application of one server."""

    def __init__(self, service: Service, lifespan: Lifespan, options: Options) -> None:
        self._service, self._lifespan, self._options = service, lifespan, options
        self._rules, self._ring = options.rules(service), key_ring(options.keys)
        self._small = replace(service.limits, incoming=PAGE)
        self._lives: dict[asyncio.AbstractEventLoop, Life[Here]] = {}
        self._here: Here | None = None
        self._path = options.path.rstrip("/")
        self._sse = _place(options.sse, "/sse")
        self._message = None if self._sse is None else self._sse.rpartition("/")[0] + "/message"
        self._websocket = _place(options.websocket, "/ws")
        self._gate = None if service.guard is None else self._guarded(service.guard)
        self._metrics = Metrics() if options.metrics else None
        if self._metrics is not None:
            service.observe(self._metrics)
        looked_at = self._gate is not None or self._metrics is not None or self._path == self._sse
        self.usual = None if looked_at else self._path.encode()
        """The URL of requests that `begin` may take; None where each has to be looked at in full."""

    def _guarded(self, guard: Guard) -> Gate:
        pairs = ((self._path, self._path), (self._sse, self._sse), (self._message, self._sse), (self._websocket,) * 2)
        places = {path: place for path, place in pairs if path is not None and place is not None}
        return Gate(self._service, guard, self._rules, self._ring, self._options.public_url, places)

    def begin(self, headers: Headers, server: Address, client: Address, body: bytes) -> Begun | None:
        """Begin the answer to a POST to the endpoint that came whole, before there is an ASGI scope for it; None, and
        nothing was done, where it takes more."""
        here = self._here
        if here is None or here.loop is not asyncio.get_running_loop():
            return None
        return here.endpoint.begin(headers, server and server[0], client and client[0], body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI scope."""
        kind = scope["type"]
        if kind == "lifespan":
            await self._live(receive, send)
            return
        if self._metrics is not None and kind == "http":
            send = self._metrics.responding(scope["method"], send)
        path = scope["path"]
        if path != self._path or scope.get("root_path"):
            path = _path(scope)
        here = self._here
        if here is None or here.loop is not asyncio.get_running_loop():
            try:
                here = await self.start()
            except Exception:
                log.exception("The server could not be started")
                await self._sorry(scope, send)
                return
        if kind == "websocket":
            await self._meet(here, path, scope, receive, send)
        elif path == self._path != self._sse:
            await here.endpoint(scope, path, receive, send)
        else:
            await self._elsewhere(here, path, scope, receive, send)

    # its life

    async def start(self) -> Here:
        """Enter the server's lifespan, once per event loop; the first request does it if nobody else did."""
        loop = asyncio.get_running_loop()
        life = self._lives.get(loop)
        if life is None or life.closed:
            life = self._lives[loop] = Life(self._lifespan, self._make)
            life.task.add_done_callback(partial(self._over, loop, life))
        self._here = await asyncio.shield(life.here)
        return self._here

    def _over(self, loop: asyncio.AbstractEventLoop, life: "Life[Here]", task: "asyncio.Task[None]") -> None:
        """Let go of a life that has ended, and of its loop. Where it failed, the next request may have more luck."""
        if self._lives.get(loop) is life:
            del self._lives[loop]
        if self._here is not None and self._here.loop is loop:
            self._here = None

    async def _make(self, state: Any) -> Here:
        options = self._options
        events = MemoryEvents(self._service.limits) if options.events is None else options.events()
        bus = Alone() if options.bus is None else await options.bus()
        return Here(self._service, options, self._rules, self._ring, events, bus, state, self._gate, self._metrics)

    async def close(self) -> None:
        """End every stream, every conversation and every call, then leave the server's lifespan."""
        life = self._lives.get(asyncio.get_running_loop())
        if life is not None:
            await life.close(self._service.limits.shutdown)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except Exception as error:
                    log.exception("The server could not be started")
                    await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _sorry(self, scope: Scope, send: Send) -> None:
        if scope["type"] == "http":
            await say(send, Reject(500, InternalError("The server could not be started")))
        else:
            await send({"type": "websocket.close", "code": 1011, "reason": "The server could not be started"})

    # routes beside the endpoint

    async def _elsewhere(self, here: Here, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if path == self._options.health and method in ("GET", "HEAD"):
            await reply(send, b'{"status":"ok"}')
        elif path == self._options.metrics and here.exposition is not None and method in ("GET", "HEAD"):
            await self._show(here.exposition, path, scope, send)
        elif path == self._sse:
            if method == "GET" and not any(name == b"mcp-session-id" for name, _ in scope["headers"]):
                await self._open_pair(here, path, scope, receive, send)
            else:
                await here.endpoint(scope, path, receive, send)
        elif path == self._message and method == "POST":
            await self._take(here, path, scope, receive, send)
        elif path == self._message and method == "OPTIONS":
            await here.endpoint(scope, path, receive, send)
        elif self._gate is None or not await self._page(self._gate, here, path, scope, receive, send):
            where = self._path or "/"
            await say(send, Reject(404, InvalidRequest(f"There is nothing at {path or '/'}; the endpoint is at {where}")))

    async def _show(self, exposition: Exposition, path: str, scope: Scope, send: Send) -> None:
        """The metrics, to those who may see them."""
        head, wanted = self._admit(scope), self._options.metrics_auth
        if isinstance(head, Reject):
            await say(send, head)
            return
        visitor = await self._visitor(scope, path) if wanted else Visitor()
        if isinstance(visitor, HttpResponse):
            await give(send, visitor)
        elif isinstance(wanted, str) and visitor.principal is not None and wanted not in visitor.principal.scopes:
            headers = [] if self._gate is None else self._gate.challenge(visitor, (wanted,))
            await say(send, Reject(403, Forbidden(f"The metrics take the scope {wanted!r}")), headers)
        else:
            body = b"" if scope["method"] == "HEAD" else await exposition.page()
            await reply(send, body, kind=(b"content-type", CONTENT_TYPE))

    async def _page(self, gate: Gate, here: Here, path: str, scope: Scope, receive: Receive, send: Send) -> bool:
        """Let the guard answer, where it wants to: it has pages that browsers visit and that every origin may read, so only
        the Host is ours to judge."""
        host = [(name, value) for name, value in scope["headers"] if name == b"host"]
        head = policy.head(self._rules, "POST", [*host, (b"content-type", b"application/json")], _server(scope))
        if isinstance(head, Reject):
            await say(send, head)
            return True
        try:
            body = b"" if scope["method"] in BODILESS else await read_body(receive, self._small, here.endpoint.patience)
            answer = await gate.respond(scope, path, dict(scope["headers"]), body)
        except Refused as refused:
            await say(send, refused.reject)
            return True
        except ClientGone:
            return True
        if answer is not None:
            await give(send, answer if scope["method"] != "HEAD" else replace(answer, body=b""))
        return answer is not None

    async def _open_pair(self, here: Here, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        head = self._admit(scope)
        if isinstance(head, Reject):
            await say(send, head)
            return
        headers = cors(self._rules, head)
        visitor = await self._visitor(scope, path)
        if isinstance(visitor, HttpResponse):
            await give(send, visitor, headers)
        else:
            await here.pairs.open(scope, receive, send, self._message or "", headers, visitor)

    async def _visitor(self, scope: Scope, path: str) -> Visitor | HttpResponse:
        """Who comes for a conversation, or how they are refused."""
        if self._gate is not None:
            return await self._gate.admit(scope, path, dict(scope["headers"]))
        client = scope.get("client")
        return Visitor(client[0] if client else None)

    async def _take(self, here: Here, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        head = policy.head(self._rules, "POST", scope["headers"], _server(scope))
        if isinstance(head, Reject):
            await say(send, head)
            return
        visitor = await self._visitor(scope, path)
        if isinstance(visitor, HttpResponse):
            await give(send, visitor, cors(self._rules, head))
            return
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        session = (query.get("session_id") or query.get("sessionId") or [""])[0]
        headers = cors(self._rules, head)
        try:
            body = await read_body(receive, self._service.limits, here.endpoint.patience)
            await here.pairs.post(send, session, body, headers, visitor)
        except Refused as refused:
            await say(send, refused.reject, headers)
        except ClientGone:
            pass

    async def _meet(self, here: Here, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        from ..transports.websocket import accept, refuse

        answer = self._admit(scope)
        if path != self._websocket:
            answer = Reject(404, InvalidRequest(f"There is no WebSocket at {path or '/'}"))
        elif isinstance(answer, Head) and here.full:
            answer = Reject(503, Overloaded("There are as many conversations as this server holds at once (Limits.streams)"))
        if isinstance(answer, Reject):
            await receive()
            await refuse(scope, send, answer.status, answer.error.message)
            return
        visitor = await self._visitor(scope, path)
        if isinstance(visitor, HttpResponse):
            await receive()
            await refuse(scope, send, visitor.status, _reason(visitor), raw(_challenges(visitor)))
            return
        channel = await accept(scope, receive, send, self._service.limits)
        if channel is not None:
            await here.converse(channel, visitor)

    def _admit(self, scope: Scope) -> Head | Reject:
        """Judge Host and Origin of what is no POST, and that it has at most one Authorization."""
        judged = (b"host", b"origin", b"authorization")
        known = [(name, value) for name, value in scope["headers"] if name in judged]
        return policy.head(self._rules, "POST", [*known, (b"content-type", b"application/json")], _server(scope))


async def say(send: Send, reject: Reject, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """Refuse a request, where there is no desk to do it."""
    error = {"code": reject.error.code, "message": reject.error.message}
    body = encode({"jsonrpc": "2.0", "id": None, "error": error})
    await reply(send, body, reject.status, [*reject.headers, *headers])


def _reason(refusal: HttpResponse) -> str:
    """Why, in words: a guard says it as OAuth does, or as it likes."""
    try:
        return str(json.decode(refusal.body)["error_description"])
    except (MsgspecError, KeyError, TypeError):
        return refusal.body.decode(errors="replace")


def _challenges(refusal: HttpResponse) -> dict[str, str]:
    """What of a refusal goes with one that has a body of its own."""
    return {name: value for name, value in refusal.headers.items() if not name.lower().startswith("content-")}


def _place(given: str | bool, usual: str) -> str | None:
    return usual if given is True else given.rstrip("/") if given else None


def _path(scope: Scope) -> str:
    """The path below the place that we are mounted at, without a slash at the end."""
    path: str = scope["path"]
    root = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path.rstrip("/")


def _server(scope: Scope) -> str | None:
    server = scope.get("server")
    return server[0] if server else None


def _several_processes() -> bool:
    """Whether this is likely one of several workers that do not descend from one program of ours."""
    from multiprocessing import parent_process

    if parent_process() is not None:
        return False  # a child of multiprocessing has its parent's key
    return "gunicorn" in os.environ.get("SERVER_SOFTWARE", "") or int(os.environ.get("WEB_CONCURRENCY", "1") or 1) > 1
