"""A server for the tests of hosts. The first argument is its name, the second a file with the
description of the tool `greet` and, on a second line, whether there is a tool `extra`."""

import os
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct

from dovetail import Context, ResourceLink, Server, ToolResult

name, script = sys.argv[1], Path(sys.argv[2])
description, _, extra = script.read_text(encoding="utf-8").partition("\n")


async def break_result(call: Any, call_next: Any) -> Any:
    """Return structured content that does not match the schema of the tool."""
    if call.name == "tools/call" and call.params.name == "broken":
        return ToolResult(content=[], structured_content={"size": 7})
    return await call_next(call)


revisions = os.environ.get("REVISION")
server = Server(
    name,
    instructions=f"Instructions of {name}: {description}",
    middleware=[break_result],
    revisions=[revisions] if revisions else None,
)
server.tool(lambda who="you": f"{name} greets {who}", name="greet", description=description)


class Size(Struct):
    size: str = "small"


@server.tool(annotations={"readOnlyHint": True})
def environment(variable: str) -> str | None:
    """Return the value of an environment variable."""
    return os.environ.get(variable)


@server.tool
async def order(ctx: Context) -> str:
    """Ask for a size."""
    answer = await ctx.elicit("Which \x1b[2Ksize?", Size)
    return f"ordered {answer.data.size}" if answer.data else "nothing"


@server.tool
async def visit(ctx: Context) -> str:
    """Ask the user to visit a page."""
    return str(bool(await ctx.elicit_url("Sign in", "https://example.com/sign-in")))


@server.tool
async def think(ctx: Context, tokens: int = 100_000, include: str = "none") -> str:
    """Ask the model."""
    context: Any = include
    answer = await ctx.sample(
        "Name a colour", max_tokens=tokens, system_prompt="Be brief", include_context=context
    )
    return str(answer.text)


@server.tool
async def roots(ctx: Context) -> list[str]:
    """Return the roots."""
    return [root.uri for root in await ctx.list_roots()]


@server.tool
def link() -> ToolResult:
    """Return a link to a resource."""
    return ToolResult(content=[ResourceLink(uri="note://one", name="one")])


@server.tool
def broken() -> Size:
    """Return a size."""
    return Size()


@server.tool
def change(text: str, ctx: Context) -> str:
    """Change the description of `greet`."""
    server.remove_tool("greet")
    server.tool(lambda: f"{name} greets", name="greet", description=text)
    return "changed"


@server.tool
def crash() -> None:
    """End the process."""
    os._exit(3)


if extra:
    server.tool(lambda: "extra", name="extra", description=extra)


@server.resource("note://one")
def note() -> str:
    return f"the note of {name}"


@server.resource("page://{number}")
def page(number: str) -> str:
    return f"page {number} of {name}"


@server.prompt
def hello(person: str) -> str:
    """Say hello."""
    return f"Hello {person}, says {name}"


hello.complete("person", ["Ada", "Bo"])


@server.tool
def update() -> None:
    """Announce a change of the note."""
    server.notify_resource_updated("note://one")


@server.tool
def speak(ctx: Context) -> None:
    """Log a message."""
    ctx.debug("a detail")
    ctx.warning("a warning")


server.run()
