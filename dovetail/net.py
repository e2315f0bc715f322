"""The only module that interprets hosts, addresses, origins and URLs.

`is_loopback` answers "Does this certainly stay on this machine?" A secret may be sent without TLS
only if it does. `is_private` answers "Might this be unreachable from the public internet?" This
keeps strangers from pointing us at the local network. In case of doubt, `is_loopback` says no and
`is_private` says yes, so a host may be neither trusted nor open to strangers:

    host                        is_loopback  is_private  why
    localhost, LOCALHOST        yes          yes         every system resolves it without DNS
    localhost.                  yes          yes         the same name, fully qualified
    app.localhost               no           yes         reserved (RFC 6761), but some resolvers
                                                         ask DNS for it
    127.0.0.1, 127.1.2.3        yes          yes         all of 127.0.0.0/8
    ::1, [::1]                  yes          yes         with or without brackets
    ::ffff:127.0.0.1            yes          yes         an IPv4 address in IPv6 notation
    64:ff9b::7f00:1             no           yes         the same, translated by a gateway (NAT64)
    0.0.0.0, ::                 no           yes         "any address": for binding, not for calling
    2130706433, 127.1, 0x7f.1   no           yes         spellings that only some programs accept
    10.0.0.1, fe80::1           no           yes         private and link-local networks
    localhost.evil.com          no           no          an ordinary name
    evil-localhost              no           no          an ordinary name
    example.com, 8.8.8.8        no           no          its address is checked when connecting

Browsers never ask DNS for `*.localhost`, so a server that checks a Host or Origin header also
accepts those names (see `is_localhost_name`). The redirect URIs of native apps are compared as text
and may only use the spellings in `LOOPBACK_SPELLINGS` (RFC 8252, section 7.3).

A URL is opened in a browser only if `why_not_openable` finds no problem: it must use http or https,
have a host, and contain no hidden or ambiguous characters. The dialog that asks the user decides on
further warnings (Punycode, plain http).
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .errors import ConfigError

if TYPE_CHECKING:
    import socket
    from ipaddress import IPv4Address, IPv6Address

DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
HTTP_SCHEMES: Final = {"ws": "http", "wss": "https"}
"""The scheme of the HTTP request that opens a WebSocket."""
LOOPBACK_SPELLINGS: Final = r"localhost|127\.0\.0\.1|\[::1\]"
"""A pattern for the loopback hosts that a redirect URI may name."""
FORBIDDEN_NETWORKS: Final = (
    "169.254.0.0/16",
    "fe80::/10",
    "fd00:ec2::/32",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "192.0.0.192/32",
)
"""The addresses at which cloud providers publish the metadata of their machines, including all
link-local addresses."""
_NAT64 = "64:ff9b::/96"
"""The IPv6 prefix for IPv4 addresses in networks without IPv4 (RFC 6052)."""
_ADDRESS = r'\s*"?(\[[^]]*\]|[0-9]+(?:\.[0-9]+){3}(?=[\s:;"]|$)|[0-9a-f:]+)'
_HOPS: Final = {
    b"forwarded": re.compile(rf"(?:[^;]*;)*?\s*for\s*={_ADDRESS}", re.IGNORECASE),
    b"x-forwarded-for": re.compile(_ADDRESS, re.IGNORECASE),
}
"""The headers in which proxies report a client's address, and the pattern of each element."""
_ODD_NUMBER = re.compile(r"(?:^|\.)(?:\d+|0x[0-9a-f]*)$")
"""The end of an IPv4 spelling that only some programs accept: 127.1, 2130706433."""


# hosts


def normalize_host(host: str) -> str:
    """Return a host in the form used to compare hosts: lower case, without the final dot."""
    return host.lower().removesuffix(".")


def is_localhost_name(host: str) -> bool:
    """Return whether a host is `localhost` or a name below it, which no DNS server may define."""
    name = normalize_host(host)
    return name == "localhost" or name.endswith(".localhost")


def is_ip_address(host: str) -> bool:
    """Return whether a host is an IP address (with or without brackets) in its usual spelling."""
    return _parse_address(host) is not None


def is_loopback(host: str | None) -> bool:
    """Return whether a host is certainly this machine, so that data sent to it never leaves the
    machine."""
    address = _parse_address(host or "")
    if address is None:
        return normalize_host(host or "") == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def is_private(host: str) -> bool:
    """Return whether a host may be unreachable from the public internet."""
    address = _unwrap(_parse_address(host))
    if address is None:
        return is_localhost_name(host) or bool(_ODD_NUMBER.search(normalize_host(host)))
    return not address.is_global or address.is_multicast or is_forbidden(host)


def is_forbidden(host: str) -> bool:
    """Return whether requests to an address on behalf of others are forbidden, regardless of the
    settings."""
    address = _unwrap(_parse_address(host))
    return address is not None and any(address in network for network in _networks())


