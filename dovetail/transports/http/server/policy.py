"""Which HTTP requests are accepted, and with which errors the others are refused: the ladder, as
tables. No I/O, and no state except a small memo.

The rows of a table are checked from the top. The first check that finds something wrong ends the
request, with the status and error of its row and a message that says what was sent and what to
change. The head of a request is checked before its body is read:

    HEAD          status
    origin        403  InvalidRequest      from a web page of another origin  -> origins=[…]
    repeated      400  InvalidRequest      a header that is allowed once was sent twice
    host          421  InvalidRequest      a name that DNS may rebind to us  -> hosts=[…]
    method        405  InvalidRequest      with Allow; GET and DELETE need sessions
    characters    400  HeaderMismatch      an Mcp-* header has invalid characters
    length        400  InvalidRequest      Content-Length is not a number
    size          413  TooLarge            Content-Length is more than Limits.incoming
    type          415  InvalidRequest      a POST is not application/json
    encoding      415  InvalidRequest      a POST is compressed
    accept        406  InvalidRequest      POST: neither JSON nor events; GET: no events

Then the message is checked, by its era. It is of the stateless era if its version header names a
stateless revision, or if its `_meta` names any version at all:

    STATELESS     status                   (* requests only)
    version       400  HeaderMismatch      no MCP-Protocol-Version
    meta        * 400  InvalidParams       _meta has no version
    agreement     400  HeaderMismatch      header and _meta have different versions
    served        400  UnsupportedVersion  with the versions that are supported
    capabilities* 400  InvalidParams       _meta has no clientCapabilities
    missing     * 400  HeaderMismatch      no Mcp-Method
    method        400  HeaderMismatch      Mcp-Method is not the method
    name        * 400  HeaderMismatch      Mcp-Name is not the params' name or URI
    (mirrors      400  HeaderMismatch      Mcp-Param-* is not the argument; checked later)

    HANDSHAKE     status
    era           400  HeaderMismatch      no version header, and only stateless revisions here
    revision      400  UnsupportedVersion  not supported; `initialize` negotiates instead
    session       400  InvalidRequest      no Mcp-Session-Id, and not `initialize`

Errors that are found later get their status from the last table, STATUS. A client that sends too
many requests gets 429 with the time to wait.

Most clients send the same headers with every request, so the heads that were accepted are
remembered as a whole: 1 µs instead of 12. If only the session, the length or the method and name
differ, only they are checked: 5 µs.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ....aio import BoundedDict
from ....errors import (
    BY_CODE,
    Forbidden,
    HeaderMismatch,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    Overloaded,
    ParseError,
    ProtocolError,
    TooLarge,
    UnsupportedVersion,
    UrlRequired,
)
from ....limits import DEFAULT, Limits
from ....net import (
    normalize_host,
    parse_allowed_host,
    parse_allowed_origin,
)
from ....protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION, Meta, Params
from ....revisions import OFFICIAL, Revision
from ....text import quote
from .. import headers as names
from ..headers import HeaderParam, spell_header
from .host_checks import check_host, check_origin
from .message_checks import (
    check_capabilities,
    check_meta_version,
    check_method_header,
    check_method_matches,
    check_name_header,
    check_revision,
    check_session,
    check_version_given,
    check_version_header,
    check_version_served,
    check_versions_agree,
    find_mismatch,
    list_versions,
)

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
JSON, EVENTS = "application/json", "text/event-stream"
MAX_REMEMBERED_HEADS, MAX_REMEMBERED_BYTES = 256, 4096
"""How many heads are remembered, and the size of the largest."""


# settings and types


class Policy:
    """The settings of one endpoint. `hosts` and `origins` are those that the configuration allows,
    `bound` the server's own names."""

    __slots__ = (
        "bound", "handshake", "hosts", "known", "limit", "methods", "origins", "poll", "sessions",
        "stateless", "supported", "usual",
    )  # fmt: skip

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
        self.limit = limits.incoming
        self.stateless = frozenset(each.version for each in revisions if each.stateless)
        self.handshake = frozenset(
            revision.version for revision in revisions if not revision.stateless
        )
        self.supported = [each.version for each in reversed(revisions) if not each.dialects]
        self.sessions = sessions and bool(self.handshake)
        self.methods = ("GET", "POST", "DELETE") if self.sessions else ("POST",)
        self.poll = poll
        self.usual = BoundedDict[tuple[object, ...], RequestHead](MAX_REMEMBERED_HEADS)
        """Heads that were accepted lately, by all their parts."""
        self.known: BoundedDict[tuple[object, ...], tuple[bool, bool]] = BoundedDict(
            MAX_REMEMBERED_HEADS
        )
        """What they accept, by those parts that hardly differ between requests."""


