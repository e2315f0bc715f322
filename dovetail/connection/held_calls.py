"""Calls that must not run twice, held while their client answers a question in the stateless era.

A suspended call is a cache: if it is lost, its handler runs again (`multi_round_trip.py`). This is
wrong if a first run may have had an effect that nothing records, as in a gateway, which passes
calls on to other servers. A `Service` says so (`can_replay`), and such a call is *held* instead:

    the table is full        the newest call is refused (`Limits.parked`, `Limits.parked_each`); the
                             calls of others are not affected
    the handle is sent again the request joins the call: it waits with the others, or receives the
                             reply that they have received
    the call has finished    its last reply is kept for `Limits.parked_time`
    the handle is unknown    the request is refused; the call is never run again
    the client never returns the handler is cancelled after `Limits.parked_time`

The handle is the call's id in the sealed state, so it works only for the same caller and request.
A worker that gets a request with the handle of another worker's call asks that worker for the reply
(`multi_round_trip.py`). If the request is cancelled, it does not wait there any longer. If no
request waits any more, the call is cancelled.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from ..aio import Sweeper
from ..errors import Overloaded, ProtocolError
from ..jsonrpc.messages import encode
from ..limits import Limits
from ..ports import Call
from ..protocol.raw import RawObject
from .answer import as_protocol_error
from .input_requests import SuspendableCall, continue_under
from .notifications import CallerKey, counting_key

NextReply = Callable[[SuspendableCall], Awaitable[Any]]
"""A function that returns the questions or the result with which a call's current round ends."""


class HeldCall:
    """A call that is held, and the requests that wait for its next reply."""

    def __init__(self, run: SuspendableCall, reply: Any) -> None:
        self.run = run
        self.owner: CallerKey = counting_key(run.call.caller)
        self.round: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """The reply with which the current round ends: questions, a result, or an error (which is
        not raised)."""
        self.round.set_result(reply)
        self.waiting = 0
        """The number of requests that wait for the reply."""
        self.since = time.monotonic()
        """When the last round ended."""


class KeptReply(Struct, frozen=True, eq=False):
    """The last reply of a call that has finished."""

    owner: CallerKey
    reply: Any
    size: int
    """Its size, in bytes."""
    since: float


