"""The inspector's ASGI application: the page's files, `POST /api/<operation>` and
`GET /api/events`. Every request passes `access.py` first."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from ..errors import ConfigError, DovetailError
from ..limits import MIB
from ..logs import get_logger
from .access import API, EVENTS, AccessPolicy, Denied, check_access
from .files import SAFE_HEADERS, PageFiles
from .operations import OPERATIONS, run_operation
from .refusal import Refused
from .state import InspectorState

log = get_logger("inspector")

MAX_BODY_BYTES = 16 * MIB
KEEP_ALIVE_SECONDS = 15.0
"""How long an event stream may be silent."""
NO_CONTENT_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
"""The policy of responses that are not a page."""
JSON_HEADERS = [(b"content-type", b"application/json"), NO_CONTENT_POLICY, *SAFE_HEADERS]
STREAM_HEADERS = [(b"content-type", b"text/event-stream"), NO_CONTENT_POLICY, *SAFE_HEADERS]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class InspectorApp:
    """The application.

    Args:
        state: What the page shows.
        policy: Who may use it.
        files: The page's files.
    """

    def __init__(self, state: InspectorState, policy: AccessPolicy, files: PageFiles) -> None:
        self._state, self._policy, self._files = state, policy, files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        decision = check_access(scope["method"], path, scope["headers"], self._policy)
        try:
            if isinstance(decision, Denied):
                raise Refused(decision.message, decision.what_to_do, status=decision.status)
            if not decision.is_api:
                await self._send_file(path, send)
            elif path == EVENTS:
                await self._stream_events(scope, receive, send)
            else:
                await self._answer(path.removeprefix(API), scope, receive, send)
        except Refused as refusal:
            await _send_body(send, refusal.status, JSON_HEADERS, refusal.document())

    async def _send_file(self, path: str, send: Send) -> None:
        if path not in self._files.paths:
            raise Refused("There is no such file.", status=404)
        body, media_type = self._files.paths[path]
        headers = [(b"content-type", media_type), *self._files.headers]
        await _send_body(send, 200, headers, body)

    async def _answer(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        if name not in OPERATIONS:
            raise Refused(f"There is no operation {name!r}.", status=404)
        body = await _read_body(scope, receive)
        try:
            result = await run_operation(name, self._state, body)
        except Refused:
            raise
        except ConfigError as problem:
            raise Refused(str(problem)) from None
        except DovetailError as problem:
            raise Refused(str(problem) or type(problem).__name__, status=502) from None
        except Exception as problem:
            log.exception("The operation %s failed", name)
            text = f"{type(problem).__name__}: {problem}"
            raise Refused(text, "Please report this error.", status=500) from None
        await _send_body(send, 200, JSON_HEADERS, result)

    async def _stream_events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client disconnects or the command ends."""
        number = _read_number(scope)
        events = self._state.events
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        await send(_chunk(b": events\n\n"))
        leaving = asyncio.ensure_future(_wait_disconnect(receive))
        leaving.add_done_callback(lambda _: events.wake())
        try:
            while not events.is_closed and not leaving.done():
                data, number = events.read_after(number)
                if data:
                    await send(_chunk(data))
                elif not await events.wait_after(number, KEEP_ALIVE_SECONDS):
                    await send(_chunk(b": alive\n\n"))
        finally:
            leaving.cancel()
        await send({"type": "http.response.body", "body": b""})


def _read_number(scope: Scope) -> int:
    sent = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("after", ["0"])
    try:
        return int(sent[-1])
    except ValueError:
        raise Refused("after= must be the number of an event.") from None


async def _wait_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(scope: Scope, receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused("The request was not complete.")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MAX_BODY_BYTES or _announced_bytes(scope) > MAX_BODY_BYTES:
            raise Refused("The body is longer than 16 MiB.", status=413)
    return body


def _announced_bytes(scope: Scope) -> int:
    sent = dict(scope["headers"]).get(b"content-length", b"0")
    return int(sent) if sent.isdigit() else 0


async def _send_body(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    length = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers + length})
    await send({"type": "http.response.body", "body": body})


def _chunk(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}
