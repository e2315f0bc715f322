"""Login with a password: hashed by scrypt, compared in constant time, tried only so often.

An unknown user costs as much time as a known one, so nobody learns from a clock who has an account
here. Tries that fail count against the user, the address, and most strictly against the user at
that address: one who is being guessed at from elsewhere can still get in from home, until fifty
tries were in vain; then the user has to wait too, half a minute for each. The counts run down by
themselves.

Hashing is made to be slow. It has threads of its own, and a short queue before them, so that
strangers who try passwords keep nothing else waiting.
"""

import asyncio
import os
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import scrypt
from hmac import compare_digest
from inspect import isawaitable
from typing import TypeAlias

from ...errors import ConfigError, Overloaded
from .web import AttemptLimiter

COST, BLOCK, PARALLEL = 2**14, 8, 5
"""16 MiB and five rounds:
https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html#scrypt."""
MAX_COST = 2**20 * 32
"""Cost, block and parallel of a stored hash, multiplied: more would keep us busy for minutes."""
THREADS, MAX_WAITING = 2, 32
"""Passwords that are checked at once, and those that may wait for it."""
MAX_PASSWORD_LENGTH = 1024
"""Characters of a password that are looked at."""

CheckPassword: TypeAlias = Callable[[str, str], bool | Awaitable[bool]]
"""Takes name and password, and says whether they belong together."""


def hash_password(password: str) -> str:
    """What `Provider(users={"ada": …})` keeps of a password:
    `scrypt$cost$block$parallel$salt$hash`."""
    salt = os.urandom(16)
    digest = _digest(password, salt, COST, BLOCK, PARALLEL)
    return (
        f"scrypt${COST}${BLOCK}${PARALLEL}${b64encode(salt).decode()}${b64encode(digest).decode()}"
    )


def check_password(password: str, hashed: str) -> bool:
    """Whether this is the password that was hashed."""
    cost, block, parallel, salt, digest = _parse(hashed)
    return compare_digest(_digest(password, salt, cost, block, parallel), digest)


class UserDirectory:
    """The people who may log in here."""

    __slots__ = (
        "_addresses",
        "_check",
        "_hashes",
        "_names",
        "_nobody",
        "_pairs",
        "_threads",
        "_under_way",
    )

    def __init__(self, users: Mapping[str, str] | CheckPassword, now: Callable[[], float]) -> None:
        self._hashes = None if callable(users) else users
        self._check: CheckPassword = users if callable(users) else self._known
        for name, hashed in (self._hashes or {}).items():
            try:
                _parse(hashed)
            except ValueError:
                raise ConfigError(
                    f"users[{name!r}] is no hash of a password: make one with hash_password(…)"
                ) from None
        cost = next(
            iter((self._hashes or {}).values()), f"scrypt${COST}${BLOCK}${PARALLEL}$$"
        ).rsplit("$", 2)[0]
        self._nobody = (
            f"{cost}${b64encode(os.urandom(16)).decode()}${'A' * 43}="  # as dear as somebody
        )
        self._pairs, self._addresses, self._names = (
            AttemptLimiter(5, 30.0, now),
            AttemptLimiter(20, 10.0, now),
            AttemptLimiter(50, 30.0, now),
        )
        self._threads, self._under_way = ThreadPoolExecutor(THREADS, "dovetail-password"), 0

    def knows(self, name: str) -> bool:
        """Whether this user may still use what was granted before."""
        return self._hashes is None or name in self._hashes

    async def check(self, name: str, password: str, address: str | None) -> float | None:
        """None where name and password belong together; else how many seconds to wait before the
        next try (0 for none)."""
        tries = (
            (self._pairs, f"{address} {name}"),
            (self._addresses, address),
            (self._names, name),
        )
        wait = max(rates.seconds_to_wait(who) for rates, who in tries)
        if wait > 0:
            return wait
        for (
            rates,
            who,
        ) in tries:  # before it is known to be wrong: many tries at once are many tries
            rates.record(who)
        verdict = self._check(name, password[:MAX_PASSWORD_LENGTH])
        if not (await verdict if isawaitable(verdict) else verdict):
            return max(rates.seconds_to_wait(who) for rates, who in tries)
        for rates, who in tries:
            rates.forget(who)
        return None

    async def _known(self, name: str, password: str) -> bool:
        if self._under_way >= THREADS + MAX_WAITING:
            raise Overloaded("too many passwords are tried at once")
        hashed = (self._hashes or {}).get(name)
        self._under_way += 1
        try:
            loop = asyncio.get_running_loop()
            fits = await loop.run_in_executor(
                self._threads, check_password, password, hashed or self._nobody
            )
        finally:
            self._under_way -= 1
        return fits and hashed is not None


def _digest(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    room = 132 * cost * block + 1024 * block * parallel + 4096
    return scrypt(password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=room, dklen=32)


def _parse(hashed: str) -> tuple[int, int, int, bytes, bytes]:
    kind, cost, block, parallel, salt, digest = hashed.split("$")
    numbers = int(cost), int(block), int(parallel)
    if kind != "scrypt" or min(numbers) < 1 or numbers[0] * numbers[1] * numbers[2] > MAX_COST:
        raise ValueError
    return *numbers, b64decode(salt, validate=True), b64decode(digest, validate=True)
