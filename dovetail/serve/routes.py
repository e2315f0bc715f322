"""All of a server's paths except its endpoint: the health check, metrics, HTTP+SSE (2024-11-05),
WebSocket, the guard's pages, and your own application (`routes=`).

The endpoint has its own checks (`transports/http/server/policy.py`). Requests to other paths
undergo only the checks that apply to them: Host, Origin and authentication.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from msgspec import MsgspecError, json
from msgspec.structs import replace

from ..errors import Forbidden, InvalidRequest, Overloaded
from ..jsonrpc.messages import encode
from ..limits import KIB, Limits
from ..ports import HttpResponse, RequestIdentity
from ..transports.http.server import policy
from ..transports.http.server.asgi import (
    JSON,
    ClientGone,
    Headers,
    Receive,
    RequestRefused,
    Scope,
    Send,
    encode_headers,
    read_body,
    send_body,
    send_response,
)
from ..transports.http.server.policy import Rejection, RequestHead, cors
from .metrics import CONTENT_TYPE, MetricsPage

if TYPE_CHECKING:
    from .app import App, LoopState

BODILESS = ("GET", "HEAD", "OPTIONS")
MAX_PAGE_BODY_BYTES = 64 * KIB
"""The maximum size of a request body sent to one of the guard's pages."""
CHECKED = (b"host", b"origin", b"authorization")
"""The headers that are checked on a request without a body."""


