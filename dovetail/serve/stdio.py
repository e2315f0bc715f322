"""A server on stdin and stdout: one conversation, signals, and a parent that may die."""

import asyncio
import os
import signal
import sys
import threading
from typing import Any

from ..ports import Service
from ..transports.stdio import StdioChannel
from .channel import Lifespan, serve_channel


def run_stdio(service: Service, lifespan: Lifespan) -> None:
    """Serve on stdin and stdout until the client goes away, or until told to stop."""
    # Threads that compute would otherwise keep the loop waiting for 5 ms each time it wants the
    # interpreter.
    sys.setswitchinterval(0.001)
    channel = StdioChannel(service.limits)  # before the loop opens anything of its own
    asyncio.run(_stdio(service, channel, lifespan)).cancel()


async def serve_stdio(service: Service, lifespan: Lifespan) -> None:
    """Serve on stdin and stdout in the loop that is running, until the client goes away."""
    await serve_channel(
        service, StdioChannel(service.limits), lifespan, grace=service.limits.shutdown
    )


async def _stdio(service: Service, channel: StdioChannel, lifespan: Lifespan) -> threading.Timer:
    task = asyncio.current_task()
    assert task is not None
    patience = service.limits.shutdown
    heard = _on_signals(task, patience)
    _watch_parent(patience / 2, task)
    try:
        await serve_channel(
            service, channel, lifespan, grace=patience if channel.endless else None, orderly=True
        )
    except asyncio.CancelledError:
        pass
    # the loop, when it closes, lets go of the pipe that signals are written to before it lets go of
    # the signals
    if heard:
        signal.set_wakeup_fd(-1)
    return exit_after(
        patience
    )  # asyncio waits for every task; one that swallows its cancellation would keep us for ever


def _on_signals(task: "asyncio.Task[Any]", patience: float) -> bool:
    """The first signal stops the server in good order. The second ends it at once; so does a tool
    that blocks the loop.

    False where signals cannot be heard like that: then Ctrl-C raises KeyboardInterrupt as ever.
    """
    loop = asyncio.get_running_loop()
    stuck: list[threading.Timer] = []

    def asked(number: int, frame: Any) -> None:
        if stuck:
            os._exit(130)
        stuck.append(exit_after(patience))

    def stop() -> None:
        stuck[0].cancel()
        task.cancel()

    for name in ("SIGINT", "SIGTERM"):
        try:
            loop.add_signal_handler(getattr(signal, name), stop)
            signal.signal(getattr(signal, name), asked)  # which runs even while the loop does not
        except (NotImplementedError, RuntimeError, ValueError):
            return False  # Windows, or not the main thread
    return True


def exit_after(seconds: float) -> threading.Timer:
    """End the process by then, whatever keeps it, unless the timer is cancelled."""
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()
    return timer


def _watch_parent(patience: float, task: "asyncio.Task[Any]") -> None:
    """End when the parent dies, even if somebody else still holds our stdin open. What it sent last
    is still answered."""
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
