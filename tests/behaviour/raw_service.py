"""Two services that handle raw messages: one answers with what it was sent and more, and one passes
everything on to another server. Run as a script, the first serves on stdio."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dovetail import Client
from dovetail.ports import Call
from dovetail.protocol import (
    GetPromptResult,
    Implementation,
    ListToolsResult,
    ProgressParams,
    RawObject,
    ReadResourceResult,
    ServerCapabilities,
    ToolResult,
)
from dovetail.server.runnable import RunnableService
from dovetail.testing import pair

DRAFT = "detailed-draft"
PREFIX = "io.modelcontextprotocol/"
split = msgspec.json.Decoder(dict[str, Raw]).decode
BIG = 2**53 + 1
NEW = Raw(b'{"n":9007199254740993,"digits":123456789012345678901234567890,"price":1.10,"a":[{}]}')
"""A value that only a copy of its bytes preserves."""
TEXT = b'{"type":"text","text":"done","x-new":%b}' % bytes(NEW)
CONTENT = Raw(b"[%b]" % TEXT)
TOOLS = Raw(
    b'[{"name":"echo","inputSchema":{"type":"object","x-max":%b},"title":"Echo","icons":[],'
    b'"execution":{"taskSupport":"optional"},"x-new":%b}]' % (bytes(NEW), bytes(NEW))
)


class RawEcho(RunnableService):
    """Answers with raw results. Each has the params that it was sent, and an unknown field."""

    def __init__(self, **options: Any) -> None:
        super().__init__(Implementation(name="echo", version="1"), **options)
        self.received: list[Raw] = []
        handlers = {
            "tools/list": (ListToolsResult, {"tools": TOOLS}),
            "tools/call": (
                ToolResult,
                {"content": CONTENT, "structuredContent": NEW, "isError": Raw(b"false")},
            ),
            "resources/read": (
                ReadResourceResult,
                {"contents": Raw(b'[{"uri":"doc://a","text":"a","x-new":%b}]' % bytes(NEW))},
            ),
            "prompts/get": (
                GetPromptResult,
                {"messages": Raw(b'[{"role":"user","content":%b,"x-new":%b}]' % (TEXT, NEW))},
            ),
        }
        self.add_handlers({name: self._answer(*result) for name, result in handlers.items()})

    @property
    def capabilities(self) -> ServerCapabilities:
        return ServerCapabilities.lift({"tools": {}, "resources": {}, "prompts": {}})

    def _answer(self, type: type[Struct], fields: dict[str, Any]) -> Any:
        async def answer(call: Call) -> RawObject:
            if call.progress is not None:
                call.progress.update(ProgressParams(progress_token=0, progress=1))
            self.received.append(call.raw_params)
            received = call.raw_params or Raw(b"{}")
            return RawObject(type, {**fields, "x-new": NEW, "x-received": received})

        return answer


RELAYED = (
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
)


class RelayService(RunnableService):
    """Passes each request on to another server: raw, or decoded on the way."""

    def __init__(self, client: Client, *, raw: bool = True, **options: Any) -> None:
        super().__init__(Implementation(name="relay", version="2"), **options)
        self._client = client
        self.add_handlers(dict.fromkeys(RELAYED, self._relay if raw else self._decode))

    @property
    def capabilities(self) -> ServerCapabilities:
        return self._client.capabilities

    async def _relay(self, call: Call) -> RawObject:
        assert call.method.result is not None
        result = await self._client.relay(call.name, call.raw_params)
        return RawObject.parse(call.method.result, result)

    async def _decode(self, call: Call) -> Any:
        call.params.meta = None
        result = await self._client.request(call.name, call.params, fresh=True)
        result.meta = None
        return result


@asynccontextmanager
async def relayed(server: Any, upstream: str, caller: str, **options: Any) -> AsyncIterator[Client]:
    """A client of a relay to a server."""
    async with pair(server, revision=upstream) as behind:
        async with pair(RelayService(behind, **options), revision=caller) as client:
            yield client


if __name__ == "__main__":
    RawEcho().run()
