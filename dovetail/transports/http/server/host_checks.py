"""Which Host and Origin headers are accepted, against DNS rebinding and foreign web pages.

Only browsers send an Origin. A page may talk to the server that it came from, and a page on this
machine to a server on this machine; a page from elsewhere needs permission (`origins=`). A page may
also point a name of its own at our address (DNS rebinding) and is then of our origin. So a Host
must be one of the server's names (`hosts=`) or an address, which cannot be pointed elsewhere.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....net import (
    ANY_ORIGIN,
    DEFAULT_PORTS,
    HeaderOrigin,
    is_ip_address,
    is_localhost_name,
    is_loopback,
    normalize_host,
    parse_host,
    parse_origin,
)
from ....text import quote
from .. import headers as names

if TYPE_CHECKING:
    from .policy import Policy, RequestHead


def check_origin(policy: "Policy", head: "RequestHead") -> str | None:
    """Return what is wrong with the Origin, or None."""
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


def _is_own_origin(policy: "Policy", head: "RequestHead", origin: HeaderOrigin) -> bool:
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


def check_host(policy: "Policy", head: "RequestHead") -> str | None:
    """Return what is wrong with the Host, or None."""
    value = head.headers.get(names.HOST)
    if value is None or "*" in policy.hosts:
        return None
    host = parse_host(value)
    if host is not None and _is_allowed_host(policy, host[0], head.server):
        return None
    name = quote(value if host is None else host[0])
    return (
        f"The Host {quote(value)} is not a name of this server. If it should be, configure the "
        f"server with hosts=[{name}]."
    )


def _is_allowed_host(policy: "Policy", name: str, server: str | None) -> bool:
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


def is_own_host(policy: "Policy", value: bytes, server: Sequence[Any] | None) -> bool:
    """Tell whether a Host certainly means this server.

    Either its whole name was configured, and its port is that of a proxy or of this server; or it
    is the address and port at which the request arrived.
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


def _matches_wildcard(policy: "Policy", name: str) -> bool:
    return any(name.endswith(entry[1:]) for entry in policy.hosts if entry.startswith("*."))


_HTTP_PORTS = ("80", "443")


def _is_this_machine(name: str) -> bool:
    """Tell whether a browser resolves a name to this machine without asking DNS."""
    return is_loopback(name) or is_localhost_name(name)
