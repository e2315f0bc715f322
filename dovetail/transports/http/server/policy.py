"""The ladder: tables of checks that decide which HTTP requests are accepted, and which errors
answer the others. This module performs no I/O and has no state except a small cache.

The rows of a table are checked from the top. The first check that fails ends the request with the
status and error in its row. The error message quotes the invalid value and says what to change. The
head of a request is checked before its body is read:

    HEAD          status
    origin        403  InvalidRequest      from a web page of another origin  -> origins=[…]
    repeated      400  InvalidRequest      a header that is allowed once was sent twice
    host          421  InvalidRequest      a name that DNS may rebind to us  -> hosts=[…]
    method        405  InvalidRequest      with Allow; GET and DELETE need sessions
    characters    400  HeaderMismatch      an Mcp-* header has invalid characters
    length        400  InvalidRequest      Content-Length is not a number
    size          413  TooLarge            Content-Length is more than Limits.http_body
    type          415  InvalidRequest      a POST is not application/json
    encoding      415  InvalidRequest      a POST is compressed
    accept        406  InvalidRequest      POST: neither JSON nor events; GET: no events

Then the message is checked with the tables in `message_checks.py`.

Most clients send the same headers with every request, so an accepted head is remembered as a whole.
Checking the same head again takes 1 µs instead of 12. If the only differences are in headers
that most checks do not use (such as the session, the length or the name), it takes 6 µs.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ....aio import BoundedDict
from ....errors import (
    HeaderMismatch,
    InvalidRequest,
    ProtocolError,
    TooLarge,
    UnsupportedVersion,
)
from ....limits import DEFAULT, Limits
from ....net import (
    ANY_ORIGIN,
    DEFAULT_PORTS,
    HeaderOrigin,
    is_ip_address,
    is_localhost_name,
    is_loopback,
    normalize_host,
    parse_allowed_host,
    parse_allowed_origin,
    parse_host,
    parse_origin,
)
from ....revisions import OFFICIAL, Revision
from ....text import MAX_QUOTED_CHARS, quote
from .. import headers as names
from ..headers import spell_header

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
JSON, EVENTS = "application/json", "text/event-stream"
BODY_LIMITS: Final = "Limits.http_body or Limits.incoming"
"""The names of the limits on a body, as shown in messages. The smaller limit applies."""
STATELESS_VERSIONS: Final = frozenset(one.version for one in OFFICIAL if one.stateless)
MAX_REMEMBERED_HEADS, MAX_REMEMBERED_BYTES = 256, 4096
"""The number of heads that are remembered, and the maximum size of each in bytes."""
FORGET_AFTER: Final = 64 * MAX_REMEMBERED_HEADS
"""The number of heads that find no room before all remembered heads are forgotten."""


# settings and types


class Policy:
    """The settings for one endpoint. `hosts` and `origins` contain the values that the
    configuration allows, and `bound` contains the server's own names."""

    def __init__(
        self,
        revisions: Sequence[Revision],
        *,
        limits: Limits = DEFAULT,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        bound: Iterable[str] = (),
        sessions: bool = True,
        poll: bool = False,
    ) -> None:
        self.hosts = frozenset(parse_allowed_host(entry) for entry in hosts)
        self.origins = frozenset(parse_allowed_origin(entry) for entry in origins)
        self.bound = frozenset(normalize_host(name) for name in bound)
        self.limit = limits.max_body
        self.stateless = frozenset(each.version for each in revisions if each.stateless)
        self.handshake = frozenset(
            revision.version for revision in revisions if not revision.stateless
        )
        self.supported = [each.version for each in reversed(revisions) if not each.dialects]
        self.sessions = sessions and bool(self.handshake)
        self.methods = ("GET", "POST", "DELETE") if self.sessions else ("POST",)
        self.poll = poll
        self.known = BoundedDict[tuple[object, ...], tuple[bool, bool, str | None]](
            MAX_REMEMBERED_HEADS
        )
        """The values parsed from `COMMON` headers that were accepted: whether JSON and streams are
        accepted, and the version."""
        self.remembered: dict[tuple[object, ...], RequestHead] = {}
        """Accepted heads, keyed by all their parts."""
        self._not_remembered = 0

    def remember(self, key: tuple[object, ...], head: "RequestHead") -> None:
        """Remember an accepted head while there is room.

        If no two heads are equal, as with thousands of sessions, making room for each would cost
        more than it saves (4 of 10 µs). So all are forgotten from time to time instead.
        """
        if len(self.remembered) >= MAX_REMEMBERED_HEADS:
            self._not_remembered += 1
            if self._not_remembered < FORGET_AFTER:
                return
            self._not_remembered = 0
            self.remembered.clear()
        if not head.repeated and _size(head) <= MAX_REMEMBERED_BYTES:
            self.remembered[key] = head


