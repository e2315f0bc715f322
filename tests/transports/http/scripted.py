"""An HTTP server that does what a test tells it to, byte by byte where need be, and keeps what it
was asked."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any

from dovetail.revisions import HANDSHAKE, STATELESS

MODERN, OLD = STATELESS[-1].version, HANDSHAKE[-1].version
INFO = {"name": "scripted", "version": "1"}
CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True},
    "prompts": {},
    "logging": {},
}
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": [MODERN],
    "capabilities": CAPABILITIES,
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
}
WELCOME = {"protocolVersion": OLD, "capabilities": CAPABILITIES, "serverInfo": INFO}


class Asked:
    """One request, and the ways to answer it."""

    def __init__(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.method, self.path, self.headers, self.body = method, path, headers, body
        self._writer = writer
        self.hung_up = asyncio.Event()
        """Whether the client closed the connection before it was answered."""
        self.problem: BaseException | None = None

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body) if self.body else {}

    @property
    def rpc(self) -> str:
        """The JSON-RPC method, or the HTTP method where there is no message."""
        return self.message.get("method", "a reply") if self.body else self.method

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] = {}) -> None:
        lines = [
            f"HTTP/1.1 {status} Whatever",
            f"Content-Length: {len(body)}",
            *(f"{k}: {v}" for k, v in headers.items()),
        ]
        await self.raw("\r\n".join([*lines, "", ""]).encode() + body)

    async def json(self, value: Any, status: int = 200, headers: Mapping[str, str] = {}) -> None:
        await self.answer(
            status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers}
        )

    async def result(self, result: Any, headers: Mapping[str, str] = {}) -> None:
        await self.json(self.reply(result), headers=headers)

    def reply(self, result: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.message["id"], "result": result}

    async def error(
        self, code: int, text: str, status: int = 200, data: Any = None, id: Any = "own"
    ) -> None:
        id = self.message.get("id") if id == "own" else id
        await self.json(
            {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text, "data": data}},
            status,
        )

    async def stream(self, headers: Mapping[str, str] = {}) -> None:
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked"]
        lines += [f"{k}: {v}" for k, v in headers.items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode())

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, value: Any, **fields: Any) -> None:
        lines = [f"{name}: {field}" for name, field in fields.items()]
        await self.chunk("\n".join([*lines, f"data: {json.dumps(value)}", "", ""]).encode())

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def cut(self) -> None:
        self._writer.transport.abort()


Script = Callable[[Asked], Awaitable[None]]


class Scripted:
    """The server. `async with Scripted(script) as server:` then `server.url`, `server.asked`."""

    def __init__(self, script: Script, port: int = 0, path: str = "/mcp", ssl: Any = None) -> None:
        self.script, self.port, self._path, self._ssl = script, port, path, ssl
        self.asked: list[Asked] = []
        self._came = asyncio.Condition()
        self._server: asyncio.Server
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.problems: list[BaseException] = []

    @property
    def origin(self) -> str:
        return f"{'https' if self._ssl else 'http'}://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return self.origin + self._path

    def heard(self, rpc: str) -> list[Asked]:
        return [one for one in self.asked if one.rpc == rpc]

    async def until(self, rpc: str, count: int = 1) -> Asked:
        """Wait for that many requests of this kind; the last of them."""
        async with self._came:
            await self._came.wait_for(lambda: len(self.heard(rpc)) >= count)
        return self.heard(rpc)[count - 1]

    async def __aenter__(self) -> "Scripted":
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self._ssl
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
        if error is None and self.problems:
            raise self.problems[0]

    async def stop(self) -> None:
        """Gone, at once and without a word, as after kill -9."""
        for listener in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        for _ in range(
            5
        ):  # a connection that was just accepted is there a few turns of the loop later
            for writer in self._writers:
                writer.transport.abort()
            for task in self._tasks:
                task.cancel()
            await asyncio.sleep(0)
        self._server.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        coming = asyncio.create_task(_read(reader, writer))
        try:
            while True:
                asked = await coming
                self.asked.append(asked)
                async with self._came:
                    self._came.notify_all()
                answering = asyncio.create_task(_run(self.script(asked)))
                coming = asyncio.create_task(_read(reader, writer))
                await asyncio.wait([answering, coming], return_when=asyncio.FIRST_COMPLETED)
                if (
                    coming.done()
                ):  # the client does not ask again before it was answered: it hung up
                    asked.hung_up.set()
                    asked.problem = coming.exception()
                await answering
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except Exception as problem:
            self.problems.append(problem)
        finally:
            coming.cancel()
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()


async def _run(work: Awaitable[None]) -> None:
    await work


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {
        k.strip().lower(): v.strip()
        for k, _, v in (line.partition(":") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, body, writer)


async def modern(asked: Asked) -> bool:
    """Answer discovery, as a server of the stateless era does."""
    if asked.rpc == "server/discover":
        await asked.result(DISCOVERED)
        return True
    return False


async def old(asked: Asked, session: str | None = "s-1") -> bool:
    """Open, as a server of the handshake era does, which has no stream of its own."""
    match asked.rpc:
        case "server/discover":
            await asked.error(-32600, "Bad Request: Missing session ID", 400, id="server-error")
        case "initialize":
            await asked.result(WELCOME, {"Mcp-Session-Id": session} if session else {})
        case "notifications/initialized":
            await asked.answer(202)
        case "GET":
            await asked.answer(405)
        case "DELETE":
            await asked.answer(200)
        case _:
            return False
    return True
