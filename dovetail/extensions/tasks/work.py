"""A tool at work as a task. To its call it is what a connection and a run of rounds are to others:
where it speaks to (`emit`), what asks (`ask`), what remembers (`keep`), what hears of its progress
(`update`).

A question parks the task: it is written into the record, and the tool waits until somebody brings
the answer, by `tasks/update` or on the stream of a `tasks/result`. Both are written down before
anybody is notified, and the tool goes on after that; who looks meanwhile finds them in the record.

In the form of the extension nothing is sent for a task but its status, so progress becomes its
message and logs go nowhere. In the core form progress and logs are sent as ever, marked with the
task that they belong to.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from ...connection.asking import QUESTIONS, endless
from ...connection.outgoing import valid
from ...connection.progress import Progress
from ...connection.runs import Question, key_of
from ...errors import InternalError, ProtocolError, ToolError
from ...jsonrpc.codec import encode
from ...limits import Limits
from ...ports import Answer, Call, Form
from ...protocol.base import PROGRESS_TOKEN
from ...protocol.lifecycle import ProgressParams
from ...protocol.methods import Method
from ...protocol.tasks import RELATED_TASK
from ...revisions import decode
from .store import Record

log = logging.getLogger("dovetail.tasks")

Save = Callable[["Work"], Awaitable[None]]
"""Writes the record of a task into the store, and tells of it."""
Tell = Callable[[str, Any], None]
MESSAGE = 1000
"""The longest message of a status."""


def fitting(
    record: Record, answers: Mapping[str, bytes], form: Callable[..., Form]
) -> dict[str, bytes]:
    """Those answers that a task asked for; InvalidParams where one is none to what was asked. The
    record says all there is to a question, so this is the same wherever the task runs, and before
    one that is run again has come to ask it."""
    asked = {
        key: answer for key, answer in answers.items() if key in record.asked and answer != b"null"
    }
    for key, answer in asked.items():
        name, raw = record.asked[key]
        method = QUESTIONS[name]
        schema = getattr(decode(raw, method.params), "requested_schema", None)
        Question(method, None, form=None if schema is None else form("", schema)).fits(Raw(answer))
    return asked


class Work:
    """One task that this process runs."""

    __slots__ = (
        "_changed", "_core", "_form", "_later", "_open", "_origin", "_progress", "_save", "_tell",
        "_token", "_used", "before", "busy", "call", "expiry", "handle", "headers", "limits",
        "loop", "record", "saving", "stream", "task", "told",
    )  # fmt: skip

    def __init__(
        self,
        record: Record,
        call: Call,
        handle: Answer,
        save: Save,
        tell: Tell,
        limits: Limits,
        form: Callable[..., Form],
    ) -> None:
        self.record, self.handle, self.limits = record, handle, limits
        self.loop = asyncio.get_running_loop()
        self.headers: Mapping[str, str] = (
            call.connection.headers if call.connection is not None else {}
        )
        self._origin = call.connection if getattr(call.connection, "stays", False) else None
        """The connection that it began on, where it outlives the call."""
        self.call = replace(
            call,
            connection=self,
            run=self,
            progress=self,
            detach=None,
            cancelled=False,
            over=False,
            task=None,
        )
        self.call.kept = dict(record.kept)
        self.task: asyncio.Task[Any] | None = None
        self.before: Call | None = None
        """The call that it was, where it detached."""
        self.stream: Call | None = None
        """The `tasks/result` that waits for it, in the core form."""
        self.busy = 0
        self.saving = asyncio.Lock()
        self.expiry: asyncio.TimerHandle | None = None
        self.told = record.status
        """The status that was last told of."""
        self._changed: asyncio.Future[None] | None = None
        self._open: dict[str, Question] = {}
        self._used: set[str] = set()
        self._save, self._tell, self._form = save, tell, form
        self._core = not call.caller.revision.stateless
        self._later: asyncio.TimerHandle | None = None
        token = (call.params.meta or {}).get(PROGRESS_TOKEN)
        self._progress = (
            Progress(self._progressed, limits.progress_interval)
            if self._core and token is not None
            else None
        )
        self._token: Any = token

    # what its call asks and does

    async def ask(self, method: Method, params: Any, key: str | None) -> Raw:
        """One question: answered from what is known, or put into the record for the client to
        find."""
        key = key_of(method, params, key, self._used)
        record = self.record
        known = record.answers.get(key)
        if known is not None:
            return Raw(known)
        if key not in record.asked and len(record.answers) + len(record.asked) >= self.limits.asks:
            raise endless(self.call, self.limits)
        if record.over:
            raise asyncio.CancelledError
        future: asyncio.Future[Raw] = self.loop.create_future()
        self._open[key] = Question(method, params, future)
        lowered = self.call.caller.revision.lower_params(method, params)
        record.asked = {**record.asked, key: (method.name, encode(lowered))}
        record.status = "input_required"
        try:
            await self._save(self)
            return await future
        finally:
            self._open.pop(key, None)
            if key in self.record.asked:
                self.loop.call_soon(self._drop, key)

    async def keep(self, key: str, done: bytes) -> None:
        """Something was done once, and never will be again."""
        self._fits(len(done))
        self.record.kept, self.record.attempts = {**self.record.kept, key: done}, 0
        await self._save(self)

    def close_soon(self) -> None:
        """There are no rounds in a task."""

    async def answer(self, answers: Mapping[str, bytes]) -> None:
        """Answers to its questions. What nobody asked is ignored; InvalidParams where one is none
        to what was asked."""
        record = self.record
        answers = fitting(record, answers, self._form)
        if not answers:
            return
        self._fits(sum(map(len, answers.values())))
        record.answers, record.attempts = {**record.answers, **answers}, 0
        for key in answers:
            self._answered(key)
        try:
            await self._save(self)
        finally:  # whether it could be written down or not: nobody brings an answer twice
            for key, answer in answers.items():
                if key in self._open:
                    self._open[key].settle(Raw(answer))

    def afresh(self) -> None:
        """Its tool is called again: what it asked before is answered as before."""
        self._used.clear()

    def refuse(self, key: str, error: ToolError) -> None:
        """The client said no to a question of the core form."""
        question = self._open.get(key)
        if question is not None and question.future is not None and not question.future.done():
            self._answered(key)
            self._write()
            question.future.set_exception(error)

    def _drop(self, key: str) -> None:
        """The tool goes on and does not want to know any more. One that is at its end may be
        resumed, and will ask again."""
        goes_on = self.task is not None and not self.task.done() and not self.task.cancelling()
        if goes_on and key in self.record.asked and key not in self._open:
            self._answered(key)
            self._write()

    def _answered(self, key: str) -> None:
        record = self.record
        record.asked = {other: asked for other, asked in record.asked.items() if other != key}
        if not record.asked and not record.over:
            record.status = "working"

    def _fits(self, more: int) -> None:
        known = (*self.record.answers.values(), *self.record.kept.values())
        if (size := more + sum(map(len, known))) > self.limits.journal:
            raise InternalError(
                f"The answers to this task so far are {size} bytes; the limit is "
                f"{self.limits.journal}"
            )

    # what its call tells

    def emit(self, call: Call, method: str, params: Any) -> None:
        """Something for the client, where this form lets it through."""
        if not self._core or self.record.over:
            return
        params = replace(
            params, meta={**(params.meta or {}), RELATED_TASK: {"taskId": self.record.id}}
        )
        if self.stream is not None and not self.stream.over:
            self.stream.connection.emit(self.stream, method, params)
        elif self._origin is not None:
            self._origin.emit(call, method, params)
        else:
            self._tell(method, params)

    async def drain(self) -> None:
        """Nobody has to read what is said here."""

    def close_stream(self, call: Call) -> None:
        """There is none."""

    def update(self, params: ProgressParams) -> None:
        """How far it has come: from now on its message, which is written down once in a while."""
        record = self.record
        if record.over:
            return
        done = (
            f"{params.progress:g}"
            if params.total is None
            else f"{params.progress:g} of {params.total:g}"
        )
        record.message = valid(params.message or done)[:MESSAGE]
        record.updated = time.time()
        if self._progress is not None:
            self._progress.update(params)
        if self._later is None:
            self._later = self.loop.call_later(self.limits.progress_interval * 10, self._write)

    def finish(self) -> None:
        """The last update has come."""
        if self._progress is not None:
            self._progress.finish()
        if self._later is not None:
            self._later.cancel()

    def _progressed(self, params: ProgressParams) -> None:
        params.progress_token = self._token
        self.emit(self.call, "notifications/progress", params)

    def _write(self) -> None:
        """Write down what has changed, as soon as may be."""
        from .engine import hold

        self._later = None
        if not self.record.over:
            hold(self.loop.create_task(self._written()))

    async def _written(self) -> None:
        try:
            await self._save(self)
        except ProtocolError:
            pass  # whatever changes next is written down with it
        except Exception as error:
            log.warning("How far a task has come could not be written down: %r", error)

    # its changes and its end

    async def change(self) -> None:
        """Wait for the next change."""
        if self._changed is None:
            self._changed = self.loop.create_future()
        await asyncio.shield(self._changed)

    def stir(self) -> None:
        """Something has changed."""
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def stop(self) -> None:
        """Nobody waits for it any more; from any thread."""
        self.call.cancelled = True
        if self.before is not None:
            self.before.cancelled = True
        if self.task is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.task.cancel)
