"""A client connected to a server in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ..client.client import Client
from ..limits import DEFAULT
from ..ports import Channel
from ..server.server import Server
from ..transports import memory
from .tape import Tape, Taped


@asynccontextmanager
async def pair(
    server: Server, *, revision: str | None = None, record: Tape | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A client of this server, for as long as the block lasts. `options` are those of Client."""
    ours, theirs = memory.pair(options.get("limits", DEFAULT), server.limits)
    serving = asyncio.get_running_loop().create_task(server.serve(theirs))
    channel: Channel = ours if record is None else Taped(ours, record)
    try:
        async with Client(channel, revision=revision, **options) as client:
            yield client
    finally:
        await ours.close()
        await serving
