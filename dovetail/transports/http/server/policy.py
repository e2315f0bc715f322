"""Which HTTP requests are taken, and what the others are told: the ladder, as rows. No I/O, no
state but a small memo.

A request climbs from the top; the first rung that finds something wrong ends it, with the status
and the error of its row and a message that says what came and what to change. The head is judged
before any of the body is read:

    HEAD          status
    origin        403  InvalidRequest      a web page of another origin is calling  -> origins=[…]
    repeated      400  InvalidRequest      a header that may come once came twice
    host          421  InvalidRequest      a name that may be rebound to us by DNS  -> hosts=[…]
    method        405  InvalidRequest      with Allow; GET and DELETE need sessions
    characters    400  HeaderMismatch      an Mcp-* header holds what no header may
    length        400  InvalidRequest      Content-Length is no number
    size          413  TooLarge            … or more than Limits.incoming
    type          415  InvalidRequest      a POST is application/json
    encoding      415  InvalidRequest      … and not compressed
    accept        406  InvalidRequest      POST: JSON or events; GET: events, or JSON to poll

Then the message, by its era. It is of the stateless era if its version header names a stateless
revision, or if its `_meta` names any version at all:

    STATELESS     status                   (* requests only)
    version       400  HeaderMismatch      no MCP-Protocol-Version
    meta        * 400  InvalidParams       _meta names no version
    agreement     400  HeaderMismatch      header and _meta name different versions
    served        400  UnsupportedVersion  with the versions that are served
    capabilities* 400  InvalidParams       _meta has no clientCapabilities
    unsaid      * 400  HeaderMismatch      no Mcp-Method
    about         400  HeaderMismatch      Mcp-Method is not the method
    name        * 400  HeaderMismatch      Mcp-Name is not the params' name or URI
    (mirrors      400  HeaderMismatch      Mcp-Param-* is not the argument: checked later)

    HANDSHAKE     status
    era           400  HeaderMismatch      no version header, and all served are stateless
    revision      400  UnsupportedVersion  not served; `initialize` negotiates instead
    session       400  InvalidRequest      no Mcp-Session-Id, and it is not `initialize`

Errors found further in get their status from the last table, STATUS; who asks too often gets 429,
with the time to wait.

Most clients say the same on every request, so the heads that passed are remembered whole: 1 µs
instead of 12. Where only the session differs, the length or what is called, only that is judged: 5
µs.
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
from ....protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION, Meta, Params, camel
from ....revisions import OFFICIAL, Revision
from ....text import MAX_QUOTED_CHARS, quote
from .. import headers as names
from ..headers import SAFE, HeaderParam, encodable, same, spelled

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
JSON, EVENTS = "application/json", "text/event-stream"
MEMO, LONGEST = 256, 4096
"""How many heads are remembered, and how long one may be."""


# the facts


class Policy:
    """The facts of one endpoint. `hosts` and `origins` are what the configuration allows, `bound`
    the server's own names."""

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
        self.stateless = frozenset(one.version for one in revisions if one.stateless)
        self.handshake = frozenset(one.version for one in revisions if not one.stateless)
        self.supported = [one.version for one in reversed(revisions) if not one.dialects]
        self.sessions = sessions and bool(self.handshake)
        self.methods = ("GET", "POST", "DELETE") if self.sessions else ("POST",)
        self.poll = poll
        self.usual: BoundedDict[tuple[object, ...], Head] = BoundedDict(MEMO)
        """Heads that passed lately, by all that they are made of."""
        self.known: BoundedDict[tuple[object, ...], tuple[bool, bool]] = BoundedDict(MEMO)
        """What they accept, by those of their parts that hardly differ between the requests of all
        clients."""


class Head(Struct, frozen=True, gc=False):
    """The head of a request, read once."""

    method: str
    headers: dict[bytes, bytes]
    server: str | None
    json: bool
    """Whether the client takes one JSON document. A GET that takes this and no stream wants to
    poll."""
    streams: bool
    """Whether the client takes an event stream."""
    version: str | None
    session: str | None
    last_event_id: str | None
    repeated: tuple[bytes, ...] = ()


