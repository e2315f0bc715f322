"""What a caller may use: a tool, resource or prompt with `scopes=` is for those whose token has all
of them.

Who may not use it does not see it in lists, and hears nothing of it; who asks for it by name is
refused with the scopes that it takes, so that a client can go and get them. Where nobody asked who
is calling (stdio: whoever runs the process owns it), everything may be used. What a token means
beyond its words (a scope that has others in it) is the guard's business, and settled when the
caller was let in.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import ConfigError, Forbidden
from ..ports import Principal
from .registry import Snapshot

VIEWS = 100
"""How many views of one list are remembered."""
_SCOPE = re.compile(r"[!#-\[\]-~]+")
"""RFC 6749, 3.3."""


def given(scopes: Sequence[str] | str, where: str) -> tuple[str, ...]:
    """What a user gave as scopes: a list, or words in a string."""
    listed = scopes.split() if isinstance(scopes, str) else tuple(scopes)
    for scope in listed:
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise ConfigError(
                f"{where}: {scope!r} is no scope; one is a word without spaces and quotes"
            )
    return tuple(dict.fromkeys(listed))


def may(entry: Any, principal: Principal | None) -> bool:
    """Whether somebody may use this."""
    return principal is None or not entry.scopes or set(entry.scopes) <= set(principal.scopes)


def check(entry: Any, principal: Principal | None, what: str) -> None:
    """Forbidden where they may not."""
    if not may(entry, principal):
        needed = list(entry.scopes)
        raise Forbidden(
            f"{what} takes a token with the scope {' '.join(needed)}", data={"scopes": needed}
        )


def needed(snapshot: Snapshot[Any]) -> frozenset[str]:
    """All scopes that something in a list takes."""
    if snapshot.scopes is None:
        snapshot.scopes = union(snapshot.items.values())
    return snapshot.scopes


def union(entries: Iterable[Any]) -> frozenset[str]:
    """All scopes that some of these take."""
    return frozenset(scope for entry in entries for scope in entry.scopes)


def view(snapshot: Snapshot[Any], principal: Principal | None) -> Snapshot[Any]:
    """A list as somebody sees it, made once for all who see the same."""
    scopes = needed(snapshot)
    if principal is None or not scopes:
        return snapshot
    held = scopes.intersection(principal.scopes)
    seen = snapshot.views.get(held)
    if seen is None:
        seen = Snapshot(
            {name: entry for name, entry in snapshot.items.items() if held.issuperset(entry.scopes)}
        )
        if len(snapshot.views) < VIEWS:
            snapshot.views[held] = seen
    return seen
