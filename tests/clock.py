"""Time that a test measures, without the pauses of the machine."""

import threading
import time
from functools import cache

TICK_SECONDS, MAX_TICK_SECONDS = 0.02, 0.2


class _Clock:
    """Adds up the time between two ticks of a thread. A longer pause means that the machine stood
    still, or had no time for this process, and counts as little."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self._seconds = 0.0
        threading.Thread(target=self._run, name="tests.clock", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(TICK_SECONDS)
            self.read()

    def read(self) -> float:
        with self._lock:
            now = time.monotonic()
            self._seconds += min(now - self._last, MAX_TICK_SECONDS)
            self._last = now
            return self._seconds


@cache
def _clock() -> _Clock:
    return _Clock()


def awake_time() -> float:
    """Return seconds, as `time.monotonic` does, without those in which this process was held up.

    For tests which say that something does not wait: a slow machine must not make them fail.
    """
    return _clock().read()
