"""Decide which HTTP requests the inspector answers. Nothing here does I/O.

Each check is a row of `CHECKS`: which requests it is for, what they must fulfil, and the answer to
those that do not. The first check that fails decides.

The page's own files load without a token, because a browser cannot send one with them; they contain
no data. They do not check `Sec-Fetch-Site`, because the browser arrives from a file that redirects
to the page, which counts as cross-site.
"""

from collections.abc import Callable, Iterable
from hmac import compare_digest
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from ..net import is_ip_address, parse_host

API = "/api/"
EVENTS = "/api/events"
OPEN_PRINTED_URL = "Open the URL that the terminal printed."

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]


class AccessPolicy(Struct, frozen=True):
    """Where the inspector listens, and the token of its page."""

    token: str
    port: int
    hosts: tuple[str, ...]
    """The hosts that a Host header may name, IPv6 addresses in brackets."""
    any_address: bool = False
    """Whether the Host header may be any IP address, because the inspector listens on all of
    them. Names stay forbidden: anyone can make a name for an address."""


class PageRequest(Struct, frozen=True):
    """A request without its body."""

    method: str
    path: str
    headers: tuple[tuple[bytes, bytes], ...]
    """The headers, with names in lower case."""

    @property
    def is_api(self) -> bool:
        """Whether the request is for the API and not for a file."""
        return self.path.startswith(API)

    def values(self, name: bytes) -> list[bytes]:
        """Return all values of a header."""
        return [value for key, value in self.headers if key == name]

    def value(self, name: bytes) -> bytes | None:
        """Return the value of a header, or None unless it occurs exactly once."""
        found = self.values(name)
        return found[0] if len(found) == 1 else None


class Allowed(Struct, frozen=True):
    """The request may be answered."""

    is_api: bool


class Denied(Struct, frozen=True):
    """The request is refused with this status."""

    status: int
    message: str
    what_to_do: str = OPEN_PRINTED_URL


def check_access(
    method: str, path: str, headers: Headers, policy: AccessPolicy
) -> Allowed | Denied:
    """Return whether a request is answered, or why it is not.

    Args:
        method: The HTTP method.
        path: The path, without the query.
        headers: The headers, with names in lower case.
        policy: Our address and token.
    """
    head = PageRequest(method, path, tuple(headers))
    for check in CHECKS:
        if check.applies(head) and not check.passes(head, policy):
            return check.denial
    return Allowed(head.is_api)


# conditions


def _has_our_host(head: PageRequest, policy: AccessPolicy) -> bool:
    found = parse_host(head.value(b"host") or b"")
    if found is None or (found[1] or "80") != str(policy.port):
        return False
    return found[0] in policy.hosts or (policy.any_address and is_ip_address(found[0]))


def _has_our_origin(head: PageRequest, policy: AccessPolicy) -> bool:
    sent = head.values(b"origin")
    return not sent or sent == [b"http://" + (head.value(b"host") or b"")]


def _has_token(head: PageRequest, policy: AccessPolicy) -> bool:
    sent = head.value(b"authorization") or b""
    return compare_digest(sent, f"Bearer {policy.token}".encode())


def _is_from_our_page(head: PageRequest, policy: AccessPolicy) -> bool:
    sent = head.values(b"sec-fetch-site")
    if not sent:  # not a browser: every browser that sends an Origin also says where it is
        return not head.values(b"origin")
    return sent in ([b"same-origin"], [b"none"])


def _is_json(head: PageRequest, policy: AccessPolicy) -> bool:
    sent = (head.value(b"content-type") or b"").partition(b";")[0]
    return sent.strip().lower() == b"application/json"


def _has_method_of_path(head: PageRequest, policy: AccessPolicy) -> bool:
    return head.method == ("POST" if head.is_api and head.path != EVENTS else "GET")


# the table


class AccessCheck(NamedTuple):
    """A condition, the requests that it is for, and the answer to those that do not fulfil it."""

    applies: Callable[[PageRequest], bool]
    passes: Callable[[PageRequest, AccessPolicy], bool]
    denial: Denied


def _always(head: PageRequest) -> bool:
    return True


def _is_api(head: PageRequest) -> bool:
    return head.is_api


def _is_api_post(head: PageRequest) -> bool:
    return head.is_api and head.method == "POST"


CHECKS: tuple[AccessCheck, ...] = (
    AccessCheck(
        _always, _has_our_host, Denied(421, "The Host header does not name this inspector.")
    ),
    AccessCheck(_always, _has_our_origin, Denied(403, "The request comes from another site.")),
    AccessCheck(
        _always,
        lambda head, _: head.method != "OPTIONS",
        Denied(403, "Other sites may not use this inspector."),
    ),
    AccessCheck(
        _always,
        lambda head, _: head.method in ("GET", "POST"),
        Denied(405, "Only GET and POST are allowed."),
    ),
    AccessCheck(
        _is_api, _has_token, Denied(401, "The request has no token, or not the right one.")
    ),
    AccessCheck(_is_api, _is_from_our_page, Denied(403, "The request comes from another page.")),
    AccessCheck(
        _is_api_post,
        _is_json,
        Denied(415, "The body must be JSON.", "Send Content-Type: application/json."),
    ),
    AccessCheck(
        _always,
        _has_method_of_path,
        Denied(405, "This path does not have this method.", "POST operations, GET the rest."),
    ),
)