class MessageFacts(Struct, frozen=True, gc=False):
    """What the body says, as far as the ladder asks."""

    method: str
    params: Params | None
    meta: Meta
    named: str = ""
    """The attribute of the params that `Mcp-Name` repeats."""


class Reject(Struct, frozen=True):
    """The refusal of a request."""

    status: int
    error: ProtocolError
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Rung(Struct, frozen=True):
    """A row of the ladder. `judge` says what is wrong, or None."""

    name: str
    status: int
    error: type[ProtocolError]
    judge: Callable[..., str | None]
    requests: bool = False
    """Notifications pass by."""
    each: bool = False
    """Whether it looks at what differs from one request to the next."""
    data: Callable[[Policy, Head], Any] | None = None
    headers: Callable[[Policy], tuple[tuple[bytes, bytes], ...]] | None = None

    def reject(self, policy: Policy, head: Head, problem: str) -> Reject:
        """The refusal that this row stands for."""
        data = None if self.data is None else self.data(policy, head)
        return Reject(
            self.status,
            self.error(problem, data=data),
            () if self.headers is None else self.headers(policy),
        )


# the head


def head(
    policy: Policy, method: str, headers: Sequence[tuple[bytes, bytes]], server: str | None = None
) -> Head | Reject:
    """Judge the head of a request, before its body is read. `server` is the name that the ASGI
    server goes by."""
    key = (method, server, *headers)
    try:
        usual = policy.usual.get(key)
    except TypeError:  # an ASGI server that makes lists of them
        return head(
            policy, method, [(bytes(name), bytes(value)) for name, value in headers], server
        )
    if usual is not None:
        return usual
    found = dict(headers)
    repeated: tuple[bytes, ...] = ()
    if len(found) != len(headers):
        found, repeated = _merged(headers)
    get = found.get
    version, session, last = get(names.VERSION), get(names.SESSION), get(names.LAST_EVENT_ID)
    common = (method, server, *map(get, COMMON))
    known = policy.known.get(common)
    asked = Head(
        method, found, server, *(known or accepted(get(names.ACCEPT))),
        None if version is None else version.decode("latin-1").strip(),
        None if session is None else session.decode("latin-1").strip(),
        None if last is None else last.decode("latin-1").strip(),
        repeated,
    )  # fmt: skip
    for rung in HEAD if known is None else EACH:
        problem = rung.judge(policy, asked)
        if problem is not None:
            reject = rung.reject(policy, asked, problem)
            return (
                reject
                if rung is HEAD[0]
                else replace(reject, headers=(*reject.headers, *cors(policy, asked)))
            )
    if len(b"".join(map(b"".join, headers))) <= LONGEST:
        policy.usual[key] = asked
        policy.known[common] = (asked.json, asked.streams)
    return asked


def cors(policy: Policy, head: Head) -> list[tuple[bytes, bytes]]:
    """What lets a page whose origin has passed read the answer."""
    origin = head.headers.get(names.ORIGIN)
    if origin is None or not policy.origins:
        return []
    exposed = b"Mcp-Session-Id, Mcp-Protocol-Version, WWW-Authenticate, DPoP-Nonce"
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", exposed),
        (b"vary", b"Origin"),
    ]


def _merged(headers: Headers) -> tuple[dict[bytes, bytes], tuple[bytes, ...]]:
    """Headers of which some came several times, as lists may, and which these are."""
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


def _repeated(policy: Policy, head: Head) -> str | None:
    for name in head.repeated:
        if name in _SINGULAR or name.startswith(names.MCP):
            return f"The header {spelled(name)} came more than once; send it once"
    return None


