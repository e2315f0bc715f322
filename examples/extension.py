"""A custom extension, with both sides in one file: it reports the cost of each tool call, and the
total.

    python examples/extension.py

A server with the extension charges for calls. It notifies clients that also have the extension of
each charge, and tells them the total on request. Other clients notice nothing.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail import Client, Server
from dovetail.extensions import Extension, Method, Params, Result, notify
from dovetail.ports import Call, CallHandler

ID = "com.example/cost"


class Charged(Params, kw_only=True):
    tool: str
    cents: int


class Total(Result, kw_only=True):
    cents: int


TOTAL = Method("cost/total", "client", Params, Total)
CHARGED = Method("notifications/cost/charged", "server", Charged)


def charging(prices: dict[str, int]) -> Extension:
    """Return the server's part."""
    spent = 0

    async def charge(call: Call, call_next: CallHandler) -> Any:
        nonlocal spent
        result = await call_next(call)
        cents = prices.get(call.params.name, 0)
        spent += cents
        notify(call, CHARGED.name, Charged(tool=call.params.name, cents=cents))
        return result

    async def total(call: Call) -> Total:
        return Total(cents=spent)

    return Extension(
        id=ID,
        settings={"currency": "EUR"},
        methods=[TOTAL, CHARGED],
        handlers={TOTAL.name: total},
        around={"tools/call": charge},
    )


def paying(on_charge: Callable[[Charged], None]) -> Extension:
    """Return the client's part."""

    async def charged(call: Call) -> None:
        on_charge(call.params)

    return Extension(id=ID, methods=[TOTAL, CHARGED], handlers={CHARGED.name: charged})


server = Server("translator", extensions=[charging({"translate": 3})])


@server.tool
async def translate(text: str) -> str:
    """Return the text in another language.

    Args:
        text: The text to translate.
    """
    return text[::-1]


async def main() -> None:
    bill = paying(lambda charged: print(f"{charged.tool}: {charged.cents} cents"))
    async with Client(server, extensions=[bill]) as client:
        print((await client.call_tool("translate", {"text": "stressed"})).text)
        print(f"total: {(await client.request(TOTAL.name)).cents} cents")
    async with Client(server) as client:  # without the extension
        print((await client.call_tool("translate", {"text": "drawer"})).text)


if __name__ == "__main__":
    asyncio.run(main())
