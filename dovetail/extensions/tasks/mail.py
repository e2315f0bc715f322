"""Letters: how an answer or a cancellation gets to a task that runs in another process of those
that share a store.

A letter waits in the store until whoever runs the task, also after a crash, has read it; each
process looks for letters while it has something running. All that can be known of an answer is
checked before it is sent, for its sender hears no more of it. One that is refused all the same ends
its question, as if the client had refused: nobody will answer it again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from ...errors import InvalidParams, Overloaded, ToolError
from ...limits import Limits
from ...ports import Form
from .engine import hold
from .records import named
from .store import Letter, Record, TaskStore
from .work import MESSAGE, Work, fitting

log = logging.getLogger("dovetail.tasks")

LOOK = 0.25
"""Seconds between two looks for letters, while something runs here."""


class Mail:
    """The letters that one server in one process sends, and those that it reads to its tasks
    (`take`)."""

    def __init__(
        self,
        store: TaskStore,
        limits: Limits,
        form: Callable[..., Form],
        works: Mapping[str, Work],
        take: Callable[[Work, Letter], Awaitable[None]],
    ) -> None:
        self._store, self._limits, self._form, self._works, self._take = (
            store,
            limits,
            form,
            works,
            take,
        )
        self._looking: set[asyncio.AbstractEventLoop] = set()

    async def send(self, record: Record, letter: Letter) -> None:
        """A letter to another process, as far as it is worth the way; InvalidParams where its
        answers do not fit."""
        answers = fitting(record, letter.answers, self._form)
        if (size := sum(map(len, answers.values()))) > self._limits.journal:
            raise InvalidParams(
                f"These answers are {size} bytes; the limit is {self._limits.journal}"
            )
        refused = {
            key: text[:MESSAGE] for key, text in letter.refused.items() if key in record.asked
        }
        if answers or refused or letter.cancel:
            await self._store.send(replace(letter, answers=answers, refused=refused))

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on, and as long as something runs in this loop."""
        if self._store.shared and loop not in self._looking:
            self._looking.add(loop)
            hold(loop.create_task(self._look(loop)))

    async def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while any(work.loop is loop for work in list(self._works.values())):
                try:
                    for number, letter in await self._store.receive():
                        await self._bring(number, letter, loop)
                except Overloaded:
                    pass  # they are still there the next time
                except Exception as error:
                    log.warning("Letters to tasks cannot be read: %s", error)
                await asyncio.sleep(LOOK)
        finally:
            self._looking.discard(loop)

    async def _bring(self, number: int, letter: Letter, loop: asyncio.AbstractEventLoop) -> None:
        """One letter. It stays for a task that runs in another loop, or is yet to be taken up."""
        work = self._works.get(letter.id)
        if work is None or work.loop.is_closed():
            record = await self._store.get(letter.id)
            if record is not None and not record.over:
                return
        elif work.loop is not loop:
            return
        else:
            try:
                await self._take(work, letter)
            except Overloaded:
                raise
            except Exception as error:  # whatever it is, the next one may be better
                log.warning("A letter to the task %s was refused: %s", named(work.record), error)
                for key in letter.answers:
                    work.refuse(key, ToolError(f"The answer to this question was refused: {error}"))
        await self._store.take(number)

    def forked(self) -> None:
        """In a child, no loop of its parent runs."""
        self._looking.clear()
