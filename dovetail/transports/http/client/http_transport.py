"""HTTP for clients, on top of aiohttp: send a request, return the reply, and turn every failure
into a one-line error.

Failures are raised as `ConnectionClosed`, whose `sent` says whether the request may have arrived.
An unknown host or a TLS failure is raised as `ConnectFailed`, because another attempt would also
fail. Redirects that keep the message (307 and 308) are followed and remembered, so a missing slash
costs only one extra request. The user's headers, credentials (`send_with_auth.py`) and session ids
are never sent to another origin. In this module, only connecting has a timeout. The caller decides
how long to wait for a response. Proxy settings come from the environment. Netrc files and cookies
are not used.
"""

import asyncio
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any
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
from ....net import PeerAddresses, shown_url, split_origin
from ....ports import Credentials, HttpResponse
from ...send_with_auth import (
    AUTH_STATUSES,
    RESTARTING_STATUSES,
    explain_refusal,
    make_head,
    send_with_auth,
)
from ...stream_adapter import describe_os_error
from ..event_stream import Event, EventStreamParser

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 10.0
"""How long connecting may take, including the TLS handshake."""
IDLE_SECONDS = 4.0
"""How long an idle connection is kept. Servers keep idle connections longer, so the client does not
reuse a connection that the server is closing."""
LARGE_BODY_BYTES = 64 * 1024
"""Bodies larger than this are sent in pieces, so that they do not block the event loop."""
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
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")


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
    ) -> None:
        module = import_aiohttp(shown or shown_url(url))
        for name, value in (headers or {}).items():
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise ConfigError(
                    f"headers=: {name!r} contains characters that are not allowed in headers"
                )
        self.url, self.shown = url, shown or shown_url(url)
        self.headers = dict(headers or {})
        """The user's own headers."""
        self.auth = auth
        self.pause: Callable[[bool], None] = lambda paused: None
        """A function that is called with True when the handling of a rejected request starts, and
        with False when it ends."""
        self._limits = limits
        proxy = proxy or proxy_for(url)
        socket_factory = peers.open_socket if peers is not None and proxy is None else None
        self.session: aiohttp.ClientSession = module.ClientSession(
            connector=module.TCPConnector(
                limit=0,
                keepalive_timeout=IDLE_SECONDS,
                ssl=ssl_option(verify),
                socket_factory=socket_factory,
            ),
            proxy=proxy,
            cookie_jar=module.DummyCookieJar(),
            timeout=module.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            auto_decompress=False,  # `read_chunks` does that, within bounds
            headers={"User-Agent": "dovetail", "Accept-Encoding": "gzip, deflate"},
        )

    async def request(
        self, method: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> "HttpReply":
        """Send one request and return the reply, whose body has not been read yet."""
        from multidict import CIMultiDict

        has_secrets = self.auth is not None or bool(self.headers) or "Mcp-Session-Id" in headers
        # Let the loop notice connections that were closed while it was busy, so that none is
        # reused.
        await asyncio.sleep(0)

        async def send(auth_headers: Mapping[str, str]) -> "aiohttp.ClientResponse":
            sent = CIMultiDict(auth_headers)
            sent.update(self.headers)
            sent.update(headers)
            with translate_errors(self.shown):
                data = BytesIO(body) if body is not None and len(body) > LARGE_BODY_BYTES else body
                return await self.session.request(
                    method, url, headers=sent, data=data, allow_redirects=False
                )

        for _ in range(MAX_REDIRECTS + 1):
            url = self.url
            response = await send_with_auth(
                self.auth, method, url, send, response_head, release, self.pause
            )
            if response.status not in METHOD_KEEPING_REDIRECTS:
                return HttpReply(response, self.shown, self._limits.incoming)
            response.release()
            location = response.headers.get("Location", "")
            self.url = _follow_redirect(url, self.shown, location, has_secrets)
            self.shown = shown_url(self.url)
        raise ConnectFailed(f"{self.shown}: redirected more than {MAX_REDIRECTS} times")

    async def close(self) -> None:
        """Close all connections."""
        await self.session.close()


class HttpReply:
    """The reply to a request. If its context is left before the end of the body, the connection is
    closed, so the server notices."""

    def __init__(self, response: "aiohttp.ClientResponse", url: str, limit: int) -> None:
        self._response, self.url, self._limit = response, url, limit
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.content_type = (
            response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        )

    async def __aenter__(self) -> "HttpReply":
        return self

    async def __aexit__(self, *_: object) -> None:
        release(self._response)

    @property
    def head(self) -> HttpResponse:
        """The status and headers, without the body."""
        return response_head(self._response)

    @property
    def retry_after(self) -> float | None:
        """The number of seconds that a busy server asks the client to wait before another attempt,
        if any."""
        if self.status not in RETRY_AFTER_STATUSES:
            return None
        return parse_retry_after(self.headers.get("Retry-After", ""))

    @property
    def status_text(self) -> str:
        """The status as shown in an error message."""
        if self.status in METHOD_CHANGING_REDIRECTS:
            return (
                f"redirects to {self.headers.get('Location')} with status {self.status}, which "
                "would drop the message. Use that URL."
            )
        return f"answered {self.status} {self._response.reason or ''}".rstrip()

    async def body(self) -> bytes | TooLong:
        """Read the whole body, up to the limit."""
        parts: list[bytes] = []
        size = 0
        with translate_errors(self.url):
            async for chunk in read_chunks(self._response):
                parts.append(chunk)
                size += len(chunk)
                if size > self._limit:
                    return TooLong(b"".join(parts)[:HEAD_BYTES])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def events(self, take: Callable[[Event], bool]) -> None:
        """Pass the events in the body to `take` as they arrive, until `take` returns True or the
        body ends."""
        events = EventStreamParser(self._limit)
        with translate_errors(self.url):
            async for chunk in read_chunks(self._response):
                for event in events.feed(chunk):
                    if take(event):
                        return


def read_chunks(response: "aiohttp.ClientResponse") -> AsyncIterator[bytes]:
    """Return the chunks of the decompressed body as they arrive."""
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    chunks: AsyncIterator[bytes] = response.content.iter_any()
    return chunks if encoding in ("", "identity") else _decompress(chunks, encoding)


async def _decompress(chunks: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """Decompress a body in pieces of at most `PIECE_BYTES`, because a few bytes may expand to
    gigabytes."""
    import zlib

    from aiohttp import ClientError

    if encoding not in WINDOW_BITS:
        raise ClientError(f"its Content-Encoding {encoding!r} was not requested by the client")
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
            raise ClientError("its compressed body is incomplete")
    except zlib.error as error:
        raise ClientError(f"its body cannot be decompressed: {error}") from None


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
        return explain_refusal(reply.url, reply.head, user_headers, explanation)
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


@contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Translate aiohttp's exceptions into one-line errors that say whether the request may have
    arrived."""
    import aiohttp

    try:
        yield
    except aiohttp.InvalidURL as error:
        raise ConfigError(f"{url} is not a URL: {error}") from None
    except (aiohttp.ClientConnectorDNSError, aiohttp.ClientSSLError) as error:
        raise ConnectFailed(f"{url}: {_describe_connect_error(error)}") from None
    except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError) as error:
        raise ConnectionClosed(f"{url}: {_describe_connect_error(error)}", sent=False) from None
    except aiohttp.ConnectionTimeoutError:
        text = f"{url}: could not connect within {CONNECT_SECONDS:g} s"
        raise ConnectionClosed(text, sent=False) from None
    except aiohttp.ServerDisconnectedError:
        raise ConnectionClosed(
            f"{url}: the server closed the connection without a response"
        ) from None
    except (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, OSError):
        raise ConnectionClosed(
            f"{url}: the connection broke before the response was complete"
        ) from None
    except aiohttp.ClientError as error:
        raise ConnectionClosed(
            f"{url}: the response is not valid HTTP: {str(error)[:200]}"
        ) from None


def _describe_connect_error(error: Any) -> str:
    import aiohttp

    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"the host {error.host} was not found"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", error)
            reason = getattr(cause, "verify_message", "") or getattr(cause, "reason", "")
            return f"TLS failed: {reason or cause}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy refused the connection: {error.status} {error.message}"
        case aiohttp.ClientProxyConnectionError():
            return f"the proxy cannot be reached: {describe_os_error(error.os_error)}"
    return describe_os_error(error.os_error)


def import_aiohttp(url: str) -> Any:
    """Import aiohttp, or raise a ConfigError that says how to install it."""
    try:
        import aiohttp
    except ImportError:
        raise missing_extra(f"{url}: HTTP", "http") from None
    return aiohttp


def response_head(response: "aiohttp.ClientResponse") -> HttpResponse:
    """Return the status and headers of a response."""
    return make_head(response.status, response.headers.items())


def release(response: "aiohttp.ClientResponse") -> None:
    """Release a response's connection, or close it if the body has not been read."""
    response.release() if response.content.at_eof() else response.close()


def _follow_redirect(url: str, shown: str, location: str, has_secrets: bool) -> str:
    if not location:
        raise ConnectFailed(f"{shown}: the redirect has no Location header")
    try:
        target = check_url(urljoin(url, location))
    except ValueError as problem:  # ConfigError is a ValueError
        raise ConnectFailed(f"{shown}: the redirect is not valid: {problem}") from None
    old, new = split_origin(url), split_origin(target)
    if new[0] not in ("http", "https") or (old[0], new[0]) == ("https", "http"):
        raise ConnectFailed(
            f"{shown}: refused a redirect to {shown_url(target)}, which is less secure"
        )
    if old != new and has_secrets:
        raise ConnectFailed(
            f"{shown}: refused a redirect to another origin, which must not receive your headers. "
            f"If you trust that origin, use {target}."
        )
    return target


def ssl_option(verify: Any) -> ssl.SSLContext | bool:
    """Return the `ssl=` argument for aiohttp and websockets. `verify` is True, False, an SSL
    context, or the path of trusted certificates."""
    if verify is True or isinstance(verify, ssl.SSLContext):
        return verify
    if verify is False:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    path = os.fspath(verify)
    is_folder = os.path.isdir(path)
    try:
        return ssl.create_default_context(
            cafile=None if is_folder else path, capath=path if is_folder else None
        )
    except OSError as error:
        raise ConfigError(
            f"verify={path!r} contains no certificates: {describe_os_error(error)}"
        ) from None


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment sets for a URL, if any."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    if not proxies:
        return None
    scheme, host, _ = split_origin(url)
    found = proxies.get(scheme) or proxies.get("all")
    return found if found and found.startswith("http") and not proxy_bypass(host) else None
