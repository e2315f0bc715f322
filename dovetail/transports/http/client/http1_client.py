"""An HTTP/1.1 client with a pool of connections, for everything except proxies.

A finished connection is kept for the next request, for at most `IDLE_SECONDS`, and at most
`MAX_IDLE_CONNECTIONS` are kept. The number of connections in use is not limited here: a stream
occupies its connection while the message that ends it may need another. The callers limit their
requests (`Limits.in_flight`).

**The server may have closed a kept connection.** Before a connection is used again, its socket is
asked whether there is something to read. So a connection whose end has arrived is never used. If
the end arrives while the request is on its way, nobody can know whether the server has read the
request. RFC 9110 (section 9.2.2) then allows another attempt only for idempotent methods:

    GET, DELETE   The request is sent again, once, on a new connection, if the connection had been
                  used before and no byte of a response has arrived.
    POST          The request fails with `ConnectionClosed(sent=True)`. The caller knows its
                  message, and sends it again if that is safe.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ....aio import Sweeper
from ....errors import ConnectionClosed
from .connect import OpenSocket, SocketConnector
from .http1 import NO_RESPONSE, Origin, ParsedUrl, encode_head, parse_url
from .http1_connection import Http1Connection, Http1Response, OnChange

MAX_IDLE_CONNECTIONS: Final = 128
SWEEP_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 1.0
"""How long closing the connections may take."""
IDEMPOTENT_METHODS: Final = frozenset({"GET", "DELETE"})


class PreparedPost(NamedTuple):
    """The part of a POST that does not depend on its body."""

    origin: Origin
    head: bytes
    """The head without the length of the body and the empty line."""
    shown: str
    url: str = ""
    headers: Mapping[str, str] = {}
    """The URL and the headers in the head, if there is a tap."""


class Http1Client:
    """The connections of one client."""

    def __init__(self, verify: Any = True, open_socket: OpenSocket | None = None) -> None:
        self._connector = SocketConnector(verify, open_socket)
        self._idle: dict[Origin, list[Http1Connection]] = {}
        self._connections: dict[Http1Connection, Origin] = {}
        self._sweeper = Sweeper(SWEEP_SECONDS, self._sweep)
        self._last_url: tuple[str, ParsedUrl] | None = None
        self._is_closed = False
        self._all_lost = asyncio.Event()

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, shown: str
    ) -> Http1Response:
        """Send a request. Return the response when its headers have arrived.

        Raises:
            ConfigError: The URL or a header cannot be sent.
            ConnectFailed: The host is unknown, or TLS failed.
            ConnectionClosed: There is no valid response.
        """
        parsed = self._parse(url, shown)
        head = encode_head(method, parsed, headers, body, shown)
        connection = self._take(parsed.origin)
        if connection is not None:
            try:
                return await connection.exchange(head, body or b"", shown)
            except ConnectionClosed:
                if connection.has_received or method not in IDEMPOTENT_METHODS:
                    raise
        connection = await self._connect(parsed.origin, shown)
        return await connection.exchange(head, body or b"", shown)

    def prepare(self, url: str, headers: Mapping[str, str], shown: str) -> PreparedPost:
        """Return the part of a POST that does not depend on its body, for `begin`.

        Raises:
            ConfigError: The URL or a header cannot be sent.
        """
        parsed = self._parse(url, shown)
        head = encode_head("POST", parsed, headers, None, shown)
        return PreparedPost(parsed.origin, head[:-2], shown)

    def begin(self, post: PreparedPost, body: bytes, on_change: OnChange) -> Http1Response | None:
        """Send a small POST on an idle connection, without waiting. Return None if there is no idle
        connection. `on_change` is called as in `Http1Connection.begin`."""
        connection = self._take(post.origin)
        if connection is None:
            return None
        request = b"%bcontent-length: %d\r\n\r\n%b" % (post.head, len(body), body)
        return connection.begin(request, post.shown, on_change)

    def _parse(self, url: str, shown: str) -> ParsedUrl:
        if self._last_url is None or self._last_url[0] != url:
            self._last_url = url, parse_url(url, shown)
        return self._last_url[1]

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        self._sweeper.cancel()
        if not self._connections:
            return
        self._all_lost.clear()
        for connection in self._connections:
            connection.abort()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._all_lost.wait()
        except TimeoutError:
            pass

    async def _connect(self, origin: Origin, shown: str) -> Http1Connection:
        if self._is_closed:
            raise ConnectionClosed(f"{shown}: the client is closed", sent=False)
        scheme, host, port = origin
        connection = await self._connector.connect(
            lambda: Http1Connection(self._keep, self._forget), scheme == "https", host, port, shown
        )
        if self._is_closed:
            connection.abort()
        if connection.is_closed:
            raise ConnectionClosed(f"{shown}: {NO_RESPONSE}", sent=False)
        self._connections[connection] = origin
        return connection

    def _take(self, origin: Origin) -> Http1Connection | None:
        """Return an idle connection, the most recently used first."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.is_usable():
                return connection
            connection.abort()
        return None

    def _keep(self, connection: Http1Connection) -> None:
        if self._is_closed or sum(map(len, self._idle.values())) >= MAX_IDLE_CONNECTIONS:
            connection.abort()
            return
        self._idle.setdefault(self._connections[connection], []).append(connection)
        self._sweeper.start()

    def _forget(self, connection: Http1Connection) -> None:
        origin = self._connections.pop(connection, None)
        idle = None if origin is None else self._idle.get(origin)
        if idle and connection in idle:
            idle.remove(connection)
        if not self._connections:
            self._all_lost.set()

    def _sweep(self) -> bool:
        """Close the connections that have been idle for too long. Return whether any are left."""
        for origin, connections in list(self._idle.items()):
            for connection in list(connections):
                if not connection.is_usable():
                    connections.remove(connection)
                    connection.abort()
            if not connections:
                del self._idle[origin]
        return bool(self._idle)