@lru_cache(4096)
def network_of(address: str) -> str:
    """Return the network that counts as one caller, or an empty string for this machine. For IPv6,
    this is the /64 network, because one machine can have any number of addresses in it. A value
    that is not an address, such as a name made up by an ASGI server, is returned unchanged.
    """
    from ipaddress import ip_network

    found = _parse_address(address)
    if found is None:
        return address
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_loopback:
        return ""
    return str(found if found.version == 4 else ip_network((found, 64), strict=False))


def is_local_file_host(host: str | None) -> bool:
    """Return whether the host of a file URI means this machine (RFC 8089, section 2)."""
    return (host or "").lower() in ("", "localhost")


class TrustedProxies:
    """The proxies whose headers are trusted to report a client's address.

    Each proxy adds the address from which it received a request. So the last address that is not a
    trusted proxy is the client's address. The addresses before the client's address may be forged.

    Args:
        entries: IP addresses and networks, such as `10.0.0.5` and `10.0.0.0/8`.

    Raises:
        ConfigError: An entry is neither an address nor a network.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        from ipaddress import ip_network

        networks = []
        for entry in entries:
            try:
                networks.append(ip_network(entry, strict=False))
            except ValueError:
                raise ConfigError(
                    f"trusted_proxies=[{entry!r}]: a proxy must be an IP address or a network, "
                    "such as '10.0.0.5' or '10.0.0.0/8'"
                ) from None
        self._networks = tuple(networks)

    def client_of(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Return the address of the client whose request arrived from `peer`.

        If `Forwarded` and `X-Forwarded-For` are both present and disagree, both are ignored and the
        proxy's address is returned, because a client can forge the header that its proxy does not
        set.

        Args:
            peer: The address from which the connection came.
            headers: The headers of the request, with names in lower case.
        """
        if not self._is_trusted(peer):
            return peer
        sent: dict[bytes, list[str]] = {}
        for name, value in headers:
            if name in _HOPS:
                sent.setdefault(name, []).append(value.decode("latin-1"))
        found = {
            self._walk(peer, _HOPS[name], ",".join(values).split(","))
            for name, values in sent.items()
        }
        return found.pop() if len(found) == 1 else peer

    def _walk(self, peer: str, pattern: re.Pattern[str], hops: list[str]) -> str:
        for hop in reversed(hops):
            found = pattern.match(hop)
            address = None if found is None else _parse_address(found[1])
            if address is None:
                break  # "unknown", or a name that the proxy has made up
            peer = str(getattr(address, "ipv4_mapped", None) or address)
            if not self._is_trusted(peer):
                break
        return peer

    def _is_trusted(self, host: str) -> bool:
        address: Any = _parse_address(host)
        address = getattr(address, "ipv4_mapped", None) or address
        return address is not None and any(address in network for network in self._networks)


@lru_cache(1)
def _networks() -> tuple[Any, ...]:
    from ipaddress import ip_network

    return tuple(ip_network(text) for text in FORBIDDEN_NETWORKS)


def _parse_address(host: str) -> "IPv4Address | IPv6Address | None":
    from ipaddress import ip_address

    try:
        return ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def _unwrap(address: Any) -> Any:
    """Return the IPv4 address inside an IPv6 address, if it contains one."""
    if address is None or address.version == 4:
        return address
    from ipaddress import IPv4Address, ip_network

    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address in ip_network(_NAT64):
        inner = IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


class PeerAddresses:
    """The addresses of all connections that were attempted for one server.

    A server on the local network may refer the client to other servers on that network. A server
    outside that network may not refer the client to servers on it. Each address is checked when a
    connection is opened, because a name may resolve differently a moment later.
    """

    __slots__ = ("_all_private", "host")

    def __init__(self, host: str) -> None:
        self.host = host
        self._all_private: bool | None = None

    @property
    def private(self) -> bool | None:
        """Whether every address was private, or None if this is not known yet."""
        return True if is_private(self.host) else self._all_private

    def refuses(self, host: str) -> bool:
        """Return whether the server must not refer the client to a host or address."""
        return is_forbidden(host) if self.private else is_private(host)

    def open_socket(self, info: tuple[Any, ...]) -> "socket.socket":
        """Record the address of a `getaddrinfo` row and return a socket for it."""
        from socket import socket

        self.record(info[4][0])
        return socket(*info[:3])

    def record(self, address: str) -> None:
        """Record the address of a connection that is being opened."""
        self._all_private = self._all_private is not False and is_private(address)


# origins, and the Host header

