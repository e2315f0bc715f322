"""The matrix: each behaviour over every transport and in every revision, by parametrising.

A test takes `talk`, and opens a conversation with the server of everything.py: `async with talk()
as client:`. All messages are taped; when the block ends, each of them is held against the official
schema of the revision it was sent in. The little in which transports differ is a row of
`TRANSPORTS`.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dovetail import Client, Server
from dovetail.testing import Bare, Tape, Taped, pair
from dovetail.transports import memory
from examples.socket_transport import LIMIT, Lines
from tests.behaviour import everything
from tests.behaviour.web import TapedApp, first_era_only, on_a_port
from tests.spec import PRESENT, check_tape, problems

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


class Facts(NamedTuple):
    """What a transport has of its own."""

    revisions: list[str] = REVISIONS
    """What can be spoken over it."""
    url: str | None = None
    """Where a client finds it, if it is one of those that share a port."""
    hang_up: bool = False
    """Whether a client of the stateless era cancels by hanging up, and not by a message."""


TRANSPORTS = {
    "memory": Facts(),
    "stdio": Facts(),
    "unix": Facts(),
    "tcp": Facts(),
    "http": Facts(url="http://{}/mcp", hang_up=True),
    "sse": Facts(url="http://{}/sse", revisions=REVISIONS[:-1]),
    "websocket": Facts(url="ws://{}/ws"),
}
EVERY_REVISION = TRANSPORTS if "MATRIX" in os.environ else ("memory", "http")
"""Where every revision is spoken. The other transports carry messages and do not know revisions, so
`make test` has the two in the middle only in memory and over HTTP; `make matrix` has them all."""
MATRIX = [
    (name, revision)
    for name, facts in TRANSPORTS.items()
    for revision in facts.revisions
    if name in EVERY_REVISION or revision not in REVISIONS[1:3]
]


class Talk:
    """Opens conversations of one kind."""

    def __init__(self, transport: str, revision: str) -> None:
        self.transport, self.revision = transport, revision
        self.facts = TRANSPORTS[transport]
        self.tape = Tape()
        self.hung_up: list[Any] = []

    @property
    def stateless(self) -> bool:
        return self.revision >= "2026"

    def at_least(self, revision: str) -> bool:
        return self.revision >= revision

    def cancelled(self) -> list[Any]:
        """The ids of the requests that the client cancelled, in the one way that is right here."""
        sent = self.tape.messages("client")
        by_message = [
            one["params"]["requestId"]
            for one in sent
            if one.get("method") == "notifications/cancelled"
        ]
        if not (self.facts.hang_up and self.stateless):
            return by_message
        assert by_message == []
        return self.hung_up

    def __call__(
        self, server: Server | None = None, **options: Any
    ) -> AbstractAsyncContextManager[Client]:
        return self._open(server, options)

    @asynccontextmanager
    async def _open(self, server: Server | None, options: dict[str, Any]) -> AsyncIterator[Client]:
        kind = self.transport if self.facts.url is None else "on_a_port"
        opener: Callable[..., AbstractAsyncContextManager[Client]] = getattr(self, f"_{kind}")
        async with opener(server, options) as client:
            yield client
        if self.revision in REVISIONS:  # the draft dialect has no schema
            check_tape(self.tape, self.revision)

    def _memory(
        self, server: Server | None, options: dict[str, Any]
    ) -> AbstractAsyncContextManager[Client]:
        return pair(
            server or everything.build(), revision=self.revision, record=self.tape, **options
        )

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
            async with connect(
                await asyncio.open_connection("127.0.0.1", self.port, limit=LIMIT)
            ) as client:
                yield client

    @asynccontextmanager
    async def _sockets(
        self, server: Any, options: dict[str, Any], listen: Any, *place: Any
    ) -> AsyncIterator[Any]:
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

    @asynccontextmanager
    async def _on_a_port(
        self, server: Server | None, options: dict[str, Any]
    ) -> AsyncIterator[Client]:
        assert self.facts.url is not None
        app = TapedApp(
            (server or everything.build()).asgi(path="/mcp", sse=True, websocket=True), self.tape
        )
        self.hung_up = app.hung_up
        async with on_a_port(first_era_only(app)) as address:
            async with Client(
                self.facts.url.format(address), revision=self.revision, **options
            ) as client:
                yield client


@pytest.fixture(params=REVISIONS)
def revision(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=MATRIX, ids="-".join)
def talk(request: pytest.FixtureRequest) -> Talk:
    """Every transport, every revision."""
    return Talk(*request.param)


@pytest.fixture
def in_memory(revision: str) -> Talk:
    """Every revision, in memory: for what no transport can change."""
    return Talk("memory", revision)


# Tests that open their own conversation in memory, or poke at a server by hand, are held to the
# same: all that *our* code sends is valid in the revision that the conversation is in.


class Overheard:
    """One conversation in memory, as it was overheard."""

    def __init__(self) -> None:
        self.tape = Tape()
        self.handmade: set[str] = set()
        """Which sides were driven by hand, and may say what they like."""

    def check(self) -> None:
        agreed: str | None = None
        versions: dict[Any, str | None] = {}
        asked: dict[str, dict[Any, str]] = {"client": {}, "server": {}}
        for sender, message in zip(
            (who for who, _ in self.tape.entries), self.tape.messages(), strict=True
        ):
            for part in message if isinstance(message, list) else [message]:
                if not isinstance(part, dict):
                    continue
                id = part.get("id")
                if isinstance(id, (int, str)) and isinstance(part.get("method"), str):
                    asked[sender][id] = part["method"]
                    versions[id] = _named_version(part) if sender == "client" else versions.get(id)
                if sender == "server" and isinstance(part.get("result"), dict):
                    agreed = (
                        part["result"].get("protocolVersion", agreed)
                        if asked["client"].get(id) == "initialize"
                        else agreed
                    )
                spoken = (
                    _spoken(part, versions.get(id) if isinstance(id, (int, str)) else None)
                    or agreed
                )
                if sender not in self.handmade and spoken in REVISIONS:
                    answers = asked["server" if sender == "client" else "client"]
                    found = problems(spoken, part, direction=sender, method=answers)
                    assert not found, f"{sender}, {spoken}: {part}\n{found}"


def _named_version(message: dict[str, Any]) -> str | None:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = (
        meta.get("io.modelcontextprotocol/protocolVersion") if isinstance(meta, dict) else None
    )
    return version if isinstance(version, str) else None


def _spoken(message: dict[str, Any], asked: str | None) -> str | None:
    """The stateless revision that a message is of, if it is: by its own word, by its request's, or
    by its stream's."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if isinstance(meta, dict) and "io.modelcontextprotocol/subscriptionId" in meta:
        return REVISIONS[-1]
    return asked or _named_version(message)


