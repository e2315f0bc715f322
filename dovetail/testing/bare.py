"""A peer that follows no rules: it sends any bytes and reads what comes back. For tests of hostile
and odd input."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from ..ports import Channel
from ..server.server import Server
from ..transports import memory


class Bare:
    """One end of a channel, for sending and receiving raw messages.

    Args:
        channel: The channel. It is started at once, so this needs a running event loop.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        """Done when the channel has ended: with the reason, or None for an orderly end."""
        channel.start(self._inbox.put_nowait, self.ended.set_result)

    def send(self, message: Any) -> None:
        """Send a message.

        Args:
            message: Bytes, which are sent as they are, or a value that is encoded as JSON.
        """
        self._channel.send(message if isinstance(message, bytes) else msgspec.json.encode(message))

    async def receive(self, timeout: float = 10.0) -> Any:
        """Return the next message, decoded from JSON.

        Args:
            timeout: Seconds to wait for it (default: 10). After that TimeoutError is raised.
        """
        async with asyncio.timeout(timeout):
            return msgspec.json.decode(await self._inbox.get())

    async def ask(self, method: str, params: Any = None, id: Any = 1) -> Any:
        """Send a request and return its reply. Other messages that arrive before it are dropped.

        Args:
            method: The name of the method.
            params: The params; None sends none.
            id: The id of the request.
        """
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        self.send(message if params is None else {**message, "params": params})
        while True:
            reply = await self.receive()
            if isinstance(reply, dict) and reply.get("id") == id and "method" not in reply:
                return reply

    def waiting(self) -> int:
        """Return how many messages have arrived and were not read."""
        return self._inbox.qsize()

    async def greet(self, version: str, capabilities: dict[str, Any] | None = None) -> Any:
        """Send `initialize` and `notifications/initialized`; return the reply to the former.

        Args:
            version: The protocol version to propose.
            capabilities: The capabilities to declare (default: none).
        """
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
        """Close the channel."""
        await self._channel.close()


@asynccontextmanager
async def bare(server: Server) -> AsyncIterator[Bare]:
    """Connect a bare peer to a server, in memory.

    Args:
        server: The server. It is served until the block ends.
    """
    ours, theirs = memory.pair(theirs=server.limits)
    serving = asyncio.get_running_loop().create_task(server.serve(theirs))
    peer = Bare(ours)
    try:
        yield peer
    finally:
        await peer.close()
        await serving
