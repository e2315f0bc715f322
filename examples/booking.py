"""A server that asks questions: the user twice, and their model once. It reserves only one berth,
even if the handler runs again.

    dovetail call examples/booking.py book city=Oslo

The same function works in every revision. If the client cannot be asked, the `except` branch
returns a message that says so.
"""

from itertools import count
from typing import Annotated, Literal

from msgspec import Meta, Struct

from dovetail import CannotAsk, Context, Server, ToolError

server = Server(
    "booking", version="1.0.0", instructions="Books night trains. Asks for confirmation first."
)

BERTHS = count(11)


class Traveller(Struct):
    name: Annotated[str, Meta(title="Name")] = "Ada"
    berth: Annotated[Literal["upper", "lower"], Meta(title="Berth")] = "lower"


def reserve() -> int:
    """Reserve a berth. This must happen only once, because no one else can book the berth."""
    return next(BERTHS)


@server.tool
async def book(city: str, ctx: Context) -> str:
    """Book a night train.

    Args:
        city: The destination.
    """
    try:
        traveller = await ctx.elicit(f"Who takes the night train to {city}?", Traveller)
        if traveller.data is None:
            return "Nothing was booked."
        name, berth = traveller.data.name, traveller.data.berth
        number = await ctx.once("reserve", reserve)
        if not await ctx.elicit(f"Book berth {number} ({berth}) to {city} for {name}?"):
            return "Nothing was booked."
    except CannotAsk:
        return "Nothing was booked: this client has no way to ask you. Book at the ticket office."
    return f"Berth {number} ({berth}) to {city} is booked for {name}. {await wish(ctx, name, city)}"


async def wish(ctx: Context, name: str, city: str) -> str:
    """Return a wish from the client's model, or a default if the model cannot be asked."""
    try:
        return (
            await ctx.sample(f"Wish {name} a good journey to {city}, in five words.", max_tokens=30)
        ).text
    except (CannotAsk, ToolError):
        return "Have a good journey!"


if __name__ == "__main__":
    server.run()
