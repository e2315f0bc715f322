"""Answer a single request, for serverless functions that start with it and end after it."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from ..errors import ConfigError, InvalidRequest
from ..ports import HttpRequest, HttpResponse, Service
from ..transports.http.server.policy import Rejection
from .app import App
from .channel import Lifespan
from .options import ServeOptions
from .routes import send_error


async def handle(
    service: Service, lifespan: Lifespan, request: HttpRequest, options: Mapping[str, Any]
) -> HttpResponse:
    """Answer one request with JSON, keep no session and leave nothing running."""
    if options.get("metrics"):
        raise ConfigError(
            "metrics= is not possible with `handle`: the counters would be lost after each "
            "request. Use telemetry() instead"
        )
    response = HttpResponse()
    received = False

    async def receive() -> dict[str, Any]:
        nonlocal received
        if received:
            await asyncio.Event().wait()  # the client never disconnects
        received = True
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            response.status = message["status"]
            response.headers = {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in message["headers"]
            }
        else:
            response.body += message.get("body", b"")

    app = App(
        service, lifespan, ServeOptions.create(**{"json_only": True, "sessions": False, **options})
    )
    try:
        scope = _scope(request, fixed_path=bool(options.get("path")))
    except UnicodeEncodeError:
        error = InvalidRequest("A header has characters that are not Latin-1")
        await send_error(send, Rejection(400, error))
        return response
    try:
        await app(scope, receive, send)
    finally:
        await app.close()
    return response


def _scope(request: HttpRequest, fixed_path: bool) -> dict[str, Any]:
    """Return the ASGI scope of a request.

    By default, the path at which the function is called is the endpoint, and its well-known
    documents are below it.
    """
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in request.headers.items()
    ]
    url = urlsplit(request.url)
    if url.netloc and not any(name == b"host" for name, _ in headers):
        headers.append((b"host", url.netloc.encode("latin-1", "replace")))
    return {
        "type": "http",
        "scheme": url.scheme or "https",
        "method": request.method,
        "path": request.path,
        "root_path": "" if fixed_path else request.path.partition("/.well-known/")[0],
        "query_string": url.query.encode(),
        "headers": headers,
        "client": (request.address, 0) if request.address else None,
    }
