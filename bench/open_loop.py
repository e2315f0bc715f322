"""Measures the latency under a given load: requests are sent on a schedule, whether or not earlier
ones have been answered.

The latency of a request counts from the time at which it was due. If the server, or this driver, is
late, all requests that are due meanwhile are late, too. A closed loop would not send them, and hide
the delay.
"""

import select
import socket
from collections import deque
from time import perf_counter

from .figures import Figure
from .stdio import CHUNK
from .web import ID, Site, complete, stateless

CONNECTIONS = 64
LOAD = 0.8
REQUESTS = 2_500
"""The number of requests, for each second of a round. It does not depend on the rate, so that a
percentile of a slow server is as exact as that of a fast one."""
POLL_SECONDS = 0.001  # epoll rounds up to this


def p99_at_80_percent(site: Site, seconds: float) -> Figure:
    """Measure the highest rate with 32 connections, and then the latency at 80% of it."""
    highest = stateless(32)(site, seconds / 2).value
    total = int(REQUESTS * seconds)
    took = sorted(latencies(site, site.request(None, site.add), LOAD * highest, total))
    p50, p99 = (1000 * took[int(len(took) * share)] for share in (0.5, 0.99))
    return Figure(p99, None, p50, p99)


def poll_timeout(seconds: float) -> float:
    """Return how long epoll may wait before the next request is due: not at all if less than its
    precision is left."""
    return seconds - POLL_SECONDS if seconds > 2 * POLL_SECONDS else 0


def latencies(site: Site, request: bytes, rate: float, total: int) -> list[float]:
    """Send requests at this rate per second, and return the latency of each, in seconds."""
    head, tail = request.split(b"%d" % ID)
    poll = select.epoll()
    sockets = {
        one.fileno(): one
        for one in (socket.create_connection(("127.0.0.1", site.port)) for _ in range(CONNECTIONS))
    }
    for number in sockets:
        poll.register(number, select.EPOLLIN)
    arrived, due = dict.fromkeys(sockets, b""), dict.fromkeys(sockets, 0.0)
    # Connections are used in turns, because a server closes one that is idle for some seconds.
    idle, took, sent = deque(sockets), list[float](), 0
    start = perf_counter()
    try:
        while len(took) < total:
            now = perf_counter()
            while idle and sent < total and start + sent / rate <= now:
                number = idle.popleft()
                due[number] = start + sent / rate
                sockets[number].sendall(b"%b%d%b" % (head, site.sent + sent, tail))
                sent += 1
            wait = poll_timeout(start + sent / rate - now) if idle and sent < total else None
            for number, _ in poll.poll(wait):
                part = sockets[number].recv(CHUNK)
                arrived[number] += part
                if not part or not arrived[number].startswith(b"HTTP/1.1 200"):
                    raise SystemExit(f"not an answer: {arrived[number][:500]!r}")
                if complete(arrived[number]):
                    arrived[number] = b""
                    took.append(perf_counter() - due[number])
                    idle.append(number)
    finally:
        site.sent += sent
        poll.close()
        for one in sockets.values():
            one.close()
    return took
