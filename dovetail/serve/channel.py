"""Serve one client over a channel: stdio, WebSocket, HTTP+SSE (2024-11-05), memory or your own."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NoReturn

from ..connection.connection import Connection, choose_ping_interval, send_heartbeats
from ..connection.encode import MessageEncoder
from ..connection.multi_round_trip import MultiRoundTrip
from ..connection.server_session import ANONYMOUS, ServerSession
from ..ports import HTTP, WEBSOCKET, ChangeListener, Channel, RequestIdentity, Service
from ..text import escape_unsafe
from ..transports.stdio import StdioChannel

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


async def serve_channel(
    service: Service,
    channel: Channel,
    lifespan: Lifespan,
    *,
    grace: float | None = None,
    orderly: bool = False,
    listeners: set[ChangeListener] | None = None,
    round_trips: MultiRoundTrip | None = None,
    identity: RequestIdentity = ANONYMOUS,
) -> None:
    """Serve one client until it disconnects.

    Args:
        service: The server.
        channel: The connection to the client.
        lifespan: The lifespan, which is entered before the first message and exited after the last.
        grace: How long running calls have to finish after the client disconnects, in seconds
            (default: no limit).
        orderly: Whether cancellation is a normal way to end, so that the lifespan does not see an
            exception.
        listeners: A set that, while the client is connected, contains the function that notifies
            the client of changes in other processes.
        round_trips: The suspended calls of a server that serves several channels (default: those of
            this channel, which end with it).
        identity: The identity of the client.
    """
    listeners = set() if listeners is None else listeners
    async with lifespan() as state:
        connection = Connection(
            channel, service.limits, MessageEncoder(service.limits.outgoing, service.redact)
        )
        suspended = round_trips or MultiRoundTrip(service)
        session = ServerSession(service, connection, state, suspended, identity)
        listeners.add(session.dispatcher.notify)
        pinging: asyncio.Task[None] | None = None
        try:
            connection.start(session)
            interval = choose_ping_interval(
                service.limits, is_long_connection=session.network in (HTTP, WEBSOCKET)
            )
            if interval is not None:
                pinging = asyncio.create_task(
                    send_heartbeats(session.ping, connection.close, service.limits, interval)
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
            listeners.discard(session.dispatcher.notify)
            session.on_close(None)
            if round_trips is None:
                suspended.close()
            await asyncio.sleep(0)  # let the ended streams send their last message
            await connection.close()


# stdin and stdout: the client is the parent process, which may die or send signals


def run_stdio(service: Service, lifespan: Lifespan, quiet: bool = False) -> None:
    """Serve on stdin and stdout until the client disconnects or a signal arrives.

    If a person started the server in a terminal, explain what it is waiting for, unless `quiet` is
    True.
    """
    # With the default of 5 ms, a busy thread would delay the event loop that long each time it
    # needs the interpreter.
    sys.setswitchinterval(0.001)
    if not quiet:
        _explain_terminal(service.info.name)
    channel = StdioChannel(service.limits)  # before the event loop opens file descriptors
    asyncio.run(_run(service, channel, lifespan)).cancel()


def _explain_terminal(name: str) -> None:
    """If stdin is a terminal, tell the user that the server is waiting for a client, because no
    client started it."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        return
    script, *arguments = sys.argv
    if script == "-c":
        script = "server.py"
    elif not script.endswith(".py") and ":" not in os.path.basename(script):
        script = f'"{" ".join([os.path.basename(script), *arguments])}"'  # a command
    if os.path.exists(script) and " " not in script:
        script = min(script, os.path.relpath(script), key=len)
    print(
        f"{escape_unsafe(name)} is waiting for an MCP client on stdin. Press Ctrl-C to stop "
        "the server.\n"
        f"To try the server, run: dovetail inspect {escape_unsafe(script)}",
        file=sys.stderr,
        flush=True,
    )


async def serve_stdio(service: Service, lifespan: Lifespan) -> None:
    """Serve on stdin and stdout in the running event loop, until the client disconnects."""
    await _serve_stdio(service, StdioChannel(service.limits), lifespan, service.limits.shutdown)


