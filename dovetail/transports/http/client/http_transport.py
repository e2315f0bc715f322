"""HTTP as a client needs it, behind one door to aiohttp: a request out, a reply in, what fails said
in one line.

Failures are `ConnectionClosed`, whose `sent` tells whether the request may have arrived. Redirects
are followed where they keep the message (307 and 308) and remembered, so that a missing slash is
paid for once; headers that are the user's own, or that name a session, never go to another origin.
Nothing has a deadline of its own but connecting: who waits for an answer knows how long. Proxies
come from the environment; netrc files and cookies are nobody's business here.

Credentials go with each request to the server's own origin (`send_with_auth.py`), and nowhere else.
"""

import asyncio
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from ....errors import ConfigError, ConnectFailed, ConnectionClosed, missing_extra
from ....jsonrpc.framing import HEAD_BYTES, TooLong
from ....limits import Limits
from ....net import PeerAddresses, split_origin, without_password
from ....ports import Credentials, HttpResponse
from ...send_with_auth import send_with_auth
from ...stream_adapter import describe_os_error
from ..event_stream import Event, EventStreamParser

if TYPE_CHECKING:
    import aiohttp

CONNECT = 10.0
"""Seconds that connecting may take, the TLS handshake included."""
IDLE = 4.0
"""Seconds that a connection waits to be used again: less than servers do, so that none is used
while it is closed."""
LARGE = 64 * 1024
"""Bytes over which a body is sent in pieces, so that the event loop does not wait for it."""
REDIRECTS = 5
KEEP_METHOD = (307, 308)
LOSE_METHOD = (301, 302, 303)
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")


def checked(url: str) -> str:
    """The URL, if it is one that can be asked; ConfigError says what is wrong with it."""
    try:
        parts = urlsplit(url)
        odd = parts.port is not None and not 0 < parts.port < 65536
    except ValueError as problem:
        raise ConfigError(f"{url!r} is no URL: {problem}") from None
    if "@" in parts.netloc:
        raise ConfigError(
            f"{without_password(url)}: a URL must not contain a password. "
            'Use headers={"Authorization": …} instead.'
        )
    if not parts.hostname or odd or re.search(r"[\x00-\x20\x7f]", url):
        raise ConfigError(f"{url!r} is no URL of a server")
    return url.partition("#")[0]


