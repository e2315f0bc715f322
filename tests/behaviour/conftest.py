"""The matrix: each behaviour over every transport and in every revision, by parametrising.

A test takes `talk`, and opens a conversation with the server of everything.py: `async with talk() as client:`. All messages
are taped; when the block ends, each of them is held against the official schema of the revision it was sent in.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Server
from dovetail.testing import Tape, Taped, pair
from examples.socket_transport import LIMIT, Lines
from tests.behaviour import everything
from tests.spec import check_tape

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
TRANSPORTS = ["memory", "stdio", "unix", "tcp"]


class Talk:
    """Opens conversations of one kind."""

    def __init__(self, transport: str, revision: str) -> None:
        self.transport, self.revision = transport, revision
        self.tape = Tape()

    @property
    def stateless(self) -> bool:
        return self.revision >= "2026"

    def at_least(self, revision: str) -> bool:
        return self.revision >= revision

    def __call__(self, server: Server | None = None, **options: Any) -> AbstractAsyncContextManager[Client]:
        return self._open(server, options)

    @asynccontextmanager
    async def _open(self, server: Server | None, options: dict[str, Any]) -> AsyncIterator[Client]:
        opener: Callable[..., AbstractAsyncContextManager[Client]] = getattr(self, f"_{self.transport}")
        async with opener(server, options) as client:
            yield client
        check_tape(self.tape, self.revision)

    def _memory(self, server: Server | None, options: dict[str, Any]) -> AbstractAsyncContextManager[Client]:
        return pair(server or everything.build(), revision=self.revision, record=self.tape, **options)

    @asynccontextmanager
    async def _stdio(self, server: Server | None, options: dict[str, Any]) -> AsyncIterator[Client]:
        from dovetail.transports.process import spawn

        if server is not None:
            pytest.skip("this server exists in this process only")
        root = Path(__file__).parents[2]
        command = [sys.executable, "-m", "tests.behaviour.everything"]
        channel = await spawn(command, cwd=root, on_stderr=lambda line: None)
        async with Client(Taped(channel, self.tape), revision=self.revision, **options) as client:
            yield client

    @asynccontextmanager
    async def _unix(self, server: Server | None, options: dict[str, Any]) -> AsyncIterator[Client]:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/socket"
            async with self._sockets(server, options, asyncio.start_unix_server, path) as connect:
                async with connect(await asyncio.open_unix_connection(path, limit=LIMIT)) as client:
                    yield client

    @asynccontextmanager
    async def _tcp(self, server: Server | None, options: dict[str, Any]) -> AsyncIterator[Client]:
        async with self._sockets(server, options, asyncio.start_server, "127.0.0.1", 0) as connect:
            async with connect(await asyncio.open_connection("127.0.0.1", self.port, limit=LIMIT)) as client:
                yield client

    @asynccontextmanager
    async def _sockets(self, server: Any, options: dict[str, Any], listen: Any, *place: Any) -> AsyncIterator[Any]:
        served = server or everything.build()
        done: asyncio.Queue[None] = asyncio.Queue()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await served.serve(Lines(reader, writer))
            done.put_nowait(None)

        listener = await listen(accept, *place, limit=LIMIT)
        if len(place) == 2:
            self.port = listener.sockets[0].getsockname()[1]

        def connect(streams: Any) -> Client:
            return Client(Taped(Lines(*streams), self.tape), revision=self.revision, **options)

        try:
            yield connect
            await done.get()
        finally:
            listener.close()
            await listener.wait_closed()


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=REVISIONS)
def revision(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def talk(transport: str, revision: str) -> Talk:
    """Every transport, every revision."""
    return Talk(transport, revision)


@pytest.fixture
def in_memory(revision: str) -> Talk:
    """Every revision, in memory: for what no transport can change."""
    return Talk("memory", revision)
