"""HTTP as it is on the wire, for tests of the server: none of our client's code, one connection per
request.

`hosted(server)` puts a server on a port, in the test's own loop; what it gives sends requests and
reads answers, whole or event by event. `Stage` is a server whose tools begin, go on and end when
the test says so. `drive` calls an ASGI application without any HTTP in between, where it matters
what exactly that is told.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from dovetail import Context, Server
from dovetail.errors import CannotAsk
from dovetail.protocol.base import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from dovetail.revisions import BY_NAME
from dovetail.serve.uvicorn_server import make_protocol_class

MODERN, OLD, BATCHING = "2026-07-28", "2025-11-25", "2025-03-26"
BOTH = "application/json, text/event-stream"
INFO = {"name": "raw", "version": "1"}
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
Headers = Mapping[str, str | None]
"""A header that is None is left out."""


class Event:
    """One server-sent event, by its fields."""

    def __init__(self, text: str) -> None:
        lines = [line.partition(": ") for line in text.split("\n") if not line.startswith(":")]
        fields = {name.rstrip(":"): value for name, _, value in lines}
        self.comment = not fields
        self.name = fields.get("event", "message")
        self.id = fields.get("id")
        self.retry = fields.get("retry")
        self.data = fields.get("data", "")

    @property
    def message(self) -> Any:
        return json.loads(self.data)

    def __repr__(self) -> str:
        return f"Event({self.name!r}, id={self.id!r}, retry={self.retry!r}, data={self.data!r})"


class Answer:
    """The answer to one request: its head at once, its body as it comes."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        status: int,
        headers: dict[str, str],
    ) -> None:
        self._reader, self._writer = reader, writer
        self.status, self.headers = status, headers
        self._text = ""
        self._over = False

    async def _chunk(self) -> bytes:
        """The next piece of the body; nothing at its end."""
        if self._over:
            return b""
        if self.headers.get("transfer-encoding") == "chunked":
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            piece = (await self._reader.readexactly(size + 2))[:-2]
            self._over = not piece
        else:
            length = self.headers.get("content-length")
            empty = self.status in (202, 204) and length is None
            piece = (
                b""
                if empty
                else await self._reader.readexactly(int(length))
                if length
                else await self._reader.read()
            )
            self._over = True
        if self._over:
            self._writer.close()
        return piece

    async def body(self) -> bytes:
        """The whole body."""
        parts = []
        while piece := await self._chunk():
            parts.append(piece)
        return b"".join(parts)

    async def json(self) -> Any:
        """The whole body, which is JSON."""
        assert self.headers["content-type"] == "application/json", self.headers
        return json.loads(await self.body())

    async def error(self) -> dict[str, Any]:
        """The error that the body holds."""
        error: dict[str, Any] = (await self.json())["error"]
        return error

    async def event(self, *, comments: bool = False) -> Event | None:
        """The next event of a stream; None at its end."""
        assert self.headers["content-type"] == "text/event-stream", (self.status, self.headers)
        while True:
            while "\n\n" not in self._text:
                piece = await self._chunk()
                if not piece:
                    assert not self._text, self._text
                    return None
                self._text += piece.decode()
            block, _, self._text = self._text.partition("\n\n")
            event = Event(block)
            if comments or not event.comment:
                return event

    async def next(self) -> Event:
        """The next event, of which there is one."""
        event = await self.event()
        assert event is not None
        return event

    async def next_message(self) -> Any:
        """The next message, of which there is one; events without data are none."""
        while not (event := await self.next()).data:
            pass
        return event.message

    async def rest(self) -> list[Event]:
        """All events up to the end."""
        events = []
        while (event := await self.event()) is not None:
            events.append(event)
        return events

    async def messages(self) -> list[Any]:
        """All messages up to the end; events without data are none."""
        return [event.message for event in await self.rest() if event.data]

    async def whole(self) -> Any:
        """The reply, whether it came as JSON or at the end of a stream."""
        return (
            (await self.messages())[-1]
            if self.headers["content-type"] == "text/event-stream"
            else await self.json()
        )

    async def ended(self) -> None:
        """Wait until the other side has closed the connection."""
        while await self._reader.read(65536):
            pass

    def cut(self) -> None:
        """Go away, at once."""
        self._writer.transport.abort()


