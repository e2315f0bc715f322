"""Runs tasks, and keeps the store in step with them: how one begins, changes, ends, is answered,
cancelled and found again.

What this process runs is in `works`, and their records there are the newest: who looks may see a
question or an answer a moment before it is in the store. All others are read from the store. That a
task began, and that it is over, is in the store before anybody can know. One that is over never
changes again, whoever comes late.

Where processes share a store, an answer or a cancellation for a task of another one goes there as a
letter (`mail.py`).
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from itertools import chain, repeat
from threading import Lock
from typing import Any

from ...connection.answer import as_protocol_error
from ...connection.rounds import again
from ...errors import (
    ConfigError,
    InternalError,
    Overloaded,
    ProtocolError,
    TooLarge,
    ToolError,
    UrlRequired,
)
from ...ports import Answer, Call, Listener, Service
from ...protocol.lifecycle import InputRequired
from ...revisions import BY_NAME
from . import forms
from .engine import Engine, hold, local
from .forking import tell_of_forks
from .mail import Mail
from .records import call_of, cancelled, completed, failed, named, record_of
from .store import Letter, Record, TaskStore, reserve
from .terms import FORBIDDEN, Terms
from .work import MESSAGE, Work

log = logging.getLogger("dovetail.tasks")

PAUSES = (0.1, 1.0, 10.0, 30.0)
"""Seconds between attempts to write down that a task is over; the last again and again."""
SWEEP = 60.0
STOPPED = "The server stopped while this task ran, and it is not one that can be resumed"
GIVEN_UP = "The server stopped {} times while this task ran, and it got no further"
UNTOLD = "The task is over, but what came of it could not be written down"
UNABLE = "The server stopped while this task ran, and it could not be taken up again"


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
        self.putting: set[tuple[str, str]] = set()
        """The questions that are on their way to a client in the core form, by task and key."""
        self._engine, self._terms, self._handle, self._tell, self._ends = (
            engine,
            terms,
            handle,
            tell,
            ends,
        )
        self._lives: dict[asyncio.AbstractEventLoop, int] = {}
        self._states: dict[asyncio.AbstractEventLoop, Any] = {}
        """What the lifespan gave, in each of them."""
        self._lock = Lock()
        """Around what several loops change, in several threads."""
        self._mail = Mail(store, service.limits, service.form, self.works, self._take)
        store.bind(service.limits)
        tell_of_forks(self)

    # beginning

    async def begin(self, call: Call, terms: Terms, handle: Answer) -> Record:
        """A call goes on as a task, from its beginning."""
        record = record_of(call, terms, self.limits)
        async with self._added(record, call):
            await self._hand(record, call, handle)
        return record

    async def _hand(self, record: Record, call: Call, handle: Answer) -> None:
        """Leave it to the engine when it is performed, and where: from the record alone, unless
        that is here and now."""
        if self._engine is local:
            self._start(record, call, handle)
        else:
            await self.store.release(record.id)
        self._engine(record.id, self.perform)

    async def detach(
        self, call: Call, terms: Terms, handle: Answer, running: "asyncio.Task[Any]"
    ) -> Work:
        """A call goes on as a task in the middle of it, with what it was answered and did so
        far."""
        record = record_of(call, terms, self.limits)
        record.answers = dict(call.run.answers) if call.run is not None else {}
        record.kept = {
            key: done for key, done in (call.kept or {}).items() if isinstance(done, bytes)
        }
        async with self._added(record, call):
            work = self._start(record, call, handle)
        work.task, work.before = running, call
        return work

    @asynccontextmanager
    async def _added(self, record: Record, call: Call) -> AsyncIterator[None]:
        """A new record is in the store, unless its call comes to nothing: it may be cancelled while
        that is written."""
        try:
            await self.store.add(record)
            yield
        except BaseException:
            await self.store.remove(record.id)
            raise
        if not call.revision.stateless:
            call.caller.remember_task(record.id)
        log.info("The task %s has begun", named(record))

    def _start(self, record: Record, call: Call, handle: Answer) -> Work:
        work = Work(record, call, handle, self.save, self._tell, self.limits, self.service.form)
        self.works[record.id] = work
        if record.ttl is not None:
            work.expiry = work.loop.call_later(
                max(0.0, record.expires - time.time()), self._expire, work
            )
        self._mail.look(work.loop)
        return work

    # working

    async def perform(self, id: str) -> None:
        """Run a task to its end: one that began here, or any that is in the store."""
        work = self._here(id)
        if work is None:
            record = await self.store.claim(id)
            if record is None:
                return
            work = self._start(
                record, call_of(record, self._states.get(asyncio.get_running_loop())), self._handle
            )
        elif work.task is not None:
            return  # somebody is at it
        work.task, outcome = asyncio.current_task(), None
        if not work.record.over:  # or it was cancelled before it came to its turn
            try:
                outcome = await work.handle(work.call)
            except BaseException as error:
                outcome = error
        await self.end(id, outcome)

    async def end(self, id: str, outcome: Any) -> None:
        """A tool has returned, or raised; or it asks by itself, and is called again with the
        answers."""
        work = self.works[id]
        try:
            if isinstance(outcome, InputRequired | UrlRequired):
                outcome = await self._again(work, outcome)
            await self._ended(work, outcome)
        except Exception as error:
            log.error(
                "The end of the task %s could not be written down: %s", named(work.record), error
            )
            if isinstance(error, TooLarge):  # better none than one that seems to go on
                await self.store.remove(id)
        finally:
            work.finish()
            if work.expiry is not None:
                work.expiry.cancel()
            if self.works.get(id) is work:
                del self.works[id]
            # also where its end is not written: whoever waits finds in the store what there is
            work.stir()

    async def _again(self, work: Work, asked: InputRequired | UrlRequired) -> Any:
        async def handle(call: Call) -> Any:
            work.afresh()
            return await work.handle(call)

        try:
            return await again(work.call, handle, asked, self.service)
        except BaseException as error:
            return error

    async def _ended(self, work: Work, outcome: Any) -> None:
        record, task, revision = work.record, asyncio.current_task(), work.call.revision
        if record.over:
            return  # it was cancelled, or its time is over
        if isinstance(outcome, asyncio.CancelledError) or (task is not None and task.cancelling()):
            if record.resumable:  # whoever comes next goes on with it, and this was no crash
                record.attempts = 0
                await self.store.put(record)
                return
            outcome = InternalError(STOPPED)
        if not isinstance(outcome, BaseException):
            try:
                await self._save_surely(work, completed(record, outcome, self.limits))
                return
            except ProtocolError as error:  # it cannot be written, or there is no room for it
                outcome = error
            except Exception:
                log.exception("What came of the task %s cannot be written down", named(record))
                outcome = InternalError(UNTOLD)
        told = as_protocol_error(outcome, work.call)
        for less in (told, ProtocolError(revision.code(told), told.message[:MESSAGE])):
            try:
                await self._save_surely(work, failed(record, less, revision, self.limits))
                return
            except Exception as error:
                log.warning(
                    "How the task %s has failed cannot be written down as it is: %r",
                    named(record),
                    error,
                )
        await self._save_surely(
            work, failed(record, InternalError(UNTOLD), revision, self.limits), Exception
        )

    async def _save_surely(
        self, work: Work, record: Record, passing: type[Exception] = Overloaded
    ) -> None:
        """Write down that a task is over, which nobody will do again: as soon as that is possible,
        or until it expires."""
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            try:
                await self.save(work, record)
                return
            except TooLarge:
                raise
            except passing as error:
                log.warning(
                    "That the task %s is over could not be written down yet: %s",
                    named(record),
                    error,
                )
            await asyncio.sleep(pause)

    async def save(self, work: Work, after: Record | None = None) -> None:
        """Write a record down, or what it becomes, then tell of it. What is over stays as it is,
        whoever ended it."""
        async with work.saving:
            if work.record.over:
                return
            record = work.record if after is None else after
            record.updated = time.time()
            if not await self.store.put(
                record
            ):  # another process has cancelled it, or its time is over
                record = await self.store.get(record.id) or cancelled(record)
                work.stop()
            work.record = record
        if record.over:
            log.info("The task %s is %s", named(record), record.status)
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
        work = self._here(id)
        if work is not None and not self.store.shared:
            return work.record
        record = await self.store.get(id)
        return None if record is None else self.newest(record)

    def newest(self, record: Record) -> Record:
        """A record of the store, with what that does not know yet; of what is over, it knows
        best."""
        work = self._here(record.id)
        return record if work is None or record.over else work.record

    def _here(self, id: str) -> Work | None:
        work = self.works.get(id)
        return None if work is None or work.loop.is_closed() else work

    async def change(self, id: str, seconds: float) -> None:
        """Wait until a task has changed, or may have."""
        work = self.works.get(id)
        if work is None or work.loop is not asyncio.get_running_loop():
            await asyncio.sleep(seconds)
        else:
            await work.change()

    def stir(self, id: str) -> None:
        """Wake up who waits for a change of a task; from any thread."""
        if (work := self._here(id)) is not None:
            work.loop.call_soon_threadsafe(work.stir)

    @contextmanager
    def listening(self, ids: list[str]) -> Iterator[None]:
        """A stream that is told of these."""
        with self._lock:
            self.listened.update(ids)
        try:
            yield
        finally:
            with self._lock:
                self.listened.subtract(ids)
                self.listened = +self.listened

    async def deliver(self, record: Record, letter: Letter) -> None:
        """A letter to a task, wherever it runs; InvalidParams where its answers do not fit."""
        work = self._here(record.id)
        if work is None:
            await self._mail.send(record, letter)
        elif work.loop is asyncio.get_running_loop():
            await self._take(work, letter)
        else:
            await asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(self._take(work, letter), work.loop)
            )

    async def cancel(self, record: Record) -> None:
        """Nobody wants it any more: from now on it is cancelled, however long its tool takes to
        notice."""
        letter = Letter(record.id, cancel=True)
        log.info("The task %s is to be cancelled", named(record))
        if self._here(record.id) is not None:
            await self.deliver(record, letter)
        elif await self.store.put(cancelled(record)):  # or it was over already
            with suppress(Overloaded):  # then it stops as soon as it writes anything
                await self._mail.send(record, letter)

    async def _take(self, work: Work, letter: Letter) -> None:
        if letter.cancel:
            await self.save(work, cancelled(work.record))
            work.stop()
        for key, text in letter.refused.items():
            work.refuse(key, ToolError(text))
        await work.answer(letter.answers)

    def _expire(self, work: Work) -> None:
        if not work.record.over:
            late = InternalError("The task took longer than it was to be kept")
            work.record = failed(work.record, late, work.call.revision, self.limits)
            work.stir()
            work.stop()
            hold(work.loop.create_task(self.store.remove(work.record.id)))

    # a server's life

    @property
    def busy(self) -> bool:
        """Whether anything runs here, or may begin to."""
        return not all(
            loop.is_closed()
            for loop in (*self._lives, *(work.loop for work in list(self.works.values())))
        )

    @asynccontextmanager
    async def living(self, lifespan: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """The server's lifespan, with tasks in it: what was left behind is taken up, and what
        cannot go on is let go."""
        loop = asyncio.get_running_loop()
        async with lifespan as state:
            reserve(self)
            ended = any(work.loop.is_closed() for work in list(self.works.values()))
            first, self._lives[loop] = not self._lives, self._lives.get(loop, 0) + 1
            self._states[loop] = state
            sweeping = loop.create_task(self._sweep(state))
            try:
                await self._recover(state, own=first or ended)
                yield state
            finally:
                sweeping.cancel()
                await asyncio.wait([sweeping])
                self._lives[loop] -= 1
                if not self._lives[loop]:
                    del self._lives[loop], self._states[loop]
                    await self._leave(loop)

    async def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """The last lifespan of a loop ends. Where the tools could rely on it, they cannot go on."""
        here = [
            work
            for work in list(self.works.values())
            if work.loop is loop and work.task is not None
        ]
        if self._ends and here:
            for work in here:
                work.call.cut_off = InternalError(STOPPED)
                work.stop()
            await asyncio.wait(
                [work.task for work in here if work.task is not None], timeout=self.limits.shutdown
            )
        if not self._lives and not self.works:
            await self.store.close()

    async def _recover(self, state: Any, *, own: bool) -> None:
        """Take up what nobody runs any more."""
        try:
            left = await self.store.orphans(own=own, able=self._able)
        except ConfigError:
            raise  # there is no store at all, and somebody has to know
        except Exception as error:
            unforeseen = not isinstance(error, Overloaded)
            log.warning(
                "Tasks that nobody runs are left until later: %s", error, exc_info=unforeseen
            )
            return
        for record in left:
            if self._here(record.id) is not None:
                continue
            try:
                await self._resume(record, state)
            except Exception:  # the others, and the server, need not suffer
                log.exception("The task %s was left behind and cannot be taken up", named(record))

    def _able(self, record: Record) -> bool:
        """Whether to take up what was left behind. What can be resumed is left to a server that has
        its tool."""
        return not record.resumable or self._terms(record.tool) not in (None, FORBIDDEN)

    async def _resume(self, record: Record, state: Any) -> None:
        if not record.resumable or record.attempts >= self.limits.task_attempts:
            await self._fail(
                record, GIVEN_UP.format(record.attempts + 1) if record.resumable else STOPPED
            )
            return
        record.attempts += 1
        if await self.store.put(record):  # before it has another chance to take everybody down
            try:
                await self._hand(record, call_of(record, state), self._handle)
            except Exception as error:
                log.warning("The task %s was refused: %r", named(record), error)
                await self._fail(record, UNABLE)

    async def _fail(self, record: Record, why: str) -> None:
        await self.store.put(
            failed(record, InternalError(why), BY_NAME[record.origin.revision], self.limits)
        )
        log.warning("The task %s has failed: %s", named(record), why)

    async def _sweep(self, state: Any) -> None:
        """Now and then: forget what has expired, and take up what other processes left behind."""
        while True:
            await asyncio.sleep(SWEEP)
            try:
                await self.store.sweep()
                await self._recover(state, own=False)
            except Exception as error:  # there will be another time
                log.warning(
                    "Tasks that have expired, or that nobody runs, are still there: %s", error
                )

    def forked(self) -> None:
        """In a child, nothing of this runs: it is the parent's."""
        for kept in (self.works, self.listened, self.putting, self._lives, self._states):
            kept.clear()
        self._lock = Lock()
        self._mail.forked()
