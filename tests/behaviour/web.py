"""A server on a port in the test's own loop, and a tape of what passes there.

The tape is made where HTTP becomes messages, between uvicorn and our application: a POST is a
message of the client, its body or each event of its stream one of the server, a WebSocket frame is
one of either. So it holds what was on the wire, and nothing that was not: a client that cancels by
hanging up sends no message, it is in `hung_up`.

Many programs of the tests import this module and then serve on stdio, so uvicorn is imported when a
server is started.
"""

import asyncio
import json
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from dovetail.transports.http.event_stream import EventStreamParser

if TYPE_CHECKING:
    from dovetail.testing import Tape

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]


class TapedApp:
    """An ASGI application, all of whose messages go onto a tape."""

    def __init__(self, app: App, tape: "Tape") -> None:
        self._app, self._tape = app, tape
        self.hung_up: list[Any] = []
        """The ids of the requests whose client went away before the answer was complete."""

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        wrap = {"http": self._http, "websocket": self._websocket}.get(scope["type"])
        await self._app(scope, *(wrap(receive, send) if wrap else (receive, send)))

    def _note(self, who: str, data: bytes | str) -> None:
        if data:
            self._tape.entries.append((who, data.encode() if isinstance(data, str) else data))

    def _http(self, receive: Receive, send: Send) -> tuple[Receive, Send]:
        asked, answer = bytearray(), bytearray()
        events: EventStreamParser | None = None
        over = False

        async def taped_receive() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                asked.extend(message.get("body", b""))
                if not message.get("more_body"):
                    self._note("client", bytes(asked))
            elif not over and asked:
                self.hung_up.append(json.loads(asked).get("id"))
            return message

        async def taped_send(message: Message) -> None:
            nonlocal events, over
            if message["type"] == "http.response.start":
                kind = dict(message["headers"]).get(b"content-type", b"")
                events = EventStreamParser(2**30) if kind == b"text/event-stream" else None
                answer.extend(b"" if kind == b"application/json" else b"-")
            else:
                body = message.get("body", b"")
                over = not message.get("more_body")
                if events is not None:
                    for event in events.feed(body):
                        if event.name == "message":
                            self._note("server", event.data)  # type: ignore[arg-type]
                else:
                    answer.extend(body)
                    if over and not answer.startswith(b"-"):
                        self._note("server", bytes(answer))
            await send(message)

        return taped_receive, taped_send

    def _websocket(self, receive: Receive, send: Send) -> tuple[Receive, Send]:
        async def taped_receive() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive":
                self._note("client", message.get("text") or message["bytes"])
            return message

        async def taped_send(message: Message) -> None:
            if message["type"] == "websocket.send":
                self._note("server", message.get("text") or message["bytes"])
            await send(message)

        return taped_receive, taped_send


def first_era_only(app: App) -> App:
    """The application as a server of the first revision has it: at the address of the old pair
    nothing can be posted."""

    async def refusing(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope["method"], scope["path"]) == ("POST", "/sse"):
            await send(
                {
                    "type": "http.response.start",
                    "status": 405,
                    "headers": [(b"content-length", b"0")],
                }
            )
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    return refusing


@asynccontextmanager
async def on_a_port(app: App, port: int = 0) -> AsyncIterator[str]:
    """The application under uvicorn, in this loop; gives `127.0.0.1:<port>`.

    uvicorn's own loop looks ten times a second whether it should end, and its end sleeps as long:
    too slow for hundreds of tests, so both are done here, step by step and without a pause.
    """
    import uvicorn

    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_config=None, lifespan="on", ws="websockets-sansio")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listening])
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        for one in server.servers:
            one.close()
        for connection in list(server.server_state.connections):
            getattr(
                connection, "pipeline", deque[Any]()
            ).clear()  # what waits behind a stream must not begin when that ends
        await server.lifespan.shutdown()  # which ends the streams, so that the connections can
        for connection in list(server.server_state.connections):
            connection.shutdown()
        while server.server_state.tasks:
            await asyncio.wait(server.server_state.tasks)
        listening.close()
