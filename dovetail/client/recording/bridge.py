"""A proxy between a host on stdio and a server at a URL, which records what passes.

The host's messages are sent with the transports of the client, which add what HTTP needs: headers,
the session, the stream for the server's own messages, credentials. A request that gets no reply is
answered with an error.
"""

import asyncio
import time
from typing import Any

import msgspec

from ...errors import ConnectionClosed, DovetailError, ProtocolError, TooLarge
from ...jsonrpc.framing import TooLong
from ...jsonrpc.messages import Error, ErrorResponse, Id, encode, peek_id
from ...limits import DEFAULT
from ...mcplog import McplogWriter
from ...ports import Channel, Incoming, LostReply
from ...protocol.tools import Tool
from ...transports.stdio import StdioChannel
from ..targets import Target
from .script import read_messages

INTERNAL_ERROR = -32603
TOO_LONG = f"The server's reply is longer than {DEFAULT.incoming} bytes, so it was not passed on"


async def run_bridge(target: Target, writer: McplogWriter) -> None:
    """Connect stdin and stdout of this process to a server at a URL, until one of them ends.

    Args:
        target: The server.
        writer: The recording.

    Raises:
        DovetailError: The server cannot be reached, or the connection was lost.
    """
    host = StdioChannel(DEFAULT)
    server = await target.open()
    try:
        await _Bridge(host, server, writer).run()
    finally:
        await server.close()
        await host.close()


class _Bridge:
    def __init__(self, host: Channel, server: Channel, writer: McplogWriter) -> None:
        self._host, self._server, self._writer = host, server, writer
        self._waiting: dict[Id, str] = {}
        """The method of each request that has no reply yet, by its id."""
        self._changed = asyncio.Event()
        self._host_ended = False
        self._server_ended: tuple[Exception | None] | None = None

    async def run(self) -> None:
        self._server.start(self._to_client, self._on_server_end)
        self._host.start(self._to_server, self._on_host_end)
        while not self._host_ended and self._server_ended is None:
            await self._next_change()
        try:
            async with asyncio.timeout(DEFAULT.shutdown):  # the host may still want its replies
                while self._waiting and self._server_ended is None:
                    await self._next_change()
        except TimeoutError:
            pass
        if self._server_ended is not None and not self._host_ended:
            raise self._server_ended[0] or ConnectionClosed("The server has ended the connection")

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _on_host_end(self, _: Exception | None) -> None:
        self._host_ended = True
        self._changed.set()

    def _on_server_end(self, reason: Exception | None) -> None:
        self._server_ended = (reason,)
        self._changed.set()

    def _to_server(self, item: Incoming) -> None:
        if isinstance(item, bytes):
            self._writer.message("to_server", item, time.time())
            for message in read_messages(item):
                if "method" in message and isinstance(message.get("id"), int | str):
                    self._waiting[message["id"]] = message["method"]
            self._server.send(item)

    def _to_client(self, item: Incoming) -> None:
        if isinstance(item, LostReply):
            item = encode(ErrorResponse(item.id, _to_error(item.error)))
        if isinstance(item, TooLong):
            self._writer.lost({"direction": "to_client", "reason": "too long", "data": item.head})
            id = self._find_request(item)
            if id is None:
                return
            item = encode(ErrorResponse(id, Error(TooLarge.code, TOO_LONG)))
        self._writer.message("to_client", item, time.time())
        for message in read_messages(item):
            if "method" not in message:
                self._learn(self._waiting.pop(message.get("id"), ""), message)  # type: ignore[arg-type]
        self._host.send(item)
        self._changed.set()

    def _find_request(self, reply: TooLong) -> Id | None:
        """Return the id of the request that a reply answers; None if it is not a reply."""
        id, is_reply = peek_id(reply.head)
        if is_reply is None and b'"method"' not in reply.head:
            id = getattr(self._server, "request_id", None)  # the request whose stream it is on
        return id if is_reply is not False and id in self._waiting else None

    def _learn(self, method: str, message: dict[str, Any]) -> None:
        """Tell the transport which arguments of the server's tools are repeated in headers."""
        learn_tool = getattr(self._server, "learn_tool", None)
        if method != "tools/list" or learn_tool is None:
            return
        try:
            for tool in msgspec.convert(message["result"]["tools"], list[Tool]):
                learn_tool(tool)
        except (KeyError, TypeError, msgspec.ValidationError):
            pass  # the host will notice


def _to_error(problem: DovetailError) -> Error:
    if isinstance(problem, ProtocolError):
        return Error(problem.code, str(problem), problem.data)
    return Error(INTERNAL_ERROR, str(problem))
