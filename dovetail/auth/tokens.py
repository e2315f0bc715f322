"""What is made of an access token, whoever looks at it: a `Principal`, or a refusal.

A verifier is any `async (token, site) -> Principal | None`. It may say more by attributes:
`issuer`, whose tokens it knows (the others are then not shown to it), and `keeps`, for how many
seconds its word holds (without, it is asked each time). A token is never compared or kept as it is,
only as a digest under a key that this process made up: neither time nor memory tells anything of
it.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, TypeAlias

import msgspec

from ..errors import ConfigError
from ..ports import Principal, Site
from .documents import listed

Verifier: TypeAlias = Callable[[str, Site], Awaitable[Principal | None]]
FOREVER = 1e15
"""A time that is later than any. What a token says may have a thousand digits, which no float has
room for."""
_KEY = token_bytes(32)


class TokenRefused(Exception):
    """Why a token is not taken, in words that its bearer may hear."""


def digest(token: str) -> bytes:
    """What a token is known by in this process."""
    return blake2b(token.encode("utf-8", "surrogatepass"), digest_size=16, key=_KEY).digest()


class Kept:
    """What tokens came to, for as long as that holds; those not used for longest go first.

    When a token expires is a matter of the calendar. How long a word holds is not: a clock that is
    put back must not keep alive what was revoked.
    """

    __slots__ = ("_most", "_rows")

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: OrderedDict[Any, tuple[Any, float, float]] = OrderedDict()

    def get(self, key: Any) -> Any:
        """What is kept of a token; None for nothing, or nothing that still holds."""
        row = self._rows.get(key)
        if row is None:
            return None
        if row[1] <= time.time() or row[2] <= time.monotonic():
            self._rows.pop(key, None)
            return None
        try:
            self._rows.move_to_end(key)
        except KeyError:
            pass  # another thread, with a loop of its own, has just made room
        return row[0]

    def put(self, key: Any, value: Any, until: float, seconds: float) -> None:
        """Keep this until then, and for so many seconds at most."""
        self._rows[key] = value, until, time.monotonic() + seconds
        if len(self._rows) > self._most:
            self._rows.popitem(last=False)


def principal(given: Any, where: str) -> Principal:
    """A principal as a user writes one down: a Principal, its fields, or just its name."""
    if isinstance(given, Mapping) and isinstance(given.get("scopes"), str):
        given = {**given, "scopes": listed(given["scopes"])}
    try:
        return Principal(given) if isinstance(given, str) else msgspec.convert(given, Principal)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: give a Principal, its fields or a name: {error}") from None


def directory(given: Mapping[str, Any], where: str) -> dict[bytes, Principal]:
    """Who is known by which secret."""
    if (
        not isinstance(given, Mapping)
        or not given
        or not all(isinstance(secret, str) and secret for secret in given)
    ):
        raise ConfigError(
            f"{where}: give a table of tokens and who they stand for; no token may be empty"
        )
    return {
        digest(secret): principal(who, f"{where}, entry {place}")
        for place, (secret, who) in enumerate(given.items(), 1)
    }


def static_tokens(tokens: Mapping[str, Principal | Mapping[str, Any] | str]) -> Verifier:
    """Tokens that are known beforehand, and who they stand for: for tests, and for the scripts of a
    trusted few."""
    known = directory(tokens, "static_tokens")

    async def verify(token: str, site: Site) -> Principal | None:
        return known.get(digest(token))

    return verify


def scopes_of(given: Any) -> tuple[str, ...]:
    """The scopes that a claim lists: separated by spaces (RFC 9068, 2.2.3), or one by one."""
    listed = (
        given.split(" ") if isinstance(given, str) else given if isinstance(given, list) else ()
    )
    return tuple(dict.fromkeys(scope for scope in listed if isinstance(scope, str) and scope))
