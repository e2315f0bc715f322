"""Import the names of a package when they are first used, so that importing the package itself is
almost free.

    _NAMES = {"server.server": "Server", "errors": "CannotAsk NotFound"}
    __getattr__, __dir__ = lazy(globals(), _NAMES)

For each module in the package, `_NAMES` lists the names that the module defines.
"""

from collections.abc import Callable, Mapping
from typing import Any


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

        value = package[name] = getattr(import_module(f"{package['__name__']}.{homes[name]}"), name)
        return value

    return get, lambda: sorted({*package, *homes})
