"""Individual HTTP requests outside a session.

Authorization flows use `fetch`. The URLs come from a server and are not trusted, so `fetch` does
not follow redirects or decompress anything, and limits the size and duration of the response. It
also rejects private addresses (`net.py`) unless they are allowed. Behind a proxy, only the proxy
sees the address, so only a literal address in the URL can be checked.

`post_json` sends a POST to a web API and retries it if necessary. If the service is busy (429 and
some 5xx), the request is repeated after the time in `Retry-After`, or after a pause that doubles
each time. If the next attempt would miss the deadline, the last response is returned. The caller's
headers are secret and are sent only to the origin of the URL (`http_transport.py`).
"""

import asyncio
import socket
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from ....aio import backoff
from ....errors import ConfigError, ConnectFailed, ConnectionClosed, TimedOut, TooLarge
from ....jsonrpc.framing import TooLong
from ....limits import DEFAULT, KIB, Limits
from ....net import PeerAddresses, is_forbidden, is_private
from ....ports import Fetch, HttpRequest, HttpResponse
from ....revisions import HANDSHAKE
from .http_transport import (
    HttpTransport,
    check_url,
    make_http_client,
    parse_retry_after,
    proxy_for,
)

BUSY_STATUSES = {429, 500, 502, 503, 504, 529}
"""The statuses after which a request is repeated."""
MIN_PAUSE_SECONDS, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.2, 0.5, 8.0
VERSION_HEADER = {"mcp-protocol-version": HANDSHAKE[-1].version}
"""The header sent with requests for metadata, because older servers with metadata at their origin
require it."""
HEADERS = {
    "user-agent": "dovetail",
    "accept-encoding": "identity",  # a compressed body could be a decompression bomb
    "connection": "close",
}
MAX_RESPONSE_BYTES, TIMEOUT_SECONDS = 1024 * KIB, 20.0


async def fetch(
    request: HttpRequest,
    *,
    private: bool = False,
    timeout: float = TIMEOUT_SECONDS,
    limit: int = MAX_RESPONSE_BYTES,
    verify: Any = True,
    proxy: str | None = None,
) -> HttpResponse:
    """Send one request and return the response, regardless of its status. `private` allows private
    addresses."""
    name, check = request.url.partition("?")[0], _AddressCheck(private)
    try:
        async with asyncio.timeout(timeout):
            return await _exchange(request, check, limit, verify, proxy)
    except TimeoutError:
        raise TimedOut(f"{name}: no response within {timeout:g} s") from None
    except (ConnectionClosed, ConfigError, OSError) as problem:
        raise ConnectFailed(check.complaint(name) or str(problem)) from None


def fetcher(peers: PeerAddresses, trusted_urls: Collection[str] = (), **options: Any) -> Fetch:
    """Return the `fetch` function for one server's client. A server on a private network may refer
    to other servers on that network, and the URLs that the user specified (`trusted_urls`) may be
    anywhere."""

    async def fetch_for_server(request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            request = replace(request, headers={**request.headers, **VERSION_HEADER})
        private = peers.private if peers.private is not None else await _all_private(peers.host)
        return await fetch(request, private=private or request.url in trusted_urls, **options)

    return fetch_for_server


class _AddressCheck:
    """A check that is applied to each address before a connection to it is opened."""

    def __init__(self, private: bool) -> None:
        self._is_refused = is_forbidden if private else is_private
        self._refused = ""

    def check(self, host: str) -> None:
        if self._is_refused(host):
            self._refused = host
            raise OSError(host)

    def open_socket(self, info: tuple[Any, ...]) -> socket.socket:
        self.check(info[4][0])
        return socket.socket(*info[:3])

    def complaint(self, name: str) -> str:
        if not self._refused:
            return ""
        return (
            f"{name}: {self._refused} is a private address; a server outside that network must not "
            "cause this client to connect to it"
        )


async def _exchange(
    request: HttpRequest, check: _AddressCheck, limit: int, verify: Any, proxy: str | None
) -> HttpResponse:
    url = check_url(request.url)
    name = url.partition("?")[0]
    check.check(urlsplit(url).hostname or "")
    # A proxy may be on a private network, because the user has chosen it.
    client = make_http_client(name, verify, proxy or proxy_for(url), check.open_socket)
    headers = {name.lower(): value for name, value in {**HEADERS, **request.headers}.items()}
    body = request.body if request.body or request.method == "POST" else None
    try:
        response = await client.request(request.method, url, headers, body, name)
        found = bytearray()
        async for chunk in response:
            found += chunk
            if len(found) > limit:
                raise ConnectFailed(f"{name}: the response is larger than {limit} bytes")
        return HttpResponse(status=response.status, headers=response.headers, body=bytes(found))
    finally:
        await client.close()


async def _all_private(host: str) -> bool:
    """Return whether all addresses of a host name are private."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(is_private(str(info[4][0])) for info in found)


async def post_json(
    url: str, headers: Mapping[str, str], body: bytes, timeout: float, limits: Limits = DEFAULT
) -> tuple[int, bytes]:
    """Send a POST, retry it if necessary, and return the status and body of the response."""
    transport = HttpTransport(check_url(url), limits, headers=headers)
    deadline = asyncio.get_running_loop().time() + timeout
    try:
        async with asyncio.timeout_at(deadline):
            attempt = 0
            while True:
                async with await transport.request(
                    "POST", {"Content-Type": "application/json"}, body
                ) as reply:
                    found = await reply.body()
                if isinstance(found, TooLong):
                    raise TooLarge(f"{url}: the response is larger than {limits.incoming} bytes")
                pause = _pause(reply.headers.get("retry-after", ""), attempt)
                if (
                    reply.status not in BUSY_STATUSES
                    or asyncio.get_running_loop().time() + pause >= deadline
                ):
                    return reply.status, found
                await asyncio.sleep(pause)
                attempt += 1
    except TimeoutError:
        raise TimedOut(f"{url}: no response within {timeout:g} s") from None
    finally:
        await transport.close()


def _pause(retry_after: str, attempt: int) -> float:
    """Return the number of seconds until the next attempt, based on `Retry-After` or on exponential
    backoff."""
    seconds = parse_retry_after(retry_after)
    if seconds is None:
        return backoff(attempt, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
    return max(MIN_PAUSE_SECONDS, seconds)
