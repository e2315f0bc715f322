"""Subscriptions to the resources of servers: one at the server, however many callers have one.

A service counts the subscriptions of all its callers (`BaseService.count_subscriptions`). The first
one for a URI opens a subscription at the server that the URI belongs to, and the last one closes
it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ..aio import TaskSet, run_on_loop
from ..client.subscriptions import Subscription
from ..errors import DovetailError
from ..logs import get_logger
from .upstream import UpstreamServer
from .upstreams import UpstreamSet

log = get_logger("gateway")


class UpstreamSubscriptions:
    """The subscriptions of a gateway at its servers.

    Args:
        upstreams: The servers.
        on_update: Called with the URI of a resource that changed, as callers see it.
    """

    def __init__(self, upstreams: UpstreamSet, on_update: Callable[[str], None]) -> None:
        self._upstreams, self._on_update = upstreams, on_update
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: dict[str, asyncio.Task[Subscription]] = {}
        self._servers: dict[str, UpstreamServer] = {}
        """The server of each subscription."""
        self._users = 0
        self._background = TaskSet()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep subscriptions open as long as at least one context is open."""
        self._loop = asyncio.get_running_loop()
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                await self.close()

    def set_active(self, uri: str, active: bool) -> None:
        """Open or close the subscription for a URI. This method can be called from any thread.

        Args:
            uri: The URI, as callers see it.
            active: Whether there are callers with a subscription.
        """
        if self._loop is not None:
            run_on_loop(self._loop, self._set_active, uri, active)

    def _set_active(self, uri: str, active: bool) -> None:
        if active and uri not in self._open:
            self._open[uri] = self._background.start(self._subscribe(uri))
        elif not active and (task := self._open.pop(uri, None)) is not None:
            self._servers.pop(uri, None)
            self._background.start(_close(task))

    async def wait(self, uri: str) -> None:
        """Wait until the subscription for a URI is open.

        Args:
            uri: The URI, as callers see it.

        Raises:
            DovetailError: The server refused it, or cannot be reached.
        """
        task = self._open.get(uri)
        if task is not None:
            await asyncio.shield(task)

    async def _subscribe(self, uri: str) -> Subscription:
        found = await self._upstreams.resolve("resources", uri)
        server = self._upstreams.servers[found.server]
        self._servers[uri] = server
        await server.start()

        def on_update(changed: str) -> None:
            server.results.drop(changed)
            name = self._upstreams.names.to_caller("resources", server.name, changed)
            if name is not None:
                self._on_update(name)

        return await server.client.subscribe(found.name, on_update)

    def renew(self) -> None:
        """Try again what failed, and subscribe again to resources of servers that were removed:
        another server may have them now."""
        for uri, task in list(self._open.items()):
            failed = task.done() and (task.cancelled() or task.exception() is not None)
            server = self._servers.get(uri)
            removed = server is not None and self._upstreams.servers.get(server.name) is not server
            if failed or removed:
                self._set_active(uri, False)
                self._set_active(uri, True)

    async def close(self) -> None:
        """Close all subscriptions."""
        for uri in list(self._open):
            self._set_active(uri, False)
        await self._background.wait()


async def _close(task: "asyncio.Task[Subscription]") -> None:
    try:
        subscription = await task
        await subscription.close()
    except DovetailError as problem:
        log.debug("Could not close a subscription: %s", problem)
