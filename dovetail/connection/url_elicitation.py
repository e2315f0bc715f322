"""Tickets for the pages that a server sends a user to, so that nobody else can be made to open
them.

Whoever is asked to visit a page can pass its URL on, and have somebody else sign in on their
behalf. So the URL carries a ticket: the id of the question and when it expires, sealed, and bound
to the server and to the user who was asked. Their name is not in it, as a client gets to see the
URL. The page knows its visitor by itself, from a cookie say, and has the ticket checked for them.
Only the ticket is protected; whatever else the URL says may have been changed on the way.
https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#phishing
"""

import logging
import time
from urllib.parse import parse_qs, urlsplit

import msgspec

from ..errors import UrlRefused
from ..sealing import KeyRing

log = logging.getLogger("dovetail.connection")

PURPOSE = "url"
PARAMETER = "ticket"


def bind_url(ring: KeyRing, url: str, server: str, user: str | None, id: str, life: float) -> str:
    """The URL with a ticket that is good for this user of this server, so many seconds."""
    data = msgspec.msgpack.encode((id, time.time() + life))
    ticket = ring.seal(PURPOSE, data, bound=_bound(server, user))
    parts = urlsplit(without_ticket(url))
    query = f"{parts.query}&{PARAMETER}={ticket}" if parts.query else f"{PARAMETER}={ticket}"
    return parts._replace(query=query).geturl()


def check_ticket(ring: KeyRing, given: str, server: str, user: str | None) -> str:
    """The id in a ticket, or in the ticket of a URL; UrlRefused where it is not good for this
    user."""
    try:
        ticket = parse_qs(urlsplit(given).query).get(PARAMETER, [""])[-1] if "?" in given else given
        id, expires = msgspec.msgpack.decode(
            ring.open(PURPOSE, ticket, bound=_bound(server, user)), type=tuple[str, float]
        )
    except (ValueError, msgspec.MsgspecError):
        raise _refused(
            "it was not made here, was changed, or is another user's or server's"
        ) from None
    if expires < time.time():
        raise _refused("it has expired")
    return id


def without_ticket(url: str) -> str:
    """The URL without its ticket: what stays the same however often it is made."""
    parts = urlsplit(url)
    given = parts.query.split("&")
    kept = [part for part in given if part.partition("=")[0] != PARAMETER]
    return url if kept == given else parts._replace(query="&".join(kept)).geturl()


def _bound(server: str, user: str | None) -> bytes:
    who = None if user is None else user.encode(errors="surrogatepass")
    return msgspec.msgpack.encode((server, who))


def _refused(reason: str) -> UrlRefused:
    """One error for whatever is wrong with a ticket; only the log knows which."""
    log.warning("The ticket of a page is refused: %s", reason)
    return UrlRefused("This link is not valid for you, or not any more; ask for a new one")
