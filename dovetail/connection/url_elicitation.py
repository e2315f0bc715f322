"""Tickets in elicitation URLs, which ensure that only the user who was asked can use a URL.

A user who is asked to visit a page could pass its URL on, and have somebody else sign in on their
behalf. So the URL carries a ticket, which contains the elicitation's id and expiry. The ticket is
sealed and bound to the server and to the user who was asked, but does not contain the user's name,
because the client sees the URL. The page identifies its visitor itself, for example by a cookie,
and checks that the ticket is valid for that user. Only the ticket is protected; the rest of the URL
may have been modified in transit.
https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#phishing
"""

import time

import msgspec

from ..errors import UrlRefused
from ..logs import get_logger
from ..sealing import KeyRing

log = get_logger("connection")

PURPOSE = "url"
PARAMETER = "ticket"


def bind_url(ring: KeyRing, url: str, server: str, user: str | None, id: str, life: float) -> str:
    """Return the URL with a ticket that is valid for this user on this server for `life`
    seconds."""
    from urllib.parse import urlsplit

    data = msgspec.msgpack.encode((id, time.time() + life))
    ticket = ring.seal(PURPOSE, data, bound=_bound(server, user))
    parts = urlsplit(without_ticket(url))
    query = f"{parts.query}&{PARAMETER}={ticket}" if parts.query else f"{PARAMETER}={ticket}"
    return parts._replace(query=query).geturl()


def check_ticket(ring: KeyRing, given: str, server: str, user: str | None) -> str:
    """Return the id in a ticket, or in a URL's ticket. Raise UrlRefused if the ticket is not valid
    for this user."""
    from urllib.parse import parse_qs, urlsplit

    try:
        ticket = parse_qs(urlsplit(given).query).get(PARAMETER, [""])[-1] if "?" in given else given
        id, expires = msgspec.msgpack.decode(
            ring.open(PURPOSE, ticket, bound=_bound(server, user)), type=tuple[str, float]
        )
    except (ValueError, msgspec.MsgspecError):
        raise _refused(
            "it was not created by this server, has been modified, or belongs to another user"
        ) from None
    if expires < time.time():
        raise _refused("it has expired")
    return id


def without_ticket(url: str) -> str:
    """Return the URL without its ticket, because the ticket is different each time."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    given = parts.query.split("&")
    kept = [part for part in given if part.partition("=")[0] != PARAMETER]
    return url if kept == given else parts._replace(query="&".join(kept)).geturl()


def _bound(server: str, user: str | None) -> bytes:
    who = None if user is None else user.encode(errors="surrogatepass")
    return msgspec.msgpack.encode((server, who))


def _refused(reason: str) -> UrlRefused:
    """Return the error for an invalid ticket. Only the log contains the reason."""
    log.warning("The ticket in a URL elicitation link was rejected: %s", reason)
    return UrlRefused("This link is not valid for you or has expired; ask for a new one")
