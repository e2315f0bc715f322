"""Event streams: what a change costs for each subscriber, and what calls cost while streams are
open."""

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from .figures import Figure, rate
from .implementations import Implementation
from .stdio import CHUNK
from .web import Site, handshake, opened, receive, stateless

STREAMS, CONNECTIONS = 50, 32
URI = "bench://resource"
CHANGES = 100
"""The number of changes in one call; the subscribers read them all before the next call."""
UPDATED = b"notifications/resources/updated"
ACKNOWLEDGED = b"notifications/subscriptions/acknowledged"


def listen(site: Site) -> socket.socket:
    """Open a stream of the stateless era that is subscribed to the resource."""
    wanted = {"notifications": {"resourceSubscriptions": [URI]}}
    return _open(site, site.request(None, wanted, "subscriptions/listen"), ACKNOWLEDGED)


def get_stream(site: Site) -> socket.socket:
    """Open the stream of a new session of the handshake era."""
    site.greet(1)
    head = [
        "GET /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{site.port}",
        "Accept: text/event-stream",
        "MCP-Protocol-Version: 2025-06-18",
        f"Mcp-Session-Id: {site.sessions[-1]}",
    ]
    return _open(site, "\r\n".join([*head, "", ""]).encode(), b"\r\n\r\n")


def _open(site: Site, request: bytes, mark: bytes) -> socket.socket:
    """Send a request, and read its answer up to a mark."""
    connection = socket.create_connection(("127.0.0.1", site.port))
    connection.sendall(request)
    data = b""
    while mark not in data:
        part = connection.recv(CHUNK)
        data += part
        if not part or not data.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"not a stream: {data[:500]!r}")
    return connection


@contextmanager
def opened_with_workers(implementation: Implementation, count: int) -> Iterator[Site]:
    """A server with worker processes and open streams of both eras, whose CPU time is that of all
    its processes."""
    with opened(implementation, variant=f"workers-{count}") as site, ExitStack() as stack:
        for number in range(STREAMS):
            stack.enter_context(get_stream(site) if number % 2 else listen(site))
        site.cpu = site.process.cpu_of_all
        yield site


def calls(site: Site, seconds: float, era: str) -> Figure:
    """Measure calls over 32 connections."""
    return (stateless if era == "stateless" else handshake)(CONNECTIONS)(site, seconds)


@contextmanager
def opened_with_resource(implementation: Implementation) -> Iterator[Site]:
    """A server with a resource, and a tool that changes it."""
    with opened(implementation, variant="changes") as site:
        yield site


def notify_subscribers(site: Site, seconds: float, count: int) -> Figure:
    """Return the CPU time for one change and one subscriber, in µs."""
    change = site.request(None, {"name": "change", "arguments": {"times": CHANGES}})
    with ExitStack() as stack:
        streams = [stack.enter_context(listen(site)) for _ in range(count)]
        caller = stack.enter_context(socket.create_connection(("127.0.0.1", site.port)))
        _change(caller, change, streams)
        rounds = max(int(seconds * 50_000 / CHANGES / count), 1)

        def work() -> int:
            for _ in range(rounds):
                _change(caller, change, streams)
            return rounds * CHANGES * count

        return Figure(rate(work, site.cpu).cpu or 0)


def _change(caller: socket.socket, change: bytes, streams: list[socket.socket]) -> None:
    """Change the resource many times, and read what each subscriber receives."""
    caller.sendall(change)
    missing = {one.fileno(): (one, CHANGES, b"") for one in streams}
    poll = select.epoll()
    for number in missing:
        poll.register(number, select.EPOLLIN)
    while missing:
        for number, _ in poll.poll():
            stream, left, rest = missing.pop(number)
            part = stream.recv(CHUNK)
            if not part:
                raise SystemExit(f"the server closed a stream that waited for {left} changes")
            data = rest + part
            left -= data.count(UPDATED)
            if left > 0:
                missing[number] = stream, left, data[1 - len(UPDATED) :]
            else:
                poll.unregister(number)
    poll.close()
    receive(caller)
