"""A client connected to a server in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from ..client.client import Client
from ..limits import DEFAULT
from ..ports import Channel, Principal, Service, Visitor
from ..serve import serve_channel
from ..server.server import Server
from ..transports import memory
from .tape import Tape, Taped


class Replayed:
    """A server as it is, but that a handler which asked is always run again, as another process
    would have to."""

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
    """A client of this server, for as long as the block lasts. `options` are those of Client. With
    `replay`, a handler that asks in the stateless era is run again from its beginning in every
    round. `user` is who the guard would have let in."""
    ours, theirs = memory.pair(options.get("limits", DEFAULT), server.limits)
    service = cast(Service, Replayed(server)) if replay else server
    talk = serve_channel(
        service,
        theirs,
        server.lifespan,
        grace=server.limits.shutdown,
        visitor=Visitor(principal=user),
    )
    serving = asyncio.get_running_loop().create_task(talk)
    channel: Channel = ours if record is None else Taped(ours, record)
    try:
        async with Client(channel, revision=revision, **options) as client:
            yield client
    finally:
        await ours.close()
        await serving
