"""The server that is measured, on Dovetail: `ours.py stdio|http PORT TOOLS [VARIANT]`.

A variant adds tools or options to the plain server. Its modules are imported only if it is used, so
that the plain server stays as small as that of a user.
"""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dovetail import Context, Limits, Server

if TYPE_CHECKING:
    from dovetail.ports import Call, CallHandler

transport, port, tools, *rest = sys.argv[1:]
variant = rest[0] if rest else ""
URI = "bench://resource"


def authenticated() -> dict[str, Any]:
    """Require a token, and count the calls of its owner, as by default, but never refuse one."""
    from dovetail import Rate, Rates

    return {"auth": guard(), "rates": Rates(calls=Rate(1_000_000))}


def guard() -> Any:
    """Return the guard of the variant."""
    from dovetail.auth import ApiKeys, Bearer, KnownClient, Provider, jwt

    key = os.environ["BENCH_API_KEY"]
    if variant == "api_key":
        return ApiKeys({key: "ada"})
    if variant == "provider":
        return Provider(clients=[KnownClient(id="bench", secret=key)])
    from joserfc.jwk import RSAKey

    keys = [RSAKey.import_key(os.environ["BENCH_PUBLIC_KEY"]).as_dict()]
    return Bearer(jwt(os.environ["BENCH_ISSUER"], audience=os.environ["BENCH_AUDIENCE"], keys=keys))


def redacting() -> dict[str, Any]:
    """Redact everything that leaves the server."""
    from dovetail import redact_secrets

    return {"redact": redact_secrets}


def with_middleware() -> dict[str, Any]:
    """Look at each result of a call and each list of tools."""
    seen = {"errors": 0, "blocks": 0, "tools": 0}

    async def look_at_result(call: "Call", call_next: "CallHandler") -> Any:
        result = await call_next(call)
        if call.name == "tools/call":
            seen["errors"] += bool(result.is_error)
            seen["blocks"] += len(result.content)
        elif call.name == "tools/list":
            seen["tools"] += len(result.tools)
        return result

    return {"middleware": [look_at_result]}


OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "api_key": authenticated,
    "jwt": authenticated,
    "provider": authenticated,
    "redact": redacting,
    "middleware": with_middleware,
}
# Like the peers, the server sends every report of progress.
server = Server("bench", limits=Limits(progress_interval=0), **OPTIONS.get(variant, dict)())


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def echo(text: str) -> str:
    """Return the text."""
    return text


async def count(times: int, ctx: Context) -> int:
    """Report progress this many times."""
    for done in range(times):
        await ctx.progress(done, times)
    return times


async def table(first: int) -> list[dict[str, int | str]]:
    """Return 50 rows."""
    return [{"number": first + n, "name": f"row {n}", "state": "ready"} for n in range(50)]


async def change(times: int) -> int:
    """Change the resource this many times. Changes in one iteration of the event loop would be
    reported as one."""
    from asyncio import sleep

    for _ in range(times):
        server.notify_resource_updated(URI)
        await sleep(0)
        await sleep(0)
    return times


if variant == "isolated":
    server.tool(isolate="process")(import_module("apart").add)
else:
    server.tool(add)
for number in range(1, int(tools)):
    server.add_tool(add, name=f"add_{number}")
EXTRA_TOOLS: dict[str, list[Callable[..., Any]]] = {
    "more": [echo, count],
    "large": [echo],
    "plain": [table],
    "redact": [table],
    "middleware": [table],
    "changes": [change],
}
for function in EXTRA_TOOLS.get(variant, ()):
    server.add_tool(function)
if variant == "changes" or variant.startswith("workers"):
    server.add_resource(lambda: "text", URI, name="resource")

if __name__ == "__main__":
    if transport == "stdio":
        server.run()
    else:
        workers = int(variant.partition("workers-")[2] or 1)
        server.run("http", port=int(port), workers=workers)
