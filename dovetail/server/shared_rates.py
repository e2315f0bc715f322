"""Rate limits that the processes of a server share.

The buckets are in the backend, and one command takes a token from all buckets of a request. A limit
below 20 costs each request one such command, which is awaited before its handler runs. So at a
limit of 5, five requests pass, whichever processes receive them.

A higher limit is kept off the path by a *quota lease*. The first request of a caller takes one
token. With the second, this process takes up to a tenth of the limit in advance, and counts further
requests without the backend. It takes more before its tokens run out, as many as the caller uses in
a second, and gives back what the caller did not use within a second. Tokens are taken before they
are used, so all processes together never admit more than the limit. They may admit less while one
of them holds tokens that another one needs.

    request ─→ admit: tokens left? ─→ handler                                  (no command)
                      └→ no: Call.admission ─→ Counters.take ─→ handler        (one command)

If the backend is away, each process counts for itself, with the limit divided by the number of
processes. A refusal is remembered for a moment, so that a caller who ignores it does not keep the
backend busy.

A call that asked questions was counted once. The next request of the call is exempt from the limit
at every process, but only once: the process that asked stores a row, and the process that receives
the answers takes it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..aio import LruDict, Sweeper, TaskSet
from ..backend.protocols import Admitted, Bucket
from ..errors import BackendAway
from ..limits import Limits
from ..ports import Call, Caller, PendingAdmission
from ..protocol.methods import Method
from .rates import CallerKey, RateLimiter, RateRule, Rates, Rules, round_digest

if TYPE_CHECKING:
    from ..backend import Backend

T = TypeVar("T")

MIN_LEASED = 20
"""The lowest limit for which a process takes tokens in advance."""
LEASES_PER_LIMIT = 10
"""The number of quota leases in a limit: a process takes at most a tenth of it in advance."""
SWEEP_SECONDS = 0.5
"""How often unused tokens are given back. A token that is not used is given back after at most two
of these periods."""
DIGEST_LENGTH = 32
"""The number of hexadecimal digits that stand for a caller."""
REFUSAL_SECONDS = 0.25
"""How long a refusal holds without asking the backend again. Another process may give tokens back
before the time that the caller is told."""


class _Share(Struct, eq=False):
    """This process's share of one bucket of one caller."""

    rule: RateRule
    bucket: Bucket
    max_tokens: int
    """The number of tokens that may be taken in advance; 0 if the limit is too low for that."""
    tokens: int = 0
    """The number of tokens that were taken in advance and not used yet."""
    used: int = 0
    """The number of requests since the last sweep."""
    used_before: int = 0
    """The number of requests between the two last sweeps."""
    refused_until: float = 0.0
    """Until when requests are refused without asking the backend."""
    free_at: float = 0.0
    """When the bucket has a token again, after a refusal."""

    @property
    def wanted(self) -> int:
        """The number of tokens to hold: what the caller uses in a second, if that is known."""
        if not self.used_before:
            return self.max_tokens
        return min(self.max_tokens, 2 * max(self.used_before, self.used))

    def use(self) -> None:
        self.tokens -= 1
        self.used += 1

    def refuse(self, wait: float, now: float) -> None:
        self.free_at = now + wait
        self.refused_until = now + min(wait, REFUSAL_SECONDS)


class _Account(Struct, eq=False):
    """The shares of this process in the buckets of one caller."""

    digest: str
    """The name of the caller in the backend."""
    accounts: "_LoopAccounts"
    shares: dict[str, _Share] = {}
    """The shares, by the names of their rules."""
    refill: "asyncio.Task[Admitted] | None" = None
    """The task that takes tokens in advance."""


class _LoopAccounts:
    """The callers of one event loop, and the tasks that take tokens and give them back."""

    def __init__(self, limiter: "SharedRateLimiter", callers: int) -> None:
        self.by_key: LruDict[CallerKey, _Account] = LruDict(callers)
        self.leased: dict[_Share, _Account] = {}
        """The shares for which tokens may be taken in advance."""
        self.tasks = TaskSet()
        self.sweeper = Sweeper(SWEEP_SECONDS, partial(limiter.sweep, self))

    def watch(self, share: _Share, account: _Account) -> None:
        """Give the tokens of a share back when they are no longer used."""
        self.leased[share] = account
        self.sweeper.start()


