"""The petstore, and a client of the server that is made from its description."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dovetail import Client, Server
from dovetail.protocol.tools import ToolResult
from dovetail.testing import pair

from .stub import ApiStub, serving

PETSTORE = Path(__file__).parent / "petstore.json"


def petstore(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(PETSTORE.read_text())
    return document | changes


def minimal(paths: dict[str, Any], version: str = "3.1.0", **components: Any) -> dict[str, Any]:
    """A description with these paths."""
    info = {"title": "t", "version": "1"}
    return {"openapi": version, "info": info, "paths": paths, "components": components}


class Stage(NamedTuple):
    stub: ApiStub
    server: Server
    client: Client
    origin: str

    async def call(self, tool: str, **arguments: Any) -> ToolResult:
        return await self.client.call_tool(tool, arguments, raise_on_error=False)

    async def schema(self, tool: str) -> dict[str, Any]:
        tools = {one.name: one for one in await self.client.list_tools()}
        return tools[tool].input_schema


@asynccontextmanager
async def stage(
    document: dict[str, Any] | None = None, path: str = "", **options: Any
) -> AsyncIterator[Stage]:
    """The API at a stub, served to a client in memory."""
    described = petstore() if document is None else document
    stub = ApiStub(described)
    async with serving(stub.handle) as origin:
        server = Server.from_openapi(described, base_url=f"{origin}{path}", **options)
        async with pair(server) as client:
            yield Stage(stub, server, client, origin)
