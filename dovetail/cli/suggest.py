"""Suggest the name that the user probably meant."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from ..errors import DovetailError, NotFound
from ..text import closest_name

T = TypeVar("T")

MAX_LISTED = 20
"""The maximum number of names that a message lists if none is similar."""


def unknown(kind: str, name: str, names: Iterable[str]) -> NotFound:
    """Return the error for a tool, prompt or resource that a server does not have."""
    listed = sorted(names)
    if close := closest_name(name, listed):
        hint = f"Did you mean {close}?"
    elif listed:
        more = ", …" if len(listed) > MAX_LISTED else ""
        hint = f"It has: {', '.join(listed[:MAX_LISTED])}{more}"
    else:
        hint = f"It has no {kind}s."
    return NotFound(f"The server has no {kind} {name!r}. {hint}")


async def list_if_possible(list_all: Callable[[], Awaitable[list[T]]]) -> list[T]:
    """Return the names to suggest; empty if the server cannot list them."""
    try:
        return await list_all()
    except DovetailError:
        return []
