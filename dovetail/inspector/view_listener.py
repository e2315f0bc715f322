"""The listener at which the view of an app is shown: `http://localhost:<a port of its own>`.

A view runs code of the server's author, so it has an origin of its own. The listener has one page
and no API: the proxy of the one view that is open (`View.proxy`), at a path that cannot be guessed.
Everything else is 404. It listens on 127.0.0.1 and, if there is IPv6, on ::1, so that no other
program answers for `localhost`.
"""

import asyncio
import re
import socket
from contextlib import suppress
from secrets import token_urlsafe

from ..ports import HttpResponse

MAX_REQUEST_BYTES = 16 * 1024
REQUEST_SECONDS = 10.0
MAX_CONNECTIONS = 32
PORT_ATTEMPTS = 20
NOT_FOUND = HttpResponse(status=404, headers={"content-type": "text/plain; charset=utf-8"})
_REQUEST = re.compile(rb"GET (/[!-~]*) HTTP/1\.[01]\r\n")
_HOST = re.compile(rb"\r\nhost:[ \t]*([!-~]*)[ \t]*(?=\r\n)", re.IGNORECASE)


class ViewListener:
    """Serves one page at an origin of its own. The port is taken at once; `start` begins to answer.

    Raises:
        OSError: No port can be used.
    """

    def __init__(self) -> None:
        self._sockets = _open_sockets()
        self.port: int = self._sockets[0].getsockname()[1]
        self.origin = f"http://localhost:{self.port}"
        self._path, self._page = "", NOT_FOUND
        self._servers: list[asyncio.Server] = []
        self._requests: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to answer requests."""
        for listening in self._sockets:
            self._servers.append(
                await asyncio.start_server(self._serve, sock=listening, limit=MAX_REQUEST_BYTES)
            )

    def show(self, page: HttpResponse) -> str:
        """Serve a page instead of the last one, and return its URL.

        Args:
            page: The page.
        """
        self._path, self._page = f"/{token_urlsafe()}", page
        return self.origin + self._path

    def hide(self) -> None:
        """Serve nothing."""
        self._path, self._page = "", NOT_FOUND

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.close()
        for listening in self._sockets:
            listening.close()
        for task in self._requests:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        task = asyncio.current_task()
        assert task is not None
        self._requests.add(task)
        try:
            if len(self._requests) <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_SECONDS):
                    writer.write(_encode(self._find(await reader.readuntil(b"\r\n\r\n"))))
                    await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # not a request of a browser
        finally:
            self._requests.discard(task)
            writer.close()

    def _find(self, head: bytes) -> HttpResponse:
        line, hosts = _REQUEST.match(head), _HOST.findall(head)
        if line is None or hosts != [f"localhost:{self.port}".encode()]:
            return NOT_FOUND
        return self._page if line[1] == self._path.encode() else NOT_FOUND


def _encode(page: HttpResponse) -> bytes:
    headers = {**page.headers, "content-length": str(len(page.body)), "connection": "close"}
    lines = [f"HTTP/1.1 {page.status} {'OK' if page.status == 200 else 'Not Found'}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode() + page.body


def _open_sockets() -> list[socket.socket]:
    """Return sockets for the same free port of 127.0.0.1 and, if there is IPv6, of ::1."""
    has_ipv6 = _has_ipv6()
    for attempt in range(PORT_ATTEMPTS):
        first = socket.create_server(("127.0.0.1", 0))
        if not has_ipv6:
            return [first]
        try:
            port = first.getsockname()[1]
            return [first, socket.create_server(("::1", port), family=socket.AF_INET6)]
        except OSError:  # another program has the port of ::1
            first.close()
            if attempt == PORT_ATTEMPTS - 1:
                raise
    raise AssertionError


def _has_ipv6() -> bool:
    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False
