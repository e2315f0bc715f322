"""Several processes that serve one port, and the parent that supervises them.

After forking, the parent only waits, in plain blocking code without threads or an event loop. The
parent can therefore fork again at any time, and a new child starts from the same clean state as the
first. The parent's children are the workers, which accept connections from the sockets that they
inherited, and the hub of their bus. If the hub dies, a new hub takes over its listening socket, to
which the workers are already reconnecting.

    SIGCHLD             the parent restarts the child that died, after a growing pause; if a child
                        dies early too often, the parent stops all of them
    SIGTERM, SIGINT     the parent sends SIGTERM to the workers, waits `grace` seconds, sends
                        SIGTERM again and then SIGKILL; a second signal ends the wait
    SIGHUP              the parent passes it on to the workers, if the service reloads on it
    parent's death      every child reads a pipe whose other end only the parent holds, and stops
                        when the pipe is closed

Children leave the terminal's process group, so that Ctrl-C reaches them only through the parent. If
no key for sealing tokens is configured, the children share a random key that is generated before
the first fork.
"""

import asyncio
import os
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NoReturn

from msgspec import Struct

from ..connection.bus import Hub, private_socket
from ..errors import ConfigError
from ..logs import get_logger
from ..ports import WORKER_VARIABLE
from .channel import exit_now

EARLY_DEATH_SECONDS = 5.0
"""A process that ends within this many seconds of starting counts as having died early."""
MAX_EARLY_DEATHS = 5
"""How many early deaths in a row make the server give up."""
RESTART_PAUSE_SECONDS = 0.05
"""The pause before a process is restarted, which doubles after each early death."""
KILL_SECONDS = 0.5
"""How long to wait for a killed process to disappear."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Windows lacks the last
HANDLED_SIGNALS = [
    number for number in signal.Signals if number.name in ("SIGTERM", "SIGINT", "SIGCHLD")
]
log = get_logger("workers")


def run_workers(
    count: int,
    sockets: list[socket.socket],
    work: Callable[[str], None],
    *,
    grace: float,
    passed_on: Sequence[int] = (),
) -> int | None:
    """Run `work` in `count` processes until a signal arrives, then close the sockets.

    Args:
        count: The number of workers.
        sockets: The listening sockets, which all workers inherit.
        work: A function that is called in each worker with the path of the bus.
        grace: How long the workers have to exit after a signal, in seconds.
        passed_on: Further signals, which the parent sends to each worker (default: none).

    Returns:
        None after a clean shutdown, or an exit code if the workers could not be kept alive.
    """
    if not hasattr(os, "fork"):
        raise ConfigError(
            "workers= requires os.fork, which is not available on this system. Start several "
            "servers "
            "behind a load balancer instead"
        )
    if count < 1:
        raise ConfigError(f"workers={count}: at least one worker is required")
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError("workers= works only in the main thread, where signals are handled")
    import multiprocessing.process  # noqa: F401  its import draws the key that the children share

    path, listening = private_socket()
    supervisor = Supervisor(path, grace, passed_on)

    def run_hub() -> None:
        for sock in sockets:
            sock.close()
        for number in (*STOP_SIGNALS, *passed_on):
            signal.signal(number, signal.SIG_IGN)  # it runs until the last worker has ended
        asyncio.run(_run_hub(listening, supervisor.lifeline, grace))

    def run_worker(number: int) -> None:
        listening.close()
        os.environ[WORKER_VARIABLE] = str(number)
        work(path)

    hub = ChildProcess("the bus hub", run_hub)
    workers = [
        ChildProcess(f"worker {number}", partial(run_worker, number))
        for number in range(1, count + 1)
    ]
    try:
        code = supervisor.supervise([hub, *workers])
    finally:
        for sock in sockets:
            sock.close()  # from now on the system refuses connections
        supervisor.stop(workers, grace)
        supervisor.stop([hub], 0)
        supervisor.close()
        listening.close()
        _remove(path)
    return code


class ChildProcess(Struct, eq=False):
    """A process that should be running, with its current pid, if any, and the time to restart
    it."""

    name: str
    run: Callable[[], None]
    pid: int | None = None
    started: float = 0.0
    due: float = 0.0
    early_deaths: int = 0

    def on_death(self, how: str) -> None:
        """Log how the process ended, and schedule its restart."""
        now = time.monotonic()
        died_early = now - self.started < EARLY_DEATH_SECONDS
        self.early_deaths = self.early_deaths + 1 if died_early else 0
        self.due = now + RESTART_PAUSE_SECONDS * 2**self.early_deaths
        log.warning("%s (process %s) %s", self.name, self.pid, how)
        self.pid = None


class Supervisor:
    """The parent process, which starts children, waits for signals, and stops the children."""

    def __init__(self, path: str, grace: float, passed_on: Sequence[int] = ()) -> None:
        self._path, self._grace, self._passed_on = path, grace, passed_on
        self.lifeline, self._parent_end = os.pipe()
        self._signals = SignalWaiter(passed_on)

    def supervise(self, children: list[ChildProcess]) -> int | None:
        """Keep the children running until a signal arrives. Returns an exit code if a child keeps
        dying.
        """
        while True:
            now = time.monotonic()
            for child in children:
                if child.pid is None and child.due <= now:
                    self._start(child)
            pauses = [max(child.due - now, 0) for child in children if child.pid is None]
            if self._signals.wait(min(pauses, default=None)):
                return None
            for number in self._signals.take_passed_on():
                for child in children:
                    if child.pid is not None:
                        os.kill(child.pid, number)
            for child, status in _reap(children):
                child.on_death(_describe_exit(os.waitstatus_to_exitcode(status)))
            for child in children:
                if child.early_deaths >= MAX_EARLY_DEATHS:
                    log.error(
                        "Giving up: %s died %d times in a row within %g s of starting. See "
                        "its last messages above.",
                        child.name,
                        child.early_deaths,
                        EARLY_DEATH_SECONDS,
                    )
                    return 1

    def stop(self, children: list[ChildProcess], grace: float) -> None:
        """Ask the children to exit, wait, and kill those that are still running. If they have a
        grace period, the second SIGTERM makes them exit at once, with the servers that they have
        started."""
        steps = [(signal.SIGTERM, grace), (signal.SIGKILL, KILL_SECONDS)]
        if grace:
            steps.insert(1, (signal.SIGTERM, KILL_SECONDS))
        for step, (number, timeout) in enumerate(steps):
            deadline = time.monotonic() + timeout
            for child in children:
                if child.pid is not None:
                    if step == 1 and grace:
                        log.warning(
                            "Killing %s (process %s): it did not stop within the shutdown timeout",
                            child.name,
                            child.pid,
                        )
                    os.kill(child.pid, number)
            while True:
                for child, _ in _reap(children):
                    child.pid = None
                left = deadline - time.monotonic()
                if left <= 0 or all(child.pid is None for child in children):
                    break
                if self._signals.wait(left) and number is signal.SIGTERM:
                    break  # a second signal

    def close(self) -> None:
        """Restore the signal handlers. Children that are still running then exit."""
        self._signals.close()
        os.close(self._parent_end)
        os.close(self.lifeline)

    def _start(self, child: ChildProcess) -> None:
        _flush()  # otherwise the child would write the buffered output again
        child.started = time.monotonic()
        # Hold signals back until parent and child have set up their handlers.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                self._run_child(child.run, mask)
            child.pid = pid
        except OSError as error:
            child.on_death(f"could not be started: {error}")
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _run_child(self, run: Callable[[], None], mask: set[int]) -> NoReturn:
        """Run a child until it exits, without returning to the parent's code or running the
        parent's exit handlers."""
        code = 1
        try:
            os.setpgid(0, 0)
            os.close(self._parent_end)
            self._signals.close()
            signal.set_wakeup_fd(-1)
            for number in HANDLED_SIGNALS:
                signal.signal(
                    number,
                    signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL,
                )
            for other in self._passed_on:
                signal.signal(other, signal.SIG_IGN)  # until the worker can handle it
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            threading.Thread(
                target=self._watch_parent, name="dovetail-lifeline", daemon=True
            ).start()
            run()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        except KeyboardInterrupt:
            code = 130
        except BaseException:
            traceback.print_exc()
        finally:
            _flush()
            exit_now(code)

    def _watch_parent(self) -> None:
        """Make a child exit, cleanly if possible, when the parent dies."""
        os.read(self.lifeline, 1)
        _remove(self._path)  # the parent can no longer do it
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        time.sleep(self._grace)
        exit_now(1)