def _origin(policy: Policy, head: Head) -> str | None:
    # Only browsers send an Origin. A page may talk to the server that it came from, and a page on
    # this machine to a server on this machine; a page from elsewhere needs permission.
    value = head.headers.get(names.ORIGIN)
    if value is None or ANY_ORIGIN in policy.origins:
        return None
    origin = parse_origin(value)
    if origin is not None and (
        _own(policy, head, origin)
        or origin in policy.origins
        or (*origin[:2], "*") in policy.origins
    ):
        return None
    return (
        f"The Origin {quote(value)} is not allowed here; a server that trusts it says "
        f"origins=[{quote(value)}]"
    )


def _own(policy: Policy, head: Head, origin: HeaderOrigin) -> bool:
    scheme, name, port = origin
    host = parse_host(head.headers.get(names.HOST, b""))
    if (
        host is None
        or scheme not in ("http", "https")
        or not _host_allowed(policy, host[0], head.server)
    ):
        return False
    return (name, port) == (host[0], host[1] or str(DEFAULT_PORTS[scheme])) or (
        _is_this_machine(name) and _is_this_machine(host[0])
    )


def _host(policy: Policy, head: Head) -> str | None:
    # A page may point a name of its own at our address (DNS rebinding), and is then of our origin;
    # but not an address.
    value = head.headers.get(names.HOST)
    if value is None or "*" in policy.hosts:
        return None
    host = parse_host(value)
    if host is not None and _host_allowed(policy, host[0], head.server):
        return None
    shown = quote(value if host is None else host[0])
    return (
        f"The Host {quote(value)} is not one of this server's names; if it is meant to "
        f"be, say hosts=[{shown}]"
    )


def _method(policy: Policy, head: Head) -> str | None:
    if head.method in policy.methods:
        return None
    return f"{quote(head.method)} is not served here; use {', '.join(policy.methods)}"


_VISIBLE = bytes(range(0x20, 0x7F)) + b"\t"


def _characters(policy: Policy, head: Head) -> str | None:
    if not b"".join(head.headers.values()).translate(None, _VISIBLE):
        return None  # all of them at once, which is cheaper than finding ours
    for name, value in head.headers.items():
        if name.startswith(names.MCP) and value.translate(None, _VISIBLE):
            return (
                f"The header {spelled(name)} holds {quote(value)}; only printable ASCII "
                "may stand there"
            )
    return None


def _length(policy: Policy, head: Head) -> str | None:
    value = head.headers.get(names.CONTENT_LENGTH)
    return (
        None
        if value is None or value.isdigit()
        else f"Content-Length is {quote(value)}, which is no number of bytes"
    )


def _size(policy: Policy, head: Head) -> str | None:
    value = head.headers.get(names.CONTENT_LENGTH)
    if value is None or (len(value) < 20 and int(value) <= policy.limit):
        return None
    return (
        f"The body has {quote(value)} bytes; this server reads at most {policy.limit} "
        "(Limits.incoming)"
    )


def _type(policy: Policy, head: Head) -> str | None:
    value = head.headers.get(names.CONTENT_TYPE, b"")
    if head.method != "POST" or value.partition(b";")[0].strip().lower() == b"application/json":
        return None
    return f"The Content-Type is {quote(value)}; send {JSON}"


def _encoding(policy: Policy, head: Head) -> str | None:
    value = head.headers.get(names.CONTENT_ENCODING, b"identity")
    if value.strip().lower() in (b"identity", b""):
        return None
    return f"The Content-Encoding is {quote(value)}; send the body as it is"


def _accept(policy: Policy, head: Head) -> str | None:
    if head.method == "POST":
        fine, wanted = head.json or head.streams, f"{JSON}, {EVENTS}"
    elif head.method == "GET":
        fine = head.streams or (head.json and policy.poll)
        wanted = f"{EVENTS} or {JSON}" if policy.poll else EVENTS
    else:
        return None
    came = quote(head.headers.get(names.ACCEPT, b""))
    return (
        None
        if fine
        else f"Accept is {came}, and what answers a {head.method} here is none of that; "
        f"accept {wanted}"
    )


def _allow(policy: Policy) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"allow", ", ".join(policy.methods).encode()),)


