"""Reload a gateway when it gets SIGHUP, and when one of its files changes.

A file is checked every `Limits.watch_interval` seconds. A file that is not valid is an error in the
log; the gateway goes on with what it has until the file changes again.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..aio import TaskSet
from ..errors import DovetailError
from ..logs import get_logger

if TYPE_CHECKING:
    from .gateway import Gateway

log = get_logger("gateway.reload")
SIGHUP = getattr(signal, "SIGHUP", None)
"""The signal; None on Windows."""


class Reloader:
    """Reloads a gateway as long as it runs.

    Args:
        gateway: The gateway.
        files: The files to check for changes.
    """

    def __init__(self, gateway: "Gateway", files: Sequence[str | os.PathLike[str]]) -> None:
        self._gateway, self._files = gateway, tuple(files)
        self._wanted = asyncio.Event()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Listen for the signal and for changes until the context is left."""
        loop = asyncio.get_running_loop()
        listens = _listen(loop, self._wanted.set)
        tasks = TaskSet()
        tasks.start(self._reload())
        if self._files:
            tasks.start(self._watch())
        try:
            yield
        finally:
            if listens and SIGHUP is not None:
                loop.remove_signal_handler(SIGHUP)
            await tasks.close()

    async def _reload(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._gateway.reload()
            except (DovetailError, OSError) as problem:
                log.error("The configuration was not reloaded: %s", problem)
            else:
                log.info("The configuration was reloaded")

    async def _watch(self) -> None:
        seen = [_stamp(file) for file in self._files]
        while True:
            await asyncio.sleep(self._gateway.limits.watch_interval)
            now = [_stamp(file) for file in self._files]
            if now != seen:
                seen = now
                self._wanted.set()


def _listen(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> bool:
    if SIGHUP is None:
        return False
    try:
        loop.add_signal_handler(SIGHUP, callback)
    except (NotImplementedError, RuntimeError, ValueError):
        return False  # not the main thread
    return True


def _stamp(file: str | os.PathLike[str]) -> tuple[int, ...]:
    """Return a value that changes when a file does."""
    try:
        found = os.stat(file)
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino)
