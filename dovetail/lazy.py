"""Import the names of a package when they are first used, so that importing the package itself is
almost free.

    _NAMES = {"server.server": "Server", "errors": "CannotAsk NotFound"}
    __getattr__, __dir__ = lazy(globals(), _NAMES)

For each module in the package, `_NAMES` lists the names that the module defines.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the garbage collector during an import. An import creates thousands of classes and
    functions that stay, so the collector would find nothing (10% of the CPU time of `from dovetail
    import Server`)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def lazy(
    package: dict[str, Any], names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package.

    Args:
        package: The `globals()` of the package.
        names: The names that each module defines, separated by spaces. The keys are module names
            relative to the package.
    """
    homes = {name: module for module, listed in names.items() for name in listed.split()}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        from importlib import import_module

        with paused_collector():
            module = import_module(f"{package['__name__']}.{homes[name]}")
        value = package[name] = getattr(module, name)
        return value

    return get, lambda: sorted({*package, *homes})
