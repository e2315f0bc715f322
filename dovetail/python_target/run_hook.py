"""A hook that changes what `server.run()` does while a Python target is being loaded.

It is in a separate module, so that a client's child process does not import the server code for a
script that does not use it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

RunHook = Callable[[Any, Any], Any]
"""Called with the server and the transport that was passed to `run`. Returns the transport to use,
or raises an exception that ends the loading."""
_hook: RunHook | None = None


@contextmanager
def intercept_run(hook: RunHook) -> Iterator[None]:
    """Call `hook` for every `server.run()` and `server.run_async()` in this block."""
    global _hook
    _hook = hook
    try:
        yield
    finally:
        _hook = None


def choose_transport(server: Any, transport: Any) -> Any:
    """Return the transport on which to run a server."""
    return transport if _hook is None else _hook(server, transport)