class HttpTransport:
    """One client's way to one URL: a pool of connections."""

    def __init__(
        self,
        url: str,
        limits: Limits,
        *,
        headers: Mapping[str, str] | None = None,
        verify: Any = True,
        proxy: str | None = None,
        auth: Credentials | None = None,
        peers: PeerAddresses | None = None,
    ) -> None:
        module = library(url)
        for name, value in (headers or {}).items():
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise ConfigError(
                    f"headers=: {name!r} cannot be sent: its name or value holds what no header may"
                )
        self.url = url
        self.headers = dict(headers or {})
        """The user's own."""
        self.auth = auth
        self.pause: Callable[[bool], None] = lambda paused: None
        """Told when credentials begin and cease to look for a way in."""
        self._limits = limits
        proxy = proxy or proxy_for(url)
        note = peers.open_socket if peers is not None and proxy is None else None
        self.session: aiohttp.ClientSession = module.ClientSession(
            connector=module.TCPConnector(
                limit=0, keepalive_timeout=IDLE, ssl=trust(verify), socket_factory=note
            ),
            proxy=proxy,
            cookie_jar=module.DummyCookieJar(),
            timeout=module.ClientTimeout(total=None, sock_connect=CONNECT),
            headers={"User-Agent": "dovetail"},
        )

    async def ask(
        self, method: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> "HttpReply":
        """Send one request; the reply's status and headers are there, its body is still to be
        read."""
        from multidict import CIMultiDict

        secret = self.auth is not None or bool(self.headers) or "Mcp-Session-Id" in headers
        await asyncio.sleep(
            0
            # connections that were closed while this loop was busy are noticed now, and not used
            # again
        )

        async def send(vouching: Mapping[str, str]) -> "aiohttp.ClientResponse":
            sent = CIMultiDict(vouching)
            sent.update(self.headers)
            sent.update(headers)
            with flat(asked):
                data = BytesIO(body) if body is not None and len(body) > LARGE else body
                return await self.session.request(
                    method, asked, headers=sent, data=data, allow_redirects=False
                )

        for _ in range(REDIRECTS + 1):
            asked = self.url
            response = await send_with_auth(
                self.auth, method, asked, send, head, let_go, self.pause
            )
            if response.status not in KEEP_METHOD:
                return HttpReply(response, asked, self._limits.incoming)
            response.release()
            self.url = _redirected(asked, response.headers.get("Location", ""), secret)
        raise ConnectFailed(f"{asked}: redirected more than {REDIRECTS} times")

    async def close(self) -> None:
        """End all connections."""
        await self.session.close()


class HttpReply:
    """What came back. Leaving it before its end closes the connection, which is how the server
    hears of it."""

    def __init__(self, response: "aiohttp.ClientResponse", url: str, limit: int) -> None:
        self._response, self.url, self._limit = response, url, limit
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    async def __aenter__(self) -> "HttpReply":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        let_go(self._response)

    @property
    def head(self) -> HttpResponse:
        """Its status and headers, without the body."""
        return head(self._response)

    @property
    def said(self) -> str:
        """The status in words, for errors."""
        if self.status in LOSE_METHOD:
            return (
                f"redirects to {self.headers.get('Location')} ({self.status}), which would "
                "lose the message: use that URL"
            )
        return f"answered {self.status} {self._response.reason or ''}".rstrip()

    async def body(self) -> bytes | TooLong:
        """The whole body, if it is within the bound."""
        parts: list[bytes] = []
        size = 0
        with flat(self.url):
            async for chunk in self._response.content.iter_any():
                parts.append(chunk)
                size += len(chunk)
                if size > self._limit:
                    return TooLong(b"".join(parts)[:HEAD_BYTES])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def events(self, take: Callable[[Event], bool]) -> None:
        """Hand on the events of the body as they come, until one was enough (`take` returns True)
        or there are no more."""
        events = EventStreamParser(self._limit)
        with flat(self.url):
            async for chunk in self._response.content.iter_any():
                for event in events.feed(chunk):
                    if take(event):
                        return


@contextmanager
def flat(url: str) -> Iterator[None]:
    """Turns whatever aiohttp raises into one line, and says whether the request may have
    arrived."""
    import aiohttp

    try:
        yield
    except aiohttp.ClientConnectorDNSError as error:
        raise ConnectionClosed(f"{url}: there is no host {error.host}", sent=False) from None
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
        raise ConnectionClosed(f"{url}: TLS failed: {_tls(error)}", sent=False) from None
    except aiohttp.ClientProxyConnectionError as error:
        raise ConnectionClosed(
            f"{url}: the proxy cannot be reached: {describe_os_error(error.os_error)}", sent=False
        ) from None
    except aiohttp.ClientHttpProxyError as error:
        raise ConnectionClosed(
            f"{url}: the proxy refuses: {error.status} {error.message}", sent=False
        ) from None
    except aiohttp.ClientConnectorError as error:
        raise ConnectionClosed(f"{url}: {describe_os_error(error.os_error)}", sent=False) from None
    except aiohttp.ConnectionTimeoutError:
        raise ConnectionClosed(f"{url}: no connection within {CONNECT:g} s", sent=False) from None
    except aiohttp.InvalidURL as error:
        raise ConfigError(f"{url} is no URL: {error}") from None
    except aiohttp.ServerDisconnectedError:
        raise ConnectionClosed(
            f"{url}: the server closed the connection without an answer"
        ) from None
    except (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, OSError):
        raise ConnectionClosed(
            f"{url}: the connection broke before the answer was complete"
        ) from None
    except aiohttp.ClientError as error:
        raise ConnectionClosed(f"{url}: what came back is no HTTP: {str(error)[:200]}") from None


def library(url: str) -> Any:
    """The library, or what to do about its absence."""
    try:
        import aiohttp
    except ImportError:
        raise missing_extra(f"{url}: HTTP", "http") from None
    return aiohttp


def head(response: "aiohttp.ClientResponse") -> HttpResponse:
    """Status and headers of a response; a header that came several times is one."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return HttpResponse(status=response.status, headers=headers)


def let_go(response: "aiohttp.ClientResponse") -> None:
    """Read no more of it."""
    response.release() if response.content.at_eof() else response.close()


def _redirected(asked: str, target: str, secret: bool) -> str:
    if not target:
        raise ConnectFailed(f"{asked}: redirected to nowhere")
    try:
        url = checked(urljoin(asked, target))
    except ValueError as problem:  # which a ConfigError is too
        raise ConnectFailed(f"{asked}: redirected wrongly: {problem}") from None
    here, there = split_origin(asked), split_origin(url)
    if there[0] not in ("http", "https") or (here[0], there[0]) == ("https", "http"):
        raise ConnectFailed(f"{asked}: redirected to {url}, which is not as safe")
    if here != there and secret:
        raise ConnectFailed(
            f"{asked}: redirected to another origin, which must not see your headers: use "
            f"{url} if it is right"
        )
    return url


def trust(verify: Any) -> Any:
    """What aiohttp makes of `verify=`: True, False, a context, or the path of certificates to
    trust."""
    if isinstance(verify, bool | ssl.SSLContext):
        return verify
    path = Path(verify)
    try:
        return ssl.create_default_context(**{"capath" if path.is_dir() else "cafile": str(path)})  # type: ignore[arg-type]
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"verify={str(verify)!r} contains no certificates: {error}") from None


def proxy_for(url: str) -> str | None:
    """The proxy that the environment wants for this URL."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    if not proxies:
        return None
    scheme, host, _ = split_origin(url)
    found = proxies.get(scheme) or proxies.get("all")
    return found if found and found.startswith("http") and not proxy_bypass(host) else None


def _tls(error: Any) -> str:
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", error)
    return getattr(cause, "verify_message", "") or getattr(cause, "reason", "") or str(cause)
