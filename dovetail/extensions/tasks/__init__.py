"""Tasks: work that outlives the call that asked for it, in both forms (`protocol/tasks.py`).

    from dovetail.extensions.tasks import SqliteStore
    server = Server("shop", tasks=SqliteStore("tasks.db"))

What a store of one's own has to do is `TaskStore`; what an engine is, `engine.py`. Nothing is
loaded until it is used.
"""

from typing import TYPE_CHECKING

from ...lazy import lazy

if TYPE_CHECKING:
    from .engine import Engine, TaskSettings
    from .sqlite import SqliteStore
    from .store import Letter, MemoryStore, Record, TaskStore

_HOMES = {
    "Engine": "engine",
    "Letter": "store",
    "MemoryStore": "store",
    "Record": "store",
    "SqliteStore": "sqlite",
    "TaskSettings": "engine",
    "TaskStore": "store",
}
__all__ = ["Engine", "Letter", "MemoryStore", "Record", "SqliteStore", "TaskSettings", "TaskStore"]

__getattr__, __dir__ = lazy(globals(), _HOMES)
