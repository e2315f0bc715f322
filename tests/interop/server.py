"""The server of ours that the peers' clients are driven against: one of everything, written with
the public API.

    python tests/interop/server.py [--revision 2025-06-18] [--port 8000]

On stdio, or with a port over HTTP and the old SSE pair at once. The peers' own servers
(`peer_servers/`) offer the same under the same names, so that one table of steps (`steps.py`)
serves both directions.
"""

import argparse
import asyncio

from msgspec import Struct

from dovetail import Context, Message, Server, ToolError


class Point(Struct):
    x: int
    y: int


class Name(Struct):
    name: str


def build(revisions: list[str] | None = None) -> Server:
    server = Server("interop", version="1.0.0", instructions="Try it all.", revisions=revisions)

    @server.tool(title="Add", annotations={"readOnlyHint": True})
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.tool
    def point(x: int, y: int) -> Point:
        """A point."""
        return Point(x, y)

    @server.tool
    async def fail() -> str:
        """Fail, in words for the model."""
        raise ToolError("as it is")

    @server.tool
    async def steps(count: int, pause: float, ctx: Context) -> str:
        """Report progress."""
        for step in range(1, count + 1):
            await ctx.progress(step, count, f"step {step}")
            await asyncio.sleep(pause)
        return "done"

    @server.tool
    async def talk(ctx: Context) -> str:
        """Log twice."""
        await ctx.info("one")
        await ctx.warning("two")
        return "said"

    @server.tool
    async def ask_name(ctx: Context) -> str:
        """Ask the user."""
        answer = await ctx.elicit("Who are you?", Name)
        return f"{answer.action} {answer.data.name if answer.data else ''}".strip()

    @server.tool
    async def ask_model(ctx: Context) -> str:
        """Ask the client's model."""
        return (await ctx.sample("Say something", max_tokens=20)).text

    @server.tool
    async def ask_roots(ctx: Context) -> str:
        """Ask for the roots."""
        return " ".join(str(root.uri) for root in await ctx.list_roots())

    @server.tool
    async def grow(name: str) -> str:
        """One more tool."""
        server.add_tool(add, name=name)
        return name

    @server.tool
    async def touch(ctx: Context) -> str:
        """Tell that a resource changed."""
        await ctx.notify_resource_updated("doc://text")
        return "touched"

    @server.resource("doc://text", mime_type="text/plain")
    def text() -> str:
        """Some text."""
        return "hello"

    @server.resource("doc://bytes", mime_type="application/octet-stream")
    def data() -> bytes:
        return b"\x00\xff"

    @server.resource("item://{number}/name", mime_type="text/plain")
    def item(number: int) -> str:
        return f"item {number}"

    @server.prompt
    def greet(name: str) -> str:
        """Say hello."""
        return f"Hello {name}!"

    @server.prompt
    def talk_about(topic: str) -> list[Message]:
        return [Message("user", f"What of {topic}?"), Message("assistant", "A lot.")]

    greet.complete("name", ["Ada", "Alan", "Barbara"])
    return server


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--revision", action="append")
    options.add_argument("--port", type=int)
    chosen = options.parse_args()
    if chosen.port is None:
        build(chosen.revision).run()
    else:
        build(chosen.revision).run("http", port=chosen.port, sse=True)
