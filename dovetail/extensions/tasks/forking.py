"""A child that was forked has a copy of all that its parent has, and runs none of it: whatever
counts on what its own process runs or holds is told, and forgets."""

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """What has to know."""

    def forked(self) -> None:
        """This is the child, before it does anything else."""


_told: WeakSet[Forkable] = WeakSet()


def tell_of_forks(one: Forkable) -> None:
    """Tell this one, as long as there is one."""
    _told.add(one)


def _after_fork() -> None:
    for one in list(_told):
        one.forked()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_after_fork)
