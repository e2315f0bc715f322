"""One conversation over a channel, from its first message to its last: stdio, WebSocket, the old
SSE pair, memory, yours."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from ..connection.connection import Connection, send_heartbeats
from ..connection.encode import MessageEncoder
from ..connection.server_session import ANONYMOUS, ServerSession
from ..ports import Channel, RequestIdentity, Service
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
    visitor: RequestIdentity = ANONYMOUS,
) -> None:
    """Hold one conversation until the client ends it. Calls still running then have `grace` seconds
    to finish. Where it is `orderly` to cancel this, that is an end like any other, and no error to
    whoever wrote the lifespan. Meanwhile `notes` holds what takes note of changes in other
    processes, for this client to be told."""
    listeners = set() if listeners is None else listeners
    async with lifespan() as state:
        connection = Connection(
            channel, service.limits, MessageEncoder(service.limits.outgoing, service.redact)
        )
        serving = ServerSession(service, connection, state, ring, visitor)
        listeners.add(serving.notify_change)
        pinging: asyncio.Task[None] | None = None
        try:
            connection.start(serving)
            if service.limits.ping_interval is not None:
                pinging = asyncio.create_task(
                    send_heartbeats(serving.ping, connection.close, service.limits)
                )
            await asyncio.shield(connection.closed)
            await connection.finish_calls(grace)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not orderly or task is None:
                raise
            task.uncancel()
        finally:
            if pinging is not None:
                pinging.cancel()
            listeners.discard(serving.notify_change)
            serving.on_close(None)
            await asyncio.sleep(0)  # the streams that this ended say so
            await connection.close()