class Site:
    """A server on a port."""

    def __init__(self, port: int, path: str = "/mcp") -> None:
        self.port, self.path = port, path
        self.open: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.open.append(writer)
        return reader, writer

    async def begin(
        self, method: str, headers: Headers, body: bytes | None = None, path: str | None = None
    ) -> Any:
        """Send a request and wait for nothing; returns the connection."""
        reader, writer = await self.connect()
        given = {"Host": f"127.0.0.1:{self.port}", **headers}
        if body is not None:
            given.setdefault("Content-Length", str(len(body)))
        lines = [f"{method} {self.path if path is None else path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in given.items() if value is not None]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
        return reader, writer

    async def send(
        self, method: str, headers: Headers, body: bytes | None = None, path: str | None = None
    ) -> Answer:
        """Send a request; returns when the head of its answer is here."""
        reader, writer = await self.begin(method, headers, body, path)
        return await answered(reader, writer)

    async def post(
        self, message: Any, headers: Headers | None = None, path: str | None = None
    ) -> Answer:
        """Post a message, or bytes that may be none."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return await self.send(
            "POST",
            {"Content-Type": "application/json", "Accept": BOTH, **(headers or {})},
            body,
            path,
        )

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        id: Any = 1,
        headers: Headers | None = None,
        **said: Any,
    ) -> Answer:
        """A request of the stateless era."""
        message, proper = modern(method, params, id, **said)
        return await self.post(message, {**proper, **(headers or {})})

    async def call(
        self, tool: str, /, _headers: Headers | None = None, _id: Any = 1, **arguments: Any
    ) -> Answer:
        """A tool call of the stateless era that wants to hear of everything."""
        params = {"name": tool, "arguments": arguments}
        return await self.ask("tools/call", params, id=_id, headers=_headers, level="debug")

    async def greet(
        self,
        version: str = OLD,
        headers: Headers | None = None,
        path: str | None = None,
        capabilities: Any = None,
    ) -> "Session":
        """Open a session of the handshake era."""
        params = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": INFO,
        }
        answer = await self.post(request("initialize", params, 0), headers, path)
        assert answer.status == 200, await answer.body()
        session = Session(
            self,
            answer.headers.get("mcp-session-id"),
            version,
            (await answer.json())["result"],
            path,
        )
        session.headers = {**session.headers, **(headers or {})}
        return session


class Session:
    """A session of the handshake era, as its client has it."""

    def __init__(
        self, site: Site, id: str | None, version: str, result: Any, path: str | None = None
    ) -> None:
        self.site, self.id, self.version, self.result, self.path = site, id, version, result, path
        self.headers: Headers = {"Mcp-Session-Id": id, "MCP-Protocol-Version": version}

    async def post(self, message: Any, headers: Headers | None = None) -> Answer:
        """Post a message."""
        return await self.site.post(message, {**self.headers, **(headers or {})}, self.path)

    async def ask(
        self, method: str, params: Any = None, *, id: Any = 1, headers: Headers | None = None
    ) -> Answer:
        """A request."""
        return await self.post(request(method, params, id), headers)

    async def call(
        self, tool: str, /, _id: Any = 1, _headers: Headers | None = None, **arguments: Any
    ) -> Answer:
        """A tool call."""
        return await self.ask(
            "tools/call", {"name": tool, "arguments": arguments}, id=_id, headers=_headers
        )

    async def tell(self, method: str, params: Any = None) -> Answer:
        """A notification."""
        return await self.post(
            {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}
        )

    async def get(self, last: str | None = None, headers: Headers | None = None) -> Answer:
        """Open the stream for what belongs to no request, or take up one again."""
        given = {
            "Accept": "text/event-stream",
            "Last-Event-ID": last,
            **self.headers,
            **(headers or {}),
        }
        return await self.site.send("GET", given, path=self.path)

    async def listen(self) -> Answer:
        """Open the stream for what belongs to no request, and wait until it is."""
        answer = await self.get()
        if BY_NAME[self.version].priming:
            primer = await answer.next()
            assert primer.data == ""
        return answer

    async def delete(self) -> Answer:
        """End it."""
        return await self.site.send("DELETE", self.headers, path=self.path)


def request(method: str, params: Any = None, id: Any = 1) -> dict[str, Any]:
    """A request."""
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": method,
        **({} if params is None else {"params": params}),
    }


def modern(
    method: str,
    params: Mapping[str, Any] | None = None,
    id: Any = 1,
    *,
    capabilities: Mapping[str, Any] | None = None,
    level: str | None = None,
    version: str = MODERN,
) -> tuple[dict[str, Any], dict[str, str | None]]:
    """A request of the stateless era, and the headers that go with it."""
    meta = {PROTOCOL_VERSION: version, CLIENT_INFO: INFO, CLIENT_CAPABILITIES: capabilities or {}}
    if level is not None:
        meta[LOG_LEVEL] = level
    filled = {**(params or {}), "_meta": {**meta, **(params or {}).get("_meta", {})}}
    headers: dict[str, str | None] = {"MCP-Protocol-Version": version, "Mcp-Method": method}
    if method in NAMED and NAMED[method] in filled:
        headers["Mcp-Name"] = filled[NAMED[method]]
    return request(method, filled, id), headers


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
    """The head of an answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    return Answer(reader, writer, int(head[0].split()[1]), headers)


@asynccontextmanager
async def on_port(
    app: Any, *, lifespan: str = "off", path: str = "/mcp", http: Any = "auto"
) -> AsyncIterator[Site]:
    """Any ASGI application on a port, by uvicorn."""
    config = uvicorn.Config(app, lifespan=lifespan, http=http, log_config=None, ws="none")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    listening = socket.create_server(("127.0.0.1", 0))
    site = Site(listening.getsockname()[1], path)
    await server.startup(sockets=[listening])
    try:
        yield site
    finally:
        for writer in site.open:
            writer.close()
        if hasattr(app, "close"):
            await app.close()
        await down(server)


async def down(server: uvicorn.Server) -> None:
    """What uvicorn does to end, without the tenth of a second that it allows for it."""
    for listener in server.servers:
        listener.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()
    while server.server_state.connections or server.server_state.tasks:
        await asyncio.sleep(0.001)
    await server.lifespan.shutdown()


@asynccontextmanager
async def hosted(server: Server, path: str = "/mcp", **options: Any) -> AsyncIterator[Site]:
    """A server of ours on a port."""
    app = server.asgi(path, **options)
    async with on_port(app, path=path, http=make_protocol_class(app)) as site:
        yield site


async def drive(
    app: Any,
    method: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    path: str = "/",
    gone: asyncio.Event | None = None,
) -> list[Any]:
    """Call an ASGI application directly; returns what it sent. The client goes away when `gone` is
    set."""
    sent: list[Any] = []
    given = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if given:
            return given.pop()
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    await app(
        {"type": "http", "method": method, "path": path, "headers": raw, "query_string": b""},
        receive,
        send,
    )
    return sent


class Stage:
    """A server whose tools wait for the test."""

    def __init__(self, **options: Any) -> None:
        self.started, self.release, self.cancelled, self.finished = (
            asyncio.Event() for _ in range(4)
        )
        server = self.server = Server("stage", version="1.2.3", **options)

        @server.tool
        async def add(a: int, b: int) -> int:
            return a + b

        @server.tool
        async def wait() -> str:
            """Begin, and end when released."""
            await self._until_released()
            return "done"

        @server.tool
        async def talk(ctx: Context, before: int = 1, after: int = 0) -> str:
            """Say something, wait, say something more."""
            for number in range(before):
                ctx.info(f"before {number}")
            await self._until_released()
            for number in range(after):
                ctx.info(f"after {number}")
            return "done"

        @server.tool
        async def part(ctx: Context, after: int = 1) -> str:
            """Let the client go, and say the rest when released."""
            ctx.close_stream()
            await self._until_released()
            for number in range(after):
                ctx.info(f"after {number}")
            return "done"

        @server.tool
        async def chat(ctx: Context, count: int = 3) -> str:
            """Say something in one breath."""
            for number in range(count):
                ctx.info(f"line {number}")
            return "done"

        @server.tool
        async def need() -> str:
            raise CannotAsk("This needs sampling", required={"sampling": {}})

        @server.resource("note://one")
        async def note() -> str:
            return "a note"

        @server.prompt
        async def greet(name: str) -> str:
            return f"Hello {name}"

    async def _until_released(self) -> None:
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        self.finished.set()


def logged(messages: list[Any]) -> list[str]:
    """What log messages say."""
    return [
        message["params"]["data"]
        for message in messages
        if message.get("method") == "notifications/message"
    ]


def text(reply: Any) -> str:
    """What a tool said."""
    said: str = reply["result"]["content"][0]["text"]
    return said
