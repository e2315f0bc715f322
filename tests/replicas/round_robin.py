"""A load balancer without sticky routing: each request goes to the next server.

Each request has a connection of its own to its server, and is the last one on the connection of its
client. So the end of a response is the end of its connection, and the proxy reads only the heads of
requests. A request to a server that does not listen goes to the next one, as behind a load balancer
with health checks.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

CHUNK_BYTES = 64 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CONNECTION = re.compile(rb"\r\nconnection: *[^\r]*", re.IGNORECASE)


class RoundRobin:
    """A proxy in front of servers on ports of the loopback interface.

    Args:
        ports: The ports of the servers.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports, self._next = list(ports), 0
        self._open: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one request on, and its response back."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        ends = [writer]
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await reader.readexactly(int(length[1])) if length else b""
            upstream, forward = await self._connect()
            ends.append(forward)
            head = _CONNECTION.sub(b"", head)
            forward.write(head[:-2] + b"Connection: close\r\n\r\n" + body)
            await self._pass_back(reader, upstream, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            for end in ends:
                end.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in self._ports:
            port = self._ports[self._next % len(self._ports)]
            self._next += 1
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
        raise ConnectionRefusedError("no server listens")

    @staticmethod
    async def _pass_back(
        reader: asyncio.StreamReader, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass a response back until it ends or its client has gone."""

        async def pump() -> None:
            while chunk := await upstream.read(CHUNK_BYTES):
                writer.write(chunk)
                await writer.drain()

        ways = [asyncio.create_task(pump()), asyncio.create_task(reader.read(1))]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in done:
                way.exception()
        finally:
            for way in ways:
                way.cancel()

    async def close(self) -> None:
        for task in list(self._open):
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)


@asynccontextmanager
async def round_robin(ports: Sequence[int], port: int = 0) -> AsyncIterator[RoundRobin]:
    """Run a proxy in front of these ports, on any port or on this one."""
    proxy = RoundRobin(ports)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", port, limit=1 << 20)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        await proxy.close()
