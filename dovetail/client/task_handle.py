"""Wait for one task on a server: poll, pause and poll again until the task is over.

A poll that fails because the connection broke, or because the server is busy, is repeated, because
polling is safe. A question is asked only once per key, however often the server repeats it, and its
answer is kept until the server has accepted it. A notification saves a poll, but nothing relies on
notifications. The requests to the server are in `tasks.py`.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from ..errors import DovetailError, InvalidRequest, NotFound, Overloaded, TimedOut
from ..protocol.lifecycle import ProgressParams
from ..protocol.tasks import TERMINAL, DetailedTask
from ..protocol.tools import ToolResult
from .callbacks import AnyRequest, Questions
from .reconnect import TRANSIENT_ERRORS, backoff

if TYPE_CHECKING:
    from .tasks import RemoteTasks

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 86400.0
"""Bounds on the interval that a server proposes. Clients must respect this interval, so the upper
bound is only the longest interval that every timer supports."""
FIRST_POLL_SECONDS, POLL_GROWTH, SLOW_POLL_SECONDS = 0.1, 1.5, 5.0
"""The first interval, the growth factor and the longest interval to use if a server proposes
none."""


class TaskUpdate(Struct, frozen=True):
    """The state of a task at one point in time."""

    status: str
    """"working", "input_required", "completed", "failed" or "cancelled"."""
    message: str | None = None
    """The status message from the server."""
    progress: float | None = None
    """The progress so far, in the core form (2025-11-25)."""
    total: float | None = None
    """The value of `progress` when the work is complete, if it is known."""
    questions: tuple[str, ...] = ()
    """The keys of unanswered questions, in the extension form."""


class WaitDeadline:
    """How long to wait for a task, in seconds: the time without an update, and the total time. The
    time that a user takes to answer a question does not count."""

    def __init__(self, silence: float | None, total: float | None) -> None:
        self._silence, self._total = silence, total
        self._end = None if total is None else asyncio.get_running_loop().time() + total
        self.timeout: asyncio.Timeout | None = None

    def extend(self, state: DetailedTask | None) -> None:
        """Restart the timer for updates. It does not run while the task waits for answers."""
        if self.timeout is None:
            return
        ends = [] if self._end is None else [self._end]
        if self._silence is not None and (state is None or state.status != "input_required"):
            ends.append(asyncio.get_running_loop().time() + self._silence)
        self.timeout.reschedule(min(ends, default=None))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause both limits."""
        began = asyncio.get_running_loop().time()
        if self.timeout is not None:
            self.timeout.reschedule(None)
        yield
        if self._end is not None:
            self._end += asyncio.get_running_loop().time() - began

    def __str__(self) -> str:
        if self._silence is None:
            return f"after {self._total:g} s"
        return f"after {self._silence:g} s without an update"


