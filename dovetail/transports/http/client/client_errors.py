"""What it means for a client when a server refuses: by status, and by the error in the body where
there is one."""

import time
from collections.abc import Iterable

from ....errors import (
    ConnectFailed,
    DovetailError,
    HeaderMismatch,
    InternalError,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    Overloaded,
    UnsupportedVersion,
)
from ...send_with_auth import AUTH_STATUSES, explain_refusal
from .http_transport import HttpReply
from .peek import OutgoingMessage, PeekedError

MODERN = {
    one.code for one in (HeaderMismatch, MissingCapability, UnsupportedVersion, MethodNotFound)
}
"""Errors that a server of the stateless era has for a message that it understood."""
NO_VERDICT = {401, 403, 429, *range(500, 600)}
"""Statuses that say nothing about the era: nobody looked at the message."""
OTHER_ERA = {400, 404, 405, 406, 415}
"""Statuses by which a server that has not heard of discovery refuses it."""
PAIR = {400, 404, 405}
"""Statuses by which a server of the old pair refuses a POST."""
PASSING = {429, *range(500, 600)} - {501}
"""Statuses that another attempt may not meet."""
LATER = {429, 503}
"""Statuses that may say when to come back."""


def meaning(
    message: OutgoingMessage,
    reply: HttpReply,
    failure: PeekedError | None,
    opening: bool,
    given: Iterable[str],
) -> DovetailError:
    """What a refusal without a reply of its own means."""
    if reply.status in AUTH_STATUSES:
        return explain_refusal(
            reply.url, reply.head, given, failure.message if failure is not None else ""
        )
    text = f"{reply.url} {reply.said}"
    if failure is not None and failure.message:
        text += f": {failure.message}"
    wait = later(reply)
    busy = (
        Overloaded(text)
        if wait is None
        else Overloaded(f"{text}; not before {wait:.0f} s", data={"retryAfter": wait})
    )
    if reply.status == 429:
        return busy
    if opening and message.method == "server/discover" and reply.status in OTHER_ERA:
        return InvalidRequest(text)
    if opening:
        return ConnectFailed(text)
    if reply.status == 503:
        return busy
    return (InternalError if reply.status >= 500 else InvalidRequest)(f"{message.method}: {text}")


def later(reply: HttpReply) -> float | None:
    """Seconds after which the server wants to be asked again."""
    given = reply.headers.get("Retry-After", "").strip()
    if reply.status not in LATER or not given:
        return None
    if given.isdigit():
        return float(given)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    except ValueError:
        return None