class RequestHead(Struct, frozen=True, gc=False):
    """The parsed head of a request."""

    method: str
    headers: dict[bytes, bytes]
    server: str | None
    json: bool
    """Whether the client accepts a JSON document. A GET that does not accept a stream is a
    poll."""
    streams: bool
    """Whether the client accepts an event stream."""
    version: str | None
    session: str | None
    """The session id, or None in the stateless era, which has no sessions."""
    last_event_id: str | None
    repeated: tuple[bytes, ...] = ()


class Rejection(Struct, frozen=True):
    """The rejection of a request."""

    status: int
    error: ProtocolError
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Rung(Struct, frozen=True):
    """A row in the ladder. `check` returns a description of the problem, or None."""

    name: str
    status: int
    error: type[ProtocolError]
    check: Callable[..., str | None]
    requests_only: bool = False
    """Whether the row applies only to requests, not to notifications."""
    parameter: str | None = None
    """The parameter that the row checks, if it is not a header."""

    def reject(self, policy: Policy, head: RequestHead, problem: str) -> Rejection:
        """Return the rejection that this row defines."""
        data: Any = None
        if self.parameter is not None:
            data = {"parameter": self.parameter, "error": problem}
        elif self.error is UnsupportedVersion:
            requested = (head.version or "")[:MAX_QUOTED_CHARS]
            data = {"supported": policy.supported, "requested": requested}
        allow = ((b"allow", ", ".join(policy.methods).encode()),) if self.status == 405 else ()
        return Rejection(self.status, self.error(problem, data=data), allow)


# the head


def check_head(
    policy: Policy, method: str, headers: Sequence[tuple[bytes, bytes]], server: str | None = None
) -> RequestHead | Rejection:
    """Check the head of a request before its body is read. `server` is the ASGI server's host
    name."""
    key = (method, server, *headers)
    try:
        remembered = policy.remembered.get(key)
    except TypeError:  # some ASGI servers use lists, which are not hashable
        return check_head(
            policy, method, [(bytes(name), bytes(value)) for name, value in headers], server
        )
    if remembered is not None:
        return remembered
    found = dict(headers)
    repeated: tuple[bytes, ...] = ()
    if len(found) != len(headers):
        found, repeated = _merge(headers)
    get = found.get
    common = (method, server, *[get(name) for name in COMMON])
    known = policy.known.get(common)
    json, streams, version = known or _parse_common(get)
    session = None if version in STATELESS_VERSIONS else _text(get(names.SESSION))
    last_event_id = _text(get(names.LAST_EVENT_ID))
    head = RequestHead(
        method, found, server, json, streams, version, session, last_event_id, repeated
    )
    if known is None or not _is_ordinary(policy, head):
        for rung in HEAD:
            problem = rung.check(policy, head)
            if problem is not None:
                reject = rung.reject(policy, head, problem)
                return (
                    reject
                    if rung is HEAD[0]
                    else replace(reject, headers=(*reject.headers, *cors(policy, head)))
                )
        if _size(head) <= MAX_REMEMBERED_BYTES:
            policy.known[common] = json, streams, version
    policy.remember(key, head)
    return head


def _parse_common(get: Callable[[bytes], bytes | None]) -> tuple[bool, bool, str | None]:
    return *parse_accept(get(names.ACCEPT)), _text(get(names.VERSION))


def _is_ordinary(policy: Policy, head: RequestHead) -> bool:
    """Return whether the headers that are not in `COMMON` certainly pass their checks. One function
    takes 1.6 µs; the four rows of HEAD took 3."""
    length = head.headers.get(names.CONTENT_LENGTH, b"0")
    return (
        not head.repeated
        and not b"".join(head.headers.values()).translate(None, _VISIBLE)
        and length.isdigit()
        and len(length) < 20
        and int(length) <= policy.limit
    )


def _size(head: RequestHead) -> int:
    return sum(map(len, chain.from_iterable(head.headers.items())))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1").strip()


def cors(policy: Policy, head: RequestHead) -> list[tuple[bytes, bytes]]:
    """Return the headers that let a page from an allowed origin read the response (CORS)."""
    origin = head.headers.get(names.ORIGIN)
    if origin is None or not policy.origins:
        return []
    exposed = b"Mcp-Session-Id, Mcp-Protocol-Version, WWW-Authenticate, DPoP-Nonce"
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", exposed),
        (b"vary", b"Origin"),
    ]