class RequestHead(Struct, frozen=True, gc=False):
    """The head of a request, parsed once."""

    method: str
    headers: dict[bytes, bytes]
    server: str | None
    json: bool
    """Whether the client accepts one JSON document. A GET that accepts no stream is a poll."""
    streams: bool
    """Whether the client accepts an event stream."""
    version: str | None
    session: str | None
    last_event_id: str | None
    repeated: tuple[bytes, ...] = ()


class MessageFacts(Struct, frozen=True, gc=False):
    """The parts of the body that are checked."""

    method: str
    params: Params | None
    meta: Meta
    named: str = ""
    """The attribute of the params that `Mcp-Name` repeats."""


class Rejection(Struct, frozen=True):
    """The refusal of a request."""

    status: int
    error: ProtocolError
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Rung(Struct, frozen=True):
    """A row of the ladder. `check` returns what is wrong, or None."""

    name: str
    status: int
    error: type[ProtocolError]
    check: Callable[..., str | None]
    requests_only: bool = False
    """Whether only requests are checked, not notifications."""
    every_request: bool = False
    """Whether it checks what differs from one request to the next."""
    data: Callable[[Policy, RequestHead], Any] | None = None
    headers: Callable[[Policy], tuple[tuple[bytes, bytes], ...]] | None = None

    def reject(self, policy: Policy, head: RequestHead, problem: str) -> Rejection:
        """Return the refusal of this row."""
        data = None if self.data is None else self.data(policy, head)
        return Rejection(
            self.status,
            self.error(problem, data=data),
            () if self.headers is None else self.headers(policy),
        )


# the head


def check_head(
    policy: Policy, method: str, headers: Sequence[tuple[bytes, bytes]], server: str | None = None
) -> RequestHead | Rejection:
    """Check the head of a request, before its body is read. `server` is the name of the ASGI
    server."""
    key = (method, server, *headers)
    try:
        usual = policy.usual.get(key)
    except TypeError:  # some ASGI servers use lists, which cannot be hashed
        return check_head(
            policy, method, [(bytes(name), bytes(value)) for name, value in headers], server
        )
    if usual is not None:
        return usual
    found = dict(headers)
    repeated: tuple[bytes, ...] = ()
    if len(found) != len(headers):
        found, repeated = _merge(headers)
    get = found.get
    version, session, last = get(names.VERSION), get(names.SESSION), get(names.LAST_EVENT_ID)
    common = (method, server, *map(get, COMMON))
    known = policy.known.get(common)
    asked = RequestHead(
        method, found, server, *(known or parse_accept(get(names.ACCEPT))),
        None if version is None else version.decode("latin-1").strip(),
        None if session is None else session.decode("latin-1").strip(),
        None if last is None else last.decode("latin-1").strip(),
        repeated,
    )  # fmt: skip
    for rung in HEAD if known is None else EACH:
        problem = rung.check(policy, asked)
        if problem is not None:
            reject = rung.reject(policy, asked, problem)
            return (
                reject
                if rung is HEAD[0]
                else replace(reject, headers=(*reject.headers, *cors(policy, asked)))
            )
    if len(b"".join(map(b"".join, headers))) <= MAX_REMEMBERED_BYTES:
        policy.usual[key] = asked
        policy.known[common] = (asked.json, asked.streams)
    return asked


def cors(policy: Policy, head: RequestHead) -> list[tuple[bytes, bytes]]:
    """Return the headers that let a page with an allowed origin read the response (CORS)."""
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
    """Join headers that were sent several times. Returns all headers, and which were repeated."""
    lists: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        lists.setdefault(name, []).append(value)
    merged = {name: b", ".join(values) for name, values in lists.items()}
    return merged, tuple(name for name, values in lists.items() if len(values) > 1)


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


def _repeated(policy: Policy, head: RequestHead) -> str | None:
    for name in head.repeated:
        if name in _SINGULAR or name.startswith(names.MCP):
            return f"The header {spell_header(name)} was sent more than once. Send it once."
    return None


def _method(policy: Policy, head: RequestHead) -> str | None:
    if head.method in policy.methods:
        return None
    return f"{quote(head.method)} is not supported here. Use {', '.join(policy.methods)}."


_VISIBLE = bytes(range(0x20, 0x7F)) + b"\t"


def _characters(policy: Policy, head: RequestHead) -> str | None:
    if not b"".join(head.headers.values()).translate(None, _VISIBLE):
        return None  # checking all of them at once is cheaper than finding ours
    for name, value in head.headers.items():
        if name.startswith(names.MCP) and value.translate(None, _VISIBLE):
            return (
                f"The header {spell_header(name)} is {quote(value)}. Only printable ASCII is "
                "allowed."
            )
    return None