@pytest.fixture(autouse=True)
def overheard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Overheard]]:
    """Listens to every conversation in memory, and checks it when the test is over."""
    heard: list[Overheard] = []
    made = memory.pair

    def pair_of(*limits: Any, **more: Any) -> Any:
        conversation = Overheard()
        ends = made(*limits, **more)
        for end, side in zip(ends, ("client", "server"), strict=True):
            monkeypatch.setattr(end, "send", _listened(conversation, end.send, side), raising=False)
            end.overheard = conversation, side
        heard.append(conversation)
        return ends

    def by_hand(bare: Any, channel: Any) -> None:
        conversation, side = getattr(channel, "overheard", (Overheard(), "client"))
        conversation.handmade.add(side)
        begun(bare, channel)

    begun = Bare.__init__
    monkeypatch.setattr(memory, "pair", pair_of)
    monkeypatch.setattr(Bare, "__init__", by_hand)
    yield heard
    if PRESENT:
        for conversation in heard:
            conversation.check()


def _listened(
    conversation: Overheard, send: Callable[[bytes], None], side: str
) -> Callable[[bytes], None]:
    def listened(data: bytes) -> None:
        with suppress(
            ValueError
        ):  # what is no JSON at all can only come from a side that is driven by hand
            json.loads(data)
            conversation.tape.entries.append((side, data))
        send(data)

    return listened
