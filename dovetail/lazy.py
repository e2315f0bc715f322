"""Names of a package that are imported when they are first used, so that importing the package
itself costs next to nothing.

    __getattr__, __dir__ = lazy(globals(), _HOMES)

`_HOMES` maps each name to the module, below the package, that defines it.
"""

from collections.abc import Callable, Mapping
from typing import Any


def lazy(
    package: dict[str, Any], homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package.

    Args:
        package: The `globals()` of the package.
        homes: The defining module of each name, relative to the package.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        from importlib import import_module

        value = package[name] = getattr(import_module(f"{package['__name__']}.{homes[name]}"), name)
        return value

    return get, lambda: sorted({*package, *homes})
