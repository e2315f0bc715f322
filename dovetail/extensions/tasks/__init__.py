"""Tasks: work that outlives the call that asked for it, in both forms (`protocol/tasks.py`).

    from dovetail.extensions.tasks import SqliteStore
    server = Server("shop", tasks=SqliteStore("tasks.db"))

What a store of one's own has to do is `TaskStore`; what an engine is, `engine.py`. Nothing is loaded until it is used.
"""

from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
