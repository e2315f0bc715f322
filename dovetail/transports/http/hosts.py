"""Names of hosts and origins: as requests say them, as settings allow them, and which of them are
this machine."""

import re
from typing import Final, TypeAlias

from ...errors import ConfigError

Authority: TypeAlias = tuple[str, str]
"""A name in lower case and a port, which is empty where none is said."""
Origin: TypeAlias = tuple[str, str, str]
"""Scheme, name and port; an allowed origin may have `*` for its port."""

ANYWHERE: Final[Origin] = ("*", "*", "*")
PORTS: Final = {"http": "80", "https": "443"}
"""Those that go without saying."""
_HOST = re.compile(r"(\[[0-9a-f:.]+(?:%[\w.~-]+)?\]|[^\[\]:/@?#\\,\s]+)(?::([0-9]*))?")
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)
_ADDRESS = re.compile(r"\[.*\]|[0-9]{1,3}(?:\.[0-9]{1,3}){3}")


def authority(value: bytes) -> Authority | None:
    """What a Host header, or the same part of an Origin, says."""
    found = _HOST.fullmatch(value.decode("latin-1").lower())
    return None if found is None else (plain(found[1]), found[2] or "")


def origin(value: bytes) -> Origin | None:
    """What an Origin says; None for `null` and other strange things."""
    found = _ORIGIN.fullmatch(value.decode("latin-1").lower())
    host = None if found is None else authority(found[2].encode("latin-1"))
    if found is None or host is None:
        return None
    return found[1], host[0], host[1] or PORTS.get(found[1], "")


def plain(name: str) -> str:
    """A name as it is compared."""
    return name.lower().removesuffix(".")


def local(name: str) -> bool:
    """Whether it is a name of this machine, whatever a page says of it."""
    return name == "localhost" or name.endswith(".localhost")  # never asked of DNS: RFC 6761, 6.3


def address(name: str) -> bool:
    """Whether it is no name at all."""
    return _ADDRESS.fullmatch(name) is not None


def loopback(name: str) -> bool:
    """Whether it leads to this machine and no other."""
    return local(name) or name == "[::1]" or (name.startswith("127.") and address(name))


def allowed_host(entry: str) -> str:
    """An entry of `hosts=`."""
    found = _HOST.fullmatch(entry.lower())
    if found is None:
        raise ConfigError(
            f"hosts=[{entry!r}]: a host is a name such as 'mcp.example.com', '*.example.com' or '*'"
        )
    return plain(found[1])


def allowed_origin(entry: str) -> Origin:
    """An entry of `origins=`."""
    if entry == "*":
        return ANYWHERE
    any_port = entry.endswith(":*")
    found = origin(entry.removesuffix("/").removesuffix(":*").encode())
    if found is None:
        raise ConfigError(
            f"origins=[{entry!r}]: an origin is a URL without path such as "
            "'https://app.example.com', or '*'"
        )
    return (*found[:2], "*") if any_port else found
