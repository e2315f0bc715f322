"""Which error a client raises when a server refuses a message: by the HTTP status, and by the
JSON-RPC error in the body if there is one."""

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

STATELESS_ERROR_CODES = {
    error.code for error in (HeaderMismatch, MissingCapability, UnsupportedVersion, MethodNotFound)
}
"""Errors of servers of the stateless era for messages that they understood."""
UNEXAMINED_STATUSES = {401, 403, 429, *range(500, 600)}
"""Statuses that say nothing about the era, since nobody has examined the message."""
UNKNOWN_DISCOVER_STATUSES = {400, 404, 405, 406, 415}
"""How servers refuse `server/discover` if they do not know it."""
SSE_SERVER_STATUSES = {400, 404, 405}
"""How an HTTP+SSE server refuses a POST."""
TRANSIENT_STATUSES = {429, *range(500, 600)} - {501}
"""Statuses after which another attempt may succeed."""
RETRY_AFTER_STATUSES = {429, 503}


def error_for_status(
    message: OutgoingMessage,
    reply: HttpReply,
    error: PeekedError | None,
    opening: bool,
    given: Iterable[str],
) -> DovetailError:
    """Return the error for a refusal whose body is not the response to the message."""
    if reply.status in AUTH_STATUSES:
        return explain_refusal(
            reply.url, reply.head, given, error.message if error is not None else ""
        )
    text = f"{reply.url} {reply.status_text}"
    if error is not None and error.message:
        text += f": {error.message}"
    wait = retry_after(reply)
    busy = (
        Overloaded(text)
        if wait is None
        else Overloaded(f"{text}. Retry after {wait:.0f} s.", data={"retryAfter": wait})
    )
    if reply.status == 429:
        return busy
    if (
        opening
        and message.method == "server/discover"
        and reply.status in UNKNOWN_DISCOVER_STATUSES
    ):
        return InvalidRequest(text)
    if opening:
        return ConnectFailed(text)
    if reply.status == 503:
        return busy
    return (InternalError if reply.status >= 500 else InvalidRequest)(f"{message.method}: {text}")


def retry_after(reply: HttpReply) -> float | None:
    """Return the seconds after which the server accepts another attempt, if it says so."""
    value = reply.headers.get("Retry-After", "").strip()
    if reply.status not in RETRY_AFTER_STATUSES or not value:
        return None
    if value.isdigit():
        return float(value)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
