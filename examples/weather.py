"""A small server: a tool with progress, resources, a template, a prompt and completions.

Run it with `dovetail run examples/weather.py`, or add it to an mcp.json.
"""

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from dovetail import Context, NotFound, Server

server = Server("weather", version="1.0.0", instructions="Forecasts for a few northern cities.")

CITIES = {
    "Oslo": (59.9, 10.7),
    "Reykjavik": (64.1, -21.9),
    "Helsinki": (60.2, 24.9),
    "Stockholm": (59.3, 18.1),
}


class Day(Struct):
    day: int
    sky: str
    celsius: float


class Forecast(Struct):
    city: str
    days: list[Day]


@server.tool(annotations={"readOnlyHint": True})
async def forecast(city: str, ctx: Context, days: Annotated[int, Meta(ge=1, le=7)] = 3) -> Forecast:
    """Return the weather forecast for the coming days.

    Args:
        city: The city's English name.
        days: The number of days to forecast.
    """
    if city not in CITIES:
        raise NotFound(f"No forecast for {city!r}; choose one of {', '.join(CITIES)}")
    latitude, _ = CITIES[city]
    ahead: list[Day] = []
    for day in range(1, days + 1):
        await asyncio.sleep(0.15)  # a slow model of the atmosphere
        ahead.append(
            Day(
                day,
                "snow" if (day + int(latitude)) % 2 else "clear",
                round(70 - latitude - 2 * day, 1),
            )
        )
        ctx.progress(day, days, f"day {day} of {days}")
    ctx.info(f"{days} days computed for {city}")
    return Forecast(city, ahead)


@server.resource("weather://cities", mime_type="application/json")
def cities() -> list[str]:
    """List all cities that have a forecast."""
    return list(CITIES)


@server.resource("weather://{city}/place")
def place(city: str) -> dict[str, float]:
    """Return the location of a city."""
    if city not in CITIES:
        raise NotFound(f"No such city: {city}")
    latitude, longitude = CITIES[city]
    return {"latitude": latitude, "longitude": longitude}


@server.prompt
def packing(city: str, days: int = 3) -> str:
    """Suggest what to pack for a trip."""
    trip = f"I am travelling to {city} for {days} days."
    return f"{trip} Look at the forecast and tell me what to pack."


place.complete("city", list(CITIES))
packing.complete("city", list(CITIES))

if __name__ == "__main__":
    server.run()
