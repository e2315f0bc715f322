"""Helpers for long-running programs: backoff, bounded dicts, background tasks, threads and periodic
sweeps.

The functions that need asyncio import it themselves, because `from dovetail import Server` loads
this module and must not load asyncio.
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
    """Return the number of seconds to wait before a retry. The pause doubles with each attempt and
    includes jitter.

    Without jitter, all clients that lose their connection to the same server would reconnect at the
    same moment.

    Args:
        attempt: The number of retries so far; 0 for the first retry.
        first: The pause before the first retry, in seconds. Jitter shortens every pause by up to
            half.
        longest: The longest pause, in seconds.
    """
    from random import uniform

    return min(longest, first * 2.0 ** min(attempt, 60)) * uniform(0.5, 1.0)


class BoundedDict(dict[K, V]):
    """A dict for memoization. It holds at most `max_items` items, and is cleared when it is full. A
    lookup costs no more than in a plain dict."""

    __slots__ = ("_max_items",)

    def __init__(self, max_items: int) -> None:
        self._max_items = max_items

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self._max_items and key not in self:
            self.clear()
        super().__setitem__(key, value)


class LruDict(Generic[K, V]):
    """A dict of at most `max_items` items. When the dict is full, the least recently used item is
    dropped.

    Threads may share it: an item that another thread has just removed counts as missing.
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
        """Return an item, or None. The lookup counts as a use of the item."""
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

    def clear(self) -> None:
        """Remove all items."""
        self._items.clear()


class TaskSet(set["asyncio.Task[Any]"]):
    """A set of background tasks. It keeps a reference to each task until the task is done, because
    the event loop holds only weak references."""

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine in the background."""
        import asyncio

        return self.hold(asyncio.get_running_loop().create_task(work))

    def hold(self, task: "asyncio.Task[T]") -> "asyncio.Task[T]":
        """Keep a reference to a task until it is done."""
        self.add(task)
        task.add_done_callback(self.discard)
        return task

    async def wait(self) -> None:
        """Wait until all tasks have ended."""
        import asyncio

        if self:
            await asyncio.wait(self)

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        for task in self:
            task.cancel()
        await self.wait()


def run_on_loop(
    loop: "asyncio.AbstractEventLoop", function: Callable[..., Any], *args: Any
) -> None:
    """Call a function on an event loop: immediately if this code runs on the loop, otherwise soon.
    Do nothing if the loop is closed.

    Args:
        loop: The event loop.
        function: The function.
        *args: Its arguments.
    """
    import asyncio

    if asyncio._get_running_loop() is loop:
        function(*args)
        return
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        pass  # the loop is closed: nobody is left to notify


async def call_maybe_async(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that may be plain or async, and return its result."""
    from inspect import isawaitable

    result = function(*args)
    return await result if isawaitable(result) else result


class Sweeper:
    """A timer that calls `sweep` every `interval` seconds until `sweep` returns False, which means
    that nothing is left."""

    __slots__ = ("_interval", "_sweep", "_timer")

    def __init__(self, interval: float, sweep: Callable[[], bool]) -> None:
        self._interval, self._sweep = interval, sweep
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Schedule the next call, unless it is already scheduled."""
        if self._timer is None:
            import asyncio

            self._timer = asyncio.get_running_loop().call_later(self._interval, self._run)

    def cancel(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        if self._sweep():
            self.start()


def run_in_daemon_thread(work: Callable[[], T], name: str) -> "Future[T]":
    """Run a function in a daemon thread. Neither the event loop nor an exiting process waits for
    it.

    Use it for work that may never finish, such as checking a hung mount or waiting for a line of
    input. `asyncio.to_thread` would keep the process alive until the work is done.
    `asyncio.wrap_future` makes the result awaitable in any event loop.

    Args:
        work: The function.
        name: The name of the thread.
    """
    import threading
    from concurrent.futures import Future

    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from here on, it cannot be cancelled

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name=name).start()
    return future
