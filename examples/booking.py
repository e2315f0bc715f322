"""A server that asks back: the person twice, their model once, and reserves a berth once, whatever
happens.

    dovetail call examples/booking.py book city=Oslo

The same function serves every revision. Where the client cannot be asked, it says so in its
`except` branch.
"""

from itertools import count
from typing import Annotated, Literal

from msgspec import Meta, Struct

from dovetail import CannotAsk, Context, Server, ToolError

server = Server(
    "booking", version="1.0.0", instructions="Books night trains. It asks before it does."
)

BERTHS = count(11)


class Traveller(Struct):
    name: Annotated[str, Meta(title="Name")] = "Ada"
    berth: Annotated[Literal["upper", "lower"], Meta(title="Berth")] = "lower"


def reserve() -> int:
    """What must happen once: it takes a berth from everybody else."""
    return next(BERTHS)


@server.tool
async def book(city: str, ctx: Context) -> str:
    """Book a night train.

    Args:
        city: Where to.
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
        return "Nothing was booked: this client has no way to ask you. Book at the counter."
    return f"Berth {number} ({berth}) to {city} is booked for {name}. {await wish(ctx, name, city)}"


async def wish(ctx: Context, name: str, city: str) -> str:
    """A kind word of the client's model, if there is one, and it may be asked."""
    try:
        return (
            await ctx.sample(f"Wish {name} a good journey to {city}, in five words.", max_tokens=30)
        ).text
    except (CannotAsk, ToolError):
        return "Have a good journey!"


if __name__ == "__main__":
    server.run()
