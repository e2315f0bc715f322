"""A catalogue on release 2 of the SDK: typed output of several kinds, completion, errors meant for
the model."""

from dataclasses import dataclass
from typing import TypedDict

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import Completion, PromptReference

mcp = MCPServer("catalogue", instructions="Ask for a book.", version="2.1", log_level="ERROR")


class Book(TypedDict):
    title: str
    pages: int


@dataclass
class Shelf:
    name: str
    books: int


@mcp.tool()
def find(title: str) -> Book:
    """Find a book."""
    if title == "nothing":
        raise ToolError("There is no such book")
    return {"title": title, "pages": 100}


@mcp.tool()
def shelf(name: str) -> Shelf:
    return Shelf(name, 3)


@mcp.tool()
async def lend(title: str, ctx: Context) -> bool:
    await ctx.report_progress(1, 1)
    return True


@mcp.resource("books://{title}/blurb", mime_type="text/plain")
def blurb(title: str) -> str:
    return f"{title} is good."


@mcp.prompt()
def review(title: str, genre: str) -> str:
    return f"Review {title}, which is {genre}."


@mcp.completion()
async def complete(ref, argument, context):
    if isinstance(ref, PromptReference) and argument.name == "genre":
        genres = ["fantasy", "fiction", "history"]
        return Completion(values=[genre for genre in genres if genre.startswith(argument.value)])
    return None


if __name__ == "__main__":
    mcp.run()
