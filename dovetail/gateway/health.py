"""The state of an upstream server, and when it may be tried again.

    configured   nothing is known about the server yet
    known        its lists are known from an earlier run; it was not started in this one
    started      it is connected
    failed       it could not be started, the connection was lost, or it stopped answering
    refused      consent or the policy does not allow it to be started

A server that failed is started again after a pause, which doubles with each failure in a row and
includes jitter. After `TRIP_AFTER` failures in a row, the circuit breaker is open: the server gets
one call per pause, even if it is connected, because it may only work until it is called. This never
ends, so a server that comes back after days is found. The first call that the server answers
closes the breaker and resets the count. A new connection alone does not, because a server that
crashes at each call opens many.

The times are those of any clock that does not go backwards, in seconds.
"""

from typing import Final, Literal, TypeAlias

from ..aio import backoff

State: TypeAlias = Literal["configured", "known", "started", "failed", "refused"]
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 60.0
TRIP_AFTER: Final = 5
"""The number of failures in a row that opens the breaker."""


class Health:
    """The state of one upstream server.

    Attributes:
        state: The current state.
        error: Why the server failed or was refused, or None.
        failures: The number of failures since a request was last answered.
        next_attempt: When the server may be tried again, or None if it may be tried at any time.
    """

    __slots__ = ("_is_trying", "_last_failure", "error", "failures", "next_attempt", "state")

    def __init__(self) -> None:
        self.state: State = "configured"
        self.error: str | None = None
        self.failures = 0
        self.next_attempt: float | None = None
        self._is_trying, self._last_failure = False, float("-inf")

    def __repr__(self) -> str:
        return f"<Health {self.state}, {self.failures} failures>"

    @property
    def is_tripped(self) -> bool:
        """Whether the breaker is open, so that only one call per pause reaches the server."""
        return self.failures >= TRIP_AFTER

    @property
    def is_ready(self) -> bool:
        """Whether the server is connected, and any number of calls may go to it."""
        return self.state == "started" and self.next_attempt is None

    def wait(self, now: float) -> float:
        """Return the seconds until the server may be tried: 0 for now, infinity if it was
        refused."""
        if self.state == "refused":
            return float("inf")
        if self.next_attempt is None:
            return 0.0
        return max(0.0, self.next_attempt - now)

    def admit(self, now: float) -> bool:
        """Return whether a call may go to the server now. Every attempt to start or use the server
        begins here, and ends with `on_success` or `on_failure`.

        If the server failed or the breaker is open, one call is admitted, and the next one only
        after a pause, unless the first one succeeds before that.
        """
        if self.wait(now) > 0:
            return False
        if self.next_attempt is not None:
            self.next_attempt, self._is_trying = now + self._pause(), True
        return True

    def on_known(self) -> None:
        """The lists of the server were read from disk."""
        if self.state == "configured":
            self.state = "known"

    def on_started(self, now: float | None = None) -> None:
        """The server is connected. The count of failures stays until it answers a call.

        Args:
            now: The current time if `admit` allowed this attempt. Its pause is over, so that a call
                may follow at once (default: None, the connection was opened again by itself).
        """
        self.state, self.error = "started", None
        if not self.is_tripped:
            self.next_attempt = None
        elif now is not None:
            self.next_attempt = now

    def on_success(self) -> None:
        """The server answered a call."""
        if self.state == "refused":
            return  # a late answer to an earlier call
        self.state, self.error, self.failures, self.next_attempt = "started", None, 0, None

    def on_failure(self, error: str, now: float) -> None:
        """The server could not be started, or its connection was lost. All calls that fail with one
        connection count as one failure.

        Args:
            error: What happened.
            now: The current time.
        """
        if self.state == "refused":
            return
        if self.state != "failed" or self._is_trying:
            self.failures += 1
            self.next_attempt = now + self._pause()
        self.state, self.error, self._is_trying = "failed", error, False

    def on_call_failed(self, now: float) -> None:
        """A call failed, or a connection that only some callers use was lost. The server is still
        connected, but the failure counts for the breaker. Failures at nearly the same time count as
        one.

        Args:
            now: The current time.
        """
        if not self._is_trying and now < self._last_failure + FIRST_PAUSE_SECONDS:
            return
        self.failures += 1
        self._is_trying, self._last_failure = False, now
        if self.is_tripped and self.state != "refused":
            self.next_attempt = now + self._pause()

    def on_refused(self, reason: str) -> None:
        """Consent or the policy does not allow the server to be started.

        Args:
            reason: Why.
        """
        self.state, self.error, self.failures, self.next_attempt = "refused", reason, 0, None

    def reset(self) -> None:
        """Forget all failures and refusals, for example because a person restarts the server."""
        self.state, self.error, self.failures, self.next_attempt = "configured", None, 0, None

    def _pause(self) -> float:
        return backoff(max(0, self.failures - 1), FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
