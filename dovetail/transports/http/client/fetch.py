"""Requests that are no conversation of ours, only a question and an answer.

`fetch` is what an authorization flow asks with. Where to is what some server said, so it is
careful: redirects are not followed, nothing is decompressed, an answer has a size and a time, and
addresses of the local network are refused (`net.py`) unless they are allowed. Behind a proxy
only the proxy knows the address; there, what is written out in the URL is judged.

`post_json` is one POST to a web API, with patience. A service that is busy (429, and what means
"not now" among the 5xx) is asked again after as long as its `Retry-After` says, or else after a
pause that doubles; never beyond the deadline: where the next attempt would be too late, the last
answer is the answer. Headers are the caller's secrets and go to the one origin only, as `wire` sees
to.
"""

import asyncio
import socket
from collections.abc import Collection, Mapping
from email.utils import parsedate_to_datetime
from time import time
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
from .http_transport import HttpTransport, checked, flat, head, library, proxy_for, trust

BUSY = {429, 500, 502, 503, 504, 529}
"""The answers after which the same question may get another one."""
SHORTEST, PAUSE, LONGEST = 0.2, 0.5, 8.0
"""Seconds of any pause at least, of the first, and of the longest that is our own choice."""
SPOKEN = {"mcp-protocol-version": HANDSHAKE[-1].version}
"""What goes with a request for metadata, where the server may be of a revision that has it at its
origin."""
SIZE, TIME = 1024 * KIB, 20.0
"""Bytes of an answer to `fetch`, and seconds that it may take."""


async def fetch(
    request: HttpRequest,
    *,
    private: bool = False,
    timeout: float = TIME,
    limit: int = SIZE,
    verify: Any = True,
    proxy: str | None = None,
) -> HttpResponse:
    """The answer to one request, whatever its status. `private`: addresses of the local network may
    be asked."""
    name, gate = request.url.partition("?")[0], _AddressCheck(private)
    try:
        async with asyncio.timeout(timeout):
            with flat(name):
                return await _exchange(request, gate, limit, verify, proxy)
    except TimeoutError:
        raise TimedOut(f"{name}: no answer within {timeout:g} s") from None
    except (ConnectionClosed, ConfigError) as problem:
        raise ConnectFailed(gate.complaint(name) or str(problem)) from None


def fetcher(peers: PeerAddresses, named: Collection[str] = (), **how: Any) -> Fetch:
    """What a client of one server fetches with: a server on the local network may point to others
    there. Addresses that the user `named` may be anywhere. Metadata is asked for as servers of old
    want it, which have more than one."""

    async def fetched(request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            request = replace(request, headers={**request.headers, **SPOKEN})
        private = peers.private if peers.private is not None else await _all_local(peers.host)
        return await fetch(request, private=private or request.url in named, **how)

    return fetched


class _AddressRefused(OSError):
    """An address that is not asked."""


class _AddressCheck:
    """Looks at each address that is about to be connected to."""

    def __init__(self, private: bool) -> None:
        self._forbids = is_forbidden if private else is_private
        self._refused = ""

    def judge(self, host: str) -> None:
        if self._forbids(host):
            self._refused = host
            raise _AddressRefused(host)

    def socket(self, info: tuple[Any, ...]) -> socket.socket:
        self.judge(info[4][0])
        return socket.socket(*info[:3])

    def complaint(self, name: str) -> str:
        where = f"{name}: {self._refused} is an address of the local network"
        return f"{where}, which a server elsewhere must not make us ask" if self._refused else ""


async def _exchange(
    request: HttpRequest, gate: _AddressCheck, limit: int, verify: Any, proxy: str | None
) -> HttpResponse:
    url = checked(request.url)
    aiohttp = library(url)
    gate.judge(urlsplit(url).hostname or "")
    proxy = proxy or proxy_for(url)
    # A proxy may well be on the local network; it is the user's choice, and where it leads is its
    # own business.
    connector = aiohttp.TCPConnector(
        ssl=trust(verify), socket_factory=None if proxy else gate.socket, force_close=True
    )
    session = aiohttp.ClientSession(
        connector=connector,
        proxy=proxy,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # which could be a bomb
        headers={"User-Agent": "dovetail", "Accept-Encoding": "identity"},
    )
    sent = {
        "headers": dict(request.headers),
        "data": request.body or None,
        "allow_redirects": False,
    }
    async with session, session.request(request.method, url, **sent) as response:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > limit:
                raise ConnectFailed(
                    f"{url.partition('?')[0]}: the answer is longer than {limit} bytes"
                )
        return replace(head(response), body=bytes(body))


async def _all_local(host: str) -> bool:
    """Whether a name leads to the local network and nowhere else."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(is_private(str(info[4][0])) for info in found)


async def post_json(
    url: str, headers: Mapping[str, str], body: bytes, timeout: float, limits: Limits = DEFAULT
) -> tuple[int, bytes]:
    """The status and body of the answer."""
    wire = HttpTransport(checked(url), limits, headers=headers)
    deadline = asyncio.get_running_loop().time() + timeout
    try:
        async with asyncio.timeout_at(deadline):
            attempt = 0
            while True:
                async with await wire.ask(
                    "POST", {"Content-Type": "application/json"}, body
                ) as reply:
                    found = await reply.body()
                if isinstance(found, TooLong):
                    raise TooLarge(f"{url}: the answer is longer than {limits.incoming} bytes")
                pause = _pause(reply.headers.get("Retry-After"), attempt)
                if (
                    reply.status not in BUSY
                    or asyncio.get_running_loop().time() + pause >= deadline
                ):
                    return reply.status, found
                await asyncio.sleep(pause)
                attempt += 1
    except TimeoutError:
        raise TimedOut(f"{url}: no answer within {timeout:g} s") from None
    finally:
        await wire.close()


def _pause(asked: str | None, attempt: int) -> float:
    """Seconds until the next attempt, as the service asks for or of our own choice."""
    own = backoff(attempt, PAUSE, LONGEST)
    if asked is None:
        return own
    try:
        return max(
            SHORTEST,
            float(asked)
            if asked.strip().isdigit()
            else parsedate_to_datetime(asked).timestamp() - time(),
        )
    except ValueError:
        return own
