"""The URLs that OAuth may use, and the rules for deriving one from another.

Tokens, codes and issuer names are sent only over https or within this machine:
https://www.rfc-editor.org/rfc/rfc9700#section-2.6. A URL that two programs could parse differently
(with a user name, a backslash or a space) is refused.
"""

from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

from .. import net
from ..errors import DovetailError, Unauthorized
from ..net import HTTP_SCHEMES, is_loopback, is_private
from ..text import one_line

MAX_URL_LENGTH = 4096
RESOURCE_METADATA_PATH = "/.well-known/oauth-protected-resource"
SERVER_METADATA_PATH = "/.well-known/oauth-authorization-server"
OPENID_METADATA_PATH = "/.well-known/openid-configuration"


def is_local(url: str) -> bool:
    """Return whether the host of a URL is this machine or an address on a private network.

    Names are not resolved.
    """
    parts = _split(url)
    return is_private((parts and parts.hostname) or "")


def require_safe(url: str, what: str, error: type[DovetailError] = Unauthorized) -> str:
    """Return the URL if OAuth may use it. Otherwise, raise an error that refers to the URL as
    `what`."""
    parts = _split(url)
    if parts is None or parts.fragment or "#" in url:
        raise error(f"{what} is not a valid URL: {one_line(url)}")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise error(f"{what} must use https (or http on localhost): {one_line(url)}")
    return url


def is_confidential(url: str) -> bool:
    """Return whether a URL is well-formed and no one else can read data that is sent to it."""
    return _split(url) is not None and net.is_confidential(url)


def require_confidential(url: str) -> None:
    """Raise Unauthorized if others could read a secret sent to this URL:
    https://www.rfc-editor.org/rfc/rfc6750#section-5.3"""
    if not is_confidential(url):
        raise Unauthorized(
            f"{one_line(url)}: credentials are sent only over https or to localhost. "
            "Use an https URL."
        )


def to_http_scheme(url: str) -> str:
    """Return the URL of the HTTP request that opens a WebSocket. Other URLs are returned
    unchanged."""
    scheme, colon, rest = url.partition(":")
    return f"{HTTP_SCHEMES.get(scheme.lower(), scheme)}{colon}{rest}"


def origin(url: str) -> str:
    """Return the normalised origin of a URL, or an empty string if the URL is malformed."""
    return "" if _split(url) is None else net.origin(url)


def canonical_url(url: str) -> str:
    """Return the URL that identifies a server, without its query, its fragment, or a path that is
    only a slash."""
    parts = _split(url)
    return "" if parts is None else origin(url) + (parts.path if parts.path != "/" else "")


def login_key(url: str) -> str:
    """Return the key under which a login to the server at this URL is stored.

    Servers answer at both `/mcp` and `/mcp/`, so a trailing slash makes no difference.
    """
    return canonical_url(url).rstrip("/")


@lru_cache(256)
def audience_of(url: str) -> str:
    """Return a URL without a trailing slash, for comparison with the audience of a token.

    The result is empty if the URL is malformed or has a query or fragment.
    """
    return "" if {"?", "#"} & {*url} else login_key(url)


def covers_url(resource: str, url: str) -> bool:
    """Return whether this resource is or contains the server at this URL. RFC 9728 requires the two
    URLs to be identical if the path of the metadata URL contains the resource. Metadata at the root
    of an origin applies to every path on that origin:
    https://www.rfc-editor.org/rfc/rfc9728#section-3.3
    """
    named, requested = _split(resource), _split(url)
    if named is None or requested is None or named.fragment or origin(resource) != origin(url):
        return False
    if named.query and named.query != requested.query:
        return False
    prefix = named.path.rstrip("/")
    return requested.path.rstrip("/") == prefix or requested.path.startswith(f"{prefix}/")


def resource_metadata_urls(url: str) -> list[str]:
    """Return the possible metadata URLs of the server at this URL, in the order to try them:
    https://www.rfc-editor.org/rfc/rfc9728#section-3.1"""
    root = origin(url) + RESOURCE_METADATA_PATH
    return list(dict.fromkeys((root + urlsplit(url).path.rstrip("/"), root)))


def server_metadata_urls(issuer: str) -> list[str]:
    """Return the possible metadata URLs of this issuer, in the order to try them:
    https://www.rfc-editor.org/rfc/rfc8414#section-3.1 and 5"""
    base, path = origin(issuer), urlsplit(issuer).path.rstrip("/")
    inserted = [f"{base}{SERVER_METADATA_PATH}{path}", f"{base}{OPENID_METADATA_PATH}{path}"]
    return [*inserted, f"{base}{path}{OPENID_METADATA_PATH}"] if path else inserted


def _split(url: str) -> SplitResult | None:
    if (
        len(url) > MAX_URL_LENGTH
        or not url.isprintable()
        or not url.isascii()
        or any(char in url for char in ' \\"<>')
    ):
        return None
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:  # a malformed port or IPv6 address
        return None
    return parts if valid else None
