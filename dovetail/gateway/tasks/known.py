"""What a gateway knows of the tasks that its callers started: whose they are, their last state, and
who answers their questions.

Nothing here is needed to find a task again, because its handle contains all of that. So the table
is bounded, and forgets the oldest tasks first.
"""

import asyncio
from itertools import count
from secrets import token_hex
from time import monotonic
from typing import Any

from msgspec import Raw, Struct

from ...connection.input_requests import QUESTIONS, check, unanswered
from ...connection.multi_round_trip import input_request
from ...errors import Overloaded, ToolError
from ...limits import Limits
from ...ports import Call
from ...protocol.raw import RawObject
from ...protocol.tasks import DetailedTask
from .forms import TaskToken


class HeldQuestions:
    """The open questions of a task in the core form, whose caller has the extension form. The
    server asks them while it is asked for the result, and each waits until the caller sends its
    answer with `tasks/update`.

    Args:
        call: The call that started the task, or that asked for its state.
        request: The request for the result, during which the server asks.
        limits: `Limits.ask_time`.
    """

    def __init__(self, call: Call, request: Call, limits: Limits) -> None:
        self.call, self.request, self._limits = call, request, limits
        self.waiting: asyncio.Task[None] | None = None
        """The task that waits for the result."""
        self.requests: dict[str, dict[str, Any]] = {}
        """The questions by key, as callers get them."""
        self._answers: dict[str, asyncio.Future[Raw]] = {}
        self._asked = asyncio.Event()

    def close(self) -> None:
        """Do not wait for the result any more."""
        if self.waiting is not None:
            self.waiting.cancel()

    async def ask(self, method: str, params: RawObject) -> Raw:
        """Hold a question until it is answered, and return the answer.

        Args:
            method: The method of the question.
            params: Its params.

        Raises:
            CannotAsk: The caller cannot be asked this.
            ToolError: The caller did not answer in time.
        """
        check(self.call, method, params)
        key, seconds = token_hex(8), self._limits.ask_time
        lowered = self.call.revision.lower_params(QUESTIONS[method], params)
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._answers[key] = answer
        self.requests[key] = input_request(QUESTIONS[method], lowered)
        self._asked.set()
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise ToolError(unanswered(method, seconds)) from None
        finally:
            del self.requests[key], self._answers[key]

    def answer(self, answers: dict[str, Raw]) -> None:
        """Pass on answers by key. Those to questions that are not open are ignored.

        Args:
            answers: The answers.
        """
        for key, answer in answers.items():
            question = self._answers.get(key)
            if question is not None and not question.done():
                question.set_result(answer)
        self._asked.clear()

    async def wait(self, seconds: float) -> None:
        """Wait until a question is open.

        Args:
            seconds: How long to wait at most.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        except TimeoutError:
            pass


TaskKey = tuple[str, str, str]
"""The name of a server, what the id is unique within, and the server's own id."""


class KnownTask(Struct, eq=False, kw_only=True):
    """A task that a caller started or asked for."""

    token: TaskToken
    handle: str
    """The caller's id of the task; empty if the gateway waits for the task on its behalf."""
    owner: str
    """The id of the principal that started it; empty without authentication."""
    session: str
    """If its owner is not authenticated, the session in which it was started, or the address."""
    scope: str = ""
    """What its id is unique within (`UpstreamServer.task_scope`)."""
    state: DetailedTask
    """Its last known state, without its questions and its outcome (`summarize`)."""
    expires: float
    """When it is forgotten, by `monotonic`."""
    number: int = 0
    """Its place in lists."""
    progress_token: Any = None
    """The token with which the caller asked for progress."""
    result: Raw = Raw()
    """The result, if the server answered directly."""
    asks: "Call | HeldQuestions | None" = None
    """Who is asked the questions of the task at the moment."""
    has_changed: bool = False
    """Whether it has changed since its outcome was last asked for."""
    is_announcing: bool = False
    """Whether its outcome is being asked for, to notify callers of it."""

    @property
    def key(self) -> TaskKey:
        """What identifies it."""
        return self.token.server, self.scope, self.token.id


class KnownTasks:
    """The tasks that a gateway knows.

    Args:
        limits: `Limits.tasks`, `Limits.tasks_each` and `Limits.task_bytes`.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._numbers = limits, count(1)
        self._all: dict[TaskKey, KnownTask] = {}
        self._by_owner: dict[tuple[str, str], dict[TaskKey, KnownTask]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._all)

    def get(self, server: str, scope: str, id: str) -> KnownTask | None:
        """Return a task by its key."""
        return self._all.get((server, scope, id))

    def add(self, task: KnownTask) -> KnownTask:
        """Add a task. An older one with the same id is forgotten.

        Args:
            task: The task.

        Raises:
            Overloaded: There is no room for its result.
        """
        if (before := self._all.get(task.key)) is not None:
            self.remove(before)
        owner = self._by_owner.setdefault((task.owner, task.session), {})
        now = monotonic()
        for each in [one for one in owner.values() if one.expires <= now]:
            self.remove(each)
        if self._bytes + len(task.result) > self._limits.task_bytes:
            raise Overloaded(
                "This gateway has no room for the results of further tasks (Limits.task_bytes)"
            )
        if len(owner) >= self._limits.tasks_each:
            self.remove(next(iter(owner.values())))
        elif len(self._all) >= self._limits.tasks:
            self.remove(next(iter(self._all.values())))
        task.number = next(self._numbers)
        self._bytes += len(task.result)
        owner = self._by_owner.setdefault((task.owner, task.session), {})
        self._all[task.key] = owner[task.key] = task
        return task

    def remove(self, task: KnownTask) -> None:
        """Forget a task, unless that is done or another one has taken its id. Nobody can answer its
        questions any more."""
        if self._all.get(task.key) is not task:
            return
        del self._all[task.key]
        self._bytes -= len(task.result)
        if isinstance(task.asks, HeldQuestions):
            task.asks.close()
        owner = (task.owner, task.session)
        del self._by_owner[owner][task.key]
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    def of_owner(self, owner: str, session: str, after: int) -> list[KnownTask]:
        """Return the tasks that a caller may list, in the order of their numbers.

        Args:
            owner: The id of its principal; empty without authentication.
            session: Its session, if it is not authenticated.
            after: The number after which to begin.
        """
        now, tasks = monotonic(), self._by_owner.get((owner, session), {}).values()
        return [one for one in tasks if one.handle and one.number > after and one.expires > now]
