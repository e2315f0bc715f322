"""HTTP for clients: send a request with credentials, follow redirects, return the reply, and turn
every failure into a one-line error.

Failures are raised as `ConnectionClosed`, whose `sent` says whether the request may have arrived.
An unknown host or a TLS failure is raised as `ConnectFailed`, because another attempt would also
fail. Redirects that keep the message (307 and 308) are followed and remembered, so a missing slash
costs only one extra request. The user's headers, credentials (`send_with_auth.py`) and session ids
are never sent to another origin, and a server on the internet cannot redirect the client to a
private address. In this module, only connecting has a timeout. The caller decides
how long to wait for a response. Proxy settings come from the environment. Netrc files and cookies
are not used.

`make_http_client` chooses `http1_client.py`, or `aiohttp_client.py` if there is a proxy.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urljoin, urlsplit

from ....errors import (
    ConfigError,
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    InternalError,
    InvalidRequest,
    Overloaded,
    missing_extra,
)
from ....jsonrpc.framing import HEAD_BYTES, TooLong
from ....limits import Limits
from ....net import PeerAddresses, is_loopback, shown_url, split_origin
from ....ports import Credentials, HttpResponse, Tap
from ....text import one_line
from ...send_with_auth import (
    AUTH_STATUSES,
    RESTARTING_STATUSES,
    explain_refusal,
    send_with_auth,
)
from ..event_stream import Event, EventStreamParser
from ..headers import check_headers
from .connect import OpenSocket

if TYPE_CHECKING:
    import socket

    from .http1_client import Http1Client

PIECE_BYTES = 256 * 1024
"""How much of a compressed body is decompressed at a time."""
WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""The zlib window bits for each Content-Encoding."""
MAX_REDIRECTS = 5
UNKNOWN_DISCOVER_STATUSES = {400, 404, 405, 406, 415}
"""The statuses with which servers reject `server/discover` if they do not support it."""
RETRY_AFTER_STATUSES = {429, 503}
METHOD_KEEPING_REDIRECTS = (307, 308)
METHOD_CHANGING_REDIRECTS = (301, 302, 303)
DEFAULT_HEADERS = {"user-agent": "dovetail", "accept-encoding": "gzip, deflate"}


class HttpClient(Protocol):
    """An HTTP client. It does not follow redirects and does not decompress anything."""

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, shown: str
    ) -> "ResponseStream":
        """Send a request. Return the response when its headers have arrived. The names of the
        headers are in lower case. `shown` is the URL as it appears in errors."""

    async def close(self) -> None:
        """Close all connections."""


