"""Rate limits: token buckets for each caller and each kind of request.

    server = Server("shop", rates=Rates(calls=Rate(20), tools={"refund": Rate(5, per=60)}))

An authenticated caller has its own buckets. All other callers share the buckets of their address
(for IPv6, of their /64 network, because one machine may use any address in it). A request counts
when it arrives. A refused request is answered with the time to wait, before any handler runs. If a
call asks questions and the client sends the call again with the answers, the repeated call does not
count.

A bucket is one number: the time at which it is full again. Each request moves that time forward by
the time it takes to add one token. A request is refused if it would move that time more than one
full bucket ahead (the "generic cell rate algorithm"). So there is no timer, and a check is an
addition and a comparison. The table of callers is bounded; the caller that has been idle longest is
removed first.

With a shared backend, the processes of a server count together (`shared_rates.py`).
"""

from _thread import allocate_lock
from collections.abc import Awaitable, Callable, Mapping
from math import ceil, inf
from time import monotonic
from typing import Any, TypeAlias

from msgspec import Struct

from ..aio import LruDict
from ..errors import ConfigError, Overloaded
from ..ports import Call, Caller, PendingAdmission
from ..protocol.methods import Method

MAX_PAID_ROUNDS = 10_000
"""The maximum number of calls waiting for answers that are remembered. If a call has been
forgotten, its next request counts."""
SLACK_SECONDS = 1e-6
"""How early a request may be, to allow for rounding errors when many small times are added."""


class Rate(Struct, frozen=True):
    """A number of requests per period.

    Args:
        count: The number of requests.
        per: The length of the period in seconds (default: 1).
        burst: How many requests may arrive at once (default: `count`).

    Raises:
        ConfigError: A value is out of range.
    """

    count: float
    per: float = 1.0
    burst: float | None = None

    def __post_init__(self) -> None:
        if not (0 < self.count < inf and 0 < self.per < inf and 1 <= self.at_once < inf):
            raise ConfigError(
                f"{self!r}: count and per must be greater than 0, and burst must be at least 1"
            )

    @property
    def at_once(self) -> float:
        """How many requests may arrive at once."""
        return max(1.0, self.count) if self.burst is None else self.burst

    def __str__(self) -> str:
        return (
            f"{self.count:g} per second" if self.per == 1 else f"{self.count:g} per {self.per:g} s"
        )


class Rates(Struct, frozen=True, kw_only=True):
    """How many requests of each kind a caller may make. None means no limit. The defaults are high
    enough that ordinary clients do not reach them."""

    calls: Rate | None = Rate(200, burst=1000)
    """Calls to all tools together."""
    tools: Mapping[str, Rate | None] = {}
    """Calls to individual tools, by name. These calls also count towards `calls`."""
    completions: Rate | None = Rate(200, burst=1000)
    """Completions of arguments."""
    tasks: Rate | None = Rate(200, burst=1000)
    """Requests about tasks."""
    openings: Rate | None = Rate(20, burst=200)
    """The first request of a client: `initialize` or `server/discover`."""
    others: Rate | None = Rate(200, burst=1000)
    """All other requests."""
    logs: Rate | None = Rate(200, burst=1000)
    """Log messages to the client. Messages above the limit are dropped, and their number is logged
    later."""
    callers: int = 10_000
    """The maximum number of callers that are remembered."""
    local: bool = True
    """Whether the limits also apply on this machine: to stdio, to in-memory connections, and to
    unauthenticated callers from a loopback address. All local callers count as one caller."""

    def __post_init__(self) -> None:
        for name, rate in [*((name, getattr(self, name)) for name in WHAT), *self.tools.items()]:
            if not isinstance(rate, Rate | None):
                raise ConfigError(
                    f"Rates: {name} must be a Rate such as Rate(10) or Rate(10, per=60), "
                    f"not {rate!r}"
                )
        if self.callers < 1:
            raise ConfigError("Rates(callers=…) must be at least 1")


WHAT = {
    "calls": "tool calls",
    "completions": "completions",
    "tasks": "requests about tasks",
    "openings": "connection attempts",
    "others": "requests",
    "logs": "log messages",
}
"""The kinds of requests that are counted, and their names in errors."""
KINDS = {
    "tools/call": "calls",
    "completion/complete": "completions",
    "initialize": "openings",
    "server/discover": "openings",
}
"""The kind of each method. Task methods are recognised by their prefix; all remaining methods are
`others`."""
NETWORK = Rates(local=False)
"""A server's default limits, for callers from the network."""
CallerKey: TypeAlias = str | tuple[str, str]
"""What identifies a caller: its network, or `("principal", id)`. All local callers are `""`."""


class RateRule(Struct, frozen=True, eq=False):
    """A rate, in the form that the check uses."""

    name: str
    what: str
    rate: Rate
    token_seconds: float
    """How long it takes to add one token."""
    bucket_seconds: float
    """How long it takes to fill an empty bucket."""

    def refuse(self, wait: float) -> Overloaded:
        """Return the error for a request that has to wait for some seconds."""
        seconds = ceil(wait * 1000) / 1000
        text = f"Too many {self.what}: the limit is {self.rate}. Try again in {seconds:g} s"
        return Overloaded(text, data={"retryAfter": seconds})


