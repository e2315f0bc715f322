"""The attempts to log in that all processes of an authorization server count together. Otherwise,
somebody who guesses passwords would have as many attempts at each process."""

import asyncio
from contextlib import suppress

from ..auth.provider.attempts import LOGIN_LIMITS, Callers, Kind, LoginAttempts
from ..errors import BackendAway
from ..sealing import KeyRing
from .protocols import Bucket, Counters


class SharedLoginAttempts(LoginAttempts):
    """Attempts in a backend. If it is away, `count` raises `BackendAway`: nobody can log in, and
    nobody can guess.

    Args:
        counters: The buckets of the backend.
        ring: The keys. Buckets are named by digests, because names and addresses are private.
    """

    def __init__(self, counters: Counters, ring: KeyRing) -> None:
        self._counters, self._ring = counters, ring

    async def count(self, callers: Callers) -> float:
        admitted = await self._counters.take([self._bucket(*one) for one in callers.items()])
        return 0.0 if admitted.granted else max(admitted.wait, 0.001)

    async def seconds_to_wait(self, callers: Callers) -> float:
        return 0.0  # `count` refuses the next attempt if it is too early

    async def forgive(self, callers: Callers) -> None:
        with suppress(BackendAway):  # then the attempts count until the buckets are full again
            await asyncio.gather(
                *(
                    self._counters.take(
                        [self._bucket(kind, caller)],
                        -1 if kind == "address" else -LOGIN_LIMITS[kind][0],
                    )
                    for kind, caller in callers.items()
                )
            )

    def _bucket(self, kind: Kind, caller: str) -> Bucket:
        burst, seconds = LOGIN_LIMITS[kind]
        name = self._ring.digest(f"login {kind}", caller.encode("utf-8", "surrogatepass"))
        return Bucket(f"login-{kind}:{name}", seconds, burst * seconds)
