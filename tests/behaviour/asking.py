"""A server whose tools ask, for the tests of asking. Run as a script it serves on stdio, or over
HTTP with a port.

`book` is the tool of the whole matrix: two questions one after the other, something that must be
done once, and a word of the model; where its client cannot be asked, it finishes all the same. What
was done is counted in the file $CHARGES, if there is one, so that several processes can be held to
it.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from dovetail import Context, Limits, Server
from dovetail.errors import CannotAsk, TimedOut
from dovetail.protocol.client_features import ElicitParams
from dovetail.protocol.lifecycle import InputRequired

BOOKED = "Ann (30) to Rome: True, Godspeed! #1"
UNASKED = "booked without asking"


class Person(Struct):
    name: str
    age: int = 30


class Charges:
    """What cannot be undone, counted."""

    def __init__(self) -> None:
        path = os.environ.get("CHARGES")
        self._file = Path(path) if path else None
        self._here = 0

    def __call__(self) -> int:
        if self._file is None:
            self._here += 1
            return self._here
        with self._file.open("a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
        return len(self._file.read_text(encoding="ascii").splitlines())


def build(**options: Any) -> Server:
    server = Server("asker", **options)
    charge = Charges()

    @server.tool
    async def book(city: str, ctx: Context) -> str:
        try:
            who = await ctx.elicit("Who travels?", Person)
            ticket = await ctx.once("charge", charge)
            sure = await ctx.elicit(f"Really to {city}?", bool)
            said = await ctx.sample(f"Wish {who.data.name} a good journey")
        except CannotAsk:
            return UNASKED
        return f"{who.data.name} ({who.data.age}) to {city}: {sure.data}, {said.text} #{ticket}"

    @server.tool
    async def three(ctx: Context) -> list[Any]:
        """Ask three things at once."""
        answers = await asyncio.gather(
            *(ctx.elicit(f"Number {number}?", int) for number in range(3))
        )
        return [answer.data for answer in answers]

    @server.tool
    async def wish(ctx: Context) -> str:
        """Ask what could always be asked."""
        return (await ctx.sample("Wish me luck")).text

    @server.tool
    async def by_hand(ctx: Context) -> Any:
        """Ask in the protocol's own words."""
        if not ctx.input_responses:
            form = {"type": "object", "properties": {"name": {"type": "string"}}}
            return InputRequired(
                {"who": ElicitParams(message="Who?", requested_schema=form)}, state="asked"
            )
        return f"{ctx.input_responses['who']['content']['name']}, {ctx.request_state}"

    @server.tool
    async def patient(kind: str, seconds: float, ctx: Context) -> str:
        """Ask with a deadline, and pass on the progress of the client."""

        def pass_on(update: Any) -> None:
            ctx.progress(update.progress, update.total, update.message)

        options: dict[str, Any] = {"timeout": seconds, "on_progress": pass_on}
        try:
            if kind == "model":
                return (await ctx.sample("Think", **options)).text
            if kind == "roots":
                return (await ctx.list_roots(**options))[0].uri
            if kind == "page":
                return (await ctx.elicit_url("Go", "https://example.com/", **options)).action
            return (await ctx.elicit("Sure?", **options)).action
        except TimedOut as error:
            return f"TimedOut: {error}"

    @server.prompt
    async def letter(ctx: Context) -> str:
        who = await ctx.elicit("To whom?", Person)
        return f"Dear {who.data.name}"

    @server.resource("guide://mine")
    async def guide(ctx: Context) -> str:
        who = await ctx.elicit("Whose guide?", Person)
        return f"{who.data.name}'s guide"

    @server.tool
    async def pid() -> int:
        return os.getpid()

    return server


def on_elicit(request: Any) -> Any:
    """The user of every test: Ann, who is sure."""
    if request.message.startswith("Number"):
        return {"value": int(request.message[7])}
    return {"value": True} if request.message.startswith("Really") else {"name": "Ann"}


ANSWERS: dict[str, Any] = {"on_elicit": on_elicit, "on_sample": lambda request: "Godspeed!"}
"""The options of a client that can be asked."""

if __name__ == "__main__":
    limits = msgspec.json.decode(os.environ.get("LIMITS", "{}"), type=Limits)
    made = build(resume=os.environ.get("RESUME", "live"), limits=limits)
    if len(sys.argv) > 1:
        made.run(
            "http", port=int(sys.argv[1]), **msgspec.json.decode(os.environ.get("OPTIONS", "{}"))
        )
    else:
        made.run()
