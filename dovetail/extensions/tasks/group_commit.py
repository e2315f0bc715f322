"""Writes that are committed together.

A transaction of a database costs more than the rows that it changes. So the writes that begin in
the same iteration of an event loop share one: the more tasks there are at once, the less each
costs. With 100 at once, beginning a task in SQLite took 0.31 ms of CPU time instead of 0.56 ms
(0.04 ms of the difference comes from other changes).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Write: TypeAlias = Callable[[], Any]
"""A function that changes the database and returns its result, or raises an exception."""

MAX_WRITES = 100
"""The maximum number of writes in one transaction. The event loop does other work between two
transactions."""


class GroupCommit:
    """Collects writes until the next iteration of their event loop.

    Args:
        commit: A function that performs writes in one transaction. It returns the result or the
            exception of each write, or raises an exception that applies to all of them.
    """

    def __init__(self, commit: Callable[[Sequence[Write]], Sequence[Any]]) -> None:
        self._commit = commit
        self._waiting: dict[asyncio.AbstractEventLoop, list[tuple[Write, asyncio.Future[Any]]]] = {}

    def add(self, write: Write) -> "asyncio.Future[Any]":
        """Return a future that is done when the write is committed. A write whose future is
        cancelled before that does not happen."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        if loop in self._waiting:
            self._waiting[loop].append((write, done))
        else:
            self._waiting[loop] = [(write, done)]
            loop.call_soon(self._commit_next, loop)
        return done

    def clear(self) -> None:
        """Forget all writes, in a forked child: the parent performs them."""
        self._waiting.clear()

    def _commit_next(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting.pop(loop, [])
        if rest := waiting[MAX_WRITES:]:
            self._waiting[loop] = rest
            loop.call_soon(self._commit_next, loop)
        due = [(write, done) for write, done in waiting[:MAX_WRITES] if not done.done()]
        if not due:
            return
        try:
            outcomes = self._commit([write for write, _ in due])
        except Exception as error:
            outcomes = [error] * len(due)
        for (_, done), outcome in zip(due, outcomes, strict=True):
            if isinstance(outcome, Exception):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)
