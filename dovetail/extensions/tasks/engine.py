"""What sets a task to work: the seam where a distributed queue fits.

An engine is a function that is given the id of a task, which the store has by then, and what
performs it. The one that comes with the package performs it here and now, as a task of the event
loop. One that spreads work over machines would put the id into a queue and have `await
server.tasks.perform(id)` called wherever there is room, by a process that has the same functions
registered and the same store, and a lifespan open where the tools need one.

Until then nobody runs the task: it is looked at and cancelled as ever, and what becomes of it is up
to the engine, which should not forget it. Whoever performs it claims it first, so that an id may
well be delivered twice. An engine that raises refuses the task, and with it the call; one that a
process left behind has failed then.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from msgspec import Struct

from ...aio import TaskSet
from .store import TaskStore

Perform: TypeAlias = Callable[[str], Coroutine[Any, Any, None]]
Engine: TypeAlias = Callable[[str, Perform], None]

hold = TaskSet().hold
"""Hold a task until it is done: the event loop itself holds it only weakly."""


def local(id: str, perform: Perform) -> None:
    """Perform it here and now."""
    hold(asyncio.get_running_loop().create_task(perform(id)))


class TaskSettings(Struct, frozen=True, kw_only=True, eq=False):
    """Where tasks are kept, and what sets them to work: `Server(tasks=TaskSettings(…))`."""

    store: TaskStore | None = None
    engine: Engine = local