async def _serve_stdio(
    service: Service,
    channel: Channel,
    lifespan: Lifespan,
    grace: float | None,
    orderly: bool = False,
) -> None:
    """Serve a client as a process of its own, which joins the bus if the server has a backend."""
    listeners: set[ChangeListener] = set()
    await serve_channel(
        service,
        channel,
        lambda: _join_bus(service, lifespan, listeners) if service.backend else lifespan(),
        grace=grace,
        orderly=orderly,
        listeners=listeners,
    )


@asynccontextmanager
async def _join_bus(
    service: Service, lifespan: Lifespan, listeners: set[ChangeListener]
) -> AsyncIterator[Any]:
    """Be a member of the bus of the backend during a lifespan."""
    from .shared_changes import SharedChanges

    async with lifespan() as state:
        assert service.backend
        bus = await service.backend.bus()
        changes = SharedChanges(service, bus, listeners)
        service.connect_bus(bus)
        try:
            yield state
        finally:
            service.begin_shutdown()
            changes.stop()
            await bus.close()


async def _run(service: Service, channel: StdioChannel, lifespan: Lifespan) -> threading.Timer:
    task = asyncio.current_task()
    assert task is not None
    timeout = service.limits.shutdown
    handles_signals = _handle_signals(task, timeout)
    _watch_parent(timeout / 2, task)
    try:
        grace = timeout if channel.endless else None
        await _serve_stdio(service, channel, lifespan, grace, orderly=True)
    except asyncio.CancelledError:
        pass
    # When the loop closes, it closes the pipe that signals are written to before it removes the
    # signal handlers.
    if handles_signals:
        signal.set_wakeup_fd(-1)
    # asyncio waits for every task, and a task that ignores its cancellation would block it forever.
    return exit_after(timeout)


def _handle_signals(task: "asyncio.Task[Any]", timeout: float) -> bool:
    """Let the first signal stop the server cleanly, and the second signal end the process
    immediately.

    The process also ends if a tool blocks the event loop for `timeout` seconds after a signal.
    Returns False if handlers cannot be set, in which case Ctrl-C raises KeyboardInterrupt as usual.
    """
    loop = asyncio.get_running_loop()
    timers: list[threading.Timer] = []

    def on_signal(number: int, frame: Any) -> None:
        if timers:
            exit_now(130)
        timers.append(exit_after(timeout))

    def stop() -> None:
        timers[0].cancel()
        task.cancel()

    for name in ("SIGINT", "SIGTERM"):
        try:
            loop.add_signal_handler(getattr(signal, name), stop)
            signal.signal(getattr(signal, name), on_signal)  # runs even if the loop is blocked
        except (NotImplementedError, RuntimeError, ValueError):
            return False  # Windows, or not the main thread
    return True


def exit_after(seconds: float) -> threading.Timer:
    """End the process after `seconds`, unless the returned timer is cancelled."""
    timer = threading.Timer(seconds, exit_now, (1,))
    timer.daemon = True
    timer.start()
    return timer


def exit_now(code: int) -> NoReturn:
    """End the process immediately. The servers that it has started end with it, even if they ignore
    the end of their input."""
    process = sys.modules.get("dovetail.transports.process")
    if process is not None:
        process.kill_servers()
    os._exit(code)


def _watch_parent(timeout: float, task: "asyncio.Task[Any]") -> None:
    """End the process `timeout` seconds after the parent dies, even if another process holds stdin
    open. Until then, the last messages from the parent are answered.
    """
    parent = os.getppid() if hasattr(os, "getppid") else 1
    if parent <= 1 or not hasattr(os, "pidfd_open"):
        return
    loop = asyncio.get_running_loop()
    try:
        parent_fd = os.pidfd_open(parent)
    except OSError:
        return

    def on_parent_death() -> None:
        loop.remove_reader(parent_fd)
        os.close(parent_fd)
        loop.call_later(timeout, task.cancel)

    loop.add_reader(parent_fd, on_parent_death)
