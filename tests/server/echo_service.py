"""A service without registries: it answers with fixed values. On stdio it is a process of its own:
`python -m tests.server.echo_service '<rates as JSON>' [file]`, and each line of the file is what it
heard of subscriptions."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from dovetail import Rates
from dovetail.ports import Call
from dovetail.protocol.base import Implementation
from dovetail.protocol.content import TextContent
from dovetail.protocol.lifecycle import ServerCapabilities
from dovetail.protocol.tools import ListToolsResult, Tool, ToolResult
from dovetail.server.runnable import RunnableService
from tests.behaviour.web import first_era_only, on_a_port


class EchoService(RunnableService):
    """A relay that talks to nobody."""

    def __init__(self, **options: Any) -> None:
        super().__init__(Implementation(name="echo", version="1"), **options)
        self.add_handlers({"tools/list": self._list_tools, "tools/call": self._call_tool})
        self.told = "Nothing to say"
        self.offered: dict[str, Any] = {"tools": {}, "resources": {"subscribe": True}}
        self.hear: Callable[[tuple[str, bool]], Any] = lambda heard: None
        """Called with the URI of a resource when somebody or nobody is subscribed to it."""

    @property
    def instructions(self) -> str:
        return self.told

    @property
    def capabilities(self) -> ServerCapabilities:
        return ServerCapabilities.lift(self.offered)

    def on_subscriptions(self, uri: str, active: bool) -> None:
        self.hear((uri, active))

    async def _list_tools(self, call: Call) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="echo", input_schema={"type": "object"})])

    async def _call_tool(self, call: Call) -> ToolResult:
        return ToolResult(content=[TextContent(text=f"{call.params.name}: heard")])


def build(rates: dict[str, Any] | None = None, **options: Any) -> EchoService:
    """The service. `rates` are those of `Rates`, as JSON has them."""
    if rates is not None:
        options["rates"] = msgspec.convert(rates, Rates)
    return EchoService(**options)


@asynccontextmanager
async def reachable(transport: str, service: EchoService) -> AsyncIterator[Any]:
    """What a client takes as its target to reach the service: over a network, or in memory."""
    if transport == "memory":
        yield service
        return
    app: Any = service.asgi(path="/mcp", sse=True, websocket=True)
    async with on_a_port(first_era_only(app) if transport == "sse" else app) as address:
        yield URLS[transport].format(address)


def in_process(*words: Any) -> dict[str, Any]:
    """What a client takes to start the service as a process."""
    module = [sys.executable, "-m", "tests.server.echo_service"]
    return {"target": [*module, *map(str, words)], "cwd": ROOT}


ROOT = Path(__file__).parents[2]
URLS = {"http": "http://{}/mcp", "sse": "http://{}/sse", "websocket": "ws://{}/ws"}
WAYS = [
    (transport, revision)
    for transport in ("memory", "stdio", *URLS)
    for revision in ("2024-11-05", "2025-11-25", "2026-07-28")
    if transport != "sse" or revision == "2024-11-05"
]
"""The transports and the revisions that can be spoken over them."""

if __name__ == "__main__":
    service = build(json.loads(sys.argv[1]))
    if sys.argv[2:]:
        out = open(sys.argv[2], "w", buffering=1)  # noqa: SIM115, until the process ends
        service.hear = lambda heard: print(json.dumps(heard), file=out)
    service.run()
