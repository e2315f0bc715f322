"""Login with a password: hashed with scrypt, compared in constant time, limited in attempts.

An unknown user costs as much time as a known one, so the time says nothing about who has an account
here. Failed attempts count against the user, the address, and most strictly against the user at
that address. A user whose password is being guessed from elsewhere can still log in from home,
until fifty attempts have failed; then they have to wait too, half a minute for each. The counts
decrease by themselves.

Hashing is slow on purpose. It has its own threads, with a short queue, so that strangers who try
passwords keep nothing else waiting.
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
"""Cost, block and parallel of a stored hash, multiplied. More would take minutes of CPU."""
THREADS, MAX_WAITING = 2, 32
"""Passwords that are checked at the same time, and those that may wait for it."""
MAX_PASSWORD_LENGTH = 1024
"""Further characters are ignored."""

CheckPassword: TypeAlias = Callable[[str, str], bool | Awaitable[bool]]
"""Takes a user name and a password, and returns whether they belong together."""


def hash_password(password: str) -> str:
    """Return the hash of a password, for `Provider(users={"ada": …})`.

    Args:
        password: The password. Only its first 1,024 characters count at a login.

    Returns:
        `scrypt$cost$block$parallel$salt$hash`. Each call uses another salt.
    """
    salt = os.urandom(16)
    digest = _digest(password, salt, COST, BLOCK, PARALLEL)
    return (
        f"scrypt${COST}${BLOCK}${PARALLEL}${b64encode(salt).decode()}${b64encode(digest).decode()}"
    )


def check_password(password: str, hashed: str) -> bool:
    """Tell whether a password has this hash."""
    cost, block, parallel, salt, digest = _parse(hashed)
    return compare_digest(_digest(password, salt, cost, block, parallel), digest)


class UserDirectory:
    """The users who may log in with a password."""

    def __init__(self, users: Mapping[str, str] | CheckPassword, now: Callable[[], float]) -> None:
        self._hashes = None if callable(users) else users
        self._check: CheckPassword = users if callable(users) else self._check_hash
        for name, hashed in (self._hashes or {}).items():
            try:
                _parse(hashed)
            except ValueError:
                raise ConfigError(
                    f"users[{name!r}] is not the hash of a password. Make one with "
                    "hash_password(…)."
                ) from None
        hashes = iter((self._hashes or {}).values())
        cost = next(hashes, f"scrypt${COST}${BLOCK}${PARALLEL}$$").rsplit("$", 2)[0]
        self._dummy_hash = f"{cost}${b64encode(os.urandom(16)).decode()}${'A' * 43}="
        """Checked for an unknown user, at the same cost as for a known one."""
        self._pairs = AttemptLimiter(5, 30.0, now)
        self._addresses = AttemptLimiter(20, 10.0, now)
        self._names = AttemptLimiter(50, 30.0, now)
        self._threads, self._pending = ThreadPoolExecutor(THREADS, "dovetail-password"), 0

    def knows(self, name: str) -> bool:
        """Tell whether a user may still use what was granted before."""
        return self._hashes is None or name in self._hashes

    async def check(self, name: str, password: str, address: str | None) -> float | None:
        """Check a password. Returns None if it is right, else the seconds to wait before the next
        attempt (0 for none)."""
        limits = (
            (self._pairs, f"{address} {name}"),
            (self._addresses, address),
            (self._names, name),
        )
        wait = max(limiter.seconds_to_wait(caller) for limiter, caller in limits)
        if wait > 0:
            return wait
        # Counted before the result is known: many attempts at once are many attempts.
        for limiter, caller in limits:
            limiter.record(caller)
        result = self._check(name, password[:MAX_PASSWORD_LENGTH])
        if not (await result if isawaitable(result) else result):
            return max(limiter.seconds_to_wait(caller) for limiter, caller in limits)
        for limiter, caller in limits:
            limiter.forget(caller)
        return None

    async def _check_hash(self, name: str, password: str) -> bool:
        if self._pending >= THREADS + MAX_WAITING:
            raise Overloaded("too many passwords are being checked at once")
        hashed = (self._hashes or {}).get(name)
        self._pending += 1
        try:
            loop = asyncio.get_running_loop()
            matches = await loop.run_in_executor(
                self._threads, check_password, password, hashed or self._dummy_hash
            )
        finally:
            self._pending -= 1
        return matches and hashed is not None


def _digest(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    memory = 132 * cost * block + 1024 * block * parallel + 4096
    return scrypt(
        password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=memory, dklen=32
    )


def _parse(hashed: str) -> tuple[int, int, int, bytes, bytes]:
    kind, cost, block, parallel, salt, digest = hashed.split("$")
    numbers = int(cost), int(block), int(parallel)
    if kind != "scrypt" or min(numbers) < 1 or numbers[0] * numbers[1] * numbers[2] > MAX_COST:
        raise ValueError
    return *numbers, b64decode(salt, validate=True), b64decode(digest, validate=True)
