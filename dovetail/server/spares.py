"""Child processes that are started before they are needed, for isolated tools.

Starting an interpreter and importing a tool's module take far longer than most calls. Therefore,
each call leaves a spare behind: a process that has loaded the same function and waits for
arguments. A spare serves one call, like any other child, so calls share nothing. A call takes a
spare only if it would have started the same process: the same command, environment, folder and
setup, and the same version of the module's file. A spare that is not used ends after a while.
"""

import atexit
import os
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import subprocess

    Popen = subprocess.Popen[bytes]

IDLE_SECONDS = 60.0
"""How long a spare waits for a call."""


class Spare(NamedTuple):
    """A process that waits for the arguments of a call."""

    key: Hashable
    """What the process was started with."""
    popen: "Popen"
    timer: threading.Timer


class Spares:
    """The spares of this process, oldest first. Any thread may use them.

    Args:
        end: A function that kills a process and waits until it is gone.
    """

    def __init__(self, end: "Callable[[Popen], None]") -> None:
        self._end = end
        self._lock = threading.Lock()
        self._waiting: list[Spare] = []
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            # Two processes must not send a call to one spare.
            os.register_at_fork(after_in_child=self._forget)

    def take(self, key: Hashable) -> "Popen | None":
        """Return a spare that was started with this key, or None."""
        while True:
            with self._lock:
                found = next((spare for spare in self._waiting if spare.key == key), None)
                if found is None:
                    return None
                self._waiting.remove(found)
            found.timer.cancel()
            if found.popen.poll() is None:
                return found.popen
            self._end(found.popen)  # it died; closes its pipes

    def put(self, key: Hashable, popen: "Popen", most: int) -> None:
        """Keep a process for a later call. If there are more than `most`, end the oldest."""
        timer = threading.Timer(IDLE_SECONDS, self._expire, (popen,))
        timer.daemon = True
        with self._lock:
            self._waiting.append(Spare(key, popen, timer))
            surplus = self._waiting[: max(0, len(self._waiting) - most)]
            del self._waiting[: len(surplus)]
        timer.start()
        self._end_all(surplus)

    def close(self) -> None:
        """End all spares."""
        with self._lock:
            ended, self._waiting = self._waiting, []
        self._end_all(ended)

    def _expire(self, popen: "Popen") -> None:
        with self._lock:
            ended = [spare for spare in self._waiting if spare.popen is popen]
            self._waiting = [spare for spare in self._waiting if spare.popen is not popen]
        self._end_all(ended)

    def _end_all(self, spares: list[Spare]) -> None:
        for spare in spares:
            spare.timer.cancel()
            self._end(spare.popen)

    def _forget(self) -> None:
        """Close this copy of the pipes; the spares belong to the process that was forked."""
        spares, self._waiting, self._lock = self._waiting, [], threading.Lock()
        for spare in spares:
            spare.popen.returncode = 0  # otherwise, Python would wait for it
            for pipe in (spare.popen.stdin, spare.popen.stdout):
                if pipe is not None:
                    pipe.close()
