"""A service without registries: it answers with fixed values. On stdio it is a process of its own:
`python -m tests.server.echo_service '<rates as JSON>'`."""

import json
import sys
from typing import Any

import msgspec

from dovetail import Rates
from dovetail.ports import Call
from dovetail.protocol.base import Implementation
from dovetail.protocol.content import TextContent
from dovetail.protocol.lifecycle import ServerCapabilities
from dovetail.protocol.tools import ListToolsResult, Tool, ToolResult
from dovetail.server.runnable import RunnableService


class EchoService(RunnableService):
    """A relay that talks to nobody."""

    def __init__(self, **options: Any) -> None:
        super().__init__(Implementation(name="echo", version="1"), **options)
        self.add_handlers({"tools/list": self._list_tools, "tools/call": self._call_tool})
        self.told = "Nothing to say"
        self.offered: dict[str, Any] = {"tools": {}, "resources": {"subscribe": True}}
        self.heard: list[tuple[str, bool]] = []

    @property
    def instructions(self) -> str:
        return self.told

    @property
    def capabilities(self) -> ServerCapabilities:
        return ServerCapabilities.lift(self.offered)

    async def _list_tools(self, call: Call) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="echo", input_schema={"type": "object"})])

    async def _call_tool(self, call: Call) -> ToolResult:
        return ToolResult(content=[TextContent(text=f"{call.params.name}: heard")])


def build(rates: dict[str, Any] | None = None, **options: Any) -> EchoService:
    """The service. `rates` are those of `Rates`, as JSON has them."""
    if rates is not None:
        options["rates"] = msgspec.convert(rates, Rates)
    return EchoService(**options)


if __name__ == "__main__":
    build(json.loads(sys.argv[1])).run()
