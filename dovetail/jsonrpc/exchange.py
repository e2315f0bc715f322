"""The bookkeeping of one conversation: which requests are open, in both directions.

Pure: no I/O, no clock. `asked` holds what this side waits for, `answering` what the other side
waits for. An id that is in flight is refused; once answered it may be used again. A reply to
nothing is late or forged; either way it is dropped.
"""

from typing import Generic, TypeVar

from .messages import Id

Asked = TypeVar("Asked")
Answering = TypeVar("Answering")


class Exchange(Generic[Asked, Answering]):
    """Two tables and a counter."""

    __slots__ = ("_next", "answering", "asked")

    def __init__(self) -> None:
        self._next = 0
        self.asked: dict[Id, Asked] = {}
        self.answering: dict[Id, Answering] = {}

    def ask(self, entry: Asked) -> Id:
        """A fresh id, under which `entry` now waits for its reply."""
        self._next += 1
        self.asked[self._next] = entry
        return self._next

    def settle(self, id: Id | None) -> Asked | None:
        """The entry that this reply answers, or None for a late, forged or repeated one."""
        return self.asked.pop(id, None) if id is not None else None
