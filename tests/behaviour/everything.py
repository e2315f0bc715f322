"""A server with one of everything, for the behaviour tests. Run as a script it serves on stdio."""

import asyncio
import queue
import threading
from contextlib import asynccontextmanager
from typing import Annotated, Any

from msgspec import Meta, Struct

from dovetail import (
    Annotations,
    Audio,
    AudioContent,
    Context,
    EmbeddedResource,
    File,
    Icon,
    Image,
    Limits,
    Message,
    NotFound,
    ProtocolError,
    ResourceLink,
    Server,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
    ToolError,
    ToolResult,
)

PIXEL = bytes.fromhex("89504e470d0a1a0a")


class Point(Struct):
    x: int
    y: int


@asynccontextmanager
async def lifespan(server: Server):
    yield {"started": True}


def build(**options: Any) -> Server:
    server = Server(
        "everything",
        version="1.2.3",
        title="Everything",
        description="One of everything",
        website_url="https://example.com",
        icons=[
            Icon(
                "https://example.com/icon.png",
                mime_type="image/png",
                sizes=["48x48"],
                theme="light",
            )
        ],
        instructions="Try it all.",
        lifespan=lifespan,
        experimental={"flag": {"on": True}},
        **options,
    )
    release = threading.Event()
    cancelled: queue.SimpleQueue[str] = queue.SimpleQueue()

    @server.tool(
        title="Add",
        annotations=ToolAnnotations(title="Adds", read_only_hint=True, idempotent_hint=True),
        icons=[Icon("https://example.com/add.svg")],
        meta={"example.com/kind": "sum"},
    )
    async def add(a: int, b: Annotated[int, Meta(description="the other one")] = 1) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    def point(x: int, y: int) -> Point:
        return Point(x, y)

    @server.tool
    async def shout(text: str) -> str:
        return text.upper()

    @server.tool
    async def content() -> list[Any]:
        return [
            TextContent(
                "text",
                Annotations(audience=["user"], priority=0.5, last_modified="2025-01-01T00:00:00Z"),
            ),
            Image(data=PIXEL, mime_type="image/png"),
            Audio(data=b"RIFF", mime_type="audio/wav"),
            AudioContent("UklGRg==", "audio/wav"),
            ResourceLink(
                "doc://linked",
                "linked",
                title="Linked",
                icons=[Icon("https://example.com/doc.png")],
            ),
            EmbeddedResource(
                TextResourceContents(uri="doc://embedded", text="inside", mime_type="text/plain")
            ),
            File(data=b"\x00\x01", mime_type="application/octet-stream", uri="doc://file"),
        ]

    @server.tool
    async def full() -> ToolResult:
        return ToolResult(
            content=[TextContent("done", meta={"example.com/a": 1})],
            structured_content={"done": True},
            meta={"example.com/b": 2},
        )

    @server.tool
    async def fail(kind: str) -> str:
        if kind == "tool":
            raise ToolError("as it is")
        if kind == "exit":
            raise SystemExit(3)
        if kind == "missing":
            raise NotFound("no such thing")
        if kind == "protocol":
            raise ProtocolError(1234, "closed on Sundays", {"open": "Monday"})
        raise ValueError("plain trouble")

    @server.tool
    async def steps(count: int, ctx: Context) -> int:
        for step in range(1, count + 1):
            ctx.progress(step, count, f"step {step}")
            await asyncio.sleep(0)
        return count

    @server.tool
    async def talk(ctx: Context) -> str:
        for level in (
            "debug",
            "info",
            "notice",
            "warning",
            "error",
            "critical",
            "alert",
            "emergency",
        ):
            getattr(ctx, level)(f"a {level}", logger="talker")
        return "said"

    @server.tool
    async def wait(ctx: Context) -> str:
        ctx.info("waiting")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.put("wait")
        return "never"

    @server.tool
    def block(ctx: Context) -> str:
        ctx.info("blocking")
        while not ctx.cancelled and not release.wait(0.01):
            pass
        release.clear()
        if ctx.cancelled:
            cancelled.put("block")
        return "released"

    @server.tool
    def given_up() -> str:
        """Wait for a call to be cancelled, and tell which."""
        return cancelled.get(timeout=10)

    @server.tool
    async def let_go() -> None:
        release.set()

    @server.tool(timeout=0.05)
    async def late() -> str:
        await asyncio.Event().wait()
        return "never"

    @server.tool
    async def who(ctx: Context) -> dict[str, Any]:
        return {
            "client": ctx.client.name if ctx.client else None,
            "revision": ctx.revision,
            "state": ctx.state,
        }

    @server.tool
    async def read_own(uri: str, ctx: Context) -> str:
        return (await ctx.read_resource(uri))[0].text or ""

    @server.tool
    async def touch(uri: str, ctx: Context) -> None:
        await ctx.notify_resource_updated(uri)

    @server.tool
    async def grow(name: str) -> None:
        server.add_tool(shout, name=name)

    @server.tool
    async def shrink(name: str) -> None:
        server.remove_tool(name)

    @server.resource(
        "doc://text",
        title="Text",
        mime_type="text/plain",
        size=5,
        annotations={"audience": ["user"], "x": 1},
    )
    def text() -> str:
        """Some text."""
        return "hello"

    @server.resource("doc://bytes", mime_type="application/octet-stream")
    def data() -> bytes:
        return b"\x00\xff"

    @server.resource("doc://json")
    async def json() -> dict[str, int]:
        return {"answer": 42}

    @server.resource("doc://broken")
    async def broken() -> str:
        raise ValueError("broken inside")

    @server.resource("item://{number}/name", title="Item", meta={"example.com/c": 3})
    async def item(number: int) -> str:
        if number > 100:
            raise NotFound(f"no item {number}")
        return f"item {number}"

    @server.prompt(title="Greet", icons=[Icon("https://example.com/p.png")])
    def greet(name: str, times: int = 1) -> str:
        """Say hello.

        Args:
            name: Whom to greet.
        """
        return " ".join([f"Hello {name}!"] * times)

    @server.prompt
    async def talk_about(topic: str) -> list[Message]:
        return [Message("user", f"What of {topic}?"), Message("assistant", TextContent("A lot."))]

    greet.complete("name", ["Ada", "Alan", "Barbara", "Grace"])

    @item.complete("number")
    def numbers(value: str) -> list[str]:
        return [str(number) for number in range(300)]

    @talk_about.complete("topic")
    async def topics(value: str, chosen: dict[str, str]) -> list[str]:
        return [f"{chosen.get('kind', 'any')}-{value}"]

    return server


__all__ = ["Limits", "build"]

if __name__ == "__main__":
    build().run()
