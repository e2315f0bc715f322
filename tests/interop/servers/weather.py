"""Forecasts: structured output from models, logging and progress through the context."""

from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel, Field

mcp = FastMCP("weather", log_level="ERROR")


class Forecast(BaseModel):
    """One day."""

    city: str
    degrees: float = Field(description="in Celsius")
    windy: bool = False


@mcp.tool(title="The next day")
async def tomorrow(city: str, ctx: Context) -> Forecast:
    """What tomorrow brings."""
    await ctx.info(f"looking at {city}")
    await ctx.report_progress(1, 2, "looked")
    await ctx.report_progress(2, 2, "seen")
    return Forecast(city=city, degrees=12.5)


@mcp.tool()
def week(city: str, days: int = 3) -> list[Forecast]:
    """What the week brings."""
    return [Forecast(city=city, degrees=10 + day, windy=day % 2 == 1) for day in range(days)]


@mcp.tool()
def compare(first: Forecast, second: Forecast) -> str:
    """Which is the warmer one."""
    return first.city if first.degrees > second.degrees else second.city


@mcp.tool(structured_output=False)
def spoken(city: str) -> str:
    return f"It will rain in {city}."


if __name__ == "__main__":
    mcp.run(transport="stdio")
