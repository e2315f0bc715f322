"""Work in a thread that nobody has to wait for: neither the event loop nor the end of the process.

It is for what may never come back: a look at a mount that hangs, a line that nobody types. Whoever
stops waiting leaves the work to whoever asks next; `asyncio.to_thread` would keep the process alive
until it is done.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def run_in_daemon_thread(work: Callable[[], T], name: str) -> "Future[T]":
    """Begin, and get what will come of it; `asyncio.wrap_future` makes that something to await, in
    any loop."""
    given: Future[T] = Future()
    given.set_running_or_notify_cancel()  # from now on nobody can cancel it

    def run() -> None:
        try:
            given.set_result(work())
        except BaseException as problem:
            given.set_exception(problem)

    threading.Thread(target=run, daemon=True, name=name).start()
    return given
