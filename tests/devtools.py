"""A connection to Chromium's DevTools: commands and their results, and events.

https://chromedevtools.github.io/devtools-protocol/
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

COMMAND_SECONDS = 30.0

Listener = Callable[[dict[str, Any]], None]


class DevTools:
    """One WebSocket, shared by a tab and its frames. Each of them has its own session id; that of
    the tab is None."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._ids = socket, itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listeners: dict[tuple[str | None, str], list[Listener]] = {}

    async def command(
        self, method: str, params: dict[str, Any], session: str | None
    ) -> dict[str, Any]:
        """Send a command and return its result. An error of the browser fails the test."""
        id = next(self._ids)
        self._waiting[id] = asyncio.get_running_loop().create_future()
        message = {"id": id, "method": method, "params": params}
        try:
            await self._socket.send_json(message | ({"sessionId": session} if session else {}))
            async with asyncio.timeout(COMMAND_SECONDS):
                reply = await self._waiting[id]
        finally:
            del self._waiting[id]
        assert "error" not in reply, reply
        result: dict[str, Any] = reply["result"]
        return result

    def listen(self, session: str | None, method: str, listener: Listener) -> None:
        """Call a function with the params of each such event."""
        self._listeners.setdefault((session, method), []).append(listener)

    async def read(self) -> None:
        """Pass on what the browser sends, until the connection ends."""
        async for frame in self._socket:
            message = json.loads(frame.data)
            if (waiting := self._waiting.get(message.get("id"))) and not waiting.done():
                waiting.set_result(message)
            event = message.get("sessionId"), message.get("method")
            for listener in self._listeners.get(event, ()):
                listener(message["params"])
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("the browser has ended"))


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[DevTools]:
    """Connect to a tab by its `webSocketDebuggerUrl`."""
    async with aiohttp.ClientSession() as web, web.ws_connect(url, max_msg_size=0) as socket:
        devtools = DevTools(socket)
        reading = asyncio.create_task(devtools.read())
        try:
            yield devtools
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
