"""What can be wrong with the headers of a message, given its body: one check for each row of the
tables in `policy.py`. A check returns what is wrong, or None."""

from typing import TYPE_CHECKING, Any

from ....protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION, camel
from ....revisions import OFFICIAL
from ....text import MAX_QUOTED_CHARS, quote
from .. import headers as names
from ..headers import MAX_SAFE_INTEGER, is_encodable, matches, spell_header

if TYPE_CHECKING:
    from .policy import MessageFacts, Policy, RequestHead

_NEGOTIABLE = frozenset(one.version for one in OFFICIAL if not one.stateless)


def check_version_header(
    policy: "Policy", head: "RequestHead", facts: "MessageFacts"
) -> str | None:
    if head.version is not None:
        return None
    return f"The header {spell_header(names.VERSION)} is missing. Send the version of _meta."


def check_meta_version(policy: "Policy", head: "RequestHead", facts: "MessageFacts") -> str | None:
    if isinstance(facts.meta.get(PROTOCOL_VERSION), str):
        return None
    return (
        f"_meta has no {PROTOCOL_VERSION!r}, which revision {head.version} requires in every "
        "request"
    )


def check_versions_agree(
    policy: "Policy", head: "RequestHead", facts: "MessageFacts"
) -> str | None:
    stated = facts.meta.get(PROTOCOL_VERSION, head.version)
    if stated == head.version:
        return None
    return (
        f"The header {spell_header(names.VERSION)} is {quote(head.version or '')}, but the version "
        f"in _meta {_describe_value(stated)}"
    )


def check_version_served(
    policy: "Policy", head: "RequestHead", facts: "MessageFacts"
) -> str | None:
    return None if head.version in policy.stateless else _unsupported(policy, head)


def check_capabilities(policy: "Policy", head: "RequestHead", facts: "MessageFacts") -> str | None:
    if CLIENT_CAPABILITIES in facts.meta:
        return None
    return f"_meta has no {CLIENT_CAPABILITIES!r}, which is required in every request"


def check_method_header(policy: "Policy", head: "RequestHead", facts: "MessageFacts") -> str | None:
    if names.METHOD in head.headers:
        return None
    return (
        f"The header {spell_header(names.METHOD)} is missing. Send the method, "
        f"{quote(facts.method)}."
    )


def check_method_matches(
    policy: "Policy", head: "RequestHead", facts: "MessageFacts"
) -> str | None:
    value = head.headers.get(names.METHOD)
    if value is None or value.decode("latin-1").strip() == facts.method:
        return None
    return (
        f"The header {spell_header(names.METHOD)} is {quote(value)}, but the method in the body is "
        f"{quote(facts.method)}"
    )


def check_name_header(policy: "Policy", head: "RequestHead", facts: "MessageFacts") -> str | None:
    if not facts.named:
        return None
    return find_mismatch(
        head, names.NAME, f"params.{camel(facts.named)}", getattr(facts.params, facts.named)
    )


def find_mismatch(head: "RequestHead", header: bytes, field: str, value: Any) -> str | None:
    """Return how a header differs from a field of the body, or None."""
    given = head.headers.get(header)
    if given is None:
        if not is_encodable(value):
            return None  # there is nothing to send
        return f"The header {spell_header(header)} is missing. Send the value of {field}."
    text = given.decode("latin-1")
    try:
        if matches(value, text):
            return None
    except ValueError as error:
        return (
            f"The header {spell_header(header)} is {quote(text)}, which is not valid Base64 of "
            f"{field}: {error}"
        )
    described = _describe_value(value)
    return f"The header {spell_header(header)} is {quote(text)}, but {field} {described}"


def _describe_value(value: Any) -> str:
    if value is None:
        return "has no value"
    if isinstance(value, str):
        return f"is {quote(value)}"
    # A deeply nested value, or a number with many digits, could not even be printed.
    return (
        f"is {value}"
        if is_encodable(value) and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
        else "is a value that no header can have"
    )


def check_version_given(policy: "Policy", head: "RequestHead", facts: "MessageFacts") -> str | None:
    if head.version is not None or policy.handshake or facts.method == "initialize":
        return None
    return (
        f"The header {spell_header(names.VERSION)} is missing, and this server only supports "
        f"{', '.join(policy.supported)}. Send the version in this header and in _meta."
    )


def check_revision(policy: "Policy", head: "RequestHead", facts: "MessageFacts") -> str | None:
    served = _NEGOTIABLE if facts.method == "initialize" else policy.handshake
    return None if head.version is None or head.version in served else _unsupported(policy, head)


def check_session(policy: "Policy", head: "RequestHead", facts: "MessageFacts") -> str | None:
    if head.session is not None or facts.method == "initialize" or not policy.sessions:
        return None
    return (
        f"The header {spell_header(names.SESSION)} is missing. Send `initialize` first, then the "
        "id from its response in this header with each request; or send a stateless version in "
        f"{spell_header(names.VERSION)} and _meta."
    )


def _unsupported(policy: "Policy", head: "RequestHead") -> str:
    return (
        f"Unsupported protocol version {quote(head.version or '')}; this server supports "
        f"{', '.join(policy.supported)}"
    )


def list_versions(policy: "Policy", head: "RequestHead") -> dict[str, Any]:
    return {"supported": policy.supported, "requested": (head.version or "")[:MAX_QUOTED_CHARS]}
