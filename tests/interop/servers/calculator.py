"""A calculator: bare and called decorators, annotations, tags, errors of both kinds."""

from typing import Annotated, Literal

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from pydantic import Field

mcp = FastMCP("calculator", instructions="Sums and quotients.")


@mcp.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool(
    name="divide",
    description="Divide, exactly.",
    annotations={"readOnlyHint": True},
    tags={"maths", "slow"},
)
def _divide(a: float, b: float) -> float:
    if b == 0:
        raise ToolError("Nobody divides by zero")
    return a / b


@mcp.tool()
async def round_to(
    value: Annotated[float, Field(description="what to round")], places: Literal[0, 1, 2] = 0
) -> str:
    return f"{value:.{places}f}"


@mcp.tool
def describe(values: list[float]) -> dict[str, float]:
    """Some statistics."""
    return {"least": min(values), "most": max(values)}


@mcp.tool
def broken() -> str:
    raise ValueError("out of order")


if __name__ == "__main__":
    mcp.run()
