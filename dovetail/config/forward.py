"""The headers of a caller that a gateway may pass on to a server.

A gateway passes on no header unless the server's entry names it in `forward`. Some headers are
refused even then: credentials, because they were issued for the gateway, and headers that describe
one hop or one message. There is no setting that passes on a caller's credentials.
"""

import re
from collections.abc import Collection, Iterable
from typing import Final

from ..errors import ConfigError
from ..text import quote

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_REFUSED: Final = {
    "it carries the caller's credentials": (
        "authorization", "cookie", "set-cookie", "dpop", "proxy-*", "x-api-key", "api-key",
        "x-auth-token", "x-access-token", "x-goog-api-key",
    ),
    "it describes the caller's own connection": (
        "forwarded", "x-forwarded-*", "x-real-ip", "connection", "keep-alive", "te", "trailer",
        "transfer-encoding", "upgrade", "host", "expect",
    ),
    "it describes the message, which the gateway writes itself": (
        "accept", "accept-encoding", "content-*", "last-event-id",
    ),
    "it belongs to the protocol": ("mcp-*",),
}  # fmt: skip
"""The headers that are never passed on, by reason. `*` stands for any end."""


def check_forward(
    names: Iterable[str], headers: Collection[str] = (), secrets: Collection[str] = ()
) -> None:
    """Raise ConfigError if an entry's `forward` names a header that must not be passed on.

    Args:
        names: The names in `forward`.
        headers: The headers that the entry sets itself.
        secrets: The headers in which the gateway's own guard expects credentials.
    """
    own, secret = {name.lower() for name in headers}, {name.lower() for name in secrets}
    for name in names:
        reason = _why_refused(name.lower(), own, secret)
        if reason is not None:
            raise ConfigError(f'"forward" must not contain {quote(name)}: {reason}')


def _why_refused(name: str, own: Collection[str], secret: Collection[str]) -> str | None:
    if _TOKEN.fullmatch(name) is None or "*" in name:
        return "it is not the name of a header"
    if name in own:
        return 'the entry sets it in "headers"'
    if name in secret:
        return "it carries the caller's credentials"
    for reason, patterns in _REFUSED.items():
        for pattern in patterns:
            if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
                return reason
    return None


def is_safe_value(value: str) -> bool:
    """Return whether the value of a header can be passed on: a client sends no control characters,
    some of which would end the header early."""
    return _CONTROL.search(value) is None
