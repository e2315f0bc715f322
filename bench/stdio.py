"""Drives a stdio server with raw bytes, as cheaply as possible: requests are formatted, answers are
only counted.

One answer of each kind is checked before anything is measured.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from .figures import Figure, ended, rate
from .implementations import Implementation, Process, started

WINDOW = 64
MIB = 1 << 20
CHUNK = 1 << 16  # to allocate more for each read costs ten times as much as the rest of the read
CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"add","arguments":{"a":%d,"b":2}}}\n'  # noqa: E501
TABLE = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"table","arguments":{"first":%d}}}\n'  # noqa: E501
LIST = b'{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{}}\n'
OPEN = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "0"},
}


class Wire:
    """The two pipes of a server, and the number of requests sent."""

    def __init__(self, process: Process) -> None:
        assert process.popen.stdin and process.popen.stdout
        self.process = process
        self.sink, self.source = process.popen.stdin.fileno(), process.popen.stdout.fileno()
        self.sent = 0
        self.cpu = process.cpu

    def send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.sink, data) :]

    def read(self) -> bytes:
        chunk = os.read(self.source, CHUNK)
        if not chunk:
            raise SystemExit("the server closed its output")
        return chunk

    def take(self, lines: int) -> None:
        """Read this many lines, and ignore their content."""
        while lines:
            lines -= self.read().count(b"\n")

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request, and return its result."""
        self.sent += 1
        self.send(
            json.dumps(
                {"jsonrpc": "2.0", "id": self.sent, "method": method, "params": params}
            ).encode()
            + b"\n"
        )
        data = self.read()
        while not data.endswith(b"\n"):
            data += self.read()
        return json.loads(data.splitlines()[-1])["result"]

    def repeat(self, request: bytes, lines: int, seconds: float) -> int:
        """Send `request` (with a placeholder for its id) repeatedly, each time after reading this
        many lines, and return the number of times."""
        count, until = 0, perf_counter() + seconds
        while perf_counter() < until:
            self.sent += 1
            count += 1
            self.send(request % self.sent)
            self.take(lines)
        return count


@contextmanager
def opened(implementation: Implementation, tools: int = 1, variant: str = "") -> Iterator[Wire]:
    """A server that is initialized and has answered a few calls."""
    with started(implementation.command("stdio", 0, tools, variant), stdio=True) as process:
        wire = Wire(process)
        greet(wire)
        for n in range(50):
            assert wire.ask("tools/call", {"name": "add", "arguments": {"a": n, "b": 2}})[
                "structuredContent"
            ] == {"result": n + 2}
        yield wire


def greet(wire: Wire) -> None:
    wire.ask("initialize", OPEN)
    wire.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')


def first_answer(implementation: Implementation, seconds: float) -> Figure:
    """Return the seconds from the start of a process to its first answer, and the CPU time of its
    whole life."""
    took = 0.0

    def work() -> None:
        nonlocal took
        begun = perf_counter()
        with started(implementation.command("stdio", 0, 1), stdio=True) as process:
            Wire(process).ask("initialize", OPEN)
            took = perf_counter() - begun

    return ended(work)._replace(value=took)


def in_turn(wire: Wire, seconds: float) -> Figure:
    """Measure calls, each of which is sent when the previous one has been answered."""

    def work() -> int:
        count, until = 0, perf_counter() + seconds
        while perf_counter() < until:
            count += 1
            os.write(wire.sink, CALL % (wire.sent + count, count))
            while not wire.read().endswith(b"\n"):
                pass
        wire.sent += count
        return count

    return rate(work, wire.cpu)


def pipelined(wire: Wire, seconds: float, request: bytes = CALL) -> Figure:
    """Measure requests, with 64 of them in flight at any time."""
    places = request.count(b"%d")

    def work() -> int:
        until, first = perf_counter() + seconds, wire.sent
        missing = arrived = WINDOW
        while missing:
            if perf_counter() < until:
                numbers = range(wire.sent + 1, wire.sent + arrived + 1)
                wire.send(b"".join(request % ((n,) * places) for n in numbers))
                wire.sent += arrived
            else:
                missing -= arrived
            arrived = wire.read().count(b"\n") if missing else 0
        return wire.sent - first

    return rate(work, wire.cpu)


def memory(wire: Wire, seconds: float) -> Figure:
    """Return the memory of the server, in MiB."""
    return Figure(wire.process.memory() / MIB)


def lists(wire: Wire, seconds: float) -> Figure:
    """Measure lists of all tools, one after the other."""
    assert "nextCursor" not in wire.ask("tools/list", {})
    return rate(lambda: wire.repeat(LIST, 1, seconds), wire.cpu)


def echo(wire: Wire, seconds: float) -> Figure:
    """Measure calls with 1 MiB of text that is returned."""
    params = {"name": "echo", "arguments": {"text": "x" * MIB}}
    assert wire.ask("tools/call", params)["structuredContent"] == {"result": "x" * MIB}
    request = (
        b'{"jsonrpc":"2.0","id":%%d,"method":"tools/call","params":%b}\n'
        % json.dumps(params).encode()
    )
    return rate(lambda: wire.repeat(request, 1, seconds), wire.cpu)


def progress(wire: Wire, seconds: float, times: int = 1000) -> Figure:
    """Measure progress notifications, 1,000 in each call."""
    params = json.dumps(
        {"name": "count", "arguments": {"times": times}, "_meta": {"progressToken": "t"}}
    ).encode()
    request = b'{"jsonrpc":"2.0","id":%%d,"method":"tools/call","params":%b}\n' % params
    return rate(lambda: times * wire.repeat(request, times + 1, seconds), wire.cpu)
