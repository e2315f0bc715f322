"""Completions while somebody types.

With a pause (`debounce`), calls for the same argument that come within it become one: the latest is asked, and all who wait
get its answer. An answer can be kept for a while (`cache`), by all that it depends on: what is completed, the argument, the
text so far and the arguments chosen before.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ..jsonrpc.codec import encode
from ..protocol.completion import CompleteParams, CompleteResult
from .caching import Cached

METHOD = "completion/complete"
Ask = Callable[[], Awaitable[CompleteResult]]


class Pause:
    """Calls that wait for one argument: until when, and what is asked then."""

    __slots__ = ("ask", "task", "until", "waiting")

    def __init__(self) -> None:
        self.until = 0.0
        self.ask: Ask
        self.task: asyncio.Task[CompleteResult]
        self.waiting = 0


class Completing:
    """The completions of one client."""

    def __init__(self, cached: Cached) -> None:
        self._cached = cached
        self._pauses: dict[bytes, Pause] = {}

    async def complete(self, params: CompleteParams, ask: Ask, debounce: float, cache: float) -> CompleteResult:
        """The answer to `ask`, or one that was kept, or that of a later call for the same argument."""
        if cache > 0:
            found: CompleteResult | None = self._cached.find(METHOD, params)
            if found is not None:
                return found

        async def fetch() -> CompleteResult:
            result = await ask()
            if cache > 0:
                self._cached.keep(METHOD, params, result, cache)
            return result

        return await (self._latest(encode((params.ref, params.argument.name)), fetch, debounce) if debounce > 0 else fetch())

    async def _latest(self, about: bytes, ask: Ask, debounce: float) -> CompleteResult:
        loop = asyncio.get_running_loop()
        pause = self._pauses.get(about)
        begins = pause is None
        if pause is None:
            pause = self._pauses[about] = Pause()
        pause.until, pause.ask = loop.time() + debounce, ask
        pause.waiting += 1
        if begins:
            pause.task = loop.create_task(self._run(about, pause))
        try:
            return await asyncio.shield(pause.task)
        finally:
            pause.waiting -= 1
            if not pause.waiting:  # nobody wants it any more, if it is not done anyway
                pause.task.cancel()
                self._end(about, pause)

    async def _run(self, about: bytes, pause: Pause) -> CompleteResult:
        now = asyncio.get_running_loop().time
        while (left := pause.until - now()) > 0:
            await asyncio.sleep(left)
        self._end(about, pause)  # who comes from now on waits for the next one
        return await pause.ask()

    def _end(self, about: bytes, pause: Pause) -> None:
        if self._pauses.get(about) is pause:
            del self._pauses[about]
