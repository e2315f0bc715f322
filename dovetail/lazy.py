"""Names of a package that are loaded when they are first used, so that importing the package costs
next to nothing.

    __getattr__, __dir__ = lazy(globals(), _HOMES)

`_HOMES` says in which module below the package each name is at home.
"""

from collections.abc import Callable, Mapping
from typing import Any


def lazy(
    package: dict[str, Any], homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a package whose `globals()` these are needs as its `__getattr__` and `__dir__`."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        from importlib import import_module

        value = package[name] = getattr(import_module(f"{package['__name__']}.{homes[name]}"), name)
        return value

    return get, lambda: sorted({*package, *homes})
