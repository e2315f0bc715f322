"""Task options for a whole server (`TaskSettings`) and for each tool (`TaskSupport`)."""

from collections.abc import Callable, Coroutine
from functools import partial
from inspect import unwrap
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from ...errors import ConfigError

if TYPE_CHECKING:
    from .store import TaskStore

Perform: TypeAlias = Callable[[str], Coroutine[Any, Any, None]]
"""The function that runs the task with this id to completion (`server.tasks.perform`)."""
Engine: TypeAlias = Callable[[str, Perform], None]
"""A function that schedules a task. Use an engine to plug in a distributed queue.

An engine is called with the id of a stored task, and with the function that runs it. To distribute
work across machines, put the id into a queue. Any process that has the same tools and the same
store can then call `await server.tasks.perform(id)`. If the tools need a lifespan, the lifespan
must be open.

The task waits until a process performs it. Clients can check and cancel a waiting task as usual,
and the engine must not lose its id. The process that performs a task claims it first, so an id may
be delivered twice. If the engine raises an exception for a new task, the task is refused and the
call fails. If it raises an exception for a task that another process left behind, the task is
marked as failed.
"""


class TaskSettings(Struct, frozen=True, kw_only=True, eq=False):
    """Where tasks are stored and how they are scheduled: `Server(tasks=TaskSettings(…))`."""

    store: "TaskStore | None" = None
    """Where tasks are stored (default: in memory, until the process ends)."""
    engine: Engine | None = None
    """The engine that schedules tasks (default: each task runs immediately, in the event loop in
    which it was created)."""


class TaskSupport(Struct, frozen=True, eq=False):
    """How one tool may run as a task."""

    mode: str
    """When the tool runs as a task: "optional" (for clients that support tasks), "required"
    (always), or "forbidden" (never)."""
    resumable: bool
    """Whether the task runs again from the beginning if its process ended before the task
    finished."""
    detaches: bool
    """Whether the tool begins as a plain call and becomes a task when it calls `ctx.detach()`."""


FORBIDDEN = TaskSupport("forbidden", False, False)


def task_support(
    name: str, mode: str | None, resumable: bool, detaches: bool
) -> TaskSupport | None:
    """Check a tool's options and return its task support; None if the tool never runs as a task."""
    if mode is None:
        if resumable:
            raise ConfigError(
                f'Tool {name!r}: resumable=True requires task="optional" or "required"'
            )
        return None
    if mode not in ("optional", "required"):
        raise ConfigError(f'Tool {name!r}: task={mode!r} must be "optional" or "required"')
    return TaskSupport(mode, resumable, detaches)


def calls_detach(function: Callable[..., Any]) -> bool:
    """Return whether a function calls `….detach()` in its own code, ignoring decorators.

    The functions that it calls are not searched. A tool that detaches through a helper function
    runs as a task from the start, and detaching then has no effect.
    """
    function = unwrap(function)
    while isinstance(function, partial):
        function = unwrap(function.func)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code is not None and _mentions(code, "detach")


def _mentions(code: CodeType, name: str) -> bool:
    return name in code.co_names or any(
        _mentions(part, name) for part in code.co_consts if isinstance(part, CodeType)
    )
