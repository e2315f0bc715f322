"""A gateway in front of a recording server, and callers of it, for tests of many pairs of them.

A stage lives in an event loop of its own that several tests use one after another, because to start
servers and gateways takes longer than most tests.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dovetail import Client, Limits
from dovetail.gateway.gateway import Gateway
from dovetail.gateway.upstream import UpstreamServer
from tests.behaviour.web import on_a_port

ROOT = Path(__file__).parents[2]
SECRETS = {
    "Authorization": "Bearer secret-of-the-caller",
    "Cookie": "session=secret-of-the-caller",
    "X-Api-Key": "secret-of-the-caller",
    "X-Tenant": "secret-of-the-caller",
}
"""Headers that callers send to the gateway."""
LIMITS = Limits(progress_interval=0, catalog_wait=30)  # the machine may be slow
OPTIONS: dict[str, Any] = {"limits": LIMITS, "rates": None, "store": ":memory:"}
PATHS = {"http": "http://{}/mcp", "sse": "http://{}/sse", "websocket": "ws://{}/ws"}


class Upstream(NamedTuple):
    """A kind of server behind a gateway, or a kind of caller."""

    transport: str
    revision: str

    @property
    def is_stateless(self) -> bool:
        return self.revision >= "2026"

    def has(self, revision: str) -> bool:
        """Return whether something that this revision introduced is defined."""
        return self.revision >= revision


class Records:
    """What a recording server has received since the last `start`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(exist_ok=True)
        path.touch()
        self._offset = 0

    def start(self) -> None:
        self._offset = self.path.stat().st_size

    def _read(self) -> list[dict[str, Any]]:
        with self.path.open("rb") as file:
            file.seek(self._offset)
            lines = file.read().split(b"\n")
        return [msgspec.json.decode(line) for line in lines[:-1]]

    def raw(self) -> bytes:
        """The messages as bytes."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            return file.read()

    def messages(self, method: str | None = None) -> list[Any]:
        found = [one["message"] for one in self._read() if "message" in one]
        return [one for one in found if method in (None, one.get("method"))]

    def requests(self) -> list[str]:
        """The methods of all requests."""
        return [one["method"] for one in self.messages() if "method" in one and "id" in one]

    def events(self) -> list[str]:
        return [one["event"] for one in self._read() if "event" in one]

    def headers(self) -> list[dict[str, str]]:
        """The headers of everything that was ever received."""
        self._offset, offset = 0, self._offset
        found = [one["headers"] for one in self._read() if one.get("headers")]
        self._offset = offset
        return found

    async def until(self, condition: Callable[["Records"], Any]) -> Any:
        """Wait until a condition holds, and return its value. The server is another process, so its
        records are read again and again."""
        while not (value := condition(self)):
            await asyncio.sleep(0.01)
        return value

    async def event(self, name: str) -> None:
        await self.until(lambda records: name in records.events())


class Stage:
    """A recording server and a gateway in front of it.

    Attributes:
        upstream: The kind of the server.
        records: What it received.
        gateway: The gateway. It calls the server `up`.
        address: The address of the gateway.
        caller_headers: The headers of all requests that the gateway received, by kind: `POST`,
            `GET` and so on, or `websocket`.
    """

    def __init__(self, upstream: Upstream, folder: Path, **options: Any) -> None:
        self.upstream = upstream
        self.records = Records(folder / f"{'-'.join(upstream)}.jsonl")
        self._options = options
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._program: subprocess.Popen[str] | None = None
        self._port = "0"
        self.caller_headers: dict[str, list[dict[str, str]]] = {}

    def entry(self) -> dict[str, Any]:
        """Return the entry of the server in a configuration, and start it if it is remote."""
        if self.upstream.transport == "stdio":
            return {"command": sys.executable, "args": self._arguments(), "cwd": str(ROOT)}
        return {"url": PATHS[self.upstream.transport].format(self.start_program())}

    def _arguments(self) -> list[str]:
        return ["-m", "tests.gateway.recording_server", *self.upstream, str(self.records.path)]

    def start_program(self) -> str:
        """Start the remote server, and return its address. The next one has the same address."""
        self._program = subprocess.Popen(
            [sys.executable, *self._arguments(), self._port],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._program.stdout is not None
        address = self._program.stdout.readline().strip()
        self._port = address.rpartition(":")[2]
        return address

    def end_program(self) -> None:
        """End the remote server, if there is one."""
        if self._program is not None:
            self._program.communicate(timeout=30)

    @property
    def server(self) -> UpstreamServer:
        return self.gateway.upstreams.servers["up"]

    def pids(self) -> list[int]:
        """The processes of the server that ever received a message."""
        lines = self.records.path.read_bytes().split(b"\n")[:-1]
        return list({msgspec.json.decode(line)["pid"] for line in lines})

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def limited() -> Any:
            async with asyncio.timeout(60):
                return await work

        return self._runner.run(limited())

    def __enter__(self) -> "Stage":
        self.run(self.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self.run(self.__aexit__())
        self._runner.close()

    async def __aenter__(self) -> "Stage":
        entry = {**self.entry(), **self._options.pop("entry", {})}
        self.gateway = Gateway({"mcpServers": {"up": entry}}, **{**OPTIONS, **self._options})
        app = self.gateway.asgi(path="/mcp", sse=True, websocket=True)

        async def recording(scope: Any, receive: Any, send: Any) -> None:
            if "headers" in scope:
                kind = scope.get("method", scope["type"])
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                self.caller_headers.setdefault(kind, []).append(headers)
            await app(scope, receive, send)

        self.address = await self._stack.enter_async_context(on_a_port(recording))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()
        self.end_program()


class Person:
    """A caller of a gateway, who answers every kind of question."""

    def __init__(self, stage: Stage, kind: Upstream, name: str) -> None:
        self.stage, self.kind, self.name = stage, kind, name
        self.logs: list[tuple[str, Any]] = []
        self.asked: list[Any] = []
        self.before_answer: Callable[[], Any] = _do_nothing
        """Awaited before each answer."""

    @asynccontextmanager
    async def connected(self, **options: Any) -> AsyncIterator["Person"]:
        options = {
            "on_elicit": self._elicit,
            "on_sample": self._sample,
            "roots": [f"file:///{self.name}"],
            "on_log": lambda entry: self.logs.append((entry.level, entry.data)),
            **options,
        }
        target: Any = self.stage.gateway
        if self.kind.transport != "memory":
            target = PATHS[self.kind.transport].format(self.stage.address)
            options["headers"] = SECRETS
        async with Client(target, revision=self.kind.revision, **options) as self.client:
            yield self

    async def _elicit(self, request: Any) -> Any:
        self.asked.append(request)
        await self.before_answer()
        return True if request.url else {"size": f"the size of {self.name}"}

    async def _sample(self, request: Any) -> str:
        self.asked.append(request)
        await self.before_answer()
        return f"hello {self.name}"

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool of the server, and return its result even if that is an error."""
        return await self.client.call_tool(f"up__{tool}", arguments, raise_on_error=False)


