"""Tasks: work that outlives the call that started it, in both protocol forms (`protocol/tasks.py`).

    from dovetail.extensions.tasks import SqliteStore
    server = Server("shop", tasks=SqliteStore("tasks.db"))

`settings.py` holds the options for server authors, `api.py` answers requests, and `manager.py` runs
tasks (`running_task.py` defines the class for a running task). `store.py` and `sqlite.py` store
task records, and `wire.py` turns calls into records and records into messages. To write a store,
implement `TaskStore`; to plug in a queue, see `Engine`. Each module is imported when it is first
used.
"""

from typing import TYPE_CHECKING

from ...lazy import lazy

if TYPE_CHECKING:
    from .settings import Engine, TaskSettings
    from .sqlite import SqliteStore
    from .store import InMemoryTaskStore, Lease, TaskMessage, TaskRecord, TaskStore

_NAMES = {
    "settings": "Engine TaskSettings",
    "sqlite": "SqliteStore",
    "store": "InMemoryTaskStore Lease TaskMessage TaskRecord TaskStore",
}
__all__ = [
    "Engine", "InMemoryTaskStore", "Lease", "SqliteStore", "TaskMessage", "TaskRecord",
    "TaskSettings", "TaskStore",
]  # fmt: skip

__getattr__, __dir__ = lazy(globals(), _NAMES)
