"""Tasks as a server has them: what `Server(tasks=…)` takes, put together with the server's own
tools."""

import os
from collections.abc import Callable
from typing import Any, TypeAlias

from ..errors import ConfigError
from ..extensions.tasks.engine import TaskSettings
from ..extensions.tasks.keeper import Keeper
from ..extensions.tasks.store import MemoryStore, TaskStore
from ..extensions.tasks.tasks import CAPABILITY, Tasks
from ..extensions.tasks.terms import Terms
from ..ports import Answer, Listener

Given: TypeAlias = "str | os.PathLike[str] | TaskStore | TaskSettings | None"


def tasking(
    server: Any,
    given: Given,
    terms: Callable[[str], Terms | None],
    handle: Answer,
    tell: Listener,
    *,
    ends: bool,
) -> Tasks:
    """The tasks of a server, which declares them from now on. `ends`: whether tools may rely on a
    lifespan that ends."""
    settings = given if isinstance(given, TaskSettings) else TaskSettings(store=_store(given))
    store = settings.store or MemoryStore()
    keeper = Keeper(server, store, settings.engine, terms, handle, tell, ends)
    tasks = Tasks(keeper, terms)
    server.add_extension(tasks.extension)
    server.capabilities.tasks = CAPABILITY
    return tasks


def _store(given: Any) -> TaskStore | None:
    if isinstance(given, str | os.PathLike):
        from ..extensions.tasks.sqlite import SqliteStore

        return SqliteStore(given)
    if given is not None and not hasattr(given, "orphans"):
        raise ConfigError(
            f"tasks={given!r}: give a path for a file, a store, or TaskSettings(store=…, engine=…)"
        )
    return given  # type: ignore[no-any-return]