class Routes:
    """The handler for all paths except the endpoint."""

    def __init__(self, app: "App") -> None:
        self._app, self._page_limits = app, app.service.limits
        if not app.options.routes:
            self._page_limits = replace(self._page_limits, incoming=MAX_PAGE_BODY_BYTES)

    async def __call__(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer an HTTP request."""
        method, options, paths = scope["method"], self._app.options, self._app.paths
        is_read = method in ("GET", "HEAD")
        if path == options.health and is_read:
            await self._send_health(path, scope, send)
        elif path == options.metrics and state.metrics_page is not None and is_read:
            await self._send_metrics(state.metrics_page, path, scope, send)
        elif path == paths.sse and method == "GET" and not _has_session(scope):
            await self._open_sse(state, path, scope, receive, send)
        elif path == paths.message and method == "POST":
            await self._post_sse(state, path, scope, receive, send)
        elif path == paths.sse or (path == paths.message and method == "OPTIONS"):
            await state.endpoint(scope, path, receive, send)
        elif self._app.gate is None and options.routes is None:
            await self._send_not_found(path, send)
        else:
            await self._send_page(state, path, scope, receive, send)

    async def _send_not_found(self, path: str, send: Send) -> None:
        endpoint = self._app.paths.endpoint or "/"
        error = InvalidRequest(f"There is nothing at {path or '/'}; the endpoint is at {endpoint}")
        await send_error(send, Rejection(404, error))

    async def _send_health(self, path: str, scope: Scope, send: Send) -> None:
        """Send the service's status to anyone, and the details to callers who may read the
        metrics: all of them only to callers with the scope."""
        service = self._app.service
        health = service.masked_health()
        if len(health) > 1:
            if not await self._may_read_metrics(path, scope):
                health = {"status": health["status"]}
            elif self._app.options.metrics_auth:
                health = service.health()
        await send_body(send, encode(health))

    async def _may_read_metrics(self, path: str, scope: Scope) -> bool:
        if isinstance(self._check_head(scope, *CHECKED), Rejection):
            return False
        needed = self._app.options.metrics_auth
        if needed is False or self._app.gate is None:
            return not needed
        identity = await self._identify(scope, path)
        return (
            isinstance(identity, RequestIdentity)
            and identity.principal is not None
            and needed in identity.principal.scopes
        )

    async def _send_metrics(self, page: MetricsPage, path: str, scope: Scope, send: Send) -> None:
        needed, gate = self._app.options.metrics_auth, self._app.gate
        admitted = await self._admit(scope, path, send, *CHECKED, is_guarded=bool(needed))
        if admitted is None:
            return
        identity, headers = admitted
        if needed and (identity.principal is None or needed not in identity.principal.scopes):
            if gate is not None:
                headers += gate.challenge(identity, (str(needed),))
            error = Forbidden(f"Reading the metrics requires the scope {needed!r}")
            await send_error(send, Rejection(403, error), headers)
        else:
            body = b"" if scope["method"] == "HEAD" else await page.page()
            await send_body(send, body, headers=headers, kind=(b"content-type", CONTENT_TYPE))

    async def _send_page(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Let the guard answer, or your application if the guard has no page at this path. Only the
        Host header is checked, because browsers visit these pages and any origin may read them.
        """
        head = self._check_head(scope, b"host")
        if isinstance(head, Rejection):
            await send_error(send, head)
            return
        if self._app.gate is not None:
            body: bytes | None = b""
            if scope["method"] not in BODILESS:
                body = await _read_body(state, receive, send, self._page_limits)
            if body is None:
                return
            answer = await self._app.gate.respond(scope, path, dict(scope["headers"]), body)
            if answer is not None:
                await send_response(
                    send, answer if scope["method"] != "HEAD" else replace(answer, body=b"")
                )
                return
            receive = replay_body(body, receive)
        if self._app.options.routes is None:
            await self._send_not_found(path, send)
        else:
            await self._app.options.routes(scope, receive, send)

    async def _open_sse(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        admitted = await self._admit(scope, path, send, *CHECKED)
        if admitted is not None:
            identity, headers = admitted
            message_path = self._app.paths.message or ""
            await state.sse.open(scope, receive, send, message_path, headers, identity)

    async def _post_sse(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Pass a message to its session, which was opened by a GET or POST request to the other
        path."""
        from ..transports.http.sse import SESSION_ID_CHARS

        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        session = (query.get("session_id") or query.get("sessionId") or [""])[0]
        if len(session) > SESSION_ID_CHARS or (not session and _has_session(scope)):
            # A POST has opened this session: its id is a sealed token, which is longer.
            if not _has_session(scope):
                header = (b"mcp-session-id", session.encode())
                scope = {**scope, "headers": [*scope["headers"], header]}
            await state.endpoint(scope, path, receive, send)
            return
        admitted = await self._admit(scope, path, send)
        if admitted is None:
            return
        identity, headers = admitted
        body = await _read_body(state, receive, send, self._app.service.limits, headers)
        if body is not None:
            await state.sse.post(send, session, body, headers, identity)

    async def accept_websocket(
        self, state: "LoopState", path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve a client over WebSocket, or refuse the handshake."""
        from ..transports.websocket import accept, refuse

        head = self._check_head(scope, *CHECKED)
        if path != self._app.paths.websocket:
            head = Rejection(404, InvalidRequest(f"There is no WebSocket at {path or '/'}"))
        elif isinstance(head, RequestHead) and state.is_full:
            head = Rejection(
                503,
                Overloaded("The server has too many open connections (Limits.streams)"),
            )
        if isinstance(head, Rejection):
            await receive()
            await refuse(scope, send, head.status, head.error.message)
            return
        identity = await self._identify(scope, path)
        if isinstance(identity, HttpResponse):
            await receive()
            headers = encode_headers(identity.headers)
            headers = [pair for pair in headers if not pair[0].startswith(b"content-")]
            await refuse(scope, send, identity.status, _error_text(identity), headers)
            return
        channel = await accept(scope, receive, send, self._app.service.limits)
        if channel is not None:
            await state.serve_channel(channel, identity)

    async def _admit(
        self, scope: Scope, path: str, send: Send, *names: bytes, is_guarded: bool = True
    ) -> tuple[RequestIdentity, Headers] | None:
        """Return the caller's identity and the response headers, or None after a refusal."""
        head = self._check_head(scope, *names)
        if isinstance(head, Rejection):
            await send_error(send, head)
            return None
        headers = cors(self._app.rules, head)
        identity = await self._identify(scope, path) if is_guarded else RequestIdentity()
        if isinstance(identity, HttpResponse):
            await send_response(send, identity, headers)
            return None
        return identity, headers

    async def _identify(self, scope: Scope, path: str) -> RequestIdentity | HttpResponse:
        if self._app.gate is not None:
            return await self._app.gate.admit(scope, path, dict(scope["headers"]))
        client = scope.get("client")
        return RequestIdentity(client[0] if client else None)

    def _check_head(self, scope: Scope, *names: bytes) -> RequestHead | Rejection:
        """Check the headers of a POST request. If names are given, check only those headers,
        whatever the method is."""
        headers, server = scope["headers"], scope.get("server")
        if names:
            headers = [*(pair for pair in headers if pair[0] in names), JSON]
        return policy.check_head(self._app.rules, "POST", headers, server[0] if server else None)


async def _read_body(
    state: "LoopState",
    receive: Receive,
    send: Send,
    limits: Limits,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> bytes | None:
    """Return the body of a request, or None if the request was refused or the client
    disconnected."""
    try:
        return await read_body(receive, limits, state.endpoint.body_timeouts)
    except RequestRefused as refused:
        await send_error(send, refused.reject, headers)
    except ClientGone:
        pass
    return None


async def send_error(
    send: Send, reject: Rejection, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Refuse a request before it reaches the dispatcher."""
    error = {"code": reject.error.code, "message": reject.error.message}
    body = encode({"jsonrpc": "2.0", "id": None, "error": error})
    await send_body(send, body, reject.status, [*reject.headers, *headers])


def replay_body(body: bytes, receive: Callable[[], Awaitable[Any]]) -> Receive:
    """Return a `receive` function that returns a body that has already been read."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> Any:
        return next(messages, None) or await receive()

    return replay


def _error_text(refusal: HttpResponse) -> str:
    """Return the reason for a refusal: the OAuth error description, or the whole body."""
    try:
        return str(json.decode(refusal.body)["error_description"])
    except (MsgspecError, KeyError, TypeError):
        return refusal.body.decode(errors="replace")


def _has_session(scope: Scope) -> bool:
    return any(name == b"mcp-session-id" for name, _ in scope["headers"])