Rules: TypeAlias = tuple[RateRule, ...]


def _rules(name: str, what: str, rate: Rate | None) -> Rules:
    if rate is None:
        return ()
    token = rate.per / rate.count
    return (RateRule(name, what, rate, token, token * rate.at_once),)


class _Buckets(Struct, eq=False):
    """The state of one caller: when each of its buckets is full again, and how many log messages
    were dropped."""

    full_at: dict[str, float] = {}
    dropped_logs: int = 0


class RateLimiter:
    """A server's buckets, for all its event loops and threads.

    Args:
        rates: The limits.
        clock: A clock, in seconds.
    """

    def __init__(self, rates: Rates, clock: Callable[[], float] = monotonic) -> None:
        self.rates = rates
        self._local, self._clock = rates.local, clock
        self._rules = {
            name: _rules(name, what, getattr(rates, name)) for name, what in WHAT.items()
        }
        self._tools = {
            name: self._rules["calls"] + _rules(f"tool {name}", f"calls to the tool {name!r}", rate)
            for name, rate in rates.tools.items()
        }
        self._buckets: LruDict[CallerKey, _Buckets] = LruDict(rates.callers)
        self._paid_rounds: LruDict[bytes, bool] = LruDict(MAX_PAID_ROUNDS)
        """The calls that asked questions, by a digest of their caller and state. Each entry exempts
        one request from the limit."""
        self._lock = allocate_lock()

    def admit(self, method: Method, params: Any, caller: Caller) -> PendingAdmission | None:
        """Count a request; raise Overloaded, with the time to wait, if it exceeds the limit."""
        key = self._key(caller)
        if key is None:
            return None
        if method.asks and getattr(params, "request_state", None) is not None:
            with self._lock:
                if self._paid_rounds.pop(round_digest(key, params.request_state)):
                    return None
        self._count(key, self._rules_for(method, params))
        return None

    def _rules_for(self, method: Method, params: Any) -> Rules:
        name = method.name
        rules = self._rules[KINDS.get(name) or ("tasks" if name.startswith("tasks/") else "others")]
        if self._tools and name == "tools/call":
            rules = self._tools.get(params.name, rules)
        return rules

    def _count(self, key: CallerKey, rules: Rules) -> None:
        """Take a token from each bucket, or raise Overloaded."""
        now = self._clock()
        with self._lock:
            exceeded = _take_tokens(self._buckets_of(key), rules, now)
        if exceeded is not None:
            rule, wait = exceeded
            raise rule.refuse(wait)

    def expect_round(self, call: Call, state: str) -> Awaitable[None] | None:
        """Admit the request that answers a call's questions, but only once. The call itself has
        already been counted."""
        if (key := self._key(call)) is not None:
            self._expect_here(round_digest(key, state))
        return None

    def _expect_here(self, digest: bytes) -> None:
        with self._lock:
            self._paid_rounds[digest] = True

    def log(self, call: Call) -> int | None:
        """Count a log message. Return how many messages were dropped since the last message that
        was sent, or None if this message must be dropped."""
        key, rules = self._key(call), self._rules["logs"]
        if key is None or not rules:
            return 0
        now = self._clock()
        with self._lock:
            buckets = self._buckets_of(key)
            if _take_tokens(buckets, rules, now) is not None:
                buckets.dropped_logs += 1
                return None
            dropped, buckets.dropped_logs = buckets.dropped_logs, 0
        return dropped

    def _key(self, caller: Caller | Call) -> CallerKey | None:
        """Return the key of a caller's buckets; None if the caller has no limits."""
        if caller.principal is not None:
            return "principal", caller.principal.id  # not equal to any address
        if caller.address is not None:
            from ..net import network_of

            if place := network_of(caller.address):
                return place
        return "" if self._local else None

    def _buckets_of(self, key: CallerKey) -> _Buckets:
        buckets = self._buckets.get(key)
        if buckets is None:
            buckets = self._buckets[key] = _Buckets()
        return buckets


def round_digest(key: CallerKey, state: str) -> bytes:
    from hashlib import blake2b

    return blake2b(f"{key!r} {state}".encode(), digest_size=16).digest()


def _take_tokens(buckets: _Buckets, rules: Rules, now: float) -> tuple[RateRule, float] | None:
    """Take a token from the bucket of each rule. If a bucket is empty, take no tokens, and return
    its rule and the time until it has a token, in seconds."""
    full_at, after = buckets.full_at, {}
    for rule in rules:
        at = full_at.get(rule.name, now)
        after[rule.name] = later = (at if at > now else now) + rule.token_seconds
        if later - now > rule.bucket_seconds + SLACK_SECONDS:
            return rule, later - now - rule.bucket_seconds
    full_at.update(after)
    return None