class ResponseStream(Protocol):
    """A response. Iterating over it returns its body as it arrives."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return the response itself."""

    async def __anext__(self) -> bytes:
        """Return what has arrived since the last call."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def reason(self) -> str:
        """The text after the status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, with names in lower case. Repeated headers are joined."""

    def release(self) -> None:
        """Release the connection when the rest of the response has arrived. Close it if that takes
        long."""

    def close(self) -> None:
        """Release the connection if the response is complete. Otherwise, close it."""


def make_http_client(
    shown: str, verify: Any, proxy: str | None, open_socket: OpenSocket | None
) -> HttpClient:
    """Return an HTTP client. `open_socket` creates the socket for an address, except for a
    proxy."""
    try:
        if proxy is not None:
            from .aiohttp_client import AiohttpClient

            return AiohttpClient(proxy, verify)
        from .http1_client import Http1Client

        return Http1Client(verify, open_socket)
    except ImportError:
        raise missing_extra(f"{shown}: HTTP", "http") from None


def check_url(url: str, shown: str | None = None) -> str:
    """Return the URL without its fragment, or raise ConfigError if no request can be sent to it.
    `shown` is the URL as it appears in the error."""
    shown = shown or shown_url(url)
    try:
        parts = urlsplit(url)
        bad_port = parts.port is not None and not 0 < parts.port < 65536
    except ValueError as problem:
        raise ConfigError(f"{shown!r} is not a URL: {problem}") from None
    if "@" in parts.netloc:
        raise ConfigError(
            f"{shown}: a URL must not contain a password. "
            'Use headers={"Authorization": …} instead.'
        )
    if not parts.hostname or bad_port or re.search(r"[\x00-\x20\x7f]", url):
        raise ConfigError(f"{shown!r} is not a valid server URL")
    return url.partition("#")[0]


class HttpTransport:
    """The connection pool of one client for one URL."""

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
        shown: str | None = None,
        tap: Tap | None = None,
    ) -> None:
        self.url, self.shown = url, shown or shown_url(url)
        self.headers = dict(headers or {})
        """The user's own headers."""
        self.auth = auth
        self.pause: Callable[[bool], None] = lambda paused: None
        """A function that is called with True when the handling of a rejected request starts, and
        with False when it ends."""
        self._limits = limits
        check_headers({name.lower(): value for name, value in self.headers.items()}, "headers=")
        self._peers = peers or PeerAddresses(split_origin(url)[1])
        self._was_referred = False
        """Whether a redirect has led to another host."""
        proxy = proxy or proxy_for(url)
        self._client = make_http_client(self.shown, verify, proxy, self._open_socket)
        if tap is not None:
            from .tapped_client import tap_client

            self._client = tap_client(self._client, tap)

    async def request(
        self, method: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> "HttpReply":
        """Send one request and return the reply, whose body has not been read yet."""
        has_secrets = self.auth is not None or bool(self.headers) or "Mcp-Session-Id" in headers
        for _ in range(MAX_REDIRECTS + 1):
            url = self.url
            reply = await self.exchange(method, url, headers, body, self.pause)
            if reply.status not in METHOD_KEEPING_REDIRECTS:
                return reply
            reply.close()
            location = reply.headers.get("location", "")
            target = _follow_redirect(url, self.shown, location, has_secrets)
            host = split_origin(target)[1]
            if host != split_origin(url)[1]:
                self._was_referred = True
                self._check_address(host)
            self.url, self.shown = target, shown_url(target)
        raise ConnectFailed(f"{self.shown}: redirected more than {MAX_REDIRECTS} times")

    def _open_socket(self, info: tuple[Any, ...]) -> "socket.socket":
        if self._was_referred:
            self._check_address(info[4][0])
        return self._peers.open_socket(info)

    def _check_address(self, address: str) -> None:
        """Raise ConnectFailed if the server must not redirect the client to an address."""
        if self._peers.refuses(address):
            raise ConnectFailed(
                f"{self.shown}: refused a redirect to {one_line(address)}, which is a private "
                "address"
            )

    async def exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        pause: Callable[[bool], None] = lambda paused: None,
    ) -> "HttpReply":
        """Send one request, with credentials and the user's headers, and return the reply, even if
        it is a redirect."""

        async def send(auth_headers: Mapping[str, str]) -> HttpReply:
            sent = self.merge_headers(headers, auth_headers)
            response = await self._client.request(method, url, sent, body, self.shown)
            return self.read_reply(response)

        return await send_with_auth(
            self.auth, method, url, send, HttpReply.get_head, HttpReply.close, pause
        )

    def read_reply(self, response: ResponseStream) -> "HttpReply":
        """Return the reply to a request whose response has begun."""
        return HttpReply(response, self.shown, self._limits.incoming)

    @property
    def direct_client(self) -> "Http1Client | None":
        """The client for requests that are sent without waiting. None if they need credentials,
        whose headers may have to be fetched first, or a proxy."""
        is_direct = self.auth is None and hasattr(self._client, "begin")
        return cast("Http1Client", self._client) if is_direct else None

    def merge_headers(
        self, headers: Mapping[str, str], auth_headers: Mapping[str, str] = {}
    ) -> dict[str, str]:
        """Return all headers of a request, with names in lower case."""
        merged = dict(DEFAULT_HEADERS)
        for source in (auth_headers, self.headers, headers):
            for name, value in source.items():
                merged[name.lower()] = value
        return merged

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()


class HttpReply:
    """The reply to a request. If its context is left before the end of the body, the connection is
    closed, so the server notices. Without an error, the rest of the body has a moment to arrive, so
    that the connection can be used again."""

    def __init__(self, response: ResponseStream, url: str, limit: int) -> None:
        self._response, self.url, self._limit = response, url, limit
        self.status = response.status
        self.headers = response.headers
        """The headers, with names in lower case."""
        kind = response.headers.get("content-type", "")
        self.content_type = kind.partition(";")[0].partition(",")[0].strip().lower()

    async def __aenter__(self) -> "HttpReply":
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self._response.release()
        else:
            self._response.close()

    def close(self) -> None:
        """Release the connection, or close it if the body has not been read."""
        self._response.close()

    def get_head(self) -> HttpResponse:
        """Return the status and headers, without the body."""
        return HttpResponse(status=self.status, headers=self.headers)

    @property
    def reason(self) -> str:
        """The text after the status."""
        return one_line(self._response.reason)

    @property
    def retry_after(self) -> float | None:
        """The number of seconds that a busy server asks the client to wait before another attempt,
        if any."""
        if self.status not in RETRY_AFTER_STATUSES:
            return None
        return parse_retry_after(self.headers.get("retry-after", ""))

    @property
    def status_text(self) -> str:
        """The status as shown in an error message."""
        if self.status in METHOD_CHANGING_REDIRECTS:
            location = one_line(str(self.headers.get("location")))
            return (
                f"redirects to {location} with status {self.status}, which would drop the message. "
                "Use that URL."
            )
        return f"answered {self.status} {self.reason}".rstrip()

    async def body(self) -> bytes | TooLong:
        """Read the whole body, up to the limit."""
        parts: list[bytes] = []
        size = 0
        async for chunk in self.read_chunks():
            parts.append(chunk)
            size += len(chunk)
            if size > self._limit:
                return TooLong(b"".join(parts)[:HEAD_BYTES])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def events(self, take: Callable[[Event], bool]) -> None:
        """Pass the events in the body to `take` as they arrive, until `take` returns True or the
        body ends."""
        events = EventStreamParser(self._limit)
        async for chunk in self.read_chunks():
            for event in events.feed(chunk):
                if take(event):
                    return

    def read_chunks(self) -> AsyncIterator[bytes]:
        """Return the chunks of the decompressed body as they arrive."""
        encoding = self.headers.get("content-encoding", "").strip().lower()
        if encoding in ("", "identity"):
            return self._response
        return _decompress(self._response, encoding, self.url)


