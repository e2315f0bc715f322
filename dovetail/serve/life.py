"""The life of an application in one event loop: the server's lifespan, held in a task of its
own."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, TypeVar

from .conversation import Lifespan

log = logging.getLogger("dovetail.http")


class Closes(Protocol):
    """What lives."""

    async def close(self, grace: float) -> None:
        """End within that many seconds."""


T = TypeVar("T", bound=Closes)
_LIVING: set["asyncio.Task[None]"] = set()
"""Loops hold their tasks weakly: an application that nobody holds any more lives, like any other,
until its loop ends."""


class Life(Generic[T]):
    """Holds the server's lifespan in a task of its own, whoever it was that needed it first."""

    def __init__(self, lifespan: Lifespan, make: Callable[[Any], Awaitable[T]]) -> None:
        self.here: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.closed = False
        self._stop = asyncio.Event()
        self._grace = 0.0
        self._ending: asyncio.Task[None] | None = None
        self.task = asyncio.get_running_loop().create_task(self._hold(lifespan(), make))
        _LIVING.difference_update([task for task in _LIVING if task.get_loop().is_closed()])
        _LIVING.add(self.task)
        self.task.add_done_callback(_LIVING.discard)

    async def _hold(
        self, lifespan: AbstractAsyncContextManager[Any], make: Callable[[Any], Awaitable[T]]
    ) -> None:
        try:
            async with lifespan as state:
                here = await make(state)
                self.here.set_result(here)
                try:
                    await self._stop.wait()
                except asyncio.CancelledError:
                    pass  # the loop ends
                await here.close(self._grace)
        except BaseException as error:
            usual = isinstance(error, Exception)
            if not self.here.done():
                self.here.set_exception(
                    error if usual else RuntimeError(f"The server's lifespan ended by {error!r}")
                )
                self.here.exception()  # nobody may be left to hear of it
            elif usual:
                log.exception("The server's lifespan failed at its end")
            if not usual:
                raise

    async def close(self, patience: float) -> None:
        """End it within that many seconds, half of which are for the calls that run."""
        if self._ending is None:
            self.closed, self._grace = True, patience / 2
            self._ending = asyncio.get_running_loop().create_task(self._close(patience))
        await asyncio.shield(self._ending)

    async def _close(self, patience: float) -> None:
        self._stop.set()
        ended, _ = await asyncio.wait([self.task], timeout=patience)
        if not ended:
            log.error(
                "The server's lifespan did not end within %g s (Limits.shutdown): it is cancelled",
                patience,
            )
            self.task.cancel()
