"""Named components that come and go at run time, from any thread.

The table is replaced, never changed: whoever reads it holds a consistent snapshot and needs no
lock. With each snapshot goes a cache for what is derived from it (pages of the list, ready
encoded), so a change drops the cache by itself.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from ..errors import ConfigError

Item = TypeVar("Item")
Changed = Callable[[dict[str, Any], dict[str, Any]], None]
"""Told after each change what came and what went, by name."""


class Snapshot(Generic[Item]):
    """The components at one moment."""

    __slots__ = ("cache", "items", "scopes", "views")

    def __init__(self, items: dict[str, Item]) -> None:
        self.items = items
        self.cache: dict[Any, Any] = {}
        self.scopes: frozenset[str] | None = None
        """What some of them take, once somebody asked."""
        self.views: dict[frozenset[str], Snapshot[Item]] = {}
        """What is left of them for whoever has only these scopes."""


class Registry(Generic[Item]):
    """Components of one kind, by name."""

    def __init__(self, kind: str, changed: Changed) -> None:
        self._kind = kind
        self._changed = changed
        self._lock = threading.Lock()
        self.now: Snapshot[Item] = Snapshot({})

    def __iter__(self) -> Iterator[Item]:
        return iter(self.now.items.values())

    def get(self, name: str) -> Item | None:
        """The component of that name."""
        return self.now.items.get(name)

    def add(self, name: str, item: Item) -> None:
        """Add a component; a name can be taken once."""
        with self._lock:
            if name in self.now.items:
                raise ConfigError(
                    f"There is already a {self._kind} {name!r}; remove it first to replace it"
                )
            self.now = Snapshot({**self.now.items, name: item})
        self._changed({name: item}, {})

    def remove(self, name: str) -> Item:
        """Take a component out again."""
        with self._lock:
            if name not in self.now.items:
                raise ConfigError(f"There is no {self._kind} {name!r}")
            items = dict(self.now.items)
            item = items.pop(name)
            self.now = Snapshot(items)
        self._changed({}, {name: item})
        return item