class SharedRateLimiter(RateLimiter):
    """The rate limits of a server whose processes share a backend.

    Args:
        rates: The limits.
        backend: The backend.
        limits: The limits of the server. `state_life` is how long a call may wait for answers.
    """

    def __init__(self, rates: Rates, backend: "Backend", limits: Limits) -> None:
        super().__init__(rates)
        self._backend, self._counters = backend, backend.rates()
        self._rounds, self._round_life = backend.rows("round"), limits.state_life
        self._loops: dict[asyncio.AbstractEventLoop, _LoopAccounts] = {}

    def admit(self, method: Method, params: Any, caller: Caller) -> PendingAdmission | None:
        """Count a request with the tokens that this process holds. If it does not have enough,
        return the rest of the check. Raise Overloaded if the request exceeds a limit."""
        key = self._key(caller)
        if key is None:
            return None
        rules = self._rules_for(method, params)
        if method.asks and getattr(params, "request_state", None) is not None:
            return partial(self._admit_round, key, rules, params.request_state)
        if self._use_tokens(self._account(key), rules):
            return None
        return partial(self._admit_shared, key, rules)

    def _use_tokens(self, account: _Account, rules: Rules) -> bool:
        """Use a token of each share. Return False, and use none, if a share has no token. Raise
        Overloaded if a bucket was empty a moment ago."""
        shares = [account.shares.get(rule.name) for rule in rules]
        now = self._clock()
        for share in shares:
            if share is not None and now < share.refused_until:
                raise share.rule.refuse(share.free_at - now)
        held = [share for share in shares if share is not None and share.tokens > 0]
        if len(held) < len(shares):
            return False
        for share in held:
            share.use()
        if account.refill is None:
            low = [share for share in held if share.tokens < share.wanted / 4]
            if low:
                self._start_refill(account, low)
        return True

    async def _admit_shared(self, key: CallerKey, rules: Rules) -> None:
        """Count a request with the backend, or without it if it is away."""
        account = self._account(key)
        try:
            while not self._use_tokens(account, rules):
                missing = [rule for rule in rules if not _has_token(account, rule)]
                known = [account.shares.get(rule.name) for rule in missing]
                leased = [share for share in known if share is not None and share.max_tokens]
                if len(leased) == len(missing):
                    refill = account.refill or self._start_refill(account, leased)
                    await asyncio.shield(refill)
                else:
                    await self._take_one(account, rules, missing)
                    return
        except BackendAway:
            members = self._backend.members
            self._count(key, tuple(_divide(rule, members) for rule in rules))

    async def _take_one(self, account: _Account, rules: Rules, missing: Sequence[RateRule]) -> None:
        """Take one token from each bucket for which this process holds none."""
        held = [account.shares[rule.name] for rule in rules if rule not in missing]
        shares = [self._share(account, rule) for rule in missing]
        for share in held:
            share.use()
        admitted = None
        try:
            admitted = await self._take(shares, 1)
        finally:
            if admitted is None or not admitted.granted:
                for share in held:
                    share.tokens += 1
        if not admitted.granted:
            raise self._refusal(shares[admitted.refused_by])
        for share in shares:
            share.used += 1
            if share.max_tokens:
                account.accounts.watch(share, account)

    def _refusal(self, share: _Share) -> Exception:
        return share.rule.refuse(max(0.0, share.free_at - self._clock()))

    async def _take(self, shares: Sequence[_Share], count: int) -> Admitted:
        admitted = await self._counters.take([share.bucket for share in shares], count)
        if not admitted.granted:
            shares[admitted.refused_by].refuse(admitted.wait, self._clock())
        return admitted

    # tokens that are taken in advance

    def _start_refill(self, account: _Account, shares: list[_Share]) -> "asyncio.Task[Admitted]":
        account.refill = account.accounts.tasks.start(self._refill(account, shares))
        account.refill.add_done_callback(_ignore)
        return account.refill

    async def _refill(self, account: _Account, shares: list[_Share]) -> Admitted:
        try:
            count = min(share.wanted - share.tokens for share in shares)
            admitted = await self._take(shares, max(1, count))
        finally:
            account.refill = None
        for share in shares:
            share.tokens += admitted.granted
            account.accounts.watch(share, account)
        return admitted

    def sweep(self, accounts: _LoopAccounts) -> bool:
        """Give back the tokens that their callers do not need. Return whether any are left."""
        for share, account in list(accounts.leased.items()):
            share.used_before, share.used = share.used, 0
            self._give_back(accounts, share, share.tokens - 2 * share.used_before)
            if not share.used_before and account.refill is None:
                del accounts.leased[share]
                account.shares.pop(share.rule.name, None)
        return bool(accounts.leased)

    def _give_back(self, accounts: _LoopAccounts, share: _Share, count: int) -> None:
        if count > 0:
            share.tokens -= count
            accounts.tasks.start(self._return_tokens(share.bucket, count))

    async def _return_tokens(self, bucket: Bucket, count: int) -> None:
        with suppress(BackendAway):  # then they count as used
            await self._counters.take([bucket], -count)

    @asynccontextmanager
    async def run_with(self, inner: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Give all tokens back after a lifespan has ended.

        Args:
            inner: The lifespan.
        """
        try:
            async with inner as state:
                yield state
        finally:
            accounts = self._loops.pop(asyncio.get_running_loop(), None)
            if accounts is not None:
                accounts.sweeper.cancel()
                for share in accounts.leased:
                    self._give_back(accounts, share, share.tokens)
                await accounts.tasks.wait()

    # the rounds of a call

    def expect_round(self, call: Call, state: str) -> Awaitable[None] | None:
        """Admit the request that answers a call's questions, at any process, but only once."""
        key = self._key(call)
        return None if key is None else self._expect_round(round_digest(key, state))

    async def _expect_round(self, digest: bytes) -> None:
        try:
            await self._rounds.put(digest.hex(), b"", self._round_life)
        except BackendAway:
            self._expect_here(digest)

    async def _admit_round(self, key: CallerKey, rules: Rules, state: str) -> None:
        digest = round_digest(key, state)
        with suppress(BackendAway):
            if await self._rounds.take(digest.hex()) is not None:
                return
        with self._lock:
            if self._paid_rounds.pop(digest):
                return
        await self._admit_shared(key, rules)

    # callers

    def _account(self, key: CallerKey) -> _Account:
        loop = asyncio.get_running_loop()
        accounts = self._loops.get(loop)
        if accounts is None:
            self._loops = {one: each for one, each in self._loops.items() if not one.is_closed()}
            accounts = self._loops[loop] = _LoopAccounts(self, self.rates.callers)
        account = accounts.by_key.get(key)
        if account is None:
            # Its id or address is private, and somebody could try all addresses.
            name = repr(key).encode("utf-8", "surrogatepass")
            digest = self._backend.ring.digest("rate", name)[:DIGEST_LENGTH]
            account = accounts.by_key[key] = _Account(digest, accounts)
        return account

    def _share(self, account: _Account, rule: RateRule) -> _Share:
        share = account.shares.get(rule.name)
        if share is None:
            bucket = Bucket(
                f"{account.digest}:{rule.name}", rule.token_seconds, rule.bucket_seconds
            )
            limit = int(rule.rate.at_once)
            share = _Share(rule, bucket, limit // LEASES_PER_LIMIT if limit >= MIN_LEASED else 0)
            account.shares[rule.name] = share
        return share


def _has_token(account: _Account, rule: RateRule) -> bool:
    share = account.shares.get(rule.name)
    return share is not None and share.tokens > 0


def _divide(rule: RateRule, members: int) -> RateRule:
    """Return the part of a limit for one of several processes: at least one request at once."""
    token_seconds = rule.token_seconds * members
    bucket_seconds = max(rule.bucket_seconds, token_seconds)
    return replace(rule, token_seconds=token_seconds, bucket_seconds=bucket_seconds)


def _ignore(task: "asyncio.Task[Admitted]") -> None:
    """Retrieve the exception of a task that may have no waiter."""
    if not task.cancelled():
        task.exception()
