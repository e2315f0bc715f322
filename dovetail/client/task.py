"""One task of a server, as somebody waits for it: look, pause, look again, until it is over.

A look that fails because the connection broke, or the server is busy, is made again: to look is
safe. A key that was asked once is not asked again, however often a server shows it, and its answer
is kept until it has arrived. What a server tells by itself saves a look; nobody relies on it. How
the server is spoken to is the business of `tasks.py`.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from ..errors import (
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    InvalidRequest,
    NotFound,
    Overloaded,
    TimedOut,
)
from ..protocol.lifecycle import ProgressParams
from ..protocol.tasks import TERMINAL, DetailedTask
from ..protocol.tools import ToolResult
from .callbacks import AnyRequest
from .reconnect import backoff

if TYPE_CHECKING:
    from .tasks import Tasks

SOONEST, LATEST = 0.05, 86400.0
"""Seconds between two looks, at the least and at the most, whatever a server proposes. It is to be
respected, so the most is what no timer has trouble with."""
FIRST, GROWTH, SETTLED = 0.1, 1.5, 5.0
"""Where it proposes nothing: the first pause, how pauses grow, and where they stop to."""
PASSING = (ConnectionClosed, ConnectFailed, TimedOut, Overloaded)
"""What may be over by the next look."""


class TaskUpdate(Struct, frozen=True):
    """What is new of a task: its status and its own words on it; in the core form also how far it
    has come, in the other the keys of what it asks."""

    status: str
    message: str | None = None
    progress: float | None = None
    total: float | None = None
    questions: tuple[str, ...] = ()


class Patience:
    """How long somebody waits: so many seconds without news, and so many at all. A person who
    thinks is not counted."""

    def __init__(self, silence: float | None, longest: float | None) -> None:
        self._silence, self._longest = silence, longest
        self._end = None if longest is None else asyncio.get_running_loop().time() + longest
        self.bound: asyncio.Timeout | None = None

    def news(self, state: DetailedTask | None) -> None:
        """There is something new; a task that waits for us is not silent."""
        if self.bound is not None:
            asked = self._silence is None or (
                state is not None and state.status == "input_required"
            )
            soon = None if asked else asyncio.get_running_loop().time() + (self._silence or 0)
            self.bound.reschedule(
                min((one for one in (soon, self._end) if one is not None), default=None)
            )

    def __str__(self) -> str:
        return (
            f"after {self._longest:g} s"
            if self._silence is None
            else f"without news for {self._silence:g} s"
        )

    @contextmanager
    def standing(self) -> Iterator[None]:
        """No time passes."""
        began = asyncio.get_running_loop().time()
        if self.bound is not None:
            self.bound.reschedule(None)
        yield
        if self._end is not None:
            self._end += asyncio.get_running_loop().time() - began


class TaskHandle:
    """A task of a server. `id` is all it takes to pick it up again: `client.task(id)`. Where a
    server answered at once there is no task: the id is empty, and the handle is done."""

    def __init__(
        self, tasks: "Tasks", id: str, manual: bool = False, done: ToolResult | None = None
    ) -> None:
        self.id = id
        self.tool = ""
        """The tool, where it is known, so that its result can be checked."""
        self.version = 0
        """Counts what is new."""
        self.update = TaskUpdate("working" if done is None else "completed")
        self._tasks = tasks
        self.manual = manual
        self._done = done
        self._state: DetailedTask | None = None
        self._stirred = asyncio.Event()
        self._pauses = self._failures = self._rounds = 0
        self._later = 0.0
        self._asked: dict[str, dict[str, Any]] = {}
        self._answers: dict[str, Raw] = {}

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id or 'done'}: {self.update.status}>"

    @property
    def over(self) -> bool:
        """Whether the task has come to its end, as far as this client has heard."""
        return self._done is not None or self.update.status in TERMINAL

    @property
    def pause(self) -> float:
        """Seconds until it is time to look again."""
        return pause_of(self._state, self._pauses)

    # for everybody

    async def status(self) -> TaskUpdate:
        """How the task stands now."""
        if self._done is None:
            self.note(await self._tasks.look(self.id))
        return self.update

    async def updates(self) -> AsyncGenerator[TaskUpdate, None]:
        """How the task stands, and whenever that changes, until it is over. Questions are answered
        on the way."""
        last: TaskUpdate | None = None
        async with aclosing(self.follow(Patience(None, None))) as news:
            async for update in news:
                if update != last:
                    yield update
                last = update

    async def result(
        self, timeout: float | None = None, *, raise_on_error: bool = True
    ) -> ToolResult:
        """What the tool gave, however long that takes; after `timeout` seconds TimedOut. The task
        goes on either way."""
        result = await self.wait(Patience(None, timeout))
        return self._tasks.checked(self.tool, result, raise_on_error)

    async def cancel(self) -> None:
        """Ask the server to end the task. It may come to another end before that; to be over
        already is fine too."""
        if not self.over:
            await self._tasks.cancel(self.id)

    async def questions(self) -> dict[str, AnyRequest]:
        """What the task asks now and nobody has answered yet, by key."""
        await self.status()
        return await self._tasks.views(
            {key: one for key, one in self._questions.items() if key not in self._asked}
        )

    async def answer(self, key: str, value: Any) -> None:
        """Answer a question of a task that is `manual`, with what `on_elicit` or `on_sample` would
        give."""
        asked = self._questions
        if key not in asked:
            await self.status()
            asked = self._questions
        if key not in asked:
            raise NotFound(
                f"Task {self.id} asks nothing by the key {key!r}; it asks "
                f"{', '.join(asked) or 'nothing'}"
            )
        self._asked[key] = asked[key]
        try:
            by_hand = self._tasks.callbacks.with_fixed_answer(value)
            await self._tasks.update(self.id, await self._tasks.respond({key: asked[key]}, by_hand))
        except BaseException:
            del self._asked[key]
            raise

    # for this folder

    @property
    def _questions(self) -> dict[str, dict[str, Any]]:
        return (self._state.input_requests if self._state is not None else None) or {}

    def note(self, state: DetailedTask) -> None:
        """The task was looked at, or a server told of it. What is over stays so."""
        if self.over:
            return
        before, self._state = self._state, state
        if before is None or _news(before) != _news(state):
            far = (
                (self.update.progress, self.update.total)
                if state.status == "working"
                else (None, None)
            )
            self._stir(TaskUpdate(state.status, state.status_message, *far, tuple(self._questions)))

    def progressed(self, params: ProgressParams) -> None:
        """The task has come further, in the core form."""
        if not self.over:
            message = params.message or self.update.message
            self._stir(TaskUpdate(self.update.status, message, params.progress, params.total))

    def _stir(self, update: TaskUpdate) -> None:
        self.update = update
        self.version += 1
        self.stir()

    def stir(self) -> None:
        """Wake whoever pauses."""
        self._stirred.set()
        self._stirred.clear()

    async def wait(
        self, patience: Patience, report: Callable[[TaskUpdate], None] | None = None
    ) -> ToolResult:
        """The result of the tool; raises what the task came to instead."""
        if self._done is not None:
            return self._done
        try:
            async with asyncio.timeout(None) as patience.bound:
                patience.news(None)
                async with aclosing(self.follow(patience)) as news:
                    async for update in news:
                        if report is not None:
                            report(update)
                return self._done or await self._tasks.outcome(self._state)
        except TimeoutError as problem:
            if isinstance(problem, DovetailError):
                raise
            said = f"; it said last: {self.update.message}" if self.update.message else ""
            raise TimedOut(
                f"Task {self.id} is still {self.update.status} {patience}{said}"
            ) from None

    async def follow(self, patience: Patience) -> AsyncGenerator[TaskUpdate, None]:
        """What is new, until the task is over; its questions are answered on the way."""
        if self._done is not None:
            yield self.update
            return
        if self._state is None:
            await self._look()
        seen = -1
        async with self._tasks.beside(self) as result:
            while True:
                if result is not None and result.done() and self._done is None:
                    await self._settle(result)
                if seen != self.version and self._state is not None:
                    seen = self.version
                    patience.news(self._state)
                    yield self.update
                if self.over:
                    break
                if self.update.status == "input_required" and not self.manual:
                    await self._respond(patience)
                if not await self._stirs(seen) and (result is None or not result.done()):
                    await self._look()
            if result is not None and self.update.status != "cancelled":
                await asyncio.wait([result])
                await self._settle(result)

    async def _settle(self, result: "asyncio.Task[ToolResult]") -> None:
        """The core form has brought the result, or an error; whether that is what the task came to,
        a look will tell."""
        if (problem := result.exception()) is not None:
            await self._look()
            if not self.over:
                raise problem
            return
        done = result.result()
        if not self.over:
            self._stir(TaskUpdate("failed" if done.is_error else "completed"))
        self._done = done

    async def _stirs(self, seen: int) -> bool:
        """Pause until it is time for another look; True where something new came by itself."""
        if self.version != seen:
            return True
        self._pauses += 1
        try:
            async with asyncio.timeout(max(self._later, self.pause + backoff(self._failures))):
                await self._stirred.wait()
        except TimeoutError:
            return False
        return self.version != seen

    async def _look(self) -> None:
        """Look at the task. A connection that broke, or a server that is busy, is tried again."""
        try:
            self.note(await self._tasks.look(self.id))
            self._failures, self._later = 0, 0.0
        except PASSING as problem:
            self._failed(problem)

    def _failed(self, problem: DovetailError) -> None:
        self._failures += 1
        self._later = (problem.retry_after or 0.0) if isinstance(problem, Overloaded) else 0.0
        if self._failures > self._tasks.limits.restarts or not self._tasks.curable(problem):
            raise problem

    async def _respond(self, patience: Patience) -> None:
        """Answer what was not asked before, and send what has not arrived."""
        asked = self._questions
        for key in asked.keys() & self._asked.keys():
            if asked[key] != self._asked[key]:
                # https://modelcontextprotocol.io/seps/2663-tasks-extension#task-update-requests
                raise InvalidRequest(
                    f"Task {self.id} asks something else by the key {key!r}, which it used before"
                )
        if fresh := {key: question for key, question in asked.items() if key not in self._asked}:
            self._rounds += 1
            if self._rounds > self._tasks.limits.rounds:
                raise InvalidRequest(
                    f"Task {self.id} asked {self._rounds} times, and does not come to an end"
                )
            self._asked |= fresh
            try:
                with patience.standing():
                    self._answers |= await self._tasks.respond(fresh)
            except BaseException:
                self._asked = {key: one for key, one in self._asked.items() if key not in fresh}
                raise
            self._pauses = 0
        if self._answers:
            await self._deliver()
        patience.news(self._state)

    async def _deliver(self) -> None:
        sent = dict(self._answers)
        try:
            await self._tasks.update(self.id, sent)
        except PASSING as problem:
            self._failed(problem)  # they are kept, and go with the next look
            return
        self._answers = {key: answer for key, answer in self._answers.items() if key not in sent}


def _news(state: DetailedTask) -> tuple[Any, ...]:
    return state.status, state.status_message, state.last_updated_at, *(state.input_requests or ())


def pause_of(state: DetailedTask | None, pauses: int) -> float:
    """Seconds until the next look: as the server proposes, within reason, and never all clients at
    once."""
    proposed = state.poll_interval_ms if state is not None else None
    seconds = (
        min(SETTLED, FIRST * GROWTH ** min(pauses, 20)) if proposed is None else proposed / 1000
    )
    return min(LATEST, max(SOONEST, seconds)) * random.uniform(1.0, 1.1)
