"""How often somebody may try to log in with a password.

Attempts are limited per user, per address, and most strictly per user and address. A user whose
password is being guessed from elsewhere can still log in from home until fifty attempts have
failed. After that, the user has to wait half a minute before each attempt. The counts decrease over
time. If the processes of a server share a backend, they count together (`Backend.login_attempts`).
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from .web import AttemptLimiter

Kind: TypeAlias = Literal["pair", "name", "address"]

LOGIN_LIMITS: Mapping[Kind, tuple[int, float]] = {
    "pair": (5, 30.0),
    "name": (50, 30.0),
    "address": (20, 10.0),
}
"""How many attempts are allowed at once, and how many seconds pass before each further one."""

Callers: TypeAlias = Mapping[Kind, str]
"""Whose attempts are counted, by the limits that apply to them."""


class LoginAttempts:
    """The attempts that this process has seen.

    Args:
        now: The clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._limiters = {
            kind: AttemptLimiter(burst, seconds, now)
            for kind, (burst, seconds) in LOGIN_LIMITS.items()
        }

    async def count(self, callers: Callers) -> float:
        """Count one attempt. If a limit is reached, count nothing, and return how long to wait, in
        seconds; otherwise, return 0."""
        wait = await self.seconds_to_wait(callers)
        if not wait:
            for kind, caller in callers.items():
                self._limiters[kind].record(caller)
        return wait

    async def seconds_to_wait(self, callers: Callers) -> float:
        """Return the time until the next attempt is allowed, or 0 if that is not known."""
        return max(self._limiters[kind].seconds_to_wait(caller) for kind, caller in callers.items())

    async def forgive(self, callers: Callers) -> None:
        """Forget the attempts of a user who has logged in. For the address, only the successful one
        is forgotten."""
        for kind, caller in callers.items():
            if kind == "address":
                self._limiters[kind].take_back(caller)
            else:
                self._limiters[kind].forget(caller)
