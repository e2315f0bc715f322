"""How often a caller may ask: token buckets, by who asks and by what.

    server = Server("shop", rates=Rates(calls=Rate(20), tools={"refund": Rate(5, per=60)}))

Whoever proved who they are has buckets of their own; everybody else shares those of the address
they call from (of the network of 64 bits, with IPv6, since a single machine has as many addresses
as it likes within it). What counts is when a request begins; it is refused before any handler runs,
with the time to wait.

A bucket is one number: the moment at which it is full again. Each request puts that off by the time
that one token takes to grow, and a request that would put it off by more than a whole bucket is
refused (the "generic cell rate algorithm"). So nothing ticks, a check is an addition and a
comparison, and who was idle for long enough need not be remembered: the table is bounded, and
forgets those first who have asked nothing for longest.
"""

from collections.abc import Callable, Mapping
from math import ceil, inf
from threading import Lock
from time import monotonic
from typing import Any

from msgspec import Struct

from ...aio import LruDict
from ...errors import ConfigError, Overloaded
from ...net import network_of
from ...ports import Call, Caller
from ...protocol.methods import Method

SLACK = 1e-6
"""Seconds by which one may be early: what adding many small times up may be wrong by."""


class Rate(Struct, frozen=True):
    """So many in so many seconds, evenly; `burst` of them may come at once (by default as many as
    `count`)."""

    count: float
    per: float = 1.0
    burst: float | None = None

    def __post_init__(self) -> None:
        if not (0 < self.count < inf and 0 < self.per < inf and 1 <= self.at_once < inf):
            raise ConfigError(
                f"{self!r}: give a count and seconds above 0, and a burst of at least 1"
            )

    @property
    def at_once(self) -> float:
        """How many may come at once."""
        return max(1.0, self.count) if self.burst is None else self.burst

    def __str__(self) -> str:
        return f"{self.count:g} a second" if self.per == 1 else f"{self.count:g} in {self.per:g} s"


class Rates(Struct, frozen=True, kw_only=True):
    """How often each caller may do what; None sets no limit. The defaults are meant for not being
    noticed."""

    calls: Rate | None = Rate(200, burst=1000)
    """Tool calls, of all tools together."""
    tools: Mapping[str, Rate | None] = {}
    """Calls of one tool, by its name; they count among `calls` too."""
    completions: Rate | None = Rate(200, burst=1000)
    tasks: Rate | None = Rate(200, burst=1000)
    openings: Rate | None = Rate(20, burst=200)
    """What a conversation begins with: `initialize` and `server/discover`."""
    others: Rate | None = Rate(200, burst=1000)
    """All other requests."""
    logs: Rate | None = Rate(200, burst=1000)
    """Log messages to the client. Those that are too many are dropped, and later counted in one
    line."""
    callers: int = 10_000
    """Callers that are remembered."""
    local: bool = True
    """Whether this holds on this machine too: for stdio, in memory, and for who calls from a
    loopback address and did not say who they are. All of them count as one caller."""

    def __post_init__(self) -> None:
        for name, rate in [*((name, getattr(self, name)) for name in WHAT), *self.tools.items()]:
            if not isinstance(rate, Rate | None):
                raise ConfigError(
                    f"Rates: {rate!r} is no Rate for {name}; write Rate(10), or Rate(10, per=60)"
                )
        if self.callers < 1:
            raise ConfigError("Rates(callers=…) must be at least 1")


WHAT = {
    "calls": "tool calls",
    "completions": "completions",
    "tasks": "requests about tasks",
    "openings": "openings of a conversation",
    "others": "requests",
    "logs": "log messages",
}
"""The kinds of things that are counted, as an error calls them."""
KINDS = {
    "tools/call": "calls",
    "completion/complete": "completions",
    "initialize": "openings",
    "server/discover": "openings",
}
"""The methods that are counted apart. Those about tasks are known by their prefix."""
NETWORK = Rates(local=False)
"""What a server has unless it is told otherwise: limits for those who call over a network."""


class _Rule(Struct, frozen=True, eq=False):
    """A rate as a check needs it: seconds that a token takes to grow, and seconds that a whole
    bucket takes."""

    name: str
    what: str
    rate: Rate
    token: float
    bucket: float


def _rules(name: str, what: str, rate: Rate | None) -> tuple[_Rule, ...]:
    if rate is None:
        return ()
    token = rate.per / rate.count
    return (_Rule(name, what, rate, token, token * rate.at_once),)


class _Seen:
    """What is remembered of one caller: when each of its buckets is full again, and the log
    messages that it missed."""

    __slots__ = ("dropped", "full")

    def __init__(self) -> None:
        self.full: dict[str, float] = {}
        self.dropped = 0


class Limiter:
    """The buckets of one server, for all its event loops and threads."""

    def __init__(self, rates: Rates, clock: Callable[[], float] = monotonic) -> None:
        self._local, self._clock = rates.local, clock
        self._rules = {
            name: _rules(name, what, getattr(rates, name)) for name, what in WHAT.items()
        }
        self._tools = {
            name: self._rules["calls"] + _rules(f"tool {name}", f"calls of the tool {name!r}", rate)
            for name, rate in rates.tools.items()
        }
        self._seen: LruDict[str | tuple[str, str], _Seen] = LruDict(rates.callers)
        self._lock = Lock()

    def admit(self, method: Method, params: Any, caller: Caller) -> None:
        """Count a request, or raise Overloaded with the time to wait."""
        who = self._who(caller)
        if who is None:
            return
        name = method.name
        rules = self._rules[KINDS.get(name) or ("tasks" if name.startswith("tasks/") else "others")]
        if self._tools and name == "tools/call":
            rules = self._tools.get(params.name, rules)
        now = self._clock()
        with self._lock:
            refusal = _take(self._caller(who), rules, now)
        if refusal is not None:
            rule, wait = refusal
            seconds = ceil(wait * 1000) / 1000
            text = f"Too many {rule.what}: the limit is {rule.rate}. Try again in {seconds:g} s"
            raise Overloaded(text, data={"retryAfter": seconds})

    def log(self, call: Call) -> int | None:
        """Count a log message: how many were dropped since the last one, or None where this one is
        to be dropped too."""
        who, rules = self._who(call), self._rules["logs"]
        if who is None or not rules:
            return 0
        now = self._clock()
        with self._lock:
            seen = self._caller(who)
            if _take(seen, rules, now) is not None:
                seen.dropped += 1
                return None
            dropped, seen.dropped = seen.dropped, 0
        return dropped

    def _who(self, caller: Caller | Call) -> str | tuple[str, str] | None:
        """Whose buckets these are; None for nobody's."""
        if caller.principal is not None:
            return "principal", caller.principal.id  # which no address is equal to
        if caller.address is not None and (place := network_of(caller.address)):
            return place
        return "" if self._local else None

    def _caller(self, who: str | tuple[str, str]) -> _Seen:
        seen = self._seen.get(who)
        if seen is None:
            seen = self._seen[who] = _Seen()
        return seen


def _take(seen: _Seen, rules: tuple[_Rule, ...], now: float) -> tuple[_Rule, float] | None:
    """A token from each bucket; or from none, and the first that has none with the seconds until it
    has."""
    full, taken = seen.full, {}
    for rule in rules:
        at = full.get(rule.name, now)
        taken[rule.name] = after = (at if at > now else now) + rule.token
        if after - now > rule.bucket + SLACK:
            return rule, after - now - rule.bucket
    full.update(taken)
    return None
