"""Completions while a user types.

With a pause (`debounce`), calls for the same argument within that time become one: the latest is
sent, and all waiting calls get its answer. An answer can be cached for a while (`cache`), by all
that it depends on: what is completed, the argument, the text so far and the arguments chosen
before.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from ..protocol.utilities import CompleteParams, CompleteResult
from .caching import ResponseCache

METHOD = "completion/complete"
Fetch = Callable[[], Awaitable[CompleteResult]]


class PendingCompletion:
    """Calls that wait for the same argument: until when, and what is sent then."""

    __slots__ = ("ask", "task", "until", "waiting")

    def __init__(self) -> None:
        self.until = 0.0
        self.ask: Fetch
        self.task: asyncio.Task[CompleteResult]
        self.waiting = 0


class Completer:
    """The completions of one client."""

    def __init__(self, cached: ResponseCache) -> None:
        self._cached = cached
        self._pauses: dict[str, PendingCompletion] = {}

    async def complete(
        self, params: CompleteParams, ask: Fetch, debounce: float, cache: float
    ) -> CompleteResult:
        """Return a cached answer, the answer of `ask`, or that of a later call for the same
        argument."""
        if cache > 0:
            found: CompleteResult | None = self._cached.find(METHOD, params)
            if found is not None:
                return found
        fetch = partial(self._cached.fetch, METHOD, params, ask, cache)
        if debounce <= 0:
            return await fetch()
        return await self._debounce(repr((params.ref, params.argument.name)), fetch, debounce)

    async def _debounce(self, about: str, ask: Fetch, debounce: float) -> CompleteResult:
        loop = asyncio.get_running_loop()
        pause = self._pauses.get(about)
        begins = pause is None
        if pause is None:
            pause = self._pauses[about] = PendingCompletion()
        pause.until, pause.ask = loop.time() + debounce, ask
        pause.waiting += 1
        if begins:
            pause.task = loop.create_task(self._run(about, pause))
        try:
            return await asyncio.shield(pause.task)
        finally:
            pause.waiting -= 1
            if not pause.waiting:  # nobody waits for it any more
                pause.task.cancel()
                self._remove(about, pause)

    async def _run(self, about: str, pause: PendingCompletion) -> CompleteResult:
        now = asyncio.get_running_loop().time
        while (left := pause.until - now()) > 0:  # noqa: ASYNC110  (each call extends the time)
            await asyncio.sleep(left)
        self._remove(about, pause)  # later calls wait for the next one
        return await pause.ask()

    def _remove(self, about: str, pause: PendingCompletion) -> None:
        if self._pauses.get(about) is pause:
            del self._pauses[about]
