"""Which addresses OAuth may use here, and how one is made from another.

Whatever carries a token, a code or the name of who may issue one goes over https, or stays on this
machine: https://www.rfc-editor.org/rfc/rfc9700#section-2.6. An address that two readers could read
differently (a user name in it, a backslash, a space) is refused rather than understood.
"""

from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

from .. import net
from ..errors import Unauthorized
from ..net import HTTP_SCHEMES, is_loopback, is_private
from ..text import one_line

MAX_URL_LENGTH = 4096
RESOURCE_METADATA_PATH = "/.well-known/oauth-protected-resource"
SERVER_METADATA_PATH = "/.well-known/oauth-authorization-server"
OPENID_METADATA_PATH = "/.well-known/openid-configuration"


def is_local(url: str) -> bool:
    """Whether a URL names this machine, or an address that not all the world can reach. Where a
    name leads is not known."""
    parts = _split(url)
    return is_private((parts and parts.hostname) or "")


def require_safe(url: str, what: str) -> str:
    """The same URL, if it may be used; `what` names it in the refusal."""
    parts = _split(url)
    if parts is None or parts.fragment or "#" in url:
        raise Unauthorized(f"{what} is not a usable URL: {one_line(url)}")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise Unauthorized(
            f"{what} has to be https (or http on this machine), and is {one_line(url)}"
        )
    return url


def is_confidential(url: str) -> bool:
    """Whether what is sent there stays between here and there."""
    return _split(url) is not None and net.is_confidential(url)


def require_confidential(url: str) -> None:
    """Refuse to send a secret where others could read it:
    https://www.rfc-editor.org/rfc/rfc6750#section-5.3"""
    if not is_confidential(url):
        raise Unauthorized(
            f"{one_line(url)}: credentials are only sent over https, or to localhost. "
            "Use an https URL."
        )


def to_http_scheme(url: str) -> str:
    """The URL of a request of HTTP, also where a conversation over WebSocket begins with it."""
    scheme, colon, rest = url.partition(":")
    return f"{HTTP_SCHEMES.get(scheme.lower(), scheme)}{colon}{rest}"


def origin(url: str) -> str:
    """Scheme, host and port in their one spelling; empty for what has none."""
    return "" if _split(url) is None else net.origin(url)


def canonical_url(url: str) -> str:
    """The URL of a server as its name: no query, no fragment, no slash that stands alone."""
    parts = _split(url)
    return "" if parts is None else origin(url) + (parts.path if parts.path != "/" else "")


@lru_cache(256)
def audience_of(url: str) -> str:
    """The same as tokens name it, with or without a slash at its end; empty for what is no URL, or
    more than that."""
    return "" if {"?", "#"} & {*url} else canonical_url(url).rstrip("/")


def covers_url(resource: str, url: str) -> bool:
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


def resource_metadata_urls(url: str) -> list[str]:
    """Where the metadata of the server at this URL may be, in order:
    https://www.rfc-editor.org/rfc/rfc9728#section-3.1"""
    path = urlsplit(url).path.rstrip("/")
    return list(
        dict.fromkeys(
            (
                f"{origin(url)}{RESOURCE_METADATA_PATH}{path}",
                f"{origin(url)}{RESOURCE_METADATA_PATH}",
            )
        )
    )


def server_metadata_urls(issuer: str) -> list[str]:
    """Where the metadata of this issuer may be, in order:
    https://www.rfc-editor.org/rfc/rfc8414#section-3.1 and 5"""
    base, path = origin(issuer), urlsplit(issuer).path.rstrip("/")
    if not path:
        return [base + SERVER_METADATA_PATH, base + OPENID_METADATA_PATH]
    return [
        f"{base}{SERVER_METADATA_PATH}{path}",
        f"{base}{OPENID_METADATA_PATH}{path}",
        f"{base}{path}{OPENID_METADATA_PATH}",
    ]


def _split(url: str) -> SplitResult | None:
    if (
        len(url) > MAX_URL_LENGTH
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
