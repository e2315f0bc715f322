"""HTTP/1.1 as a client writes and reads it: encode a request, and parse its response. This module
performs no I/O.

httptools (the parser of Node.js) splits a response into its parts. Each response has a parser of
its own, so that nothing of one response can become part of the next. What httptools leaves open is
decided here:

    framing   A body is chunked, has a length, or ends with the connection. Any other
              Transfer-Encoding is refused.
    limits    `MAX_HEADERS` and `MAX_HEADER_BYTES`. The number of bytes also limits everything else
              that is not body: the reason, informational responses, chunk extensions and trailers.
    surplus   Data after the end of the response is refused. The response itself stays valid, but
              nothing more can be read from the connection.

Every name and value of a request is checked before it is written: no value can add a header, end
the headers, or begin another request.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

import httptools

from ....errors import ConfigError
from ....net import DEFAULT_PORTS
from ....text import one_line
from ..headers import check_headers

Origin: TypeAlias = tuple[str, str, int]
"""The scheme, host and port of a server."""

MAX_HEADER_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 256
BODILESS_STATUSES: Final = (204, 304)
VERSIONS: Final = ("1.1", "1.0")
SWITCHED: Final = "the server switched to another protocol"
NO_RESPONSE: Final = "the server closed the connection without a response"
BROKEN: Final = "the connection broke before the response was complete"
_TARGET_CHARS: Final = "%/?:@!$&'()*+,;=-._~"


# requests


class ParsedUrl(NamedTuple):
    """The parts of a URL that a request needs."""

    origin: Origin
    authority: str
    """The value of the Host header."""
    target: str
    """The path and the query."""


def parse_url(url: str, shown: str) -> ParsedUrl:
    """Return the parts of a URL. Raise ConfigError if no request can be sent to it."""
    parts = urlsplit(url)
    default_port = DEFAULT_PORTS.get(parts.scheme)
    if parts.scheme not in ("http", "https") or default_port is None:
        raise ConfigError(f"{shown} is not a URL for HTTP")
    host, port = parts.hostname or "", parts.port or default_port
    if not host.isascii():
        host = _encode_host(host, shown)
    name = f"[{host.partition('%')[0]}]" if ":" in host else host
    authority = name if port == default_port else f"{name}:{port}"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return ParsedUrl((parts.scheme, host, port), authority, quote(target, safe=_TARGET_CHARS))


def _encode_host(host: str, shown: str) -> str:
    """Return the ASCII form of a host. A host that changes on the way, such as `straße.de`, is
    refused, because the two standards (IDNA 2003 and 2008) mean different hosts by it."""
    try:
        encoded = host.encode("idna")
        if encoded.decode("idna") == host:
            return encoded.decode()
    except UnicodeError:
        pass
    raise ConfigError(f"{shown}: write the host {host!r} in ASCII (xn--…)")


def encode_head(
    method: str, url: ParsedUrl, headers: Mapping[str, str], body: bytes | None, shown: str
) -> bytes:
    """Return the request line and the headers, whose names are in lower case. `Host` and
    `Content-Length` are added. Raise ConfigError if a header cannot be sent."""
    check_headers(headers, shown)
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    length = "" if body is None else f"content-length: {len(body)}\r\n"
    host = "" if "host" in headers else f"host: {url.authority}\r\n"
    return f"{method} {url.target} HTTP/1.1\r\n{host}{length}{lines}\r\n".encode()


# responses


class ResponseParser:
    """A response that arrives in pieces. HEAD and CONNECT are not supported, because their
    responses have other rules."""

    status = 0
    """The HTTP status. It is 0 until all headers have arrived."""
    reason = ""
    complete = False
    """Whether the whole response has arrived."""
    can_keep_alive = False
    """Whether the server keeps the connection open after this response."""
    failure = ""
    """Why nothing more can be read, if so."""
    buffered_bytes = 0
    """How much of the body is waiting to be taken."""
    has_received = False
    _ends_with_connection = False
    _header_count = 0
    _overhead_bytes = 0
    """The number of bytes since the headers or since the last part of the body."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        """The headers, with names in lower case. Repeated headers are joined."""
        self._parts: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        # Some servers end a line with LF only, or pad the size of a chunk with spaces.
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    def feed(self, data: memoryview) -> None:
        """Parse the next piece. Set `failure` if it is not valid."""
        self.has_received = True
        if self.failure:
            return
        self._overhead_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._reject(SWITCHED)
        except httptools.HttpParserError as error:
            self._reject(one_line(str(error)))
        else:
            if self._overhead_bytes > MAX_HEADER_BYTES:
                self._reject(f"it has more than {MAX_HEADER_BYTES} bytes of headers")

    def end(self, is_orderly: bool) -> None:
        """Note that the connection has ended, by the server's decision or because it broke."""
        if self.status and self._ends_with_connection and is_orderly and not self.failure:
            self.complete = True
        elif not self.complete and not self.failure:
            self.failure = BROKEN if self.has_received else NO_RESPONSE

    def take(self) -> bytes:
        """Return the part of the body that has arrived since the last call."""
        parts = self._parts
        if not parts:
            return b""
        self._parts, self.buffered_bytes = [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _reject(self, why: str) -> None:
        if not self.failure:  # a callback may know better why
            self.failure = f"the response is not valid HTTP: {why}"

    def _refuse(self, why: str) -> None:
        self._reject(why)
        raise ValueError(why)

    # called by httptools

    def on_message_begin(self) -> None:
        """Refuse a second response."""
        if self.complete:
            self._refuse("the server sent more than one response")

    def on_status(self, part: bytes) -> None:
        """Add a part of the reason."""
        self.reason += part.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Ignore trailers."""
        if self.status:
            return
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            self._refuse(f"it has more than {MAX_HEADERS} headers")
        key, text = name.decode("latin-1").lower(), value.decode(errors="replace")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        """Check the headers. Skip an informational response, because another one follows."""
        status, version = self._parser.get_status_code(), self._parser.get_http_version()
        if status < 100 or version not in VERSIONS:
            self._refuse(f"its status line is HTTP/{version} {status}")
        if status < 200:  # after 101, httptools stops
            self.reason = ""
            self.headers.clear()
            return
        coding = self.headers.get("transfer-encoding")
        if coding is not None and coding.strip().lower() != "chunked":
            self._refuse(f"its Transfer-Encoding is {one_line(coding)!r}, not 'chunked'")
        self._ends_with_connection = (
            coding is None
            and "content-length" not in self.headers
            and status not in BODILESS_STATUSES
        )
        self.status = status
        self._overhead_bytes = 0

    def on_body(self, part: bytes) -> None:
        """Add a part of the body."""
        self._overhead_bytes = 0
        self._parts.append(part)
        self.buffered_bytes += len(part)

    def on_message_complete(self) -> None:
        """Note the end, unless the response was only informational."""
        if self.status:
            self.complete = True
            self.can_keep_alive = self._parser.should_keep_alive()
