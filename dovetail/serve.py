"""Composition: a server and a transport. What `Server.run` and `Server.serve` call."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from .connection.connection import Connection
from .connection.heartbeat import heartbeat
from .connection.outgoing import Outgoing
from .connection.serving import Serving
from .ports import Channel, Service
from .transports.stdio import Stdio

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


async def serve(service: Service, channel: Channel, lifespan: Lifespan, *, grace: float | None = None) -> None:
    """Hold one conversation until the client ends it. Calls still running then have `grace` seconds to finish."""
    async with lifespan() as state:
        connection = Connection(channel, service.limits, Outgoing(service.limits.outgoing, service.redact))
        serving = Serving(service, connection, state)
        pinging: asyncio.Task[None] | None = None
        try:
            connection.start(serving)
            if service.limits.ping_interval is not None:
                pinging = asyncio.create_task(heartbeat(serving.ping, connection.close, service.limits))
            await asyncio.shield(connection.closed)
            await connection.settle(grace)
        finally:
            if pinging is not None:
                pinging.cancel()
            serving.ended(None)
            await asyncio.sleep(0)  # the streams that this ended say so
            await connection.close()


def run_stdio(service: Service, lifespan: Lifespan) -> None:
    """Serve on stdin and stdout until the client goes away, or until told to stop."""
    # Threads that compute would otherwise keep the loop waiting for 5 ms each time it wants the interpreter.
    sys.setswitchinterval(0.001)
    asyncio.run(_stdio(service, lifespan))


async def _stdio(service: Service, lifespan: Lifespan) -> None:
    channel = Stdio(service.limits)
    task = asyncio.current_task()
    assert task is not None
    stopping = False

    def stop() -> None:
        nonlocal stopping
        if stopping:
            os._exit(130)  # asked twice: no more patience
        stopping = True
        task.cancel()

    _on_signals(stop)
    _watch_parent(service.limits.shutdown / 2, task)
    try:
        await serve(service, channel, lifespan, grace=service.limits.shutdown if channel.endless else None)
    except asyncio.CancelledError:
        pass


def _on_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for name in ("SIGINT", "SIGTERM"):
        try:
            loop.add_signal_handler(getattr(signal, name), stop)
        except (NotImplementedError, RuntimeError, ValueError):
            return  # Windows, or not the main thread: Ctrl-C raises KeyboardInterrupt as ever


def _watch_parent(patience: float, task: "asyncio.Task[Any]") -> None:
    """End when the parent dies, even if somebody else still holds our stdin open. What it sent last is still answered."""
    parent = os.getppid() if hasattr(os, "getppid") else 1
    if parent <= 1 or not hasattr(os, "pidfd_open"):
        return
    loop = asyncio.get_running_loop()
    try:
        watch = os.pidfd_open(parent)
    except OSError:
        return

    def gone() -> None:
        loop.remove_reader(watch)
        os.close(watch)
        loop.call_later(patience, task.cancel)

    loop.add_reader(watch, gone)
