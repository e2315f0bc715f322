"""The server of test_client_session.py. On stdio, it may be limited to one revision: `server.py
REVISION`."""

import asyncio
import sys
from dataclasses import dataclass

from dovetail import Context, Image, Server, ToolError


@dataclass
class Name:
    name: str


def make_server(*revisions: str) -> Server:
    server = Server("session", version="1.0.0", page_size=4, revisions=revisions or None)

    @server.tool
    async def add(a: int, b: int, ctx: Context) -> int:
        """Add two numbers."""
        ctx.progress(1, 2, "half")
        ctx.info("adding")
        return a + b

    @server.tool
    def fail() -> str:
        raise ToolError("no luck")

    @server.tool
    def dot() -> Image:
        return Image(b"png", "image/png")

    @server.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", Name)
        return f"{answer.action} {answer.data.name if answer.data else ''}".strip()

    @server.tool
    async def think(ctx: Context) -> str:
        return (await ctx.sample("Think!", max_tokens=5)).text

    @server.tool
    async def roots(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.list_roots()]

    @server.tool
    async def touch(ctx: Context) -> None:
        await ctx.notify_resource_updated("note://one")

    @server.tool
    def grow() -> None:
        server.add_tool(lambda: "new", name="grown")

    @server.resource("note://one")
    def note() -> str:
        return "Buy milk"

    @server.resource("blob://one", mime_type="image/png")
    def blob() -> bytes:
        return b"png"

    @server.resource("user://{name}")
    def user(name: str) -> str:
        return name

    @server.prompt
    def greet(name: str) -> str:
        return f"Greet {name}."

    @greet.complete("name")
    def names(value: str) -> list[str]:
        return [name for name in ("Ada", "Alan", "Grace") if name.startswith(value)]

    return server


if __name__ == "__main__":
    make_server(*sys.argv[1:]).run()