async def _do_nothing() -> None:
    pass


class Pair:
    """One pair of the matrix: an upstream server, and two callers of the same kind."""

    def __init__(self, stage: Stage, caller: Upstream) -> None:
        self.stage, self.upstream, self.caller = stage, stage.upstream, caller
        self.records = stage.records
        self._stack = AsyncExitStack()

    def __enter__(self) -> "Pair":
        self.stage.run(self._open())
        return self

    async def _open(self) -> None:
        self.ada, self.bob = [Person(self.stage, self.caller, name) for name in ("ada", "bob")]
        for person in (self.ada, self.bob):
            await self._stack.enter_async_context(person.connected())
            await person.call("add", a=1, b=1)  # opens the connection to the server

    def __exit__(self, *error: object) -> None:
        self.stage.run(self._stack.aclose())

    @property
    def has_tasks(self) -> bool:
        return self.both_have("2025-11-25")

    def both_have(self, revision: str) -> bool:
        return self.upstream.has(revision) and self.caller.has(revision)


Test = Callable[..., Coroutine[Any, Any, None]]


def for_each_pair(test: Test) -> Callable[..., None]:
    """Run a test in the event loop of its stage."""

    @wraps(test)
    def run(pair: Pair, **arguments: Any) -> None:
        for person in (pair.ada, pair.bob):
            person.logs.clear()
            person.asked.clear()
            person.before_answer = _do_nothing
        pair.records.start()
        pair.stage.run(test(pair, **arguments))

    return run
