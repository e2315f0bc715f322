"""Several processes that serve one port, and the parent that minds them.

The parent forks and from then on only waits: in plain blocking code, without a thread or an event
loop, so that it can fork again at any time, and the new child starts from the same clean state as
the first. Its children are the workers, which accept from the sockets they all inherited, and the
hub of their bus. The hub is a child like any other: if it dies, the next one takes over the same
listening socket, where the members are waiting already.

    SIGCHLD              whoever has died is started again, later and later; one that dies young too
                         often ends it all
    SIGTERM, SIGINT      the workers get SIGTERM and `grace` seconds, then SIGKILL; a second signal
                         cuts the wait short
    the parent is gone   every child holds one end of a pipe whose other end is the parent's alone,
                         and at its end stops

Children leave the terminal's process group, so that Ctrl-C reaches them once, through the parent.
They share the key that tokens are sealed with where none is configured, as it is drawn before the
first fork.
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
from collections.abc import Callable, Iterator
from functools import partial
from logging import getLogger
from typing import NoReturn

from ..connection.bus import Hub, private_socket
from ..errors import ConfigError

QUICK = 5.0
"""A process that lives shorter than this, in seconds, has died young."""
DEATHS = 5
"""How often in a row it may, before all is given up."""
PAUSE = 0.05
"""Before a process is started again; it doubles with each early death."""
LAST_WAIT = 0.5
"""How long a killed process may take to be gone."""

STOP = (signal.SIGTERM, signal.SIGINT)
HEARD = [
    number for number in signal.Signals if number.name in ("SIGTERM", "SIGINT", "SIGCHLD")
]  # Windows lacks the last
log = getLogger("dovetail.workers")


def run_workers(
    count: int, sockets: list[socket.socket], work: Callable[[str], None], *, grace: float
) -> int | None:
    """Run `work` in that many processes, each with the path of their bus, until told to stop.
    Closes the sockets at the end. Returns None after an orderly end, and an exit code where the
    workers could not be kept alive."""
    if not hasattr(os, "fork"):
        raise ConfigError(
            "workers need os.fork, which this system lacks; start several servers behind a "
            "balancer instead"
        )
    if count < 1:
        raise ConfigError(f"workers={count} makes no sense; at least one is needed")
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError(
            "workers can only be run from the main thread, as signals are heard only there"
        )
    import multiprocessing.process  # noqa: F401  whose import draws the key that the children are to share

    path, listening = private_socket()
    parent = Supervisor(grace)

    def hub() -> None:
        for one in sockets:
            one.close()
        for number in STOP:
            signal.signal(number, signal.SIG_IGN)  # it is there until the last worker is gone
        asyncio.run(_hub(listening, parent.lifeline, path, grace))

    def worker(place: int) -> None:
        listening.close()
        os.environ["DOVETAIL_WORKER"] = str(place)
        work(path)

    middle = ChildProcess("the hub of the bus", hub)
    workers = [
        ChildProcess(f"worker {place}", partial(worker, place)) for place in range(1, count + 1)
    ]
    try:
        code = parent.keep([middle, *workers])
    finally:
        for one in sockets:
            one.close()  # from now on the system refuses whoever comes
        parent.stop(workers, grace)
        parent.stop([middle], 0)
        parent.close()
        listening.close()
        _remove(path)
    return code


class ChildProcess:
    """A process that is wanted: the one that runs, if any, and when the next one is due."""

    __slots__ = ("deaths", "due", "name", "pid", "run", "started")

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.name, self.run = name, run
        self.pid: int | None = None
        self.started = self.due = 0.0
        self.deaths = 0
        """How many have died young, one after the other."""

    def died(self, how: str) -> None:
        """Take note of it."""
        now = time.monotonic()
        self.deaths = self.deaths + 1 if now - self.started < QUICK else 0
        self.due = now + PAUSE * 2**self.deaths
        log.warning("%s (process %s) %s", self.name, self.pid, how)
        self.pid = None


class Supervisor:
    """Starts children, waits for signals, ends children."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self.lifeline, self._held = os.pipe()
        self._signals = SignalWaiter()

    def keep(self, children: list[ChildProcess]) -> int | None:
        """Keep all of them running until told to stop; returns an exit code where that is in
        vain."""
        while True:
            now = time.monotonic()
            for child in children:
                if child.pid is None and child.due <= now:
                    self._start(child)
            pauses = [max(child.due - now, 0) for child in children if child.pid is None]
            if self._signals.wait(min(pauses, default=None)):
                return None
            for child, status in _ended(children):
                child.died(_how(os.waitstatus_to_exitcode(status)))
            for child in children:
                if child.deaths >= DEATHS:
                    message = (
                        "%s died %d times in a row within %g s of its start; giving up. Its "
                        "last words are above."
                    )
                    log.error(message, child.name, child.deaths, QUICK)
                    return 1

    def stop(self, children: list[ChildProcess], grace: float) -> None:
        """Ask them to end, wait, and kill those that did not."""
        for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, LAST_WAIT)):
            until = time.monotonic() + patience
            for child in children:
                if child.pid is not None:
                    if number is signal.SIGKILL and grace:
                        log.warning(
                            "%s (process %s) did not end in time and is killed",
                            child.name,
                            child.pid,
                        )
                    os.kill(child.pid, number)
            while True:
                for child, _ in _ended(children):
                    child.pid = None
                left = until - time.monotonic()
                if left <= 0 or all(child.pid is None for child in children):
                    break
                if self._signals.wait(left) and number is signal.SIGTERM:
                    break  # asked a second time

    def close(self) -> None:
        """Hear signals as before. Children that are still there end by themselves."""
        self._signals.close()
        os.close(self._held)
        os.close(self.lifeline)

    def _start(self, child: ChildProcess) -> None:
        _flush()  # or else the child would write it again
        child.started = time.monotonic()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)  # until both sides know who they are
        try:
            pid = os.fork()
            if pid == 0:
                self._live(child.run, mask)
            child.pid = pid
        except OSError as error:
            child.died(f"could not be started: {error}")
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _live(self, run: Callable[[], None], mask: set[int]) -> NoReturn:
        """The life of a child. It never returns into what was the parent's, nor runs what the
        parent does at its exit."""
        code = 1
        try:
            os.setpgid(0, 0)
            os.close(self._held)
            self._signals.close()
            signal.set_wakeup_fd(-1)
            for number in HEARD:
                signal.signal(
                    number,
                    signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL,
                )
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            threading.Thread(target=self._watch, name="dovetail-lifeline", daemon=True).start()
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
            os._exit(code)

    def _watch(self) -> None:
        """In a child: end when the parent does, in good order if that is possible."""
        os.read(self.lifeline, 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        time.sleep(self._grace)
        os._exit(1)


class SignalWaiter:
    """Signals as something to wait for."""

    def __init__(self) -> None:
        self._heard, self._told = socket.socketpair()
        self._told.setblocking(False)
        self._before = {number: signal.signal(number, lambda *_: None) for number in HEARD}
        self._wakeup = signal.set_wakeup_fd(self._told.fileno(), warn_on_full_buffer=False)

    def wait(self, seconds: float | None) -> bool:
        """Sleep until a signal comes, at most that long. Whether it says to stop."""
        self._heard.settimeout(seconds)
        try:
            return any(number in STOP for number in self._heard.recv(4096))
        except (TimeoutError, BlockingIOError):
            return False

    def close(self) -> None:
        """Leave all as it was before."""
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._heard.close()
        self._told.close()


async def _hub(listening: socket.socket, lifeline: int, path: str, grace: float) -> None:
    """Be the hub, for as long as the parent lives and a little longer."""
    orphaned = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(lifeline, orphaned.set)
    await Hub().start(listening)
    await orphaned.wait()
    loop.remove_reader(lifeline)
    _remove(path)  # which the parent cannot do any more
    await asyncio.sleep(grace)


def _ended(children: list[ChildProcess]) -> Iterator[tuple[ChildProcess, int]]:
    for child in children:
        if child.pid is not None:
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                yield child, status


def _how(code: int) -> str:
    return (
        f"was killed by signal {-code} ({signal.strsignal(-code)})"
        if code < 0
        else f"ended with exit code {code}"
    )


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # there is none, or nobody reads it


def _remove(path: str) -> None:
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)
