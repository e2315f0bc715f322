"""What a server has beside its endpoint: a sign of life, metrics, the old SSE pair, WebSocket, the
pages of its guard, and whatever the program itself has there (`beside=`).

The endpoint judges its requests by a ladder of its own (`transports/http/policy.py`). What comes
here is judged by as much of that ladder as it has to do with: Host and Origin, and who it is.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from msgspec import MsgspecError, json
from msgspec.structs import replace

from ..errors import Forbidden, InvalidRequest, Overloaded
from ..jsonrpc.codec import encode
from ..limits import KIB
from ..ports import HttpResponse, RequestIdentity, Service
from ..transports.http.server import policy
from ..transports.http.server.asgi import (
    ClientGone,
    Receive,
    Refused,
    Scope,
    Send,
    give,
    read_body,
    reply,
)
from ..transports.http.server.policy import Head, Policy, Reject, cors
from .auth_gate import AuthGate, encode_headers
from .metrics import CONTENT_TYPE, MetricsPage
from .options import ServeOptions, ServePaths

if TYPE_CHECKING:
    from .app import LoopState

BODILESS = ("GET", "HEAD", "OPTIONS")
PAGE = 64 * KIB
"""The longest body that is read for a page of the guard's."""


class Routes:
    """The routes beside the endpoint."""

    def __init__(
        self,
        service: Service,
        options: ServeOptions,
        paths: ServePaths,
        rules: Policy,
        gate: AuthGate | None,
    ) -> None:
        self._service, self._options, self._paths, self._rules, self._gate = (
            service,
            options,
            paths,
            rules,
            gate,
        )
        self._bounds = service.limits if options.routes else replace(service.limits, incoming=PAGE)

    async def __call__(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer an HTTP request."""
        method = scope["method"]
        if path == self._options.health and method in ("GET", "HEAD"):
            await reply(send, b'{"status":"ok"}')
        elif (
            path == self._options.metrics
            and state.metrics_page is not None
            and method in ("GET", "HEAD")
        ):
            await self._show(state.metrics_page, path, scope, send)
        elif path == self._paths.sse:
            if method == "GET" and not any(
                name == b"mcp-session-id" for name, _ in scope["headers"]
            ):
                await self._open_pair(state, path, scope, receive, send)
            else:
                await state.endpoint(scope, path, receive, send)
        elif path == self._paths.message and method == "POST":
            await self._take(state, path, scope, receive, send)
        elif path == self._paths.message and method == "OPTIONS":
            await state.endpoint(scope, path, receive, send)
        elif self._gate is None and self._options.routes is None:
            await self._nothing(path, send)
        else:
            await self._page(state, path, scope, receive, send)

    async def _nothing(self, path: str, send: Send) -> None:
        where = self._paths.endpoint or "/"
        await send_error(
            send,
            Reject(
                404,
                InvalidRequest(f"There is nothing at {path or '/'}; the endpoint is at {where}"),
            ),
        )

    async def _show(self, exposition: MetricsPage, path: str, scope: Scope, send: Send) -> None:
        """The metrics, to those who may see them."""
        head, wanted = self._admit(scope), self._options.metrics_auth
        if isinstance(head, Reject):
            await send_error(send, head)
            return
        visitor = await self._visitor(scope, path) if wanted else RequestIdentity()
        if isinstance(visitor, HttpResponse):
            await give(send, visitor)
        elif wanted and (visitor.principal is None or wanted not in visitor.principal.scopes):
            headers = [] if self._gate is None else self._gate.challenge(visitor, (str(wanted),))
            await send_error(
                send, Reject(403, Forbidden(f"The metrics take the scope {wanted!r}")), headers
            )
        else:
            body = b"" if scope["method"] == "HEAD" else await exposition.page()
            await reply(send, body, kind=(b"content-type", CONTENT_TYPE))

    async def _page(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Let the guard answer, where it wants to, or else the program. They have pages that
        browsers visit and that other origins may read, so only the Host is ours to judge."""
        host = [(name, value) for name, value in scope["headers"] if name == b"host"]
        head = policy.head(
            self._rules, "POST", [*host, (b"content-type", b"application/json")], _server(scope)
        )
        if isinstance(head, Reject):
            await send_error(send, head)
            return
        if self._gate is not None:
            try:
                body = (
                    b""
                    if scope["method"] in BODILESS
                    else await read_body(receive, self._bounds, state.endpoint.patience)
                )
                answer = await self._gate.respond(scope, path, dict(scope["headers"]), body)
            except Refused as refused:
                await send_error(send, refused.reject)
                return
            except ClientGone:
                return
            if answer is not None:
                await give(send, answer if scope["method"] != "HEAD" else replace(answer, body=b""))
                return
            receive = _again(body, receive)
        if self._options.routes is None:
            await self._nothing(path, send)
        else:
            await self._options.routes(scope, receive, send)

    async def _open_pair(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        head = self._admit(scope)
        if isinstance(head, Reject):
            await send_error(send, head)
            return
        headers = cors(self._rules, head)
        visitor = await self._visitor(scope, path)
        if isinstance(visitor, HttpResponse):
            await give(send, visitor, headers)
        else:
            await state.pairs.open(
                scope, receive, send, self._paths.message or "", headers, visitor
            )

    async def _visitor(self, scope: Scope, path: str) -> RequestIdentity | HttpResponse:
        """Who comes for a conversation, or how they are refused."""
        if self._gate is not None:
            return await self._gate.admit(scope, path, dict(scope["headers"]))
        client = scope.get("client")
        return RequestIdentity(client[0] if client else None)

    async def _take(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        head = policy.head(self._rules, "POST", scope["headers"], _server(scope))
        if isinstance(head, Reject):
            await send_error(send, head)
            return
        visitor = await self._visitor(scope, path)
        if isinstance(visitor, HttpResponse):
            await give(send, visitor, cors(self._rules, head))
            return
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        session = (query.get("session_id") or query.get("sessionId") or [""])[0]
        headers = cors(self._rules, head)
        try:
            body = await read_body(receive, self._service.limits, state.endpoint.patience)
            await state.pairs.post(send, session, body, headers, visitor)
        except Refused as refused:
            await send_error(send, refused.reject, headers)
        except ClientGone:
            pass

    async def accept_websocket(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Hold a conversation over a WebSocket, or refuse to."""
        from ..transports.websocket import accept, refuse

        answer = self._admit(scope)
        if path != self._paths.websocket:
            answer = Reject(404, InvalidRequest(f"There is no WebSocket at {path or '/'}"))
        elif isinstance(answer, Head) and state.is_full:
            answer = Reject(
                503,
                Overloaded(
                    "There are as many conversations as this server holds at once (Limits.streams)"
                ),
            )
        if isinstance(answer, Reject):
            await receive()
            await refuse(scope, send, answer.status, answer.error.message)
            return
        visitor = await self._visitor(scope, path)
        if isinstance(visitor, HttpResponse):
            await receive()
            await refuse(
                scope, send, visitor.status, _reason(visitor), encode_headers(_challenges(visitor))
            )
            return
        channel = await accept(scope, receive, send, self._service.limits)
        if channel is not None:
            await state.serve_channel(channel, visitor)

    def _admit(self, scope: Scope) -> Head | Reject:
        """Judge Host and Origin of what is no POST, and that it has at most one Authorization."""
        judged = (b"host", b"origin", b"authorization")
        known = [(name, value) for name, value in scope["headers"] if name in judged]
        return policy.head(
            self._rules, "POST", [*known, (b"content-type", b"application/json")], _server(scope)
        )


async def send_error(
    send: Send, reject: Reject, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Refuse a request, where there is no desk to do it."""
    error = {"code": reject.error.code, "message": reject.error.message}
    body = encode({"jsonrpc": "2.0", "id": None, "error": error})
    await reply(send, body, reject.status, [*reject.headers, *headers])


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read, to be read by somebody else."""
    whole = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def received() -> Any:
        return next(whole, None) or await receive()

    return received


def _reason(refusal: HttpResponse) -> str:
    """Why, in words: a guard says it as OAuth does, or as it likes."""
    try:
        return str(json.decode(refusal.body)["error_description"])
    except (MsgspecError, KeyError, TypeError):
        return refusal.body.decode(errors="replace")


def _challenges(refusal: HttpResponse) -> dict[str, str]:
    """What of a refusal goes with one that has a body of its own."""
    return {
        name: value
        for name, value in refusal.headers.items()
        if not name.lower().startswith("content-")
    }


def _server(scope: Scope) -> str | None:
    server = scope.get("server")
    return server[0] if server else None