def _merge(headers: Headers) -> tuple[dict[bytes, bytes], tuple[bytes, ...]]:
    """Join headers that were sent several times. Return all headers, and the names of repeated
    headers."""
    lists: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        lists.setdefault(name, []).append(value)
    merged = {name: b", ".join(values) for name, values in lists.items()}
    return merged, tuple(name for name, values in lists.items() if len(values) > 1)


# Host and Origin, against DNS rebinding and foreign web pages
#
# Only browsers send an Origin. A page may talk to the server that it came from, and a page on this
# machine may talk to a server on this machine. A page from elsewhere needs permission (`origins=`).
# A page may also point its own host name at our address (DNS rebinding), so that it has our origin.
# A Host must therefore be one of the server's names (`hosts=`) or an IP address, which cannot be
# pointed elsewhere.

_HTTP_PORTS = ("80", "443")


def _check_origin(policy: Policy, head: RequestHead) -> str | None:
    """Return a description of the problem if the Origin is not allowed, or None."""
    value = head.headers.get(names.ORIGIN)
    if value is None or ANY_ORIGIN in policy.origins:
        return None
    origin = parse_origin(value)
    if origin is not None and (
        _is_own_origin(policy, head, origin)
        or origin in policy.origins
        or (*origin[:2], "*") in policy.origins
    ):
        return None
    return (
        f"The Origin {quote(value)} is not allowed. To allow it, configure the server with "
        f"origins=[{quote(value)}]."
    )


def _is_own_origin(policy: Policy, head: RequestHead, origin: HeaderOrigin) -> bool:
    scheme, name, port = origin
    host = parse_host(head.headers.get(names.HOST, b""))
    if (
        host is None
        or scheme not in ("http", "https")
        or not _is_allowed_host(policy, host[0], head.server)
    ):
        return False
    return (name, port) == (host[0], host[1] or str(DEFAULT_PORTS[scheme])) or (
        _is_this_machine(name) and _is_this_machine(host[0])
    )


def _check_host(policy: Policy, head: RequestHead) -> str | None:
    """Return a description of the problem if the Host is not allowed, or None."""
    value = head.headers.get(names.HOST)
    if value is None:
        return None
    host = parse_host(value)
    if host is not None and _is_allowed_host(policy, host[0], head.server):
        return None
    name = quote(value if host is None else host[0])
    return (
        f"The Host {quote(value)} is not allowed. To allow it, configure the server with "
        f"hosts=[{name}]."
    )


def _is_allowed_host(policy: Policy, name: str, server: str | None) -> bool:
    if (
        is_localhost_name(name)
        or is_ip_address(name)
        or name in policy.bound
        or "*" in policy.hosts
    ):
        return True
    if server is not None and name == normalize_host(server):
        return True
    return name in policy.hosts or _matches_wildcard(policy, name)


def is_own_host(policy: Policy, value: bytes, server: Sequence[Any] | None) -> bool:
    """Return whether a Host certainly refers to this server.

    Either its full name is configured and its port belongs to a proxy or to this server, or it is
    the address and port at which the request arrived.
    """
    host = parse_host(value)
    if host is None:
        return False
    name, port = host
    own_name, own_port = "", ""
    if server:
        own_name, own_port = normalize_host(str(server[0])), str(server[1])
    if name in policy.hosts or name in policy.bound:
        return port in ("", own_port, *_HTTP_PORTS)
    is_here = _is_this_machine(own_name) if _is_this_machine(name) else name == own_name
    return is_here and (port == own_port or (not port and own_port in _HTTP_PORTS))


def _matches_wildcard(policy: Policy, name: str) -> bool:
    return any(name.endswith(entry[1:]) for entry in policy.hosts if entry.startswith("*."))


def _is_this_machine(name: str) -> bool:
    """Return whether a browser resolves a name to this machine without using DNS."""
    return is_loopback(name) or is_localhost_name(name)


# other checks of the head

_SINGULAR = frozenset(
    {
        names.HOST,
        names.ORIGIN,
        names.CONTENT_TYPE,
        names.CONTENT_LENGTH,
        names.AUTHORIZATION,
        names.LAST_EVENT_ID,
    }
)


def _check_repeated_headers(policy: Policy, head: RequestHead) -> str | None:
    for name in head.repeated:
        if name in _SINGULAR or name.startswith(names.MCP):
            return f"The header {spell_header(name)} was sent more than once. Send it once."
    return None


