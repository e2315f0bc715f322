"""A tool call that runs as a task in this process.

For its call, a `RunningTask` replaces the connection (`notify`), the suspended call that asks
questions (`ask`, `save_once_result`), and the progress reporter (`update`).

A question makes the task wait: the question is saved in the record, and the tool continues when an
answer arrives, through `tasks/update` or on the `tasks/result` stream. Questions and answers are
saved before anyone is notified and before the tool continues. A client that checks the task in the
meantime finds its questions and answers in the record.

In the extension form, a client receives only the status of a task. So progress updates become the
status message, and log messages are dropped. In the core form, progress and log messages are sent
as usual, marked with the task that they belong to.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.structs import replace

from ...aio import TaskSet
from ...connection.encode import replace_surrogates
from ...connection.input_requests import (
    QUESTIONS,
    OpenQuestion,
    question_key,
    too_many_rounds,
    unanswered,
)
from ...connection.notifications import ProgressThrottle
from ...errors import BackendAway, InternalError, Overloaded, ProtocolError, TimedOut, ToolError
from ...jsonrpc.messages import encode
from ...logs import get_logger
from ...ports import Call, CallHandler
from ...protocol.base import PROGRESS_TOKEN
from ...protocol.lifecycle import ProgressParams
from ...protocol.methods import Method
from ...protocol.tasks import RELATED_TASK
from ...revisions import decode
from .store import Lease, TaskMessage, TaskRecord
from .wire import MAX_MESSAGE_LENGTH, describe, mark_cancelled

if TYPE_CHECKING:
    from ...server.forms import Form
    from .manager import TaskManager

log = get_logger("tasks")

AWAY_SECONDS = 0.25
"""The pause between attempts to use a store that is away."""

background = TaskSet()


class TaskLeft(Overloaded):
    """The task no longer runs in this process. A message to it belongs in the store."""


class RunningTask:
    """A task that this process runs."""

    asyncio_task: asyncio.Task[Any] | None = None
    detached_call: Call | None = None
    """The plain call that became this task, if its tool detached."""
    result_call: Call | None = None
    """The `tasks/result` request that is waiting for the task, in the core form."""
    once_running = 0
    """The number of `ctx.once` functions that are running."""
    is_ending = False
    """Whether the tool has finished, and its outcome is being saved."""
    is_lost = False
    """Whether another process may run the task. Then this process saves nothing any more."""
    is_parked = False
    """Whether the tool was stopped because the task waits for input. It runs again when an answer
    arrives."""
    _lease_timer: asyncio.TimerHandle | None = None
    _parking_timer: asyncio.TimerHandle | None = None
    expires_at = inf
    """When the task expires, by the clock of the event loop."""
    _change: asyncio.Future[None] | None = None
    _save_timer: asyncio.TimerHandle | None = None
    _progress: ProgressThrottle | None = None
    """Sends progress updates, once there are any, in the core form."""

    def __init__(
        self,
        record: TaskRecord,
        lease: Lease,
        call: Call,
        handler: CallHandler,
        manager: "TaskManager",
    ) -> None:
        self.record, self.lease, self.handler = record, lease, handler
        self._manager, self._limits = manager, manager.limits
        self.loop = asyncio.get_running_loop()
        self.headers: Mapping[str, str] = (
            call.connection.headers if call.connection is not None else {}
        )
        self._connection = (
            call.connection if getattr(call.connection, "outlives_requests", False) else None
        )
        """The connection on which the task began, if it outlives the call."""
        self.call = replace(
            call,
            connection=self,
            run=self,
            progress=self,
            detach=None,
            cancelled=False,
            finished=False,
            task=None,
            once_results=dict(record.once_results),
        )
        self.save_lock = asyncio.Lock()
        self.notified_status = record.status
        """The status in the last notification."""
        self.signalled_state: tuple[str, ...] = (record.status,)
        """The status and the questions in the last signal to other processes."""
        self._open_questions: dict[str, asyncio.Future[Raw]] = {}
        self.stored_questions = record.questions
        """The questions in the stored record."""
        self.stored_answers = record.answers
        """The answers in the stored record."""
        self._refusals: dict[str, ToolError] = {}
        """The questions of an earlier run that the client refused to answer."""
        self.used_keys: set[str] = set()
        """The keys of all questions in this run of the tool."""
        self._is_core = not call.caller.revision.stateless
        self._progress_token: Any = (call.params.meta or {}).get(PROGRESS_TOKEN)

    @property
    def visible_record(self) -> TaskRecord:
        """The record without the questions that are not stored yet. Nobody may see them: a process
        that receives the answer compares it with the stored record."""
        record = self.record
        stored = {key: one for key, one in record.questions.items() if key in self.stored_questions}
        if len(stored) == len(record.questions):
            return record
        return replace(record, questions=stored, status="input_required" if stored else "working")

    # questions and `ctx.once`

    async def ask(self, method: Method, params: Any, key: str | None, timeout: float | None) -> Raw:
        """Return the known answer to a question, or save the question and wait for the client."""
        key = question_key(method, params, key, self.used_keys)
        record = self.record
        known = record.answers.get(key)
        if known is not None:
            return Raw(known)
        if key in self._refusals:
            raise self._refusals.pop(key)
        if record.over:
            raise asyncio.CancelledError
        question_count = len(record.answers) + len(record.questions)
        if key not in record.questions and question_count >= self._limits.asks:
            raise too_many_rounds(self.call, self._limits)
        future: asyncio.Future[Raw] = self.loop.create_future()
        self._open_questions[key] = future
        self._start_parking_timer()
        lowered = self.call.caller.revision.lower_params(method, params)
        record.questions = {**record.questions, key: (method.name, encode(lowered))}
        record.status = "input_required"
        try:
            async with asyncio.timeout(timeout) as deadline:
                await self._save_patiently()
                return await future
        except TimeoutError:
            if timeout is None or not deadline.expired():
                raise  # raised by the store
            raise TimedOut(unanswered(method.name, timeout)) from None
        finally:
            self._open_questions.pop(key, None)
            if not self._open_questions and self._parking_timer is not None:
                self._parking_timer.cancel()
            if key in self.record.questions:
                self.loop.call_soon(self._withdraw_question, key)

    @property
    def once_seed(self) -> bytes:
        """What distinguishes the `once_key` tokens of this task."""
        return self.record.id.encode()

    async def save_once_result(self, key: str, done: bytes) -> None:
        """Save the result of a `ctx.once` call."""
        self._check_size(len(done))
        record = self.record
        record.once_results, record.attempts = {**record.once_results, key: done}, 0
        await self._save_patiently()

    def close_round_soon(self) -> None:
        """Do nothing: a task has no rounds."""

    async def receive(self, message: TaskMessage) -> None:
        """Act on a message: cancel the task, refuse questions or answer them. Answers to questions
        that were not asked are ignored. Return when the answers are stored, also if they arrived
        before and could not be stored then.

        Raises:
            InvalidParams: An answer does not fit its question.
            TaskLeft: The task no longer runs in this process, or is about to leave it.
        """
        if self.record.over:
            return
        if message.cancel:
            await self._manager.save(self, mark_cancelled(self.record))
            self._check_not_left()
            return
        if self.call.cancelled and self._manager.store.queued:
            raise TaskLeft("The task is about to move to another process; try again")
        for key, reason in message.refused.items():
            self.refuse(key, ToolError(reason))
        answers = fitting_answers(self.record, message.answers, self._manager.service.make_form)
        unsaved = self.record.answers.keys() - self.stored_answers.keys()
        if not answers and unsaved.isdisjoint(message.answers):
            return
        self._check_size(sum(map(len, answers.values())))
        self.record.answers, self.record.attempts = {**self.record.answers, **answers}, 0
        for key in answers:
            self._remove_question(key)
        try:
            await self._manager.save(self)
            self._check_not_left()
        finally:  # even if it could not be saved: the client may not send the answer again
            for key, answer in answers.items():
                question = self._open_questions.get(key)
                if question is not None and not question.done():
                    question.set_result(Raw(answer))

    def _check_not_left(self) -> None:
        if self.is_lost:
            raise TaskLeft("The task has just moved to another process; try again")

    def refuse(self, key: str, error: ToolError) -> None:
        """Raise an error in the tool for a question that the client refused to answer."""
        if key in self.record.questions:
            self._remove_question(key)
            self._save_soon()
            question = self._open_questions.get(key)
            if question is None:  # a resumed tool has not asked it again yet
                self._refusals[key] = error
            elif not question.done():
                question.set_exception(error)

    def _withdraw_question(self, key: str) -> None:
        """Remove a question that the tool no longer waits for. If the tool is being stopped, the
        question stays, because a resumed task asks it again."""
        task = self.asyncio_task
        continues = task is not None and not task.done() and not task.cancelling()
        if continues and key in self.record.questions and key not in self._open_questions:
            self._remove_question(key)
            self._save_soon()

    def _remove_question(self, key: str) -> None:
        record = self.record
        record.questions = {other: one for other, one in record.questions.items() if other != key}
        if not record.questions and not record.over:
            record.status = "working"

    def _check_size(self, added: int) -> None:
        stored = (*self.record.answers.values(), *self.record.once_results.values())
        if (size := added + sum(map(len, stored))) > self._limits.journal:
            raise InternalError(
                f"The answers to this task use {size} bytes; the limit is {self._limits.journal}"
            )

    # progress and notifications

    def notify(self, call: Call, method: str, params: Any) -> None:
        """Send a notification to the client, in the core form."""
        if not self._is_core or self.record.over:
            return
        params = replace(
            params, meta={**(params.meta or {}), RELATED_TASK: {"taskId": self.record.id}}
        )
        if self.result_call is not None and not self.result_call.finished:
            self.result_call.connection.notify(self.result_call, method, params)
        elif self._connection is not None:
            self._connection.notify(call, method, params)
        else:
            self._manager.notify(method, params)

    async def drain(self) -> None:
        """Return immediately: a task buffers nothing."""

    def close_stream(self, call: Call) -> None:
        """Do nothing: a task has no stream."""

    def update(self, params: ProgressParams) -> None:
        """Turn a progress update into the status message, which is saved periodically."""
        record = self.record
        if record.over:
            return
        done = f"{params.progress:g}"
        if params.total is not None:
            done += f" of {params.total:g}"
        record.message = replace_surrogates(params.message or done)[:MAX_MESSAGE_LENGTH]
        record.updated = time.time()
        if self._is_core and self._progress_token is not None:
            if self._progress is None:
                interval = self._limits.progress_interval
                self._progress = ProgressThrottle(self._send_progress, interval)
            self._progress.update(params)
        if self._save_timer is None:
            self._save_timer = self.loop.call_later(
                self._limits.progress_interval * 10, self._save_soon
            )

    def finish(self) -> None:
        """Send the last progress update, and stop all timers."""
        if self._progress is not None:
            self._progress.finish()
        for timer in (self._save_timer, self._lease_timer, self._parking_timer):
            if timer is not None:
                timer.cancel()
        if self.record.over and not self.save_lock.locked():
            # Both refer back to this object. Without these cycles, everything is freed at once
            # instead of by the garbage collector, which took 40 µs per task.
            self.call = replace(self.call, connection=None, run=None, progress=None)
            self._progress = None

    def _send_progress(self, params: ProgressParams) -> None:
        params.progress_token = self._progress_token
        self.notify(self.call, "notifications/progress", params)

    def _save_soon(self) -> None:
        self._save_timer = None
        if not self.record.over:
            background.start(self._save_progress())

    async def _save_progress(self) -> None:
        try:
            await self._manager.save(self)
        except ProtocolError:
            pass  # the next change is saved together with this one
        except Exception as error:
            log.warning("The progress of a task could not be saved: %r", error)

    # the lease

    @property
    def has_lease(self) -> bool:
        """Whether no other process can run the task yet, by the clock of this process."""
        return not self.is_lost and time.monotonic() < self._stop_at

    @property
    def _stop_at(self) -> float:
        """When the tool must stop unless the lease is renewed: when nine tenths of it have
        passed."""
        until = self.lease.until
        return until if until == inf else until - self._manager.store.lease_seconds / 10

    def set_lease(self, lease: Lease) -> None:
        """Use a new lease, unless it ends before the current one."""
        if lease.until >= self.lease.until:
            self.lease = lease
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        self._lease_timer = self.loop.call_later(
            max(0.0, self._stop_at - time.monotonic()), self._on_lease_end
        )

    def _on_lease_end(self) -> None:
        if not self.is_ending:  # else the store decides whether it is too late
            self.lose()

    def lose(self) -> None:
        """Stop the tool, because another process may run the task."""
        if not self.is_lost:
            log.warning("Stopping task %s: its lease was lost", describe(self.record))
            self.is_lost = True
            self._manager.on_lost(self)
            self.stop()

    async def check_lease(self) -> None:
        """Make sure that no other process runs the task, before a step that must not be repeated.
        Wait while the store is away."""
        while self.has_lease:
            if self.lease.until == inf:
                return
            try:
                renewed = await self._manager.store.renew([self.lease])
            except BackendAway:
                await asyncio.sleep(AWAY_SECONDS)
                continue
            if not renewed:
                break
            self.set_lease(renewed[0])  # which may have ended already, if this process was stopped
            if self.has_lease:
                return
        self.lose()
        await _wait_to_be_cancelled()

    async def _save_patiently(self) -> None:
        """Save the record before the tool continues. Wait while the store is away."""
        while self.has_lease:
            try:
                await self._manager.save(self)
                break
            except BackendAway:
                await asyncio.sleep(AWAY_SECONDS)
        if not self.has_lease:
            self.lose()
            await _wait_to_be_cancelled()

    # waiting for input without a lease

    def _start_parking_timer(self) -> None:
        if self._manager.can_park(self):
            if self._parking_timer is not None:
                self._parking_timer.cancel()
            self._parking_timer = self.loop.call_later(self._limits.parked_time, self._park)

    def _park(self) -> None:
        """Stop the tool until an answer arrives, unless one has just arrived, or the tool does
        something that must not be repeated."""
        is_answered = not self._open_questions.keys() <= self.record.questions.keys()
        if self.once_running or is_answered:
            self._start_parking_timer()
        elif self._open_questions and not self.record.over:
            self.is_parked = True
            self.stop()

    # changes and the end

    async def wait_for_change(self) -> None:
        """Wait until the record changes."""
        if self._change is None:
            self._change = self.loop.create_future()
        await asyncio.shield(self._change)

    def signal_change(self) -> None:
        """Wake everything that waits for a change."""
        if self._change is not None:
            self._change.set_result(None)
            self._change = None

    def stop(self) -> None:
        """Cancel the tool. May be called from any thread."""
        self.call.cancelled = True
        if self.detached_call is not None:
            self.detached_call.cancelled = True
        if self.asyncio_task is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.asyncio_task.cancel)


async def _wait_to_be_cancelled() -> None:
    """Let nothing happen until the cancellation of the tool arrives."""
    await asyncio.sleep(1)
    raise asyncio.CancelledError


def fitting_answers(
    record: TaskRecord, answers: Mapping[str, bytes], form: "Callable[..., Form]"
) -> dict[str, bytes]:
    """Return the answers to questions that the task asked; raise InvalidParams if an answer does
    not fit its question.

    The record contains all data about a question. So the check has the same result in every
    process, even before a resumed task has asked the question again.
    """
    known = {
        key: answer
        for key, answer in answers.items()
        if key in record.questions and answer != b"null"
    }
    for key, answer in known.items():
        name, params = record.questions[key]
        method = QUESTIONS[name]
        schema = getattr(decode(params, method.params), "requested_schema", None)
        question = OpenQuestion(method, None, form=None if schema is None else form("", schema))
        question.check_answer(Raw(answer))
    return known
