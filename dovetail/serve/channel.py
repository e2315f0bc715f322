"""Serve one client over a channel: stdio, WebSocket, HTTP+SSE (2024-11-05), memory or your own."""

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
    identity: RequestIdentity = ANONYMOUS,
) -> None:
    """Serve one client until it disconnects.

    Args:
        service: The server.
        channel: The connection to the client.
        lifespan: Entered before the first message, and left after the last.
        grace: Seconds that running calls have to finish after that (default: no limit).
        orderly: Whether cancelling this is an ordinary end, which the lifespan does not see as an
            exception.
        listeners: Holds, while the client is connected, the function that notifies it of changes in
            other processes.
        ring: Returns the keys that seal tokens.
        identity: Who the client is.
    """
    listeners = set() if listeners is None else listeners
    async with lifespan() as state:
        connection = Connection(
            channel, service.limits, MessageEncoder(service.limits.outgoing, service.redact)
        )
        serving = ServerSession(service, connection, state, ring, identity)
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
            await asyncio.sleep(0)  # let the streams that this ended send their last message
            await connection.close()
