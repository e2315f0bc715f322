"""Which addresses OAuth may use here, and how one is made from another.

Whatever carries a token, a code or the name of who may issue one goes over https, or stays on this
machine: https://www.rfc-editor.org/rfc/rfc9700#section-2.6. An address that two readers could read
differently (a user name in it, a backslash, a space) is refused rather than understood.
"""

import re
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from ..errors import Unauthorized
from .documents import plain

LONGEST = 4096
RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"

_LOOPBACK = re.compile(r"localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1")
_NUMBER = re.compile(r"(^|\.)(\d+|0x[0-9a-f]*)$")
"""The end of an address that is odd, and that browsers understand: 127.1, 0x7f.0.0.1,
2130706433."""
_PORTS = {"http": 80, "https": 443}
_HTTP_OF = {"ws": "http", "wss": "https"}
"""A conversation over WebSocket begins as a request of HTTP."""


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine by its very name."""
    return _LOOPBACK.fullmatch((host or "").lower()) is not None


def is_local(url: str) -> bool:
    """Whether a URL names this machine, or an address that not all the world can reach. Where a
    name leads is not known."""
    parts = _split(url)
    host = ((parts and parts.hostname) or "").rstrip(".").partition("%")[0]
    if is_loopback(host) or host.endswith(".localhost"):
        return True
    try:
        found = ip_address(host)
    except ValueError:
        return _NUMBER.search(host) is not None
    return not (getattr(found, "ipv4_mapped", None) or found).is_global


def safe(url: str, what: str) -> str:
    """The same URL, if it may be used; `what` names it in the refusal."""
    parts = _split(url)
    if parts is None or parts.fragment or "#" in url:
        raise Unauthorized(f"{what} is not a usable URL: {plain(url)}")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise Unauthorized(f"{what} has to be https (or http on this machine), and is {plain(url)}")
    return url


def confidential(url: str) -> bool:
    """Whether what is sent there stays between here and there."""
    parts = _split(url)
    return parts is not None and (
        _scheme(parts) == "https" or (_scheme(parts) == "http" and is_loopback(parts.hostname))
    )


def require_confidential(url: str) -> None:
    """Refuse to send a secret where others could read it:
    https://www.rfc-editor.org/rfc/rfc6750#section-5.3"""
    if not confidential(url):
        raise Unauthorized(
            f"{plain(url)}: credentials are sent over https only, or to this machine; use an "
            "https URL"
        )


def http_form(url: str) -> str:
    """The URL of a request of HTTP, also where a conversation over WebSocket begins with it."""
    scheme, colon, rest = url.partition(":")
    return f"{_HTTP_OF.get(scheme.lower(), scheme)}{colon}{rest}"


def origin(url: str) -> str:
    """Scheme, host and port in their one spelling; empty for what has none."""
    parts = _split(url)
    if parts is None:
        return ""
    scheme = _scheme(parts)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{scheme}://{host}" + (
        "" if parts.port in (None, _PORTS.get(scheme)) else f":{parts.port}"
    )


def canonical(url: str) -> str:
    """The URL of a server as its name: no query, no fragment, no slash that stands alone."""
    parts = _split(url)
    return "" if parts is None else origin(url) + (parts.path if parts.path != "/" else "")


@lru_cache(256)
def place(url: str) -> str:
    """The same as tokens name it, with or without a slash at its end; empty for what is no URL, or
    more than that."""
    return "" if {"?", "#"} & {*url} else canonical(url).rstrip("/")


def covers(resource: str, url: str) -> bool:
    """Whether a resource of this name is what is at this URL, or contains it.

    RFC 9728 wants the two identical where the name is in the path of the metadata; metadata at the
    root of an origin speaks for all that is below:
    https://www.rfc-editor.org/rfc/rfc9728#section-3.3
    """
    named, asked = _split(resource), _split(url)
    if named is None or asked is None or named.fragment or origin(resource) != origin(url):
        return False
    if named.query and named.query != asked.query:
        return False
    below = named.path.rstrip("/")
    return asked.path.rstrip("/") == below or asked.path.startswith(f"{below}/")


def resource_wells(url: str) -> list[str]:
    """Where the metadata of the server at this URL may be, in order:
    https://www.rfc-editor.org/rfc/rfc9728#section-3.1"""
    path = urlsplit(url).path.rstrip("/")
    return list(dict.fromkeys((f"{origin(url)}{RESOURCE}{path}", f"{origin(url)}{RESOURCE}")))


def server_wells(issuer: str) -> list[str]:
    """Where the metadata of this issuer may be, in order:
    https://www.rfc-editor.org/rfc/rfc8414#section-3.1 and 5"""
    base, path = origin(issuer), urlsplit(issuer).path.rstrip("/")
    if not path:
        return [base + SERVER, base + OPENID]
    return [f"{base}{SERVER}{path}", f"{base}{OPENID}{path}", f"{base}{path}{OPENID}"]


def _scheme(parts: SplitResult) -> str:
    return _HTTP_OF.get(parts.scheme, parts.scheme)


def _split(url: str) -> SplitResult | None:
    if (
        len(url) > LONGEST
        or not url.isprintable()
        or not url.isascii()
        or any(letter in url for letter in ' \\"<>')
    ):
        return None
    try:
        parts = urlsplit(url)
        sound = bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:  # a port or a bracket that is none
        return None
    return parts if sound else None
