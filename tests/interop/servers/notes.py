"""Notes: a lifespan, resources and templates, prompts with a dialogue, a tool that reads a
resource."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.prompts.base import AssistantMessage, UserMessage
from mcp.server.session import ServerSession


@dataclass
class Shelf:
    notes: dict[str, str]


@asynccontextmanager
async def lifespan(server: FastMCP) -> AsyncIterator[Shelf]:
    yield Shelf({"first": "Buy milk"})


mcp = FastMCP("notes", instructions="Keeps notes.", lifespan=lifespan, log_level="ERROR")


@mcp.tool()
def add(name: str, text: str, ctx: Context[ServerSession, Shelf]) -> int:
    """Keep a note."""
    notes = ctx.request_context.lifespan_context.notes
    notes[name] = text
    return len(notes)


@mcp.tool()
async def shout(ctx: Context) -> str:
    """Read the motto, loudly."""
    found = await ctx.read_resource("notes://motto")
    return " ".join(str(part.content).upper() for part in found)


@mcp.resource("notes://motto")
def motto() -> str:
    """What this is about."""
    return "Write it down"


@mcp.resource("notes://config", mime_type="application/json", name="settings", title="Settings")
def config() -> dict:
    return {"limit": 10}


@mcp.resource("notes://icon", mime_type="image/png")
def icon() -> bytes:
    return b"\x89PNG"


@mcp.resource("notes://{name}/upper")
def upper(name: str) -> str:
    """A name in capitals."""
    return name.upper()


@mcp.prompt()
def summarise(text: str, style: str = "short") -> str:
    """Sum a text up."""
    return f"Sum this up, {style}: {text}"


@mcp.prompt(title="A talk")
def talk(topic: str) -> list:
    return [UserMessage(f"What of {topic}?"), AssistantMessage("What would you like to know?")]


if __name__ == "__main__":
    mcp.run()
