"""The tables of a server's tools, resources and prompts, with access control by scope and with
pagination.

A table is replaced, never changed in place, so readers hold a consistent snapshot and need no lock.
Each snapshot carries a cache for data that is derived from it (encoded pages of the list, for
example), so a change also drops the cache.

**Scopes.** A component with `scopes=` is available only to callers whose token has all of the
scopes. Other callers do not see it in lists and are not notified of its changes. If they request
the component by name, the error names the scopes, so that a client can request them. Without
authentication, all components may be used. (On stdio, the caller is the user who runs the process.)
Scopes that imply other scopes are resolved by the guard when the caller is admitted.

**Pages.** A cursor is a position *by name*: the name of the last item on the previous page. If a
page size is set, lists are sorted by name, so a cursor stays valid in other processes and when
items are added or removed. Without a page size (the default), a list is a single page in order of
registration. A page is encoded once per revision and then sent as bytes until the table changes.
"""

import re
import sys
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Raw, Struct

from ..errors import ConfigError, Forbidden, InvalidParams
from ..jsonrpc.messages import encode
from ..ports import Call, Principal, Redact

Item = TypeVar("Item")
OnChange = Callable[[dict[str, Any], dict[str, Any]], None]
"""A function that is called after each change with the added and removed components, by name."""

MAX_VIEWS = 100
"""The maximum number of cached views of a snapshot, with one view per set of scopes."""
MAX_CACHED_PAGES = 1000
MAX_CACHED_CURSOR_CHARS = 1024
_SCOPE = r"[!#-\[\]-~]+"
"""The syntax of a scope (RFC 6749, section 3.3)."""


class Snapshot(Struct, Generic[Item], eq=False):
    """The components at one point in time."""

    items: dict[str, Item]
    cache: dict[Any, Any] = {}
    scopes: frozenset[str] | None = None
    """All scopes that the components require; computed on first use."""
    views: "dict[frozenset[str], Snapshot[Item]]" = {}
    """The components that callers with only these scopes may use."""


class Registry(Generic[Item]):
    """Components of one kind, by name."""

    def __init__(self, kind: str, on_change: OnChange) -> None:
        self._kind = kind
        self._on_change = on_change
        self._lock = allocate_lock()
        self.snapshot: Snapshot[Item] = Snapshot({})
        self.was_used = False
        """Whether this registry has ever had a component."""
        self.on_duplicate: Callable[[str, str], bool] = _may_replace
        """Called with the kind and name of a component that exists already. It returns whether the
        new component replaces it, or is dropped, or raises ConfigError."""

    def __iter__(self) -> Iterator[Item]:
        return iter(self.snapshot.items.values())

    def __len__(self) -> int:
        return len(self.snapshot.items)

    @property
    def everything(self) -> dict[str, Item]:
        """All components, also those that a subclass leaves out of the snapshot."""
        return self.snapshot.items

    def get(self, name: str) -> Item | None:
        """Return the component with this name, if there is one."""
        return self.snapshot.items.get(name)

    def add(self, name: str, item: Item) -> None:
        """Add a component, unless the name is in use and `on_duplicate` does not allow it."""
        with self._lock:
            if name in self.everything and not self.on_duplicate(self._kind, name):
                return
            self.snapshot = Snapshot({**self.everything, name: item})
            self.was_used = True
        self._on_change({name: item}, {})

    def replace(self, old: str, name: str, item: Item) -> None:
        """Put a component in the place of another; raise ConfigError if there is none, or if the
        new name is in use."""
        with self._lock:
            before = self.everything
            if old not in before:
                raise ConfigError(f"There is no {self._kind} {old!r}")
            if name != old and name in before:
                raise ConfigError(f"The {self._kind} {name!r} already exists")
            self.snapshot = Snapshot(
                dict((name, item) if key == old else (key, one) for key, one in before.items())
            )
        self._on_change({name: item}, {} if name == old else {old: before[old]})

    def remove(self, name: str) -> None:
        """Remove a component; raise ConfigError if no component has this name."""
        with self._lock:
            items = dict(self.everything)
            if name not in items:
                raise ConfigError(f"There is no {self._kind} {name!r}")
            item = items.pop(name)
            self.snapshot = Snapshot(items)
        self._on_change({}, {name: item})


class FilteredRegistry(Registry[Any]):
    """Components of which the current caller sees only some."""

    def find_rules(self) -> tuple[Any, ...]:
        """Return the rules for the current caller, which are hashable; none if all components are
        shown. The owner of the registry replaces this function and the next."""
        return ()

    def shows(self, rules: tuple[Any, ...], kind: str, name: str, item: Any) -> bool:
        """Return whether a caller with these rules sees a component."""
        return True

    @property
    def snapshot(self) -> Snapshot[Any]:
        """The components that the current caller sees."""
        rules, whole = self.find_rules(), self._whole
        view: Snapshot[Any] | None = whole.cache.get(rules) if rules else whole
        if view is None:
            items, kind = whole.items.items(), self._kind
            view = Snapshot({key: one for key, one in items if self.shows(rules, kind, key, one)})
            if len(whole.cache) < MAX_VIEWS:
                whole.cache[rules] = view
        return view

    @snapshot.setter
    def snapshot(self, snapshot: Snapshot[Any]) -> None:
        self._whole = snapshot

    @property
    def everything(self) -> dict[str, Any]:
        return self._whole.items