async def _decompress(
    chunks: AsyncIterator[bytes], encoding: str, url: str = ""
) -> AsyncIterator[bytes]:
    """Decompress a body in pieces of at most `PIECE_BYTES`, because a few bytes may expand to
    gigabytes."""
    import zlib

    if encoding not in WINDOW_BITS:
        raise _invalid(url, f"its Content-Encoding {encoding!r} was not requested by the client")
    decoder, piece = None, b""
    try:
        async for chunk in chunks:
            while chunk or len(piece) == PIECE_BYTES:
                if decoder is None:
                    # Some servers send "deflate" without the header that zlib defines.
                    is_bare = encoding == "deflate" and chunk[0] & 15 != 8
                    decoder = zlib.decompressobj(-15 if is_bare else WINDOW_BITS[encoding])
                piece = decoder.decompress(chunk, PIECE_BYTES)
                yield piece
                chunk = decoder.unconsumed_tail or decoder.unused_data
                if decoder.eof:
                    decoder, piece = None, b""  # another part may follow
                await asyncio.sleep(0)
        if decoder is not None:
            raise _invalid(url, "its compressed body is incomplete")
    except zlib.error as error:
        raise _invalid(url, f"its body cannot be decompressed: {error}") from None


def _invalid(url: str, why: str) -> ConnectionClosed:
    return ConnectionClosed(f"{url}: the response is not valid HTTP: {why}")


def error_for_status(
    reply: HttpReply,
    method: str | None,
    explanation: str,
    opening: bool,
    user_headers: Iterable[str],
) -> DovetailError:
    """Return the error for a rejected message if the response body is not a JSON-RPC response.
    `user_headers` are the names of the user's own headers."""
    if reply.status in AUTH_STATUSES:
        return explain_refusal(reply.url, reply.get_head(), user_headers, explanation)
    text = f"{reply.url} {reply.status_text}"
    if explanation:
        text += f": {explanation}"
    wait = reply.retry_after
    busy = (
        Overloaded(text)
        if wait is None
        else Overloaded(f"{text}. Retry after {wait:.0f} s.", data={"retryAfter": wait})
    )
    if reply.status == 429:
        return busy
    if opening:
        unknown = method == "server/discover" and reply.status in UNKNOWN_DISCOVER_STATUSES
        if unknown:
            return InvalidRequest(text)
        return ConnectFailed(text, transient=reply.status in RESTARTING_STATUSES)
    if reply.status == 503:
        return busy
    return (InternalError if reply.status >= 500 else InvalidRequest)(f"{method}: {text}")


def parse_retry_after(value: str) -> float | None:
    """Return the wait time in a `Retry-After` header, in seconds, or None if the header is missing
    or malformed."""
    value = value.strip()
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _follow_redirect(url: str, shown: str, location: str, has_secrets: bool) -> str:
    if not location:
        raise ConnectFailed(f"{shown}: the redirect has no Location header")
    try:
        target = check_url(urljoin(url, location))
    except ValueError as problem:  # ConfigError is a ValueError
        raise ConnectFailed(
            f"{shown}: the redirect is not valid: {one_line(str(problem))}"
        ) from None
    old, new = split_origin(url), split_origin(target)
    if new[0] not in ("http", "https") or (old[0], new[0]) == ("https", "http"):
        raise ConnectFailed(
            f"{shown}: refused a redirect to {one_line(shown_url(target))}, which is less secure"
        )
    if old != new and has_secrets:
        raise ConnectFailed(
            f"{shown}: refused a redirect to another origin, which must not receive your headers. "
            f"If you trust that origin, use {one_line(target)}."
        )
    return target


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment sets for a URL, if any. Requests to this machine never
    use one, because credentials are sent there without TLS."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    scheme, host, _ = split_origin(url)
    if not proxies or is_loopback(host):
        return None
    found = proxies.get(scheme) or proxies.get("all")
    return found if found and found.startswith("http") and not proxy_bypass(host) else None
