"""One conversation over a channel, from its first message to its last: stdio, WebSocket, the old
SSE pair, memory, yours."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from ..connection.connection import Connection
from ..connection.heartbeat import heartbeat
from ..connection.outgoing import Outgoing
from ..connection.serving import NOBODY, Serving
from ..ports import Channel, Service, Visitor
from ..protocol.base import Params
from ..sealing import KeyRing, key_ring

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]
OnChange = Callable[[str, Params], None]


async def serve_channel(
    service: Service,
    channel: Channel,
    lifespan: Lifespan,
    *,
    grace: float | None = None,
    orderly: bool = False,
    listeners: set[OnChange] | None = None,
    ring: Callable[[], KeyRing] = key_ring,
    visitor: Visitor = NOBODY,
) -> None:
    """Hold one conversation until the client ends it. Calls still running then have `grace` seconds
    to finish. Where it is `orderly` to cancel this, that is an end like any other, and no error to
    whoever wrote the lifespan. Meanwhile `notes` holds what takes note of changes in other
    processes, for this client to be told."""
    listeners = set() if listeners is None else listeners
    async with lifespan() as state:
        connection = Connection(
            channel, service.limits, Outgoing(service.limits.outgoing, service.redact)
        )
        serving = Serving(service, connection, state, ring, visitor)
        listeners.add(serving.note)
        pinging: asyncio.Task[None] | None = None
        try:
            connection.start(serving)
            if service.limits.ping_interval is not None:
                pinging = asyncio.create_task(
                    heartbeat(serving.ping, connection.close, service.limits)
                )
            await asyncio.shield(connection.closed)
            await connection.settle(grace)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not orderly or task is None:
                raise
            task.uncancel()
        finally:
            if pinging is not None:
                pinging.cancel()
            listeners.discard(serving.note)
            serving.ended(None)
            await asyncio.sleep(0)  # the streams that this ended say so
            await connection.close()
