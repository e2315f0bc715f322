"""A peer without any manners: it sends bytes and reads what comes back. For tests of hostile and
odd input."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from ..ports import Channel, Incoming
from ..server.server import Server
from ..transports import memory


class Bare:
    """One end of a channel, by hand."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        channel.start(self._received, self._ended)

    def _received(self, data: Incoming) -> None:
        self._inbox.put_nowait(data)

    def _ended(self, reason: Exception | None) -> None:
        self.ended.set_result(reason)

    def send(self, message: Any) -> None:
        """Send a message, or any bytes at all."""
        self._channel.send(message if isinstance(message, bytes) else msgspec.json.encode(message))

    async def receive(self, timeout: float = 10.0) -> Any:
        """The next message, as JSON."""
        async with asyncio.timeout(timeout):
            return msgspec.json.decode(await self._inbox.get())

    async def ask(self, method: str, params: Any = None, id: Any = 1) -> Any:
        """Send a request and return the reply to it; other messages that come before it are left
        out."""
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        self.send(message if params is None else {**message, "params": params})
        while True:
            reply = await self.receive()
            if isinstance(reply, dict) and reply.get("id") == id and "method" not in reply:
                return reply

    def waiting(self) -> int:
        """How many messages have come and were not read."""
        return self._inbox.qsize()

    async def greet(self, version: str, capabilities: dict[str, Any] | None = None) -> Any:
        """Shake hands; returns the server's answer."""
        info = {"name": "bare", "version": "0"}
        params = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": info,
        }
        reply = await self.ask("initialize", params, id="greeting")
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return reply

    async def close(self) -> None:
        """End the conversation."""
        await self._channel.close()


@asynccontextmanager
async def bare(server: Server) -> AsyncIterator[Bare]:
    """A bare peer of this server, in memory."""
    ours, theirs = memory.pair(theirs=server.limits)
    serving = asyncio.get_running_loop().create_task(server.serve(theirs))
    peer = Bare(ours)
    try:
        yield peer
    finally:
        await peer.close()
        await serving