def _length(policy: Policy, head: RequestHead) -> str | None:
    value = head.headers.get(names.CONTENT_LENGTH)
    return (
        None
        if value is None or value.isdigit()
        else f"Content-Length is {quote(value)}, which is not a number of bytes"
    )


def _size(policy: Policy, head: RequestHead) -> str | None:
    value = head.headers.get(names.CONTENT_LENGTH)
    if value is None or (len(value) < 20 and int(value) <= policy.limit):
        return None
    return (
        f"The body has {quote(value)} bytes; this server accepts at most {policy.limit} "
        "(Limits.incoming)"
    )


def _type(policy: Policy, head: RequestHead) -> str | None:
    value = head.headers.get(names.CONTENT_TYPE, b"")
    if head.method != "POST" or value.partition(b";")[0].strip().lower() == b"application/json":
        return None
    return f"The Content-Type is {quote(value)}. Send {JSON}."


def _encoding(policy: Policy, head: RequestHead) -> str | None:
    value = head.headers.get(names.CONTENT_ENCODING, b"identity")
    if value.strip().lower() in (b"identity", b""):
        return None
    return f"The Content-Encoding is {quote(value)}. Send the body uncompressed."


def _accept(policy: Policy, head: RequestHead) -> str | None:
    if head.method == "POST":
        fine, wanted = head.json or head.streams, f"{JSON}, {EVENTS}"
    elif head.method == "GET":
        fine = head.streams or (head.json and policy.poll)
        wanted = f"{EVENTS} or {JSON}" if policy.poll else EVENTS
    else:
        return None
    if fine:
        return None
    accept = quote(head.headers.get(names.ACCEPT, b""))
    return f"The Accept header is {accept}. This endpoint speaks MCP. Send Accept: {wanted}."


def _allow(policy: Policy) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"allow", ", ".join(policy.methods).encode()),)


HEAD: Final = (
    Rung("origin", 403, InvalidRequest, check_origin),
    Rung("repeated", 400, InvalidRequest, _repeated, every_request=True),
    Rung("host", 421, InvalidRequest, check_host),
    Rung("method", 405, InvalidRequest, _method, headers=_allow),
    Rung("characters", 400, HeaderMismatch, _characters, every_request=True),
    Rung("length", 400, InvalidRequest, _length, every_request=True),
    Rung("size", 413, TooLarge, _size, every_request=True),
    Rung("type", 415, InvalidRequest, _type),
    Rung("encoding", 415, InvalidRequest, _encoding),
    Rung("accept", 406, InvalidRequest, _accept),
)
EACH: Final = tuple(rung for rung in HEAD if rung.every_request)
COMMON: Final = (names.HOST, names.ORIGIN, names.CONTENT_TYPE, names.CONTENT_ENCODING, names.ACCEPT)
"""All headers that the other checks use."""


def parse_accept(value: bytes | None) -> tuple[bool, bool]:
    """Return whether an Accept header includes JSON, and whether it includes an event stream. The
    more specific entry decides."""
    takes: dict[str, bool] = {}
    for entry in (value or b"").decode("latin-1").lower().split(","):
        kind, *parameters = (part.strip() for part in entry.split(";"))
        if kind:
            takes[kind] = not any(_ZERO.fullmatch(parameter) for parameter in parameters)
    if not takes:
        return True, True

    def of(kind: str) -> bool:
        ranges = (kind, f"{kind.partition('/')[0]}/*", "*/*")
        return next((takes[range_] for range_ in ranges if range_ in takes), False)

    return of(JSON), of(EVENTS)


_ZERO = re.compile(r"q\s*=\s*0(\.0*)?")


# the message


def is_stateless(head: RequestHead, meta: Meta | None) -> bool:
    """Tell whether a message is of the stateless era."""
    return head.version in _STATELESS or (meta is not None and PROTOCOL_VERSION in meta)


def check_message(
    policy: Policy,
    head: RequestHead,
    method: str,
    params: Params | None,
    named: str = "",
    *,
    request: bool = True,
) -> Rejection | None:
    """Check a request or notification against its head. `named` is the attribute of the params that
    `Mcp-Name` repeats. For an unknown method, pass plain Params."""
    meta = (None if params is None else params.meta) or {}
    if is_stateless(head, meta):
        if request and _agrees(policy, head, method, params, named, meta):
            return None
        return _climb(
            STATELESS if request else _NOTIFIED,
            policy,
            head,
            MessageFacts(method, params, meta, named),
        )
    return _climb(HANDSHAKE, policy, head, MessageFacts(method, params, meta))


