"""All paths of a server but its endpoint: the health check, metrics, HTTP+SSE (2024-11-05),
WebSocket, the pages of its guard, and your own application (`routes=`).

The endpoint has its own checks (`transports/http/server/policy.py`). Requests to other paths go
through those of these checks that apply to them: Host, Origin and authentication.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from msgspec import MsgspecError, json
from msgspec.structs import replace

from ..errors import Forbidden, InvalidRequest, Overloaded
from ..jsonrpc.messages import encode
from ..limits import KIB
from ..ports import HttpResponse, RequestIdentity, Service
from ..transports.http.server import policy
from ..transports.http.server.asgi import (
    ClientGone,
    Receive,
    RequestRefused,
    Scope,
    Send,
    read_body,
    send_body,
    send_response,
)
from ..transports.http.server.policy import Policy, Rejection, RequestHead, cors
from .auth_gate import AuthGate, encode_headers
from .metrics import CONTENT_TYPE, MetricsPage
from .options import ServeOptions, ServePaths

if TYPE_CHECKING:
    from .app import LoopState

BODILESS = ("GET", "HEAD", "OPTIONS")
MAX_PAGE_BODY_BYTES = 64 * KIB
"""The longest body of a request to a page of the guard."""


class Routes:
    """Answers requests to all paths but the endpoint."""

    def __init__(
        self,
        service: Service,
        options: ServeOptions,
        paths: ServePaths,
        rules: Policy,
        gate: AuthGate | None,
    ) -> None:
        self._service, self._options, self._paths = service, options, paths
        self._rules, self._gate = rules, gate
        self._page_limits = service.limits
        if not options.routes:
            self._page_limits = replace(service.limits, incoming=MAX_PAGE_BODY_BYTES)

    async def __call__(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer an HTTP request."""
        method = scope["method"]
        if path == self._options.health and method in ("GET", "HEAD"):
            await send_body(send, b'{"status":"ok"}')
        elif (
            path == self._options.metrics
            and state.metrics_page is not None
            and method in ("GET", "HEAD")
        ):
            await self._send_metrics(state.metrics_page, path, scope, send)
        elif path == self._paths.sse:
            if method == "GET" and not any(
                name == b"mcp-session-id" for name, _ in scope["headers"]
            ):
                await self._open_sse(state, path, scope, receive, send)
            else:
                await state.endpoint(scope, path, receive, send)
        elif path == self._paths.message and method == "POST":
            await self._post_sse(state, path, scope, receive, send)
        elif path == self._paths.message and method == "OPTIONS":
            await state.endpoint(scope, path, receive, send)
        elif self._gate is None and self._options.routes is None:
            await self._send_not_found(path, send)
        else:
            await self._send_page(state, path, scope, receive, send)

    async def _send_not_found(self, path: str, send: Send) -> None:
        endpoint = self._paths.endpoint or "/"
        await send_error(
            send,
            Rejection(
                404,
                InvalidRequest(f"There is nothing at {path or '/'}; the endpoint is at {endpoint}"),
            ),
        )

    async def _send_metrics(self, page: MetricsPage, path: str, scope: Scope, send: Send) -> None:
        head, needed = self._check_head(scope), self._options.metrics_auth
        if isinstance(head, Rejection):
            await send_error(send, head)
            return
        identity = await self._identify(scope, path) if needed else RequestIdentity()
        if isinstance(identity, HttpResponse):
            await send_response(send, identity)
        elif needed and (identity.principal is None or needed not in identity.principal.scopes):
            headers = [] if self._gate is None else self._gate.challenge(identity, (str(needed),))
            error = Forbidden(f"Reading the metrics needs the scope {needed!r}")
            await send_error(send, Rejection(403, error), headers)
        else:
            body = b"" if scope["method"] == "HEAD" else await page.page()
            await send_body(send, body, kind=(b"content-type", CONTENT_TYPE))

    async def _send_page(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Let the guard answer, or else your application.

        Only the Host is checked: browsers visit their pages, and other origins may read them.
        """
        host = [(name, value) for name, value in scope["headers"] if name == b"host"]
        head = policy.check_head(
            self._rules, "POST", [*host, (b"content-type", b"application/json")], _server(scope)
        )
        if isinstance(head, Rejection):
            await send_error(send, head)
            return
        if self._gate is not None:
            try:
                body = (
                    b""
                    if scope["method"] in BODILESS
                    else await read_body(receive, self._page_limits, state.endpoint.body_timeouts)
                )
                answer = await self._gate.respond(scope, path, dict(scope["headers"]), body)
            except RequestRefused as refused:
                await send_error(send, refused.reject)
                return
            except ClientGone:
                return
            if answer is not None:
                await send_response(
                    send, answer if scope["method"] != "HEAD" else replace(answer, body=b"")
                )
                return
            receive = _replay(body, receive)
        if self._options.routes is None:
            await self._send_not_found(path, send)
        else:
            await self._options.routes(scope, receive, send)

    async def _open_sse(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        head = self._check_head(scope)
        if isinstance(head, Rejection):
            await send_error(send, head)
            return
        headers = cors(self._rules, head)
        identity = await self._identify(scope, path)
        if isinstance(identity, HttpResponse):
            await send_response(send, identity, headers)
        else:
            await state.sse.open(scope, receive, send, self._paths.message or "", headers, identity)

    async def _identify(self, scope: Scope, path: str) -> RequestIdentity | HttpResponse:
        if self._gate is not None:
            return await self._gate.admit(scope, path, dict(scope["headers"]))
        client = scope.get("client")
        return RequestIdentity(client[0] if client else None)

    async def _post_sse(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        head = policy.check_head(self._rules, "POST", scope["headers"], _server(scope))
        if isinstance(head, Rejection):
            await send_error(send, head)
            return
        identity = await self._identify(scope, path)
        if isinstance(identity, HttpResponse):
            await send_response(send, identity, cors(self._rules, head))
            return
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        session = (query.get("session_id") or query.get("sessionId") or [""])[0]
        headers = cors(self._rules, head)
        try:
            body = await read_body(receive, self._service.limits, state.endpoint.body_timeouts)
            await state.sse.post(send, session, body, headers, identity)
        except RequestRefused as refused:
            await send_error(send, refused.reject, headers)
        except ClientGone:
            pass

    async def accept_websocket(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve a client over WebSocket, or refuse the handshake."""
        from ..transports.websocket import accept, refuse

        answer = self._check_head(scope)
        if path != self._paths.websocket:
            answer = Rejection(404, InvalidRequest(f"There is no WebSocket at {path or '/'}"))
        elif isinstance(answer, RequestHead) and state.is_full:
            answer = Rejection(
                503,
                Overloaded("The server has too many connections at the moment (Limits.streams)"),
            )
        if isinstance(answer, Rejection):
            await receive()
            await refuse(scope, send, answer.status, answer.error.message)
            return
        identity = await self._identify(scope, path)
        if isinstance(identity, HttpResponse):
            await receive()
            await refuse(
                scope,
                send,
                identity.status,
                _error_text(identity),
                encode_headers(_challenge_headers(identity)),
            )
            return
        channel = await accept(scope, receive, send, self._service.limits)
        if channel is not None:
            await state.serve_channel(channel, identity)

    def _check_head(self, scope: Scope) -> RequestHead | Rejection:
        """Check Host and Origin of a request that is not a POST, and its Authorization headers."""
        names = (b"host", b"origin", b"authorization")
        checked = [(name, value) for name, value in scope["headers"] if name in names]
        return policy.check_head(
            self._rules, "POST", [*checked, (b"content-type", b"application/json")], _server(scope)
        )


async def send_error(
    send: Send, reject: Rejection, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Refuse a request that does not reach the dispatcher."""
    error = {"code": reject.error.code, "message": reject.error.message}
    body = encode({"jsonrpc": "2.0", "id": None, "error": error})
    await send_body(send, body, reject.status, [*reject.headers, *headers])


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields a body which was read already."""
    whole = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def received() -> Any:
        return next(whole, None) or await receive()

    return received


def _error_text(refusal: HttpResponse) -> str:
    """Return the reason of a refusal: as OAuth has it, or the body of another guard."""
    try:
        return str(json.decode(refusal.body)["error_description"])
    except (MsgspecError, KeyError, TypeError):
        return refusal.body.decode(errors="replace")


def _challenge_headers(refusal: HttpResponse) -> dict[str, str]:
    """Return the headers of a refusal that do not describe its body."""
    return {
        name: value
        for name, value in refusal.headers.items()
        if not name.lower().startswith("content-")
    }


def _server(scope: Scope) -> str | None:
    server = scope.get("server")
    return server[0] if server else None