class SignalWaiter:
    """Receives signals through a socket, so that waiting for a signal can time out."""

    def __init__(self, passed_on: Sequence[int] = ()) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)
        self._passed_on, self._pending = passed_on, set[int]()
        self._before = {
            number: signal.signal(number, lambda *_: None)
            for number in (*HANDLED_SIGNALS, *passed_on)
        }
        self._wakeup = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)

    def wait(self, seconds: float | None) -> bool:
        """Wait up to `seconds` for a signal. Returns whether the signal says to stop."""
        self._receiver.settimeout(seconds)
        try:
            numbers = self._receiver.recv(4096)
            self._pending.update(number for number in numbers if number in self._passed_on)
            return any(number in STOP_SIGNALS for number in numbers)
        except (TimeoutError, BlockingIOError):
            return False

    def take_passed_on(self) -> set[int]:
        """Return the signals that arrived for the workers, each once."""
        numbers, self._pending = self._pending, set()
        return numbers

    def close(self) -> None:
        """Restore the handlers that were set before."""
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._receiver.close()
        self._sender.close()


async def _run_hub(listening: socket.socket, lifeline: int, grace: float) -> None:
    """Run the hub until `grace` seconds after the parent's death."""
    orphaned = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(lifeline, orphaned.set)
    await Hub().start(listening)
    await orphaned.wait()
    loop.remove_reader(lifeline)
    await asyncio.sleep(grace)


def _reap(children: list[ChildProcess]) -> Iterator[tuple[ChildProcess, int]]:
    for child in children:
        if child.pid is not None:
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                yield child, status


def _describe_exit(code: int) -> str:
    return (
        f"was killed by signal {-code} ({signal.strsignal(-code)})"
        if code < 0
        else f"exited with code {code}"
    )


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # there is none, or it is closed


def _remove(path: str) -> None:
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)
