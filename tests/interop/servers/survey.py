"""A survey: asks the user by form, the client's model, and the client for its roots, as release 1
of the SDK does."""

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel, Field

mcp = FastMCP("survey", log_level="ERROR")


class Person(BaseModel):
    name: str = Field(description="Whom to greet")


@mcp.tool()
async def greet(ctx: Context) -> str:
    """Greet by name."""
    answer = await ctx.elicit(message="Who are you?", schema=Person)
    if answer.action == "accept" and answer.data:
        return f"Hello {answer.data.name}"
    return f"Then not: {answer.action}"


@mcp.tool()
async def poem(topic: str, ctx: Context) -> str:
    """Have a poem made."""
    message = SamplingMessage(
        role="user", content=TextContent(type="text", text=f"A poem about {topic}")
    )
    result = await ctx.session.create_message(messages=[message], max_tokens=100)
    return result.content.text if result.content.type == "text" else str(result.content)


@mcp.tool()
async def roots(ctx: Context) -> list[str]:
    """Where it may look."""
    return [str(root.uri) for root in (await ctx.session.list_roots()).roots]


if __name__ == "__main__":
    mcp.run()
