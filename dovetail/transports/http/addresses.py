"""Which addresses of the network may be asked on behalf of somebody else.

A server that asks for a login names the pages where to find out how. It must not be able to point
at what only this machine can reach: a service on loopback, the router, the metadata of a cloud. So
each address is looked at when it is connected to, not the name before: a name may lead somewhere
else a moment later. `Peers` notes where a server itself has been found; one that lives on the local
network may point to others that do.
"""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, TypeAlias

AddressInfo: TypeAlias = tuple[Any, ...]
"""Family, type, protocol, canonical name and socket address, as `getaddrinfo` gives them."""

NEVER = [
    ip_network(text)
    for text in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::/32",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
    )
]
"""Link-local, which is where clouds keep the metadata of their machines, and where they keep it
instead. Never asked."""
TRANSLATED = ip_network("64:ff9b::/96")
"""An IPv4 address as networks without it write it (RFC 6052)."""


def never(host: str) -> bool:
    """Whether this address is not asked, whoever allows it."""
    found = _address(host)
    return found is not None and any(one.version == found.version and found in one for one in NEVER)


def local(host: str) -> bool:
    """Whether this is an address that not all the world can reach, or this machine by its name."""
    found = _address(host)
    if found is None:
        return host.rstrip(".").lower() == "localhost" or host.rstrip(".").lower().endswith(
            ".localhost"
        )
    return not found.is_global or found.is_multicast or never(host)


def loopback(host: str) -> bool:
    """Whether this is this machine and nobody else."""
    found = _address(host)
    return local(host) if found is None else found.is_loopback


class Peers:
    """Where one server has been found: an address for each connection that was tried."""

    __slots__ = ("_all_local", "host")

    def __init__(self, host: str) -> None:
        self.host = host
        self._all_local: bool | None = None

    @property
    def local(self) -> bool | None:
        """Whether it was on the local network every time; None where that is not known yet."""
        return True if local(self.host) else self._all_local

    def socket(self, info: AddressInfo) -> socket.socket:
        """A socket for one address, which is noted."""
        self.note(info[4][0])
        return socket.socket(*info[:3])

    def note(self, address: str) -> None:
        """It was found there."""
        self._all_local = self._all_local is not False and local(address)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """The address; the IPv4 address that an IPv6 one stands for. None where this is a name."""
    try:
        found = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, IPv6Address):
        within = found.ipv4_mapped or found.sixtofour
        return within or (IPv4Address(int(found) & 0xFFFFFFFF) if found in TRANSLATED else found)
    return found