class TaskHandle:
    """A task on a server, from `client.start_tool(…)` or `client.task(id)`.

    Its `id` is all you need to return to the task later, even from another process. If the server
    answered directly, there is no task: the id is empty, and `over` is true.

    Args:
        tasks: The tasks of the client.
        id: The id of the task; empty if the server answered directly.
        manual: Whether questions are answered by `answer` rather than by the callbacks.
        result: The result, if the server answered directly.
    """

    def __init__(
        self, tasks: "RemoteTasks", id: str, manual: bool = False, result: ToolResult | None = None
    ) -> None:
        self.id = id
        """The id of the task; empty if the server answered directly."""
        self.tool = ""
        """The name of the tool, if it is known, so that the result can be checked."""
        self.update = TaskUpdate("working" if result is None else "completed")
        """The last known state."""
        self.manual = manual
        """Whether questions are answered by `answer` rather than by the callbacks."""
        self.parent: Any = None
        """The `parent` of the questions that the task asks."""
        self._tasks = tasks
        self._result = result
        self._state: DetailedTask | None = None
        self._version = 0
        """The number of changes to `update`."""
        self._changed = asyncio.Event()
        self._polls = self._failures = self._rounds = 0
        self._retry_after = 0.0
        self._handled_questions: Questions = {}
        """The questions that were passed to the callbacks, by key."""
        self._unsent_answers: dict[str, Raw] = {}

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id or 'done'}: {self.update.status}>"

    @property
    def over(self) -> bool:
        """Whether the task has ended, as far as this client knows."""
        return self._result is not None or self.update.status in TERMINAL

    async def status(self) -> TaskUpdate:
        """Ask the server for the state of the task."""
        if self._result is None:
            self._on_state(await self._tasks.fetch(self.id))
        return self.update

    async def updates(self) -> AsyncGenerator[TaskUpdate, None]:
        """Yield the state of the task, then each change until the task is over. Questions are
        answered in the meantime."""
        last: TaskUpdate | None = None
        async with aclosing(self._follow(WaitDeadline(None, None))) as changes:
            async for update in changes:
                if update != last:
                    yield update
                last = update

    async def result(
        self, timeout: float | None = None, *, raise_on_error: bool = True
    ) -> ToolResult:
        """Wait for the result of the tool. The task continues if this method is cancelled or times
        out.

        Args:
            timeout: Seconds to wait, or None for no limit. The time that a user takes to answer a
                question does not count.
            raise_on_error: Whether to raise ToolError if the tool failed. If False, the result has
                `is_error` set.

        Raises:
            TimedOut: The task did not end within the timeout.
            TaskCancelled: The task was cancelled.
            NotFound: The task does not exist, or the server has deleted it.
        """
        result = await self._wait(WaitDeadline(None, timeout))
        return self._tasks.check_result(self.tool, result, raise_on_error)

    async def cancel(self) -> None:
        """Ask the server to cancel the task. Do nothing if the task is already over. The task may
        still complete or fail."""
        if not self.over:
            await self._tasks.cancel(self.id)

    async def questions(self) -> dict[str, AnyRequest]:
        """Return the task's unanswered questions by key, as the callbacks would receive them."""
        await self.status()
        session = await self._tasks.connector.get_session()
        return self._tasks.connector.callbacks.describe_requests(self._new_questions(), session)

    async def answer(self, key: str, value: Any) -> None:
        """Answer a question from a task that was started with `manual=True`.

        Args:
            key: The key of the question, from `questions` or `TaskUpdate.questions`.
            value: The value that `on_elicit` or `on_sample` would return.

        Raises:
            NotFound: The task has no question with this key.
        """
        if key not in self._questions:
            await self.status()
        questions = self._questions
        if key not in questions:
            raise NotFound(
                f"Task {self.id} has no question with the key {key!r}; it has: "
                f"{', '.join(questions) or 'none'}"
            )
        self._handled_questions[key] = questions[key]
        try:
            session = await self._tasks.connector.get_session()
            callbacks = self._tasks.connector.callbacks.with_fixed_answer(value)
            answers = await callbacks.answer_all({key: questions[key]}, session)
            await self._tasks.send_answers(self.id, answers)
        except BaseException:
            del self._handled_questions[key]
            raise

    # for `RemoteTasks`

    @property
    def _poll_seconds(self) -> float:
        """Seconds until the next poll."""
        return poll_interval(self._state, self._polls)

    def _on_state(self, state: DetailedTask) -> None:
        """Record a new state from a poll or a notification, unless the task is already over."""
        if self.over:
            return
        before, self._state = self._state, state
        if before is None or _visible(before) != _visible(state):
            progress = self.update.progress, self.update.total
            self._set_update(
                TaskUpdate(
                    state.status,
                    state.status_message,
                    *(progress if state.status == "working" else (None, None)),
                    tuple(self._questions),
                )
            )

    def _on_progress(self, params: ProgressParams) -> None:
        """Record a progress notification, in the core form."""
        if not self.over:
            message = params.message or self.update.message
            self._set_update(TaskUpdate(self.update.status, message, params.progress, params.total))

    def _wake(self) -> None:
        """End the pause between two polls."""
        self._changed.set()
        self._changed.clear()

    async def _wait(
        self, deadline: WaitDeadline, report: Callable[[TaskUpdate], None] | None = None
    ) -> ToolResult:
        """Return the result of the tool, or raise the error that the task failed with."""
        if self._result is not None:
            return self._result
        try:
            async with asyncio.timeout(None) as deadline.timeout:
                deadline.extend(None)
                async with aclosing(self._follow(deadline)) as changes:
                    async for update in changes:
                        if report is not None:
                            report(update)
                return self._result or await self._tasks.fetch_outcome(self._state)
        except TimeoutError:
            if deadline.timeout is None or not deadline.timeout.expired():
                raise
            last = f"; its last message was: {self.update.message}" if self.update.message else ""
            raise TimedOut(
                f"Task {self.id} is still {self.update.status} {deadline}{last}"
            ) from None

    # waiting

    @property
    def _questions(self) -> Questions:
        return (self._state.input_requests if self._state is not None else None) or {}

    def _new_questions(self) -> Questions:
        return {
            key: question
            for key, question in self._questions.items()
            if key not in self._handled_questions
        }

    def _set_update(self, update: TaskUpdate) -> None:
        self.update = update
        self._version += 1
        self._wake()

    async def _follow(self, deadline: WaitDeadline) -> AsyncGenerator[TaskUpdate, None]:
        """Yield changes until the task is over, and answer its questions."""
        if self._result is not None:
            yield self.update
            return
        if self._state is None:
            await self._poll()
        seen = -1
        async with self._tasks.background_request(self) as result:
            while True:
                if result is not None and result.done() and self._result is None:
                    await self._take_result(result)
                if seen != self._version and self._state is not None:
                    seen = self._version
                    deadline.extend(self._state)
                    yield self.update
                if self.over:
                    break
                if self.update.status == "input_required" and not self.manual:
                    await self._answer_questions(deadline)
                if not await self._pause(seen) and (result is None or not result.done()):
                    await self._poll()
            if result is not None and self.update.status != "cancelled":
                await asyncio.wait([result])
                await self._take_result(result)

    async def _take_result(self, tasks_result: "asyncio.Task[ToolResult]") -> None:
        """Record the reply to `tasks/result`. If it is an error, poll to see whether it is the
        outcome of the task."""
        if (problem := tasks_result.exception()) is not None:
            await self._poll()
            if not self.over:
                raise problem
            return
        result = tasks_result.result()
        if not self.over:
            self._set_update(TaskUpdate("failed" if result.is_error else "completed"))
        self._result = result

    async def _pause(self, seen: int) -> bool:
        """Wait until the next poll is due; return whether a notification made it unnecessary."""
        if self._version != seen:
            return True
        self._polls += 1
        seconds = max(self._retry_after, self._poll_seconds + backoff(self._failures))
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return self._version != seen

    async def _poll(self) -> None:
        try:
            self._on_state(await self._tasks.fetch(self.id))
            self._failures, self._retry_after = 0, 0.0
        except TRANSIENT_ERRORS as problem:
            self._count_failure(problem)

    def _count_failure(self, problem: DovetailError) -> None:
        self._failures += 1
        self._retry_after = (problem.retry_after or 0.0) if isinstance(problem, Overloaded) else 0.0
        if self._failures > self._tasks.limits.restarts or not self._tasks.is_transient(problem):
            raise problem

    async def _answer_questions(self, deadline: WaitDeadline) -> None:
        """Answer new questions, and send the answers that the server has not received yet."""
        connector, questions = self._tasks.connector, self._questions
        for key in questions.keys() & self._handled_questions.keys():
            if questions[key] != self._handled_questions[key]:
                # https://modelcontextprotocol.io/seps/2663-tasks-extension#task-update-requests
                raise InvalidRequest(
                    f"Task {self.id} asked a different question under the key {key!r}, which it "
                    "had already used"
                )
        new = self._new_questions()
        if new:
            self._rounds += 1
            if self._rounds > self._tasks.limits.rounds:
                raise InvalidRequest(
                    f"Task {self.id} asked questions {self._rounds} times; the limit is "
                    f"{self._tasks.limits.rounds}"
                )
            self._handled_questions |= new
            try:
                with deadline.paused():
                    session = await connector.get_session()
                    answers = await connector.callbacks.answer_all(new, session, self.parent)
                    self._unsent_answers |= answers
            except BaseException:
                for key in new:
                    self._handled_questions.pop(key, None)
                raise
            self._polls = 0
        if self._unsent_answers:
            await self._send_answers()
        deadline.extend(self._state)

    async def _send_answers(self) -> None:
        sent = dict(self._unsent_answers)
        try:
            await self._tasks.send_answers(self.id, sent)
        except TRANSIENT_ERRORS as problem:
            self._count_failure(problem)  # they are kept, and sent after the next poll
            return
        for key in sent:
            self._unsent_answers.pop(key, None)


def poll_interval(state: DetailedTask | None, polls: int) -> float:
    """Return the number of seconds until the next poll. It is the interval that the server
    proposes, within bounds. Jitter keeps clients from all polling at the same time."""
    proposed = state.poll_interval_ms if state is not None else None
    if proposed is None:
        seconds = min(SLOW_POLL_SECONDS, FIRST_POLL_SECONDS * POLL_GROWTH ** min(polls, 20))
    else:
        seconds = proposed / 1000
    return min(MAX_POLL_SECONDS, max(MIN_POLL_SECONDS, seconds)) * random.uniform(1.0, 1.1)


def _visible(state: DetailedTask) -> tuple[Any, ...]:
    return state.status, state.status_message, state.last_updated_at, *(state.input_requests or ())
