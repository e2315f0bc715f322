"""Runs tasks, and keeps the store in step with them: how one begins, changes, ends, is answered, cancelled and found again.

What this process runs is in `works`, and their records there are the newest; all others are read from the store. A record
goes into the store before anybody is told of it. One that is over never changes again, whoever comes late.

Where processes share a store, an answer or a cancellation for a task of another one goes there as a letter; each looks for
letters while it has something running.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from secrets import token_urlsafe
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ...connection.answer import as_protocol_error
from ...errors import InternalError, InvalidParams, Overloaded, ProtocolError, ToolError
from ...jsonrpc.codec import encode
from ...limits import Limits
from ...ports import Answer, Call, Caller, Listener, Principal, Service
from ...protocol.base import Implementation
from ...protocol.capabilities import ClientCapabilities
from ...protocol.lifecycle import InputRequired
from ...protocol.methods import METHODS
from ...protocol.tools import CallToolParams
from ...revisions import BY_NAME, Revision, decode
from . import forms
from .engine import Engine, hold
from .store import Letter, Origin, Record, TaskStore
from .terms import FORBIDDEN, Terms
from .work import MESSAGE, Work

log = logging.getLogger("dovetail.tasks")

PAUSES = (0.1, 1.0, 10.0)
"""Seconds between attempts to write down that a task is over."""
MAIL = 0.25
"""Seconds between two looks for letters, while something runs here."""
SWEEP = 60.0
STOPPED = "The server stopped while this task ran, and it is not one that can be resumed"


class Keeper:
    """The tasks of one server in one process."""

    def __init__(
        self,
        service: Service,
        store: TaskStore,
        engine: Engine,
        terms: Callable[[str], Terms | None],
        handle: Answer,
        tell: Listener,
        ends: bool,
    ) -> None:
        self.service, self.store, self.limits = service, store, service.limits
        self.works: dict[str, Work] = {}
        """What this process runs, by id."""
        self.listened: Counter[str] = Counter()
        """The tasks that streams of this process are told of."""
        self._engine, self._terms, self._handle, self._tell, self._ends = engine, terms, handle, tell, ends
        self._lives: dict[asyncio.AbstractEventLoop, int] = {}
        self._mailing: set[asyncio.AbstractEventLoop] = set()
        store.bind(service.limits)

    # beginning

    async def begin(self, call: Call, terms: Terms, handle: Answer) -> Work:
        """A call goes on as a task, from its beginning."""
        record = self._record(call, terms)
        work = await self._add(record, call, handle)
        self._engine(record.id, self.perform)
        return work

    async def detach(self, call: Call, terms: Terms, handle: Answer, running: "asyncio.Task[Any]") -> Work:
        """A call goes on as a task in the middle of it, with what it was answered and did so far."""
        record = self._record(call, terms)
        record.answers = dict(call.run.answers) if call.run is not None else {}
        record.kept = {key: done for key, done in (call.kept or {}).items() if isinstance(done, bytes)}
        work = await self._add(record, call, handle)
        work.task, work.before = running, call
        return work

    async def _add(self, record: Record, call: Call, handle: Answer) -> Work:
        await self.store.add(record)
        if not call.revision.stateless:
            call.caller.remember_task(record.id)
        return self._start(record, call, handle)

    def _start(self, record: Record, call: Call, handle: Answer) -> Work:
        work = Work(record, call, handle, self.save, self._tell, self.limits, self.service.form)
        self.works[record.id] = work
        if record.ttl is not None:
            work.expiry = work.loop.call_later(max(0.0, record.expires - time.time()), self._expire, work)
        if self.store.shared and work.loop not in self._mailing:
            self._mailing.add(work.loop)
            hold(work.loop.create_task(self._mail(work.loop)))
        return work

    def _record(self, call: Call, terms: Terms) -> Record:
        caller, params, now = call.caller, call.params, time.time()
        principal = call.principal or caller.principal
        origin = Origin(caller.revision.name, {**caller.capabilities}, caller.info, principal, caller.log_level)
        asked = None if caller.revision.stateless else params.task
        kept = CallToolParams(name=params.name, arguments=params.arguments, meta=params.meta)
        return Record(
            id=token_urlsafe(24), created=now, updated=now, ttl=self._ttl(asked), owner=owner_of(call),
            session=caller.session, tool=params.name, params=encode(kept), origin=origin, resumable=terms.resumable,
            runner=self.store.runner,
        )  # fmt: skip

    def _ttl(self, asked: dict[str, Any] | None) -> float:
        wanted = None if asked is None else asked.get("ttl")
        if wanted is None:
            return self.limits.task_life
        if not isinstance(wanted, int | float) or not 0 < wanted < float("inf"):
            raise InvalidParams(f"task.ttl must be a number of milliseconds above 0, not {wanted!r}")
        return min(wanted / 1000, self.limits.task_life_max)

    # working

    async def perform(self, id: str) -> None:
        """Run a task to its end: one that began here, or any that is in the store."""
        work = self.works.get(id)
        if work is None:
            record = await self.store.get(id)
            if record is None or record.over:
                return
            work = await self._adopt(record, None)
        work.task = asyncio.current_task()
        try:
            outcome: Any = await work.handle(work.call)
        except BaseException as error:
            outcome = error
        await self.end(id, outcome)

    async def end(self, id: str, outcome: Any) -> None:
        """A tool has returned, or raised; or it asks by itself, and is called again with the answers."""
        work = self.works[id]
        try:
            while type(outcome) is InputRequired:
                outcome = await self._again(work, outcome)
            await self._ended(work, outcome)
        finally:
            work.finish()
            if work.expiry is not None:
                work.expiry.cancel()
            if self.works.get(id) is work:
                del self.works[id]

    async def _again(self, work: Work, asked: InputRequired) -> Any:
        from ...connection.asking import ask, kind_of, plain

        call = work.call
        try:
            questions = [ask(call, kind_of(params), plain(params), key) for key, params in asked.requests.items()]
            call.given = dict(zip(asked.requests, await asyncio.gather(*questions), strict=True))
            call.own = asked.state
            return await work.handle(call)
        except BaseException as error:
            return error

    async def _ended(self, work: Work, outcome: Any) -> None:
        record, task = work.record, asyncio.current_task()
        if record.over:
            return  # it was cancelled, or its time is over
        if isinstance(outcome, asyncio.CancelledError) or (task is not None and task.cancelling()):
            if record.resumable:
                return  # whoever comes next goes on with it
            outcome = InternalError(STOPPED)
        if not isinstance(outcome, BaseException):
            try:
                await self._save_surely(work, completed(record, outcome, self.limits))
                return
            except ProtocolError as error:  # it cannot be written, or there is no room for it
                outcome = error
        await self._save_surely(work, failed(record, as_protocol_error(outcome, work.call), work.call.revision))

    async def _save_surely(self, work: Work, record: Record) -> None:
        """Write down that a task is over, which nobody will do again."""
        for pause in PAUSES:
            try:
                await self.save(work, record)
                return
            except Overloaded as error:
                log.warning("That the task %s is over could not be written down yet: %s", record.id, error)
                await asyncio.sleep(pause)
        await self.save(work, record)

    async def save(self, work: Work, after: Record | None = None) -> None:
        """Write a record down, or what it becomes, then tell of it. What is over stays as it is."""
        async with work.saving:
            record = work.record if after is None or work.record.over else after
            record.updated = time.time()
            await self.store.put(record)
            work.record = record
        work.stir()
        self._told(work)

    def _told(self, work: Work) -> None:
        record, revision = work.record, work.call.revision
        if revision.stateless and (self.store.shared or record.id in self.listened):
            self._tell("notifications/tasks", forms.changed(record, self.limits, revision))
        elif not revision.stateless and record.status != work.told:
            self._tell("notifications/tasks/status", forms.status(record, self.limits))
        work.told = record.status

    # from outside

    async def find(self, id: str) -> Record | None:
        """A task, as it stands now."""
        work = self.works.get(id)
        return await self.store.get(id) if work is None or work.loop.is_closed() else work.record

    def newest(self, record: Record) -> Record:
        """The same, with what the store does not know yet."""
        work = self.works.get(record.id)
        return record if work is None else work.record

    async def change(self, id: str, seconds: float) -> None:
        """Wait until a task has changed, or may have."""
        work = self.works.get(id)
        if work is None or work.loop is not asyncio.get_running_loop():
            await asyncio.sleep(seconds)
        else:
            await work.change()

    def stir(self, id: str) -> None:
        """Wake up who waits for a change of a task."""
        if (work := self.works.get(id)) is not None:
            work.stir()

    @contextmanager
    def listening(self, ids: list[str]) -> Iterator[None]:
        """A stream that is told of these."""
        self.listened.update(ids)
        try:
            yield
        finally:
            self.listened.subtract(ids)
            self.listened = +self.listened

    async def deliver(self, record: Record, letter: Letter) -> None:
        """A letter to a task, wherever it runs; InvalidParams where its answers do not fit."""
        work = self.works.get(record.id)
        if work is None:
            await self.store.send(record.runner, letter)
        elif work.loop is asyncio.get_running_loop():
            await self._take(work, letter)
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._take(work, letter), work.loop))

    async def cancel(self, record: Record) -> None:
        """Nobody wants it any more: from now on it is cancelled, however long its tool takes to notice."""
        if record.id not in self.works:
            await self.store.put(cancelled(record))
        await self.deliver(record, Letter(record.id, cancel=True))

    async def _take(self, work: Work, letter: Letter) -> None:
        if letter.cancel:
            await self.save(work, cancelled(work.record))
            work.stop()
        for key, text in letter.refused.items():
            work.refuse(key, ToolError(text))
        await work.answer({key: Raw(answer) for key, answer in letter.answers.items()})

    def _expire(self, work: Work) -> None:
        if not work.record.over:
            late = InternalError("The task took longer than it was to be kept")
            work.record = failed(work.record, late, work.call.revision)
            work.stir()
            work.stop()
            hold(work.loop.create_task(self._forget(work.record.id)))

    async def _forget(self, id: str) -> None:
        await self.store.remove(id)

    async def _mail(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look for letters, as long as something runs in this loop."""
        while any(work.loop is loop for work in self.works.values()):
            try:
                letters = await self.store.receive()
            except Overloaded:
                letters = []  # they are still there the next time
            for letter in letters:
                work = self.works.get(letter.id)
                try:
                    if work is not None:
                        await self.deliver(work.record, letter)
                except ProtocolError as error:
                    log.warning("A letter to the task %s was refused: %s", letter.id, error)
            await asyncio.sleep(MAIL)
        self._mailing.discard(loop)

    # a server's life

    @asynccontextmanager
    async def living(self, lifespan: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """The server's lifespan, with tasks in it: what was left behind is taken up, and what cannot go on is let go."""
        loop = asyncio.get_running_loop()
        async with lifespan as state:
            self._lives[loop] = self._lives.get(loop, 0) + 1
            await self._recover(state)
            sweeping = loop.create_task(self._sweep())
            try:
                yield state
            finally:
                sweeping.cancel()
                self._lives[loop] -= 1
                if not self._lives[loop]:
                    del self._lives[loop]
                    await self._leave(loop)

    async def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """The last lifespan of a loop ends. Where the tools could rely on it, they cannot go on."""
        here = [work for work in self.works.values() if work.loop is loop and work.task is not None]
        if self._ends and here:
            for work in here:
                work.call.cut_off = InternalError(STOPPED)
                work.stop()
            await asyncio.wait([work.task for work in here if work.task is not None], timeout=self.limits.shutdown)
        if not self.works:
            await self.store.close()

    async def _recover(self, state: Any) -> None:
        for record in await self.store.orphans():
            work = self.works.get(record.id)
            if work is not None and not work.loop.is_closed():
                continue
            record.runner = self.store.runner
            if record.resumable and self._terms(record.tool) not in (None, FORBIDDEN):
                await self._adopt(record, state)
                self._engine(record.id, self.perform)
            else:
                await self.store.put(failed(record, InternalError(STOPPED), BY_NAME[record.origin.revision]))

    async def _adopt(self, record: Record, state: Any) -> Work:
        """Go on with a task of which there is nothing but the record."""
        origin = record.origin
        info = None if origin.info is None else msgspec.convert(origin.info, Implementation)
        capabilities = ClientCapabilities.lift(origin.capabilities)
        caller = Caller(BY_NAME[origin.revision], info, capabilities, origin.level, state)
        if origin.principal is not None:
            caller.principal = msgspec.convert(origin.principal, Principal)
        call = Call(record.id, METHODS["tools/call"], decode(record.params, CallToolParams), caller, None)
        call.principal, record.runner = caller.principal, self.store.runner
        await self.store.put(record)
        return self._start(record, call, self._handle)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            try:
                await self.store.sweep()
            except Overloaded as error:
                log.warning("Tasks that have expired are still there: %s", error)


def cancelled(record: Record) -> Record:
    """The record of a task that nobody wants any more."""
    return replace(record, status="cancelled", message=None, asked={}, updated=time.time())


def completed(record: Record, result: Any, limits: Limits) -> Record:
    """The record of a task with its result; raises where that cannot be written."""
    text = result.text[:MESSAGE] if result.is_error else None
    written = forms.written(result, limits)
    return replace(record, status="completed", message=text, result=written, is_error=bool(result.is_error), asked={})


def failed(record: Record, error: ProtocolError, revision: Revision) -> Record:
    """The record of a task that came to nothing."""
    told: dict[str, Any] = {"code": revision.code(error), "message": error.message}
    if error.data is not None:
        told["data"] = error.data
    text = error.message[:MESSAGE]
    return replace(record, status="failed", message=text, error=told, asked={}, updated=time.time())


def owner_of(call: Call) -> str:
    """Whose a call's tasks are; empty where nobody is known."""
    principal = call.principal or call.caller.principal
    return "" if principal is None else principal.id
