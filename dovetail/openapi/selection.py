"""Choose the operations that a server offers.

A pattern is one of these, in which `*` stands for any text:

    GET                 a method
    /pets/*             a path
    GET /pets/*         both
    tag:pets            a tag
    listPets            an operation id, or the name of a tool
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from ..errors import ConfigError
from ..text import quote
from .parser import ApiOperation

TAG = "tag:"


def select(
    operations: Sequence[ApiOperation], include: Iterable[str] | None, exclude: Iterable[str]
) -> list[ApiOperation]:
    """Return the operations that match a pattern of `include` and none of `exclude`.

    Args:
        operations: All operations.
        include: Patterns, or None for all.
        exclude: Patterns.

    Raises:
        ConfigError: A pattern of `include` matches nothing, or no operation is left.
    """
    included = ["/*"] if include is None else _as_list(include)
    excluded = _as_list(exclude)
    for pattern in included if include is not None else ():
        if not any(_matches(one, pattern) for one in operations):
            raise ConfigError(f"include=[{quote(pattern)}] matches no operation of the API")
    chosen = [
        one
        for one in operations
        if any(_matches(one, pattern) for pattern in included)
        and not any(_matches(one, pattern) for pattern in excluded)
    ]
    if not chosen:
        raise ConfigError("The API description has no operations to offer")
    return chosen


def _as_list(patterns: Iterable[str]) -> list[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns)


def _matches(operation: ApiOperation, pattern: str) -> bool:
    if pattern.startswith(TAG):
        return any(fnmatchcase(tag, pattern[len(TAG) :]) for tag in operation.tags)
    if pattern.startswith("/"):
        return fnmatchcase(operation.path, pattern)
    method, space, path = pattern.partition(" ")
    if space:
        return operation.method == method.upper() and fnmatchcase(operation.path, path)
    names = (operation.method, operation.name, operation.id or "")
    return any(fnmatchcase(name, pattern) for name in names)
