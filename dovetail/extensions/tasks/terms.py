"""On what terms a tool runs as a task."""

from collections.abc import Callable
from functools import partial
from inspect import unwrap
from types import CodeType
from typing import Any

from msgspec import Struct

from ...errors import ConfigError

SUPPORT = ("optional", "required")


class Terms(Struct, frozen=True, eq=False):
    """How a tool may be run as a task."""

    support: str
    """"optional": for who can, and as a plain call for all others; "required": for nobody else;
    "forbidden": never."""
    resumable: bool
    """Whether it is run again, from its beginning, when its process ended in the middle of it."""
    detaches: bool
    """Whether it begins as a plain call and says itself from when on it is a task."""


FORBIDDEN = Terms("forbidden", False, False)
"""Those of a tool that is always a plain call."""


def terms(name: str, task: str | None, resumable: bool, detaches: bool) -> Terms | None:
    """The terms of a tool; None where it is always a plain call."""
    if task is None:
        if resumable:
            raise ConfigError(
                f'Tool {name!r}: resumable=True is for tasks; say task="optional" too'
            )
        return None
    if task not in SUPPORT:
        raise ConfigError(f'Tool {name!r}: task={task!r}, but it is "optional" or "required"')
    return Terms(task, resumable, detaches)


def detaches(function: Callable[..., Any]) -> bool:
    """Whether a function says `….detach()` somewhere in its own code, under whatever decorators.
    What it calls is not looked at: one that leaves detaching to others runs as a task from the
    start, where detaching does nothing."""
    function = unwrap(function)
    while isinstance(function, partial):
        function = unwrap(function.func)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code is not None and _says(code, "detach")


def _says(code: CodeType, name: str) -> bool:
    return name in code.co_names or any(
        _says(part, name) for part in code.co_consts if isinstance(part, CodeType)
    )
