"""A client connected to a server in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from ..client.client import Client
from ..limits import DEFAULT
from ..ports import Channel, Principal, RequestIdentity, Service
from ..serve import serve_channel
from ..server.server import Server
from ..transports import memory
from .tape import Tape, Taped


class ReplayingServer:
    """A server whose handlers run again after every question, as they would in another process."""

    replay = True

    def __init__(self, server: Server) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


@asynccontextmanager
async def pair(
    server: Server,
    *,
    revision: str | None = None,
    record: Tape | None = None,
    replay: bool = False,
    user: Principal | None = None,
    **options: Any,
) -> AsyncIterator[Client]:
    """Connect a client to a server, in memory, until the block ends.

    Args:
        server: The server.
        revision: The revision to use, as in `Client(revision=…)` (default: the newest that
            the server has).
        record: A tape to record every message on.
        replay: Whether a handler that asks a question in the stateless era runs again from its
            beginning in every round, rather than being suspended.
        user: The principal that makes the calls, as a guard would have admitted it.
        **options: Further options of `Client`.
    """
    ours, theirs = memory.pair(options.get("limits", DEFAULT), server.limits)
    service = cast(Service, ReplayingServer(server)) if replay else server
    work = serve_channel(
        service,
        theirs,
        server.lifespan,
        grace=server.limits.shutdown,
        visitor=RequestIdentity(principal=user),
    )
    serving = asyncio.get_running_loop().create_task(work)
    channel: Channel = ours if record is None else Taped(ours, record)
    try:
        async with Client(channel, revision=revision, **options) as client:
            yield client
    finally:
        await ours.close()
        await serving