HEAD: Final = (
    Rung("origin", 403, InvalidRequest, _origin),
    Rung("repeated", 400, InvalidRequest, _repeated, each=True),
    Rung("host", 421, InvalidRequest, _host),
    Rung("method", 405, InvalidRequest, _method, headers=_allow),
    Rung("characters", 400, HeaderMismatch, _characters, each=True),
    Rung("length", 400, InvalidRequest, _length, each=True),
    Rung("size", 413, TooLarge, _size, each=True),
    Rung("type", 415, InvalidRequest, _type),
    Rung("encoding", 415, InvalidRequest, _encoding),
    Rung("accept", 406, InvalidRequest, _accept),
)
EACH: Final = tuple(rung for rung in HEAD if rung.each)
COMMON: Final = (names.HOST, names.ORIGIN, names.CONTENT_TYPE, names.CONTENT_ENCODING, names.ACCEPT)
"""All that the others look at."""


def accepted(value: bytes | None) -> tuple[bool, bool]:
    """Whether an Accept header takes JSON, and whether it takes an event stream. The more exact
    entry decides."""
    takes: dict[str, bool] = {}
    for entry in (value or b"").decode("latin-1").lower().split(","):
        kind, *parameters = (part.strip() for part in entry.split(";"))
        if kind:
            takes[kind] = not any(_ZERO.fullmatch(parameter) for parameter in parameters)
    if not takes:
        return True, True

    def of(kind: str) -> bool:
        ranges = (kind, f"{kind.partition('/')[0]}/*", "*/*")
        return next((takes[one] for one in ranges if one in takes), False)

    return of(JSON), of(EVENTS)


_ZERO = re.compile(r"q\s*=\s*0(\.0*)?")


# the server's own names


def _host_allowed(policy: Policy, name: str, server: str | None) -> bool:
    if (
        is_localhost_name(name)
        or is_ip_address(name)
        or name in policy.bound
        or "*" in policy.hosts
    ):
        return True
    if server is not None and name == normalize_host(server):
        return True
    return name in policy.hosts or _under(policy, name)


def ours(policy: Policy, value: bytes, server: Sequence[Any] | None) -> bool:
    """Whether a Host is sure to mean this server, and no other that a client may take for it: its
    whole name was configured, and the port is that of a proxy or our own; or it is the very address
    and port that the request came in by."""
    host = parse_host(value)
    if host is None:
        return False
    (name, port), (served, own) = (
        host,
        (normalize_host(str(server[0])), str(server[1])) if server else ("", ""),
    )
    if name in policy.hosts or name in policy.bound:
        return port in ("", own, *_HTTP_PORTS)
    here = _is_this_machine(served) if _is_this_machine(name) else name == served
    return here and (port == own or (not port and own in _HTTP_PORTS))


_HTTP_PORTS = ("80", "443")


def _is_this_machine(name: str) -> bool:
    """Whether a browser finds this machine under a name, without asking DNS."""
    return is_loopback(name) or is_localhost_name(name)


def _under(policy: Policy, name: str) -> bool:
    return any(name.endswith(entry[1:]) for entry in policy.hosts if entry.startswith("*."))


# the message


def era(head: Head, meta: Meta | None) -> bool:
    """Whether a message is of the stateless era."""
    return head.version in _STATELESS or (meta is not None and PROTOCOL_VERSION in meta)


def body(
    policy: Policy,
    head: Head,
    method: str,
    params: Params | None,
    named: str = "",
    *,
    request: bool = True,
) -> Reject | None:
    """Judge a request or notification against its head. For a method that nobody knows, plain
    Params will do. `named` is the attribute of the params that says what the method is about."""
    meta = (None if params is None else params.meta) or {}
    if era(head, meta):
        if request and _agrees(policy, head, method, params, named, meta):
            return None
        return _climb(
            STATELESS if request else _NOTIFIED,
            policy,
            head,
            MessageFacts(method, params, meta, named),
        )
    return _climb(HANDSHAKE, policy, head, MessageFacts(method, params, meta))


