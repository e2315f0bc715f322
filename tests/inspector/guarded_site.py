"""A server that needs a login, with the library's own authorization server, on a port. A fault
changes what one of its pages answers."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from dovetail import Context, Server
from dovetail.auth import Provider
from tests.auth.provider_kit import HASHES
from tests.transports.http.raw import on_port

USER, PASSWORD = "ada", "lovelace"
Document = dict[str, Any]
Fault = Callable[[Document], tuple[int, Document]]
"""Returns the status and the document to send instead of a document."""

RESOURCE = ("/.well-known/oauth-protected-resource",)
ISSUER = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


def without(field: str) -> Fault:
    return lambda document: (200, {key: one for key, one in document.items() if key != field})


def changed(**fields: Any) -> Fault:
    return lambda document: (200, document | fields)


def refused(status: int, **fields: Any) -> Fault:
    return lambda document: (status, fields)


def make_server() -> Server:
    server = Server("notes", version="1", auth=Provider(users=HASHES, storage=":memory:"))

    @server.tool
    async def whoami(ctx: Context) -> str:
        """Say who is calling."""
        return ctx.user.id if ctx.user else "nobody"

    return server


@asynccontextmanager
async def guarded_site(
    paths: tuple[str, ...] = (), fault: Fault | None = None
) -> AsyncIterator[str]:
    """Serve it; yield its URL.

    Args:
        paths: The beginnings of the paths whose answers the fault changes.
        fault: What they answer instead.
    """
    inner = make_server().asgi(path="/mcp")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if fault is None or not scope["path"].startswith(paths):
            await inner(scope, receive, send)
            return
        chunks: list[bytes] = []

        async def collect(message: Any) -> None:
            chunks.append(message.get("body", b""))

        await inner(scope, receive, collect)
        status, document = fault(json.loads(b"".join(chunks) or b"{}"))
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(document).encode()})

    async with on_port(app) as site:
        yield f"http://127.0.0.1:{site.port}/mcp"
    await inner.close()
