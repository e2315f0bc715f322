"""An extension of one's own, in one file and on both sides: what each tool call costs, and what
they came to.

    python examples/extension.py

A server with it charges for calls and tells clients that have it too, at once and on request.
Others notice nothing.
"""

import asyncio
from collections.abc import Callable

from dovetail import Client, Server
from dovetail.extensions import Extension, Method, Params, Result, notify

ID = "com.example/cost"


class Charged(Params, kw_only=True):
    tool: str
    cents: int


class Total(Result, kw_only=True):
    cents: int


TOTAL = Method("cost/total", "client", Params, Total)
CHARGED = Method("notifications/cost/charged", "server", Charged)


def charging(prices: dict[str, int]) -> Extension:
    """The server's part."""
    spent = 0

    async def charge(call, next):
        nonlocal spent
        result = await next(call)
        cents = prices.get(call.params.name, 0)
        spent += cents
        notify(call, CHARGED.name, Charged(tool=call.params.name, cents=cents))
        return result

    async def total(call):
        return Total(cents=spent)

    return Extension(
        id=ID,
        settings={"currency": "EUR"},
        methods=[TOTAL, CHARGED],
        handlers={TOTAL.name: total},
        around={"tools/call": charge},
    )


def paying(heard: Callable[[Charged], None]) -> Extension:
    """The client's part."""

    async def hear(call):
        heard(call.params)

    return Extension(id=ID, methods=[TOTAL, CHARGED], handlers={CHARGED.name: hear})


server = Server("translator", extensions=[charging({"translate": 3})])


@server.tool
async def translate(text: str) -> str:
    return text[::-1]


async def main() -> None:
    bill = paying(lambda charged: print(f"{charged.tool}: {charged.cents} cents"))
    async with Client(server, extensions=[bill]) as client:
        print((await client.call_tool("translate", {"text": "stressed"})).text)
        print("so far", (await client.request(TOTAL.name)).cents)
    async with Client(server) as stranger:
        print((await stranger.call_tool("translate", {"text": "drawer"})).text)


if __name__ == "__main__":
    asyncio.run(main())
