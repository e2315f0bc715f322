"""The origin at which the view of an app is shown: `http://localhost:<a port of its own>`.

A view runs code of the server's author, so it has an origin of its own. The origin has one page and
no API: the proxy of the one view that is open (`View.proxy`), at a path that cannot be guessed.
Everything else is 404. Its port is taken on 127.0.0.1 and, if there is IPv6, on ::1, so that no
other program answers for `localhost`. The HTTP server of the inspector's page also listens there,
and the port alone decides who answers a request.
"""

import socket
from contextlib import suppress
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from ..ports import HttpResponse

if TYPE_CHECKING:
    from ..serve.plain_app import Asgi

PORT_ATTEMPTS = 20
NOT_FOUND = HttpResponse(status=404, headers={"content-type": "text/plain; charset=utf-8"})


class ViewListener:
    """An ASGI application that serves one page at an origin of its own.

    Raises:
        OSError: No port can be used.
    """

    def __init__(self) -> None:
        self.sockets = _open_sockets()
        self.port: int = self.sockets[0].getsockname()[1]
        self._host = f"localhost:{self.port}"
        self.origin = f"http://{self._host}"
        self._path, self._page = "", NOT_FOUND

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

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request: with the page, or with 404."""
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        asked = (scope["method"], scope["raw_path"], scope["query_string"], hosts)
        is_found = asked == ("GET", self._path.encode(), b"", [self._host.encode()])
        page = self._page if is_found else NOT_FOUND
        headers = {**page.headers, "content-length": str(len(page.body)), "connection": "close"}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": page.status, "headers": pairs})
        await send({"type": "http.response.body", "body": page.body})


def route_by_port(views: ViewListener, page: "Asgi") -> "Asgi":
    """Return an application that passes the requests to the port of views on to them, and all other
    requests to the page.

    Args:
        views: The views.
        page: The page.
    """

    async def route(scope: Any, receive: Any, send: Any) -> None:
        await (views if scope["server"][1] == views.port else page)(scope, receive, send)

    return route


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
