"""One request from start to end, for functions that are started for it and end after it."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from ..errors import ConfigError, InvalidRequest
from ..ports import HttpRequest, HttpResponse, Service
from ..transports.http.server.policy import Reject
from .app import App
from .channel import Lifespan
from .options import ServeOptions
from .routes import send_error


async def handle(
    service: Service, lifespan: Lifespan, request: HttpRequest, options: Mapping[str, Any]
) -> HttpResponse:
    """Answer one request from start to end, with nothing left running: no session is held, and
    every reply is JSON."""
    if options.get("metrics"):
        raise ConfigError(
            "metrics=: what ends after each request has nothing to count; report with "
            "telemetry() instead"
        )
    answer = HttpResponse()
    asked: list[bool] = []

    async def receive() -> dict[str, Any]:
        if asked:
            await asyncio.Event().wait()  # it never goes away
        asked.append(True)
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in message["headers"]
            }
        else:
            answer.body += message.get("body", b"")

    app = App(
        service, lifespan, ServeOptions.create(**{"json_only": True, "sessions": False, **options})
    )
    try:
        headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in request.headers.items()
        ]
    except UnicodeEncodeError:
        await send_error(
            send,
            Reject(
                400,
                InvalidRequest(
                    "A header holds what is not Latin-1, and so cannot be a header of HTTP"
                ),
            ),
        )
        return answer
    # unless told otherwise, wherever the function is called is its place, and what is well known of
    # it lies below
    root = "" if options.get("path") else request.path.partition("/.well-known/")[0]
    seen = urlsplit(request.url)
    if seen.netloc and not any(name == b"host" for name, _ in headers):
        headers.append((b"host", seen.netloc.encode("latin-1", "replace")))
    scope = {
        "type": "http",
        "scheme": seen.scheme or "https",
        "method": request.method,
        "path": request.path,
        "root_path": root,
        "query_string": seen.query.encode(),
        "headers": headers,
        "client": (request.address, 0) if request.address else None,
    }
    try:
        await app(scope, receive, send)
    finally:
        await app.close()
    return answer
