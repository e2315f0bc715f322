"""The same abuse over several wires: `wire` opens a bare peer of the misbehaving server in memory,
and as a process on stdio; `every_wire` does so over a WebSocket, too."""

import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail import Limits
from dovetail.testing import Bare, bare
from dovetail.transports.process import spawn
from dovetail.transports.websocket import connect
from tests.behaviour.web import on_a_port
from tests.faults import misbehaving

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.faults.misbehaving"]


class Wire:
    """Opens conversations of one kind; `stderr` is what a process said on the side."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.stderr: list[str] = []

    def __call__(
        self, version: str | None = "2025-06-18", **limits: Any
    ) -> AbstractAsyncContextManager[Bare]:
        return self._greeted(version, limits)

    @asynccontextmanager
    async def _greeted(self, version: str | None, limits: dict[str, Any]) -> AsyncIterator[Bare]:
        async with self._open(limits) as peer:
            if version is not None:
                await peer.greet(version)
            yield peer

    @asynccontextmanager
    async def _open(self, limits: dict[str, Any]) -> AsyncIterator[Bare]:
        if self.kind == "memory":
            async with bare(misbehaving.build(Limits(**limits))) as peer:
                yield peer
            return
        if self.kind == "websocket":
            server = misbehaving.build(Limits(**limits))
            async with on_a_port(server.asgi(websocket=True)) as address:
                peer = Bare(await connect(f"ws://{address}/ws", Limits(), timeout=10))
                try:
                    yield peer
                finally:
                    await peer.close()
            return
        env = {"LIMITS": msgspec.json.encode(limits).decode()}
        peer = Bare(await spawn(COMMAND, cwd=ROOT, env=env, on_stderr=self.stderr.append))
        try:
            yield peer
        finally:
            await peer.close()


@pytest.fixture(params=["memory", "stdio"])
def wire(request: pytest.FixtureRequest) -> Wire:
    return Wire(request.param)


@pytest.fixture(params=["memory", "stdio", "websocket"])
def every_wire(request: pytest.FixtureRequest) -> Wire:
    return Wire(request.param)


@pytest.fixture
def stdio() -> Wire:
    return Wire("stdio")


async def alive(peer: Bare) -> None:
    """The next thing that comes is the answer to a ping: the connection lives, and nothing else was
    sent."""
    peer.send({"jsonrpc": "2.0", "id": "alive?", "method": "ping"})
    assert await peer.receive() == {"jsonrpc": "2.0", "id": "alive?", "result": {}}
    assert peer.waiting() == 0


def call(id: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    """A tools/call as a client sends it."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
