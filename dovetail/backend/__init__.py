"""The state that the processes of a server share, on one or many machines.

Without a backend, a server keeps its state in memory or in SQLite files. With one, all processes
that name the same backend act as one server. `Backend` is the only entry: it makes implementations
of the protocols in `protocols` and of `ports.Bus`. The rest of the package does not know about
Redis.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .factory import Backend as Backend

_NAMES = {"factory": "Backend"}

__all__ = ["Backend"]

__getattr__, __dir__ = lazy(globals(), _NAMES)
