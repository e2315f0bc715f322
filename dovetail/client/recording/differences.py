"""Where two JSON values differ."""

import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import UNSET, Struct

_PLAIN: Final = re.compile(r"[A-Za-z_$][\w$-]*", re.ASCII)


class ValueDifference(Struct, frozen=True):
    """A place at which two values differ."""

    path: str
    """Where: `result.content[0].text`."""
    recorded: Any = UNSET
    """The first value, or UNSET if it has nothing there."""
    replayed: Any = UNSET
    """The second value, or UNSET if it has nothing there."""


def json_differences(recorded: Any, replayed: Any, path: str = "") -> Iterator[ValueDifference]:
    """Yield the places at which two JSON values differ. The order of the keys of an object does not
    matter, and neither does how a number is written.

    Args:
        recorded: The first value.
        replayed: The second value.
        path: Where the two values are.
    """
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        for key in [*recorded, *(key for key in replayed if key not in recorded)]:
            yield from json_differences(
                recorded.get(key, UNSET), replayed.get(key, UNSET), _join(path, key)
            )
    elif isinstance(recorded, list) and isinstance(replayed, list):
        for at in range(max(len(recorded), len(replayed))):
            old, new = (side[at] if at < len(side) else UNSET for side in (recorded, replayed))
            yield from json_differences(old, new, f"{path}[{at}]")
    elif recorded != replayed or isinstance(recorded, bool) != isinstance(replayed, bool):
        yield ValueDifference(path, recorded, replayed)


def _join(path: str, key: str) -> str:
    if not _PLAIN.fullmatch(key):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key