def _check_method(policy: Policy, head: RequestHead) -> str | None:
    if head.method in policy.methods:
        return None
    origin = head.headers.get(names.ORIGIN)
    if head.method == "OPTIONS" and origin is not None:
        return (
            "This server does not allow web pages to call it, so it answers no preflight requests. "
            f"To allow this page, configure the server with origins=[{quote(origin)}]."
        )
    return (
        f"{quote(head.method)} is not supported by this endpoint. Use {', '.join(policy.methods)}."
    )


_VISIBLE = bytes(range(0x20, 0x7F)) + b"\t"


def _check_characters(policy: Policy, head: RequestHead) -> str | None:
    if not b"".join(head.headers.values()).translate(None, _VISIBLE):
        return None  # checking all headers at once is cheaper than finding ours
    for name, value in head.headers.items():
        if name.startswith(names.MCP) and value.translate(None, _VISIBLE):
            return (
                f"The header {spell_header(name)} is {quote(value)}. Only printable ASCII is "
                "allowed."
            )
    return None


def _check_length(policy: Policy, head: RequestHead) -> str | None:
    value = head.headers.get(names.CONTENT_LENGTH)
    return (
        None
        if value is None or value.strip(b" \t").isdigit()
        else f"Content-Length must be a number of bytes, not {quote(value)}"
    )


def _check_size(policy: Policy, head: RequestHead) -> str | None:
    value = head.headers.get(names.CONTENT_LENGTH)
    if value is None or (len(value.strip()) < 20 and int(value) <= policy.limit):
        return None
    return (
        f"The body is {quote(value)} bytes long; this server accepts at most {policy.limit} "
        f"({BODY_LIMITS})"
    )


def _check_type(policy: Policy, head: RequestHead) -> str | None:
    value = head.headers.get(names.CONTENT_TYPE, b"")
    if head.method != "POST" or value.partition(b";")[0].strip().lower() == b"application/json":
        return None
    return f"The Content-Type is {quote(value)}. Send {JSON}."


def _check_encoding(policy: Policy, head: RequestHead) -> str | None:
    value = head.headers.get(names.CONTENT_ENCODING, b"identity")
    if value.strip().lower() in (b"identity", b""):
        return None
    return f"The Content-Encoding is {quote(value)}. Send the body uncompressed."


def _check_accept(policy: Policy, head: RequestHead) -> str | None:
    if head.method == "POST":
        accepted, wanted = head.json or head.streams, f"{JSON}, {EVENTS}"
    elif head.method == "GET":
        accepted = head.streams or (head.json and policy.poll)
        wanted = f"{EVENTS} or {JSON}" if policy.poll else EVENTS
    else:
        return None
    if accepted:
        return None
    accept = quote(head.headers.get(names.ACCEPT, b""))
    return f"The Accept header is {accept}. This endpoint speaks MCP. Send Accept: {wanted}."


HEAD: Final = (
    Rung("origin", 403, InvalidRequest, _check_origin),
    Rung("repeated", 400, InvalidRequest, _check_repeated_headers),
    Rung("host", 421, InvalidRequest, _check_host),
    Rung("method", 405, InvalidRequest, _check_method),
    Rung("characters", 400, HeaderMismatch, _check_characters),
    Rung("length", 400, InvalidRequest, _check_length),
    Rung("size", 413, TooLarge, _check_size),
    Rung("type", 415, InvalidRequest, _check_type),
    Rung("encoding", 415, InvalidRequest, _check_encoding),
    Rung("accept", 406, InvalidRequest, _check_accept),
)
COMMON: Final = (
    names.HOST, names.ORIGIN, names.CONTENT_TYPE, names.CONTENT_ENCODING, names.ACCEPT,
    names.VERSION,
)  # fmt: skip
"""The headers that rarely differ between requests."""


def parse_accept(value: bytes | None) -> tuple[bool, bool]:
    """Return whether an Accept header includes JSON, and whether it includes an event stream. The
    most specific entry decides."""
    accepted: dict[str, bool] = {}
    for entry in (value or b"").decode("latin-1").lower().split(","):
        kind, *parameters = (part.strip() for part in entry.split(";"))
        if kind:
            accepted[kind] = not any(_ZERO.fullmatch(parameter) for parameter in parameters)
    if not accepted:
        return True, True

    def is_accepted(kind: str) -> bool:
        ranges = (kind, f"{kind.partition('/')[0]}/*", "*/*")
        return next((accepted[range_] for range_ in ranges if range_ in accepted), False)

    return is_accepted(JSON), is_accepted(EVENTS)


_ZERO = re.compile(r"q\s*=\s*0(\.0*)?")