def _agrees(policy: Policy, head: Head, method: str, params: Any, named: str, meta: Meta) -> bool:
    """Whether all is as it should be, to the letter: then no rung has anything to say (0.9 µs,
    instead of 1.8)."""
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


def bare(policy: Policy, head: Head) -> Reject | None:
    """Judge a GET or DELETE, which are of the handshake era and carry no message."""
    return _climb(HANDSHAKE, policy, head, MessageFacts("", None, {}))


def _climb(
    rungs: tuple[Rung, ...], policy: Policy, head: Head, said: MessageFacts
) -> Reject | None:
    for rung in rungs:
        problem = rung.judge(policy, head, said)
        if problem is not None:
            return rung.reject(policy, head, problem)
    return None


_STATELESS = frozenset(one.version for one in OFFICIAL if one.stateless)
_NEGOTIABLE = frozenset(one.version for one in OFFICIAL if not one.stateless)


def _no_version(policy: Policy, head: Head, said: MessageFacts) -> str | None:
    if head.version is not None:
        return None
    return (
        f"The header {spelled(names.VERSION)} is missing; send it with the version that _meta names"
    )


def _no_meta(policy: Policy, head: Head, said: MessageFacts) -> str | None:
    if isinstance(said.meta.get(PROTOCOL_VERSION), str):
        return None
    return (
        f"_meta lacks {PROTOCOL_VERSION!r}, which every request of revision {head.version} "
        "must carry"
    )


def _disagree(policy: Policy, head: Head, said: MessageFacts) -> str | None:
    stated = said.meta.get(PROTOCOL_VERSION, head.version)
    if stated == head.version:
        return None
    return (
        f"The header {spelled(names.VERSION)} says {quote(head.version or '')}, but that "
        f"of _meta {_held(stated)}"
    )


def _unserved(policy: Policy, head: Head, said: MessageFacts) -> str | None:
    return None if head.version in policy.stateless else _unsupported(policy, head)


def _no_capabilities(policy: Policy, head: Head, said: MessageFacts) -> str | None:
    if CLIENT_CAPABILITIES in said.meta:
        return None
    return f"_meta lacks {CLIENT_CAPABILITIES!r}, which every request must carry"


def _unsaid(policy: Policy, head: Head, said: MessageFacts) -> str | None:
    if names.METHOD in head.headers:
        return None
    return (
        f"The header {spelled(names.METHOD)} is missing; send it with the method, "
        f"{quote(said.method)}"
    )


def _about(policy: Policy, head: Head, said: MessageFacts) -> str | None:
    value = head.headers.get(names.METHOD)
    if value is None or value.decode("latin-1").strip() == said.method:
        return None
    return (
        f"The header {spelled(names.METHOD)} says {quote(value)}, but the body says "
        f"{quote(said.method)}"
    )


def _named(policy: Policy, head: Head, said: MessageFacts) -> str | None:
    if not said.named:
        return None
    return _mismatch(
        head, names.NAME, f"params.{camel(said.named)}", getattr(said.params, said.named)
    )


def _mismatch(head: Head, header: bytes, field: str, value: Any) -> str | None:
    """Why a header does not repeat what a field of the body holds."""
    given = head.headers.get(header)
    if given is None:
        if not encodable(value):
            return None  # there is nothing to repeat
        return f"The header {spelled(header)} is missing; send it with {field}"
    text = given.decode("latin-1")
    try:
        if same(value, text):
            return None
    except ValueError as error:
        return (
            f"The header {spelled(header)} says {quote(text)}, which is no Base64 "
            f"({error}) of {field}"
        )
    return f"The header {spelled(header)} says {quote(text)}, but {field} {_held(value)}"


def _held(value: Any) -> str:
    if value is None:
        return "has no value"
    if isinstance(value, str):
        return f"is {quote(value)}"
    # What is nested deeply, or a number of many digits, could not even be printed.
    return (
        f"is {value}"
        if encodable(value) and -SAFE <= value <= SAFE
        else "is nothing that a header can hold"
    )


