"""Composition: a server and a transport. What `Server.run` and `Server.serve` call."""

import asyncio
import os
import signal
import sys
import threading
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


async def serve(
    service: Service, channel: Channel, lifespan: Lifespan, *, grace: float | None = None, orderly: bool = False
) -> None:
    """Hold one conversation until the client ends it. Calls still running then have `grace` seconds to finish. Where it is
    `orderly` to cancel this, that is an end like any other, and no error to whoever wrote the lifespan."""
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
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not orderly or task is None:
                raise
            task.uncancel()
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
    channel = Stdio(service.limits)  # before the loop opens anything of its own
    asyncio.run(_stdio(service, channel, lifespan)).cancel()


async def _stdio(service: Service, channel: Stdio, lifespan: Lifespan) -> threading.Timer:
    task = asyncio.current_task()
    assert task is not None
    patience = service.limits.shutdown
    _on_signals(task, patience)
    _watch_parent(patience / 2, task)
    try:
        await serve(service, channel, lifespan, grace=patience if channel.endless else None, orderly=True)
    except asyncio.CancelledError:
        pass
    return _exit_after(patience)  # asyncio waits for every task; one that swallows its cancellation would keep us for ever


def _on_signals(task: "asyncio.Task[Any]", patience: float) -> None:
    """The first signal stops the server in good order. The second ends it at once; so does a tool that blocks the loop."""
    loop = asyncio.get_running_loop()
    stuck: list[threading.Timer] = []

    def asked(number: int, frame: Any) -> None:
        if stuck:
            os._exit(130)
        stuck.append(_exit_after(patience))

    def stop() -> None:
        stuck[0].cancel()
        task.cancel()

    for name in ("SIGINT", "SIGTERM"):
        try:
            loop.add_signal_handler(getattr(signal, name), stop)
            signal.signal(getattr(signal, name), asked)  # which runs even while the loop does not
        except (NotImplementedError, RuntimeError, ValueError):
            return  # Windows, or not the main thread: Ctrl-C raises KeyboardInterrupt as ever


def _exit_after(seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()
    return timer


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