Authority: TypeAlias = tuple[str, str]
"""A lower-case host (IPv6 in brackets) and a port, which is empty if none is given."""
HeaderOrigin: TypeAlias = tuple[str, str, str]
"""The scheme, host and port in an Origin header. An allowed origin may have `*` as its port."""
ANY_ORIGIN: Final[HeaderOrigin] = ("*", "*", "*")
_HOST = re.compile(
    r"(\[[0-9a-f:.]+(?:%[\w.~-]+)?\]|(?:[a-z0-9_-]+\.)*[a-z0-9_-]+\.?)(?::([0-9]*))?", re.ASCII
)
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)


def parse_host(value: bytes) -> Authority | None:
    """Parse a Host header, or the same part of an Origin. Return None if the value is malformed."""
    found = _HOST.fullmatch(value.decode("latin-1").lower().strip(" \t"))
    if found is None or not _is_possible_host(name := normalize_host(found[1])):
        return None
    return name, found[2] or ""


def _is_possible_host(name: str) -> bool:
    """Return whether a host is plausible. A host that looks like an address must be a valid
    address, because some programs also read 127.1 or 0x7f000001 as an address."""
    if name.startswith("["):
        return ":" in name and is_ip_address(name)
    return not _ODD_NUMBER.search(name) or is_ip_address(name)


def parse_origin(value: bytes) -> HeaderOrigin | None:
    """Parse an Origin header. Return None for `null` and anything else that is not an origin."""
    found = _ORIGIN.fullmatch(value.decode("latin-1").lower().strip(" \t"))
    host = None if found is None else parse_host(found[2].encode("latin-1"))
    if found is None or host is None:
        return None
    return found[1], host[0], host[1] or str(DEFAULT_PORTS.get(found[1], ""))


def parse_allowed_host(entry: str) -> str:
    """Parse an entry in `hosts=`, or raise ConfigError if it is not a host."""
    found = "*" if entry == "*" else parse_host(entry.removeprefix("*.").encode())
    if found is None:
        raise ConfigError(
            f"hosts=[{entry!r}]: a host must be a name such as 'mcp.example.com', "
            "'*.example.com' or '*'"
        )
    return "*." * entry.startswith("*.") + found[0]


def parse_allowed_origin(entry: str) -> HeaderOrigin:
    """Parse an entry in `origins=`, or raise ConfigError if it is not an origin."""
    if entry == "*":
        return ANY_ORIGIN
    any_port = entry.endswith(":*")
    found = parse_origin(entry.removesuffix("/").removesuffix(":*").encode())
    if found is None:
        raise ConfigError(
            f"origins=[{entry!r}]: an origin must be a URL without a path, such as "
            "'https://app.example.com', or '*'"
        )
    return (*found[:2], "*") if any_port else found


def split_origin(url: str) -> tuple[str, str, int]:
    """Return the scheme, host and port of a URL. URLs with the same origin may receive the same
    secrets.

    A WebSocket has the origin of the HTTP request that opens it. Raise ValueError if the port or
    the IPv6 address is malformed.
    """
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    scheme = HTTP_SCHEMES.get(parts.scheme, parts.scheme)
    return scheme, parts.hostname or "", parts.port or DEFAULT_PORTS.get(scheme, 0)


def origin(url: str) -> str:
    """Return the origin of a URL in its canonical spelling: no default port, IPv6 in brackets."""
    scheme, host, port = split_origin(url)
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}" + ("" if port == DEFAULT_PORTS.get(scheme, 0) else f":{port}")


# URLs


def is_confidential(url: str) -> bool:
    """Return whether data sent to a URL is safe from eavesdroppers, because it uses TLS or stays on
    this machine."""
    try:
        scheme, host, _ = split_origin(url)
    except ValueError:
        return False
    return scheme == "https" or (scheme == "http" and is_loopback(host))


def shown_url(url: str) -> str:
    """Return a URL without its user name, password and query, for use in messages. Many servers
    expect their key in the query."""
    return re.sub(r"//[^/@]*@", "//", url).partition("?")[0]


def why_not_openable(url: str) -> str | None:
    """Return the reason why a URL must not be opened in a browser, as a lower-case clause, or None
    if it may be opened.

    A rejected URL could mislead the user about its host, or do more than show a page.
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "it is not a URL"
    reasons = {
        "only http and https URLs can be opened": parts.scheme not in ("http", "https"),
        "it has no host": not host,
        "its port is not valid": port == 0,
        "it contains hidden characters or spaces": not url.isprintable() or " " in url,
        "it contains a backslash, which different programs interpret differently": "\\" in url,
        "its host is percent-encoded": "%" in host,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def open_in_browser(url: str) -> bool:
    """Open a URL in the user's browser, or return False if it must not or could not be opened.

    This function blocks for as long as the browser does, so call it in a thread.
    """
    if why_not_openable(url) is not None:
        return False
    import webbrowser

    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
