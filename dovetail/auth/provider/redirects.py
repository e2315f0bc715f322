"""Where a client may have its user sent back to.

A URI is taken as text and never repaired: what a browser might read in another way than we do
(userinfo, backslashes, control characters, dot segments) is no redirect URI. Asked for and
registered one have to be the same, letter by letter; only the port of a loopback address may
differ, as a native program takes whichever is free:
https://www.rfc-editor.org/rfc/rfc8252#section-7.3.
"""

import re
from collections.abc import Collection
from urllib.parse import urlsplit

from ...net import LOOPBACK_SPELLINGS

LONGEST = 2000
SAFE = re.compile(r"[!$-;=?-\[\]_a-z~]+", re.ASCII)
"""Printable ASCII without quotes, backslash, `#` (no fragments), `<`, `>`, `^`, `{`, `|`, `}`."""
DOTS = re.compile(r"/(\.|%2e){1,2}(?=[/?]|$)", re.IGNORECASE)
HTTPS = re.compile(r"https://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?(?=[/?]|$)", re.IGNORECASE)
LOOPBACK = re.compile(rf"(http://(?:{LOOPBACK_SPELLINGS}))(?::[0-9]{{1,5}})?(?=([/?].*)?$)")


def acceptable(uri: str, schemes: Collection[str] = ()) -> bool:
    """Whether anybody may register this: https, http to the user's own machine, or one of these
    schemes."""
    if len(uri) > LONGEST or not SAFE.fullmatch(uri) or DOTS.search(uri) or not _is_sound(uri):
        return False
    scheme, colon, rest = uri.partition(":")
    return bool(
        HTTPS.match(uri)
        or LOOPBACK.match(uri)
        or (scheme in schemes and colon and rest.startswith("/"))
    )


def _is_sound(uri: str) -> bool:
    """Whether its address, if it is one of IPv6, and its port are some that exist."""
    try:
        return urlsplit(uri).port != 0
    except ValueError:
        return False


def matches(registered: str, asked: str) -> bool:
    """Whether the URI that is asked for is the one that was registered."""
    if registered == asked:
        return True
    ours, theirs = LOOPBACK.match(registered), LOOPBACK.match(asked)
    return (
        ours is not None
        and theirs is not None
        and acceptable(asked)
        and ours.groups() == theirs.groups()
    )


def is_loopback(uri: str) -> bool:
    """Whether it leads to a program on the user's own machine."""
    return LOOPBACK.match(uri) is not None


def is_web(uri: str) -> bool:
    """Whether it leads to a site that proves by its certificate who it is."""
    return HTTPS.match(uri) is not None


def host(uri: str) -> str:
    """What a user is told of it: the host, or the scheme of a native program."""
    scheme, _, rest = uri.partition(":")
    if scheme.lower() not in ("https", "http"):
        return f"{scheme}:"
    return re.split(r"[/?]", rest[2:], maxsplit=1)[0].lower()


def origin(uri: str) -> str:
    """The same as a source of a content security policy."""
    scheme, _, _ = uri.partition(":")
    named = scheme.lower() in ("https", "http") and "[" not in host(
        uri
    )  # policies have no word for IPv6
    return f"{scheme}://{host(uri)}" if named else f"{scheme}:"