def _agrees(
    policy: Policy, head: RequestHead, method: str, params: Any, named: str, meta: Meta
) -> bool:
    """Tell whether headers and body agree literally, so that no check can fail (0.9 µs instead of
    1.8)."""
    version, headers = head.version, head.headers
    if (
        version not in policy.stateless
        or meta.get(PROTOCOL_VERSION) != version
        or CLIENT_CAPABILITIES not in meta
    ):
        return False
    if headers.get(names.METHOD) != method.encode():
        return False
    if not named:
        return True
    value: str = getattr(params, named)
    return (
        headers.get(names.NAME) == value.encode() and value == value.strip() and value[:2] != "=?"
    )


def check_bare(policy: Policy, head: RequestHead) -> Rejection | None:
    """Check a GET or DELETE, which belong to the handshake era and have no message."""
    return _climb(HANDSHAKE, policy, head, MessageFacts("", None, {}))


def _climb(
    rungs: tuple[Rung, ...], policy: Policy, head: RequestHead, facts: MessageFacts
) -> Rejection | None:
    for rung in rungs:
        problem = rung.check(policy, head, facts)
        if problem is not None:
            return rung.reject(policy, head, problem)
    return None


_STATELESS = frozenset(revision.version for revision in OFFICIAL if revision.stateless)


STATELESS: Final = (
    Rung("version", 400, HeaderMismatch, check_version_header),
    Rung("meta", 400, InvalidParams, check_meta_version, requests_only=True),
    Rung("agreement", 400, HeaderMismatch, check_versions_agree),
    Rung("served", 400, UnsupportedVersion, check_version_served, data=list_versions),
    Rung("capabilities", 400, InvalidParams, check_capabilities, requests_only=True),
    Rung("missing", 400, HeaderMismatch, check_method_header, requests_only=True),
    Rung("method", 400, HeaderMismatch, check_method_matches),
    Rung("name", 400, HeaderMismatch, check_name_header, requests_only=True),
)
_NOTIFIED: Final = tuple(rung for rung in STATELESS if not rung.requests_only)

HANDSHAKE: Final = (
    Rung("era", 400, HeaderMismatch, check_version_given),
    Rung("revision", 400, UnsupportedVersion, check_revision, data=list_versions),
    Rung("session", 400, InvalidRequest, check_session),
)


def check_header_params(
    head: RequestHead, params: tuple[HeaderParam, ...], arguments: Raw
) -> Rejection | None:
    """Check the arguments of a call against its `Mcp-Param-*` headers. Headers that belong to no
    parameter are ignored."""
    try:
        given = msgspec.json.decode(arguments) if bytes(arguments) else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Rejection(400, InvalidParams(f"The arguments are not valid JSON: {error}"))
    for param in params:
        problem = find_mismatch(
            head, param.header, f"arguments.{'.'.join(param.path)}", param.value(given)
        )
        if problem is not None:
            return Rejection(400, HeaderMismatch(problem))
    return None


# errors that are found later

STATUS: Final[Mapping[type[ProtocolError], tuple[int, int, int, int]]] = {
    #                    stateless era      handshake era
    #                    refused  failed    refused  failed
    ParseError:         (400,     200,      400,     200),
    InvalidRequest:     (400,     200,      400,     200),
    MethodNotFound:     (404,     404,      200,     200),
    InvalidParams:      (400,     200,      200,     200),
    InternalError:      (500,     200,      200,     200),
    HeaderMismatch:     (400,     400,      400,     200),
    MissingCapability:  (400,     400,      200,     200),
    UnsupportedVersion: (400,     400,      400,     200),
    UrlRequired:        (400,     200,      200,     200),
    Overloaded:         (503,     200,      503,     200),
    TooLarge:           (413,     200,      413,     200),
    Forbidden:          (403,     403,      403,     403),
}  # fmt: skip
"""The status of an error, if the request was refused before a handler ran, and if the handler
failed."""
_OTHER: Final = (400, 200, 200, 200)
"""The same for an error with a code of its own."""


def status_for(
    error: int | ProtocolError | type[ProtocolError], stateless: bool, refused: bool
) -> int:
    """Return the HTTP status for an error, if nothing was sent yet."""
    kind = BY_CODE.get(error if isinstance(error, int) else error.code)
    row = _OTHER if kind is None else STATUS.get(kind, _OTHER)
    return row[(0 if stateless else 2) + (0 if refused else 1)]


def rejection_for(error: ProtocolError, stateless: bool) -> Rejection:
    """Return the refusal for an error that was found later, but before a handler ran."""
    # The caller has exceeded its own rate: RFC 6585, section 4.
    if isinstance(error, Overloaded) and error.retry_after is not None:
        return Rejection(429, error, ((b"retry-after", b"%d" % max(1, ceil(error.retry_after))),))
    number = status_for(error, stateless, refused=True)
    return Rejection(number, error, ((b"retry-after", b"1"),) if number == 503 else ())
