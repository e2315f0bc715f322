"""A client that talks to a server by hand: `async with handmade() as (client, server):`, and the
test says what it likes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dovetail import Client
from dovetail.testing import Bare
from dovetail.transports import memory

OFFERED = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
NEWEST = "2026-07-28"


def complete(**fields: Any) -> dict[str, Any]:
    """A result of the stateless era."""
    return {"resultType": "complete", **fields}


def discovery(capabilities: Any = OFFERED, *versions: str) -> dict[str, Any]:
    """What a server of the stateless era says of itself."""
    return complete(
        supportedVersions=versions or [NEWEST],
        capabilities=capabilities,
        ttlMs=0,
        cacheScope="private",
    )


def reply(request: Any, result: Any) -> dict[str, Any]:
    """The reply to a request."""
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


def refusal(request: Any, code: int, message: str = "no", data: Any = None) -> dict[str, Any]:
    """The refusal of a request."""
    return {
        "jsonrpc": "2.0",
        "id": request["id"],
        "error": {"code": code, "message": message, "data": data},
    }


def notification(method: str, **params: Any) -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


@asynccontextmanager
async def handmade(
    revision: str = NEWEST, capabilities: Any = OFFERED, **options: Any
) -> AsyncIterator[tuple[Client, Bare]]:
    """A client that was opened, and the other end of its channel."""
    ours, theirs = memory.pair()
    server, client = Bare(theirs), Client(ours, revision=revision, **options)
    opening = asyncio.create_task(client.connect())
    asked = await server.receive()
    if revision == NEWEST:
        server.send(reply(asked, discovery(capabilities)))
        await opening
    else:
        info = {"name": "handmade", "version": "0"}
        server.send(
            reply(
                asked,
                {"protocolVersion": revision, "capabilities": capabilities, "serverInfo": info},
            )
        )
        await opening
        assert (await server.receive())["method"] == "notifications/initialized"
    try:
        yield client, server
    finally:
        await client.close()
