"""A server whose tool has a view: the forecast as a chart that responds to clicks.

`python examples/apps/host.py` shows it in a browser. In a host that does not show apps, the same
tool returns text.
"""

from pathlib import Path
from random import Random
from typing import TypedDict

from dovetail import Context, Server, TextContent, ToolResult

VIEW = "ui://weather/forecast"
SKIES = ("clear", "clouds", "rain", "snow")

server = Server("weather", version="1.0.0")
server.add_app(VIEW, Path(__file__).parent / "view.html", title="Forecast", prefers_border=True)


class Day(TypedDict):
    day: str
    sky: str
    low: int
    high: int


def days_of(city: str, count: int) -> list[Day]:
    """Return the weather in a city, which is always the same."""
    random = Random(city.casefold())
    mild = random.randint(2, 22)
    days: list[Day] = []
    for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[:count]:
        low = mild + random.randint(-6, 1)
        sky = SKIES[random.randrange(3)] if low > 0 else "snow"
        days.append({"day": day, "sky": sky, "low": low, "high": low + random.randint(3, 9)})
    return days


@server.tool(ui=VIEW)
async def forecast(city: str, ctx: Context, days: int = 7) -> ToolResult:
    """Return the weather forecast for the coming days."""
    coming = days_of(city, days)
    text = f"{city}: " + ", ".join(
        f"{one['day']} {one['low']} to {one['high']} °C, {one['sky']}" for one in coming
    )
    told = text if not ctx.shows_apps else f"The user sees a chart of the forecast. {text}"
    return ToolResult(
        content=[TextContent(told)], structured_content={"city": city, "days": coming}
    )


@server.tool(visibility=["app"])
async def hours(city: str, day: str) -> dict[str, list[int]]:
    """Return the temperatures of one day, every three hours. The view calls this on a click."""
    found = next(one for one in days_of(city, 7) if one["day"] == day)
    low, high = found["low"], found["high"]
    return {
        "temperatures": [
            low + round((high - low) * share) for share in (0.1, 0, 0.2, 0.6, 0.9, 1, 0.7, 0.3)
        ]
    }


@server.tool(visibility=["model"])
async def set_home(city: str) -> str:
    """Remember where the user lives. A view should not be able to do this."""
    return f"The user's home is now {city}."


if __name__ == "__main__":
    server.run()
