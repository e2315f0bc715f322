"""Several replicas of one server, as applications in this process that share only Redis."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from dovetail.transports.http.server.get_streams import GetStreams
from dovetail.transports.http.server.sessions import SessionTable
from tests.transports.http.raw import OLD, Session, Site, Stage, on_port

from .conftest import KEY


class Replica:
    """One of several replicas."""

    def __init__(self, stage: Stage, app: Any, site: Site) -> None:
        self.stage, self.app, self.site = stage, app, site

    @property
    def sessions(self) -> SessionTable:
        table: SessionTable = self.app._current.sessions
        return table

    @property
    def streams(self) -> GetStreams:
        streams: GetStreams = self.app._current.get_streams
        return streams

    @property
    def bus(self) -> Any:
        return self.app._current._bus

    def at(self, session: Session) -> Session:
        """A session that another replica opened, at this one."""
        moved = Session(self.site, session.id, session.version, session.result)
        moved.headers = session.headers
        return moved

    async def open(self, version: str = OLD, capabilities: Any = None) -> Session:
        """Open a session."""
        session = await self.site.greet(version, capabilities=capabilities)
        await session.tell("notifications/initialized")
        return session

    async def stop(self) -> None:
        """End the replica in good order, as SIGTERM does."""
        await self.app.close()


@asynccontextmanager
async def replica(
    backend: Any, long_polling: float | None = None, **options: Any
) -> AsyncIterator[Replica]:
    """One replica. `options` are those of the server."""
    stage = Stage(backend=backend, **options)
    app = stage.server.asgi("/mcp", sse=True, long_polling=long_polling, keys=[KEY])
    async with on_port(app) as site:
        await app.start()
        yield Replica(stage, app, site)


@asynccontextmanager
async def replicas(make: Any, count: int = 2, **options: Any) -> AsyncIterator[list[Replica]]:
    """Some replicas, each with a backend that `make` returns."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(replica(make(), **options)) for _ in range(count)]