class HeldCalls:
    """The calls that one server holds in one event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: dict[str, HeldCall] = {}
        """The unfinished calls that have asked a question, by id."""
        self._counts: Counter[CallerKey] = Counter()
        """The number of these calls for each caller."""
        self._kept: dict[str, KeptReply] = {}
        """The last replies of finished calls, by id, oldest first."""
        self._kept_bytes = 0
        self._sweeper = Sweeper(limits.parked_time / 4, self._sweep)

    def __contains__(self, id: str) -> bool:
        """Return whether this process has the call with this id."""
        return id in self._held or id in self._kept

    def hold(self, run: SuspendableCall, reply: Any) -> None:
        """Hold a call whose first reply contains questions, or cancel it if there are too many."""
        held, limits, limit = HeldCall(run, reply), self._limits, None
        if self._counts[held.owner] >= limits.parked_each:
            limit = f"{limits.parked_each} of your calls (Limits.parked_each)"
        elif len(self._held) >= limits.parked:
            limit = f"{limits.parked} calls (Limits.parked)"
        if limit is not None:
            run.stop()
            raise Overloaded(
                f"{run.call.name} was cancelled: it asked for input, but {limit} are already "
                "waiting for input. The call may have taken effect."
            )
        self._held[run.id] = held
        self._counts[held.owner] += 1
        self._sweeper.start()

    async def join(
        self,
        id: str,
        request: Call | None,
        rounds: int,
        answers: dict[str, bytes],
        next_reply: NextReply,
    ) -> Any:
        """Return the next reply of a call to a request that carries the handle of this round. The
        first request with the answers continues the call. Any other request waits for the same
        reply, or receives the last one. A request that another process received is None: it gets
        only the reply, without progress and logs."""
        held = self._held.get(id)
        if held is None:
            return _raise_error(self._kept[id].reply)
        run = held.run
        if not held.round.done():
            if request is not None:
                continue_under(run.call, request)  # an earlier client has probably disconnected
        elif rounds == run.rounds:
            work = self._run_round(held, request, answers, next_reply)
            held.round = asyncio.get_running_loop().create_task(work)
        return _raise_error(await self._wait(held))

    def close(self) -> None:
        """Cancel all calls."""
        for held in list(self._held.values()):
            self._drop(held)
        self._kept.clear()
        self._sweeper.cancel()

    # rounds

    async def _run_round(
        self, held: HeldCall, request: Call | None, answers: dict[str, bytes], next_reply: NextReply
    ) -> Any:
        run = held.run
        given = {key: answers[key] for key in run.open_questions if key in answers}
        try:
            run.resume(request or run.call, given)
            if request is None:
                run.call.finished, run.call.progress = True, None
            reply = await next_reply(run)
        except BaseException as error:
            reply = as_protocol_error(error, run.call)
            run.stop()
        held.since = time.monotonic()
        if run.call.cancelled or (run.task is not None and run.task.done()):
            self._keep(held, reply)
        return reply

    async def _wait(self, held: HeldCall) -> Any:
        """Wait for the reply. If the last request that waits is cancelled, so is the call."""
        held.waiting, current = held.waiting + 1, held.round
        try:
            await asyncio.wait([current])
            return current.result()
        finally:
            held.waiting -= 1
            if not held.waiting and not current.done():
                self._drop(held)

    # the table

    def _release(self, held: HeldCall) -> bool:
        """Remove an unfinished call from the table, and return whether it was there."""
        if self._held.pop(held.run.id, None) is None:
            return False
        self._counts[held.owner] -= 1
        if not self._counts[held.owner]:
            del self._counts[held.owner]
        return True

    def _drop(self, held: HeldCall) -> None:
        """Cancel a call, and forget it."""
        self._release(held)
        held.run.stop()

    def _keep(self, held: HeldCall, reply: Any) -> None:
        """Keep the last reply of a call. If its caller or all callers have too many, the oldest
        replies are forgotten: a request for one of these is refused."""
        if not self._release(held):
            return  # nobody waits for it any more
        kept = KeptReply(held.owner, reply, _size_of(reply), held.since)
        self._kept[held.run.id] = kept
        self._kept_bytes += kept.size
        own = [id for id, one in self._kept.items() if one.owner == held.owner]
        for id in own[: max(0, len(own) - self._limits.parked_each)]:
            self._forget(id)
        while self._kept and (
            len(self._kept) > self._limits.parked or self._kept_bytes > self._limits.events_kept
        ):
            self._forget(next(iter(self._kept)))
        self._sweeper.start()

    def _forget(self, id: str) -> None:
        self._kept_bytes -= self._kept.pop(id).size

    def _sweep(self) -> bool:
        """Cancel the calls whose clients did not return in time, and forget the old replies."""
        oldest = time.monotonic() - self._limits.parked_time
        for held in list(self._held.values()):
            if held.round.done() and held.since <= oldest:
                self._drop(held)
        for id, kept in list(self._kept.items()):
            if kept.since <= oldest:
                self._forget(id)
        return bool(self._held or self._kept)


def _raise_error(reply: Any) -> Any:
    """Return a reply, or raise it if it is an error. It may be raised again later, so the frames of
    an earlier request are removed."""
    if isinstance(reply, ProtocolError):
        raise reply.with_traceback(None)
    return reply


def _size_of(reply: Any) -> int:
    if isinstance(reply, ProtocolError):
        return 0
    try:
        return len(encode(reply.fields if type(reply) is RawObject else reply))
    except Exception:
        return 0  # it cannot be sent either: the client receives an error
