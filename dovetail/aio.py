"""Small tools for long-running programs: backoff, bounded dicts, background tasks, daemon threads,
sweeping.

asyncio is imported by the functions that need it: `from dovetail import Server` loads this module,
and must not load asyncio.
"""

from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


def backoff(attempt: int, first: float, longest: float) -> float:
    """Return the seconds to wait before a retry: doubled with each attempt, and with jitter.

    Clients that lost the same server would otherwise all come back in the same moment.

    Args:
        attempt: how many attempts failed after the first one; 0 for the first retry.
        first: seconds before the first retry. The jitter takes away up to half of any pause.
        longest: seconds that no pause exceeds.
    """
    from random import uniform

    return min(longest, first * 2.0 ** min(attempt, 60)) * uniform(0.5, 1.0)


class BoundedDict(dict[K, V]):
    """A dict of at most `max_items`, for memos: if it is full, it forgets everything and starts
    again. Looking up costs no more than in a plain dict."""

    __slots__ = ("_max_items",)

    def __init__(self, max_items: int) -> None:
        self._max_items = max_items

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self._max_items and key not in self:
            self.clear()
        super().__setitem__(key, value)


class LruDict(Generic[K, V]):
    """A dict of at most `max_items`: if it is full, the item that was not used for longest goes.

    Threads may share it: an item that another thread has just removed is simply not there.
    """

    __slots__ = ("_items", "_max_items")

    def __init__(self, max_items: int) -> None:
        self._items: OrderedDict[K, V] = OrderedDict()
        self._max_items = max_items

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def get(self, key: K) -> V | None:
        """Return an item, which counts as using it, or None."""
        item = self._items.get(key)
        if item is not None:
            try:
                self._items.move_to_end(key)
            except KeyError:
                pass
        return item

    def __setitem__(self, key: K, value: V) -> None:
        self._items[key] = value
        try:
            self._items.move_to_end(key)
            if len(self._items) > self._max_items:
                self._items.popitem(last=False)
        except KeyError:
            pass

    def pop(self, key: K) -> V | None:
        """Remove an item and return it, or None."""
        return self._items.pop(key, None)


class TaskSet(set["asyncio.Task[Any]"]):
    """Background tasks, held until they are done: the event loop itself holds them only weakly."""

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine in the background."""
        import asyncio

        return self.hold(asyncio.get_running_loop().create_task(work))

    def hold(self, task: "asyncio.Task[T]") -> "asyncio.Task[T]":
        """Hold a task until it is done."""
        self.add(task)
        task.add_done_callback(self.discard)
        return task


class Sweeper:
    """Calls `sweep` every `interval` seconds, as long as it returns True for "there is more"."""

    __slots__ = ("_interval", "_sweep", "_timer")

    def __init__(self, interval: float, sweep: Callable[[], bool]) -> None:
        self._interval, self._sweep = interval, sweep
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Schedule the next call, unless it is scheduled already."""
        if self._timer is None:
            import asyncio

            self._timer = asyncio.get_running_loop().call_later(self._interval, self._run)

    def cancel(self) -> None:
        """Call no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        if self._sweep():
            self.start()


def run_in_daemon_thread(work: Callable[[], T], name: str) -> "Future[T]":
    """Run a function in a thread that neither the event loop nor the end of the process waits for.

    It is for work that may never return: a check of a mount that hangs, a line that nobody types.
    `asyncio.to_thread` would keep the process alive until it is done. `asyncio.wrap_future` makes
    the result awaitable, in any loop.

    Args:
        work: The function.
        name: The name of the thread.
    """
    import threading
    from concurrent.futures import Future

    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from now on nobody can cancel it

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name=name).start()
    return future
