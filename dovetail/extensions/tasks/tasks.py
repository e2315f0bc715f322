"""Tasks on a server, in both forms: the extension's value, and what answers for it.

A call of a tool that may run as a task (`Terms`) becomes one where the caller can deal with that:
in the form of the extension, where it declared the extension; in the core form, where the call
itself asks for it. The record is in the store before the call is answered with the task. Then an
`Engine` sets the tool to work (`Work`), the same function with the same context. In the form of the
extension, a tool that detaches by itself runs as a plain call until then, with all that a plain
call can do; what it was asked and did by then goes along. The core form promises a task to whoever
asks for one.

A task belongs to the principal who began it, and does not exist for anybody else. Where nobody is
known, its id is all that protects it, so it cannot be guessed; a list is given to those only who
can be told apart, by who they are or by session. So `tasks/get` may find what `tasks/list` does not
have, from another session, which departs from a MUST of the core form: were an id not enough,
nobody could come back to a task after a restart, when its session is gone.

After a crash, whoever starts next takes over what was running (`living`): what is resumable runs
again from its beginning, with its answers and all that it did once; the rest is reported as failed.
https://modelcontextprotocol.io/seps/2663-tasks-extension
https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from ...connection.asking import QUESTIONS, put
from ...connection.extension import Extension, declares, undeclared
from ...errors import InvalidParams, MethodNotFound, Overloaded, ToolError
from ...ports import Answer, Call
from ...protocol.base import EmptyResult
from ...protocol.tasks import EXTENSION, RELATED_TASK, ListTasksResult
from ...revisions import decode
from . import forms
from .engine import hold
from .keeper import Keeper
from .methods import METHODS
from .records import named, owner_of
from .store import Letter, Record
from .terms import Terms

log = logging.getLogger("dovetail.tasks")

LIST_PAGE = 100
LOOK = 0.25
"""Seconds between two looks at a task that runs in another process."""
CAPABILITY: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
"""What is declared of tasks in the core form."""


class Tasks:
    """What a server says and does about tasks."""

    def __init__(self, keeper: Keeper, terms: Callable[[str], Terms | None]) -> None:
        self.keeper = keeper
        self._terms = terms
        self._limits = keeper.limits
        self.extension = Extension(
            id=EXTENSION,
            methods=METHODS,
            handlers={
                "tasks/get": self.get,
                "tasks/update": self.update,
                "tasks/cancel": self.cancel,
            },
            instead={"tools/call": self.begin, "subscriptions/listen": self.listen},
            handshake=False,
        )
        self.handlers: Mapping[str, Answer] = {"tasks/result": self.result, "tasks/list": self.list}
        """What else the core form has; the others are the extension's, and answer in both."""

    async def perform(self, id: str) -> None:
        """Run a task that is in the store to its end: for an engine that sets tasks to work
        elsewhere."""
        await self.keeper.perform(id)

    # how one begins

    async def begin(self, call: Call, next: Answer) -> Any:
        """`tools/call`: as a task, or as ever."""
        terms = self._terms(call.params.name)
        if terms is None or not self._wanted(call, terms):
            return await next(call)
        if terms.detaches and call.revision.stateless:
            return await self._detachable(call, next, terms)
        record = await self.keeper.begin(call, terms, next)
        return forms.created(record, self._limits, call.revision)

    def _wanted(self, call: Call, terms: Terms) -> bool:
        """Whether this call is to become a task; raises where it cannot be anything else, or cannot
        be one."""
        name, required, forbidden = (
            call.params.name,
            terms.support == "required",
            terms.support == "forbidden",
        )
        if call.revision.stateless:
            if required and not declares(call, EXTENSION):
                raise undeclared(f"Tool {name!r} runs as a task, which", EXTENSION)
            return not forbidden and declares(call, EXTENSION)
        task = call.params.task
        asked = task is not None and "tasks/get" in call.revision.methods
        if asked and not isinstance(task, dict):
            raise InvalidParams(f"task must be an object, not {task!r}")
        if asked and forbidden:
            raise MethodNotFound(f"Tool {name!r} does not run as a task; call it without `task`")
        if required and not asked:
            raise MethodNotFound(f"Tool {name!r} runs as a task only; call it with `task`")
        return asked

    async def _detachable(self, call: Call, next: Answer, terms: Terms) -> Any:
        """A plain call, until the tool says that it goes on as a task."""
        begun: asyncio.Future[Record] = asyncio.get_running_loop().create_future()

        async def detach(now: Call) -> Call:
            work = await self.keeper.detach(now, terms, next, running)
            begun.set_result(work.record)
            return work.call

        async def run() -> Any:
            try:
                outcome: Any = await next(call)
            except BaseException as error:
                if not begun.done():
                    raise
                outcome = error
            return await self.keeper.end(begun.result().id, outcome) if begun.done() else outcome

        call.detach = detach
        running = asyncio.get_running_loop().create_task(run())
        hold(running)
        try:
            await asyncio.wait((running, begun), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not begun.done():
                running.cancel()  # which does nothing where it is done
        return (
            forms.created(begun.result(), self._limits, call.revision)
            if begun.done()
            else await running
        )

    # what may be asked of one

    async def get(self, call: Call) -> Any:
        """`tasks/get`: how a task stands."""
        record = await self._own(call)
        if record.over:
            log.info("What came of the task %s is fetched", named(record))
        if call.revision.stateless:
            return forms.detailed(record, self._limits, call.revision)
        return forms.core_alone(record, self._limits)

    async def update(self, call: Call) -> EmptyResult:
        """`tasks/update`: answers to its questions. Those that nobody asked are ignored."""
        record = await self._own(call)
        if not record.over:
            await self.keeper.deliver(
                record,
                Letter(
                    record.id, {key: bytes(raw) for key, raw in call.params.input_responses.items()}
                ),
            )
        return EmptyResult()

    async def cancel(self, call: Call) -> Any:
        """`tasks/cancel`."""
        record = await self._own(call)
        late = record.over
        if not late:
            await self.keeper.cancel(record)
        if call.revision.stateless:
            return EmptyResult()
        state = forms.core_alone(await self._own(call), self._limits)
        if late or state.status != "cancelled":  # it was over, or was faster
            raise InvalidParams(
                f"The task {record.id} cannot be cancelled: it is {state.status} already"
            )
        return state

    async def list(self, call: Call) -> ListTasksResult:
        """`tasks/list`: the caller's own."""
        owner, session = owner_of(call), call.caller.session
        if not owner and not session:
            raise MethodNotFound("There is no tasks/list here: callers cannot be told apart")
        after = _position(call.params.cursor)
        rows = await self.keeper.store.page(owner, "" if owner else session, after, LIST_PAGE + 1)
        live = [self.keeper.newest(record) for _, record in rows[:LIST_PAGE]]
        following = forms.cursor(rows[LIST_PAGE - 1][0]) if len(rows) > LIST_PAGE else None
        return ListTasksResult(
            tasks=[forms.core(record, self._limits) for record in live], next_cursor=following
        )

    async def listen(self, call: Call, next: Answer) -> Any:
        """`subscriptions/listen`: of the tasks that are named, those that the caller has."""
        wanted = call.params.notifications
        if wanted.task_ids is not None:
            if not declares(call, EXTENSION):
                raise undeclared("To listen to tasks", EXTENSION)
            if len(wanted.task_ids) > self._limits.subscriptions:
                raise Overloaded(
                    f"A subscription may name {self._limits.subscriptions} tasks at most"
                )
            known = [id for id in {*wanted.task_ids} if await self._found(call, id) is not None]
            call.params = replace(
                call.params, notifications=replace(wanted, task_ids=known or None)
            )
            with self.keeper.listening(known):
                return await next(call)
        return await next(call)

    async def _found(self, call: Call, id: str) -> Record | None:
        record = await self.keeper.find(id)
        return None if record is None or record.owner != owner_of(call) else record

    async def _own(self, call: Call) -> Record:
        record = await self._found(call, call.params.task_id)
        if record is None:
            log.info("%s by %s: there is no such task", call.name, owner_of(call) or "nobody known")
            raise InvalidParams(f"There is no task {call.params.task_id!r} here, or not any more")
        return record

    # the core form: its result, and what it asks meanwhile

    async def result(self, call: Call) -> Any:
        """`tasks/result`: wait until it is over, put its questions to the client meanwhile, and
        give what came of it."""
        record = await self._own(call)
        work = self.keeper.works.get(record.id)
        if (
            work is not None and work.loop is asyncio.get_running_loop()
        ):  # no other may write to this stream
            work.stream = call
        asking: dict[str, asyncio.Task[None]] = {}
        try:
            while not record.over:
                for key in record.asked.keys() - asking.keys():
                    if (record.id, key) not in self.keeper.putting:
                        self.keeper.putting.add((record.id, key))
                        asking[key] = asyncio.get_running_loop().create_task(
                            self._put(call, record, key)
                        )
                for key in asking.keys() - record.asked.keys():
                    asking.pop(key).cancel()
                for task in asking.values():
                    if task.done():
                        task.result()  # a question that cannot be put is why there is no result
                await self.keeper.change(record.id, LOOK)
                record = await self._own(call)
        finally:
            for task in asking.values():
                task.cancel()
            if asking:
                await asyncio.wait(
                    asking.values()
                )  # a question is withdrawn before its stream ends
            if work is not None and work.stream is call:
                work.stream = None
        log.info("What came of the task %s is fetched", named(record))
        return forms.outcome(record, call.revision)

    async def _put(self, call: Call, record: Record, key: str) -> None:
        """One question of a task, down the stream of whoever waits for its result."""
        name, raw = record.asked[key]
        params = decode(raw, QUESTIONS[name].params)
        params.meta = {**(params.meta or {}), RELATED_TASK: {"taskId": record.id}}
        try:
            answer = await put(call, name, params)
            await self.keeper.deliver(record, Letter(record.id, {key: bytes(answer)}))
        except (ToolError, InvalidParams) as error:
            await self.keeper.deliver(record, Letter(record.id, refused={key: str(error)}))
        finally:
            self.keeper.putting.discard((record.id, key))
            self.keeper.stir(record.id)  # where it came to nothing, whoever else waits may try


def _position(cursor: str | None) -> int:
    if cursor is None:
        return 0
    try:
        what, number = msgspec.json.decode(bytes.fromhex(cursor), type=tuple[str, int])
        if what == "tasks" and 0 <= number < 2**63:
            return number
    except (ValueError, msgspec.MsgspecError):
        pass
    raise InvalidParams(f"{cursor!r} is not a cursor of this list; ask again without one")