def _may_replace(kind: str, name: str) -> bool:
    """Raise ConfigError, except at an interactive prompt, where the new component replaces the
    old."""
    if not _is_interactive():
        raise ConfigError(f"The {kind} {name!r} already exists; to replace it, remove it first")
    print(f"Note: the {kind} {name!r} was replaced", file=sys.stderr)
    return True


def _is_interactive() -> bool:
    """Return whether this is a Python prompt, IPython or a notebook, where a person may redefine
    components."""
    if hasattr(sys, "ps1"):
        return True
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


# --------------------------------------------------------------------------------------------------
# scopes


def parse_scopes(scopes: Sequence[str] | str, owner: str) -> tuple[str, ...]:
    """Return the scopes from a list or from the words in a string; raise ConfigError if a scope is
    malformed."""
    words = scopes.split() if isinstance(scopes, str) else tuple(scopes)
    for scope in words:
        if not isinstance(scope, str) or not re.fullmatch(_SCOPE, scope):
            raise ConfigError(
                f"{owner}: {scope!r} is not a valid scope; a scope cannot contain spaces, quotes "
                "or backslashes"
            )
    return tuple(dict.fromkeys(words))


def may_use(component: Any, principal: Principal | None) -> bool:
    """Return whether this caller has all scopes that the component requires."""
    return (
        principal is None or not component.scopes or set(component.scopes) <= set(principal.scopes)
    )


def require_scopes(component: Any, principal: Principal | None, name: str) -> None:
    """Raise Forbidden unless this caller may use the component."""
    if not may_use(component, principal):
        required = list(component.scopes)
        raise Forbidden(
            f"{name} requires a token with the scope {' '.join(required)}",
            data={"scopes": required},
        )


def scopes_in(snapshot: Snapshot[Any]) -> frozenset[str]:
    """Return all scopes that the components in a snapshot require."""
    if snapshot.scopes is None:
        snapshot.scopes = union_of_scopes(snapshot.items.values())
    return snapshot.scopes


def union_of_scopes(components: Iterable[Any]) -> frozenset[str]:
    """Return all scopes that these components require."""
    return frozenset(scope for component in components for scope in component.scopes)


def visible_to(principal: Principal | None, snapshot: Snapshot[Any]) -> Snapshot[Any]:
    """Return the components that this caller may use. Callers who see the same components receive
    the same object."""
    scopes = scopes_in(snapshot)
    if principal is None or not scopes:
        return snapshot
    granted = scopes.intersection(principal.scopes)
    view = snapshot.views.get(granted)
    if view is None:
        view = Snapshot(
            {
                name: component
                for name, component in snapshot.items.items()
                if granted.issuperset(component.scopes)
            }
        )
        if len(snapshot.views) < MAX_VIEWS:
            snapshot.views[granted] = view
    return view


# --------------------------------------------------------------------------------------------------
# pages


def select_page(
    call: Call, snapshot: Snapshot[Item], page_size: int | None
) -> tuple[list[Item], str | None]:
    """Return the items on the requested page, and the cursor for the next page."""
    cursor = call.params.cursor
    if page_size is None or not call.revision.paging:
        if cursor is not None and call.revision.paging:
            raise _invalid_cursor(cursor)
        return list(snapshot.items.values()), None
    names = snapshot.cache.get("names")
    if names is None:
        names = snapshot.cache["names"] = sorted(snapshot.items)
    start = 0 if cursor is None else _find_start(names, _decode_cursor(cursor, call.name))
    chosen = names[start : start + page_size]
    has_more = start + page_size < len(names)
    next_cursor = _encode_cursor(chosen[-1], call.name) if has_more and chosen else None
    return [snapshot.items[name] for name in chosen], next_cursor


def encode_page(
    call: Call,
    snapshot: Snapshot[Any],
    make_result: Callable[[], Any],
    redact: Redact | None = None,
) -> Any:
    """Return the requested page, which is encoded and redacted once and then cached."""
    key = (call.revision.name, call.params.cursor)
    encoded = snapshot.cache.get(key)
    if encoded is None:
        result = make_result()
        try:
            data = encode(call.revision.lower_result(call.method, result))
        except UnicodeEncodeError:
            return result  # a lone surrogate: the filter for outgoing messages replaces it
        if redact is not None:
            from ..connection.encode import redact_json

            data = redact_json(data, redact)
        encoded = Raw(data)
        if (
            len(snapshot.cache) < MAX_CACHED_PAGES
            and len(call.params.cursor or "") < MAX_CACHED_CURSOR_CHARS
        ):
            snapshot.cache[key] = encoded
    call.redacted_page = encoded
    return encoded


def _find_start(names: list[str], last: str) -> int:
    """Return the index of the first name after the last one of the previous page."""
    from bisect import bisect_right

    return bisect_right(names, last)


def _encode_cursor(name: str, method: str) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(f"{method}\n{name}".encode()).decode().rstrip("=")


def _decode_cursor(cursor: str, method: str) -> str:
    from base64 import urlsafe_b64decode

    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except ValueError:
        raise _invalid_cursor(cursor) from None
    head, newline, name = text.partition("\n")
    if not newline or head != method:
        raise _invalid_cursor(cursor)
    return name


def _invalid_cursor(cursor: str) -> InvalidParams:
    return InvalidParams(
        f"{cursor!r} is not a valid cursor for this list; try again without a cursor",
        parameter="cursor",
    )
