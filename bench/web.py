"""Drives an HTTP server with raw bytes over keep-alive connections, and measures the rate and the
latency of calls.

One thread waits with epoll: each connection sends the next request when it has read the whole
answer to the previous one. Requests are encoded beforehand, except for their ids. Only the status
and the length of an answer are looked at. The driver needs a core of its own; on a machine with
only one core, the figures mean nothing.
"""

import json
import re
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from time import perf_counter
from typing import Any

from .figures import Figure, rate
from .implementations import Implementation, Process, listening
from .stdio import CHUNK, MIB, OPEN

LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
SESSION = re.compile(rb"\r\nmcp-session-id: (\S+)\r\n", re.IGNORECASE)
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "0"},
}
SESSIONS = 10_000
ID = 7_777_777  # the placeholder for the id of a request


class Site:
    """A server that listens, its sessions, and the number of requests sent."""

    def __init__(self, process: Process, port: int, tool: str = "add") -> None:
        self.process, self.port, self.sent = process, port, 1_000_000
        self.add: dict[str, Any] = {"name": tool, "arguments": {"a": 40, "b": 2}}
        self.sessions: list[str] = []
        self.headers: dict[str, str] = {}
        """Headers of every request."""
        self.cpu = process.cpu

    def post(self, message: dict[str, Any], **headers: str) -> bytes:
        body = json.dumps(message, separators=(",", ":")).encode()
        lines = [
            "POST /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"Content-Length: {len(body)}",
            *(
                f"{name.replace('_', '-')}: {value}"
                for name, value in (self.headers | headers).items()
            ),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def request(
        self, session: str | None, params: dict[str, Any], method: str = "tools/call"
    ) -> bytes:
        """A request of the handshake era, or of the stateless one."""
        message = {"jsonrpc": "2.0", "id": ID, "method": method, "params": params}
        if session is not None:
            return self.post(message, MCP_Protocol_Version="2025-06-18", Mcp_Session_Id=session)
        message["params"] = params | {"_meta": META}
        name = {"Mcp_Name": params["name"]} if "name" in params else {}
        return self.post(message, MCP_Protocol_Version="2026-07-28", Mcp_Method=method, **name)

    def greet(self, count: int) -> None:
        """Open this many sessions, over one connection."""
        initialize = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": OPEN})
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            for _ in range(count):
                found = SESSION.search(exchange(connection, initialize))
                session = found[1].decode() if found else ""
                greeted = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                exchange(
                    connection,
                    self.post(greeted, MCP_Protocol_Version="2025-06-18", Mcp_Session_Id=session),
                )
                self.sessions.append(session)

    def count_tools(self) -> int:
        """The number of tools that are listed in the newest session."""
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        session = {"MCP_Protocol_Version": "2025-06-18", "Mcp_Session_Id": self.sessions[-1]}
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            return exchange(connection, self.post(message, **session)).count(b'"inputSchema"')


def exchange(connection: socket.socket, request: bytes) -> bytes:
    """Send a request, and return the whole answer."""
    connection.sendall(request)
    return receive(connection)


def receive(connection: socket.socket) -> bytes:
    """Return the whole answer to the request that was sent."""
    data = b""
    while not complete(data):
        part = connection.recv(MIB if data else CHUNK)
        if not part:
            raise SystemExit(f"the server hung up after {data[:200]!r}")
        data += part
    return data


def complete(data: bytes) -> bool:
    """Return whether this is a whole answer."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    length = LENGTH.search(data, 0, end + 2)
    if length is not None:
        return len(data) >= end + 4 + int(length[1])
    return data.endswith(b"\r\n0\r\n\r\n")


@contextmanager
def opened(implementation: Implementation, tools: int = 1, variant: str = "") -> Iterator[Site]:
    """A server with one session that has answered a call in each era."""
    with listening(implementation, tools, variant) as (process, port):
        site = Site(process, port)
        site.greet(1)
        for session in (None, site.sessions[0]):
            check_call(site, session)
        yield site


def check_call(site: Site, session: str | None) -> None:
    """Call the tool once, in a session or without one, and check the answer."""
    with socket.create_connection(("127.0.0.1", site.port)) as connection:
        answer = exchange(connection, site.request(session, site.add))
    found = b'"result":42' in answer.replace(b" ", b"")
    assert answer.startswith(b"HTTP/1.1 200") and found, answer


def drive(
    site: Site, requests: list[bytes], connections: int, seconds: float, per_request: int = 1
) -> Figure:
    """Send these requests in turn, over this many connections, for some seconds."""
    halves = cycle([tuple(request.split(b"%d" % ID)) for request in requests])
    poll = select.epoll()
    sockets = {
        one.fileno(): one
        for one in (socket.create_connection(("127.0.0.1", site.port)) for _ in range(connections))
    }
    begun: dict[int, float] = {}
    took: list[float] = []

    def send(number: int, now: float) -> None:
        site.sent += 1
        head, tail = next(halves)
        begun[number] = now
        sockets[number].sendall(b"%b%d%b" % (head, site.sent, tail))

    def work() -> int:
        until = perf_counter() + seconds
        arrived = dict.fromkeys(sockets, b"")
        for number in sockets:
            poll.register(number, select.EPOLLIN)
            send(number, perf_counter())
        busy = len(sockets)
        while busy:
            for number, _ in poll.poll():
                data = arrived[number] + sockets[number].recv(MIB if arrived[number] else CHUNK)
                if not complete(data):
                    if data == arrived[number]:
                        raise SystemExit(f"the server hung up after {data[:200]!r}")
                    arrived[number] = data
                    continue
                if not data.startswith(b"HTTP/1.1 200"):
                    raise SystemExit(f"not an answer: {data[:500]!r}")
                arrived[number] = b""
                now = perf_counter()
                took.append(now - begun[number])
                if now < until:
                    send(number, now)
                else:
                    busy -= 1
        return len(took) * per_request

    try:
        figure = rate(work, site.cpu)
    finally:
        poll.close()
        for one in sockets.values():
            one.close()
    took.sort()
    return figure._replace(p50=1000 * took[len(took) // 2], p99=1000 * took[int(len(took) * 0.99)])


def stateless(connections: int) -> Callable[[Site, float], Figure]:
    """Measure calls in the stateless era."""
    return lambda site, seconds: drive(site, [site.request(None, site.add)], connections, seconds)


def handshake(connections: int) -> Callable[[Site, float], Figure]:
    """Measure calls in one session of the handshake era."""
    return lambda site, seconds: drive(
        site, [site.request(site.sessions[0], site.add)], connections, seconds
    )


def one_session(site: Site, seconds: float) -> Figure:
    """Measure calls over 32 connections, all in one of 10,000 sessions."""
    site.greet(max(SESSIONS - len(site.sessions), 0))
    return handshake(32)(site, seconds)


def session_memory(site: Site, seconds: float) -> Figure:
    """Open 10,000 sessions, and return the memory of each, in KiB."""
    site.greet(200)  # first, so that the server has allocated what it needs anyway
    before = site.process.memory()
    site.greet(SESSIONS)
    return Figure((site.process.memory() - before) / SESSIONS / 1024)


def many_sessions(site: Site, seconds: float) -> Figure:
    """Measure calls over 32 connections, each in a different one of 10,000 sessions."""
    site.greet(max(SESSIONS - len(site.sessions), 0))
    return drive(site, [site.request(session, site.add) for session in site.sessions], 32, seconds)


def echo(site: Site, seconds: float) -> Figure:
    """Measure calls with 1 MiB of text that is returned."""
    return drive(
        site,
        [site.request(site.sessions[0], {"name": "echo", "arguments": {"text": "x" * MIB}})],
        1,
        seconds,
    )


def progress(site: Site, seconds: float, times: int = 1000) -> Figure:
    """Measure progress notifications, 1,000 in the event stream of each call."""
    params = {"name": "count", "arguments": {"times": times}, "_meta": {"progressToken": "t"}}
    request = site.request(site.sessions[0], params)
    with socket.create_connection(("127.0.0.1", site.port)) as connection:
        assert exchange(connection, request).count(b"notifications/progress") == times
    return drive(site, [request], 1, seconds, times)
