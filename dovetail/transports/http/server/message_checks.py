"""Checks that a message's headers agree with its body, and the errors that report differences. This
is the second part of the ladder; the first part is in `policy.py`. This module performs no I/O.

The era of a message determines how it is checked. A message belongs to the stateless era if its
version header names a stateless revision, or if its `_meta` names any version:

    STATELESS     status                   (* requests only)
    version       400  HeaderMismatch      no MCP-Protocol-Version
    meta        * 400  InvalidParams       _meta has no version
    agreement     400  HeaderMismatch      header and _meta have different versions
    served        400  UnsupportedVersion  with the versions that are supported
    capabilities* 400  InvalidParams       _meta has no clientCapabilities
    missing     * 400  HeaderMismatch      no Mcp-Method
    method        400  HeaderMismatch      Mcp-Method differs from the method
    name        * 400  HeaderMismatch      Mcp-Name differs from the name or URI in the params
    (mirrors      400  HeaderMismatch      Mcp-Param-* differs from the argument; checked later)

    HANDSHAKE     status
    era           400  HeaderMismatch      no version header, and the server is stateless only
    revision      400  UnsupportedVersion  not supported; `initialize` negotiates instead
    session       400  InvalidRequest      no Mcp-Session-Id, and not `initialize`

The last table, STATUS, contains the status of errors that are detected later. A client that sends
too many requests receives a 429 with the time to wait.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ....errors import (
    BY_CODE,
    BackendAway,
    ConsentDenied,
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
from ....protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION, Meta, Params, camel
from ....protocol.header_params import HeaderParam
from ....revisions import OFFICIAL
from ....text import quote
from .. import headers as names
from ..headers import MAX_SAFE_INTEGER, is_encodable, matches, spell_header
from .policy import STATELESS_VERSIONS, Policy, Rejection, RequestHead, Rung

_NEGOTIABLE = frozenset(one.version for one in OFFICIAL if not one.stateless)


class MessageFacts(Struct, frozen=True, gc=False):
    """The parts of the body that are checked."""

    method: str
    params: Params | None
    meta: Meta
    named: str = ""
    """The attribute of the params that `Mcp-Name` repeats."""


def is_stateless(head: RequestHead, meta: Meta | None) -> bool:
    """Return whether a message belongs to the stateless era."""
    return head.version in STATELESS_VERSIONS or (meta is not None and PROTOCOL_VERSION in meta)


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
    """Return whether the headers and the body agree literally, so that no check can fail. This
    shortcut takes 0.9 µs instead of 1.8 µs."""
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
    """Check a GET or DELETE. Both methods belong to the handshake era and carry no message."""
    return _climb(HANDSHAKE, policy, head, MessageFacts("", None, {}))


def _climb(
    rungs: tuple[Rung, ...], policy: Policy, head: RequestHead, facts: MessageFacts
) -> Rejection | None:
    for rung in rungs:
        problem = rung.check(policy, head, facts)
        if problem is not None:
            return rung.reject(policy, head, problem)
    return None


# The checks in the tables. Each returns a description of the problem, or None.


def _check_version_header(policy: Policy, head: RequestHead, facts: MessageFacts) -> str | None:
    if head.version is not None:
        return None
    return f"The header {spell_header(names.VERSION)} is missing. Set it to the version in _meta."


def _check_meta_version(policy: Policy, head: RequestHead, facts: MessageFacts) -> str | None:
    if isinstance(facts.meta.get(PROTOCOL_VERSION), str):
        return None
    return (
        f"_meta has no {PROTOCOL_VERSION!r}, which revision {head.version} requires in every "
        "request"
    )


def _check_versions_agree(policy: Policy, head: RequestHead, facts: MessageFacts) -> str | None:
    stated = facts.meta.get(PROTOCOL_VERSION, head.version)
    if stated == head.version:
        return None
    return (
        f"The header {spell_header(names.VERSION)} is {quote(head.version or '')}, but the version "
        f"in _meta {_describe_value(stated)}"
    )


def _check_version_served(policy: Policy, head: RequestHead, facts: MessageFacts) -> str | None:
    return None if head.version in policy.stateless else _unsupported(policy, head)


def _check_capabilities(policy: Policy, head: RequestHead, facts: MessageFacts) -> str | None:
    if CLIENT_CAPABILITIES in facts.meta:
        return None
    return f"_meta has no {CLIENT_CAPABILITIES!r}, which is required in every request"


def _check_method_header(policy: Policy, head: RequestHead, facts: MessageFacts) -> str | None:
    if names.METHOD in head.headers:
        return None
    return (
        f"The header {spell_header(names.METHOD)} is missing. Set it to the method: "
        f"{quote(facts.method)}."
    )


def _check_method_matches(policy: Policy, head: RequestHead, facts: MessageFacts) -> str | None:
    value = head.headers.get(names.METHOD)
    if value is None or value.decode("latin-1").strip() == facts.method:
        return None
    return (
        f"The header {spell_header(names.METHOD)} is {quote(value)}, but the method in the body is "
        f"{quote(facts.method)}"
    )


def _check_name_header(policy: Policy, head: RequestHead, facts: MessageFacts) -> str | None:
    if not facts.named:
        return None
    return _find_mismatch(
        head, names.NAME, f"params.{camel(facts.named)}", getattr(facts.params, facts.named)
    )


def _find_mismatch(head: RequestHead, header: bytes, field: str, value: Any) -> str | None:
    """Return a description of how a header differs from a field in the body, or None if they
    match."""
    sent = head.headers.get(header)
    if sent is None:
        if not is_encodable(value):
            return None  # the client has nothing to send
        return f"The header {spell_header(header)} is missing. Set it to the value of {field}."
    text = sent.decode("latin-1")
    try:
        if matches(value, text):
            return None
    except ValueError as error:
        return (
            f"The header {spell_header(header)} is {quote(text)}, which is not a valid Base64 "
            f"encoding of {field}: {error}"
        )
    described = _describe_value(value)
    return f"The header {spell_header(header)} is {quote(text)}, but {field} {described}"


def _describe_value(value: Any) -> str:
    if value is None:
        return "has no value"
    if isinstance(value, str):
        return f"is {quote(value)}"
    # Other values are not printed: they may be deeply nested, or numbers with too many digits.
    return (
        f"is {value}"
        if is_encodable(value) and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
        else "is a value that cannot be sent in a header"
    )


def _check_version_given(policy: Policy, head: RequestHead, facts: MessageFacts) -> str | None:
    if head.version is not None or policy.handshake or facts.method == "initialize":
        return None
    return (
        f"The header {spell_header(names.VERSION)} is missing, and this server supports only "
        f"{', '.join(policy.supported)}. Send the version in this header and in _meta."
    )


def _check_revision(policy: Policy, head: RequestHead, facts: MessageFacts) -> str | None:
    served = _NEGOTIABLE if facts.method == "initialize" else policy.handshake
    return None if head.version is None or head.version in served else _unsupported(policy, head)


def _check_session(policy: Policy, head: RequestHead, facts: MessageFacts) -> str | None:
    if head.session is not None or facts.method == "initialize" or not policy.sessions:
        return None
    return (
        f"The header {spell_header(names.SESSION)} is missing. Send `initialize` first, then send "
        "the id from its response in this header with each request. Alternatively, send a "
        f"stateless version in {spell_header(names.VERSION)} and _meta."
    )


def _unsupported(policy: Policy, head: RequestHead) -> str:
    return (
        f"Unsupported protocol version {quote(head.version or '')}; this server supports "
        f"{', '.join(policy.supported)}"
    )


STATELESS: Final = (
    Rung("version", 400, HeaderMismatch, _check_version_header),
    Rung(
        "meta",
        400,
        InvalidParams,
        _check_meta_version,
        requests_only=True,
        parameter=f"_meta.{PROTOCOL_VERSION}",
    ),
    Rung("agreement", 400, HeaderMismatch, _check_versions_agree),
    Rung("served", 400, UnsupportedVersion, _check_version_served),
    Rung(
        "capabilities",
        400,
        InvalidParams,
        _check_capabilities,
        requests_only=True,
        parameter=f"_meta.{CLIENT_CAPABILITIES}",
    ),
    Rung("missing", 400, HeaderMismatch, _check_method_header, requests_only=True),
    Rung("method", 400, HeaderMismatch, _check_method_matches),
    Rung("name", 400, HeaderMismatch, _check_name_header, requests_only=True),
)
_NOTIFIED: Final = tuple(rung for rung in STATELESS if not rung.requests_only)

HANDSHAKE: Final = (
    Rung("era", 400, HeaderMismatch, _check_version_given),
    Rung("revision", 400, UnsupportedVersion, _check_revision),
    Rung("session", 400, InvalidRequest, _check_session),
)


def check_header_params(
    head: RequestHead, params: tuple[HeaderParam, ...], arguments: Raw
) -> Rejection | None:
    """Check the arguments of a call against its `Mcp-Param-*` headers. Headers that do not match a
    parameter are ignored."""
    try:
        decoded = msgspec.json.decode(arguments) if bytes(arguments) else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Rejection(
            400, InvalidParams(f"The arguments are not valid JSON: {error}", parameter="arguments")
        )
    for param in params:
        problem = _find_mismatch(
            head, param.header, f"arguments.{'.'.join(param.path)}", param.value(decoded)
        )
        if problem is not None:
            return Rejection(400, HeaderMismatch(problem))
    return None


# errors that are detected later

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
    ConsentDenied:      (400,     200,      200,     200),
}  # fmt: skip
"""The HTTP status for an error if the request is rejected before a handler runs, and the status if
the handler fails."""
_OTHER: Final = (400, 200, 200, 200)
"""The statuses for any other error code."""


def status_for(
    error: int | ProtocolError | type[ProtocolError], stateless: bool, refused: bool
) -> int:
    """Return the HTTP status for an error that occurs before anything is sent."""
    kind = BY_CODE.get(error if isinstance(error, int) else error.code)
    row = _OTHER if kind is None else STATUS.get(kind, _OTHER)
    return row[(0 if stateless else 2) + (0 if refused else 1)]


def rejection_for(error: ProtocolError, stateless: bool) -> Rejection:
    """Return the rejection for an error that is detected later, but before a handler runs."""
    if not isinstance(error, Overloaded):
        return Rejection(status_for(error, stateless, refused=True), error)
    # With a time to wait, the caller has exceeded its own rate limit: RFC 6585, section 4.
    has_time, is_away = error.retry_after is not None, isinstance(error, BackendAway)
    status = 429 if has_time and not is_away else 503
    if is_away and not has_time:  # the request may have had effects, so nobody should repeat it
        return Rejection(status, error)
    return Rejection(status, error, ((b"retry-after", error.retry_header.encode()),))
