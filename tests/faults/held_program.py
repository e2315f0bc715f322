"""A server whose calls must not run twice, as a process: on stdio, or over HTTP and WebSocket with
a port. What happens to a call is a line in the file $EVENTS."""

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from dovetail import Context, Limits, Server
from dovetail.ports import Call


class OneRun(Server):
    """A server that may not start a handler again."""

    def can_replay(self, call: Call) -> bool:
        return False


limits = msgspec.json.decode(os.environ.get("LIMITS", "{}"), type=Limits)
server = OneRun("held", version="1", limits=limits)


def note(text: str) -> None:
    with Path(os.environ["EVENTS"]).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


@server.tool
async def buy(what: str, ctx: Context, seconds: float = 0) -> str:
    """Charge, ask, and work."""
    note(f"charged {what}")
    try:
        who = await ctx.elicit(f"Who pays for {what}?", str)
        note(f"answered {what}")
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note(f"cancelled {what}")
        raise
    return f"{who.data} has {what}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("http", port=int(sys.argv[1]), websocket=True)
    else:
        server.run()