def _all_stateless(policy: Policy, head: Head, said: MessageFacts) -> str | None:
    if head.version is not None or policy.handshake or said.method == "initialize":
        return None
    return (
        f"The header {spelled(names.VERSION)} is missing, and this server speaks only "
        f"{', '.join(policy.supported)}: "
        "send the version there and in _meta"
    )


def _unknown(policy: Policy, head: Head, said: MessageFacts) -> str | None:
    served = _NEGOTIABLE if said.method == "initialize" else policy.handshake
    return None if head.version is None or head.version in served else _unsupported(policy, head)


def _no_session(policy: Policy, head: Head, said: MessageFacts) -> str | None:
    if head.session is not None or said.method == "initialize" or not policy.sessions:
        return None
    return (
        f"There is no {spelled(names.SESSION)}: send `initialize` first, then the id that its "
        "answer carries in "
        f"{spelled(names.SESSION)} on each request; or name a stateless version in "
        f"{spelled(names.VERSION)} and _meta"
    )


def _unsupported(policy: Policy, head: Head) -> str:
    return (
        f"Unsupported protocol version {quote(head.version or '')}; this server speaks "
        f"{', '.join(policy.supported)}"
    )


def _versions(policy: Policy, head: Head) -> dict[str, Any]:
    return {"supported": policy.supported, "requested": (head.version or "")[:MAX_QUOTED_CHARS]}


STATELESS: Final = (
    Rung("version", 400, HeaderMismatch, _no_version),
    Rung("meta", 400, InvalidParams, _no_meta, requests=True),
    Rung("agreement", 400, HeaderMismatch, _disagree),
    Rung("served", 400, UnsupportedVersion, _unserved, data=_versions),
    Rung("capabilities", 400, InvalidParams, _no_capabilities, requests=True),
    Rung("unsaid", 400, HeaderMismatch, _unsaid, requests=True),
    Rung("about", 400, HeaderMismatch, _about),
    Rung("name", 400, HeaderMismatch, _named, requests=True),
)
_NOTIFIED: Final = tuple(rung for rung in STATELESS if not rung.requests)

HANDSHAKE: Final = (
    Rung("era", 400, HeaderMismatch, _all_stateless),
    Rung("revision", 400, UnsupportedVersion, _unknown, data=_versions),
    Rung("session", 400, InvalidRequest, _no_session),
)


def mirrors(head: Head, mirrors: tuple[HeaderParam, ...], arguments: Raw) -> Reject | None:
    """Judge the arguments of a call against its `Mcp-Param-*` headers. Those that no parameter asks
    for are ignored."""
    try:
        given = msgspec.json.decode(arguments) if bytes(arguments) else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Reject(400, InvalidParams(f"The arguments cannot be read: {error}"))
    for mirror in mirrors:
        problem = _mismatch(
            head, mirror.header, f"arguments.{'.'.join(mirror.path)}", mirror.value(given)
        )
        if problem is not None:
            return Reject(400, HeaderMismatch(problem))
    return None


# errors found further in

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
"""The status of an error: where the request was refused before any handler ran, and where the
handler failed."""
_OTHER: Final = (400, 200, 200, 200)
"""… of an error with a code of somebody's own."""


def status(error: int | ProtocolError | type[ProtocolError], stateless: bool, refused: bool) -> int:
    """The HTTP status that goes with an error, as long as nothing was sent."""
    kind = BY_CODE.get(error if isinstance(error, int) else error.code)
    row = _OTHER if kind is None else STATUS.get(kind, _OTHER)
    return row[(0 if stateless else 2) + (0 if refused else 1)]


def refusal(error: ProtocolError, stateless: bool) -> Reject:
    """The refusal of a request with an error that was found further in, before any handler ran."""
    if (
        isinstance(error, Overloaded) and error.retry_after is not None
    ):  # the caller's own doing: RFC 6585, section 4
        return Reject(429, error, ((b"retry-after", b"%d" % max(1, ceil(error.retry_after))),))
    number = status(error, stateless, refused=True)
    return Reject(number, error, ((b"retry-after", b"1"),) if number == 503 else ())
