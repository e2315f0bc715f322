"""The differences between two JSON values, for display.

Members of objects are matched by name, items of lists by their name or URI and otherwise by
position. Secrets are compared like all other values, but they are masked in what is shown.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ..masking import MASK, mask_message

MAX_DIFFERENCES = 1000
"""The maximum number of differences that are reported."""
NAMES = ("name", "uri", "uriTemplate")
"""The members by which items of a list are matched."""
ABSENT: Any = object()
ShowValue = Callable[[str, Any], str]
"""Returns the JSON text of a value. The first parameter is the name of the member that holds it."""


class JsonDifference(Struct, frozen=True, omit_defaults=True):
    """A difference between two JSON values."""

    kind: Literal["lost", "changed", "added"]
    """Whether the value is only in the first, in both, or only in the second."""
    path: str
    """Where the value is, such as `$.tools[add].title`."""
    before: str | None = None
    """The first value, as JSON text."""
    after: str | None = None
    """The second value, as JSON text."""


def compare_json(before: str, after: str, *, mask: bool = False) -> list[JsonDifference]:
    """Return the differences between two JSON texts.

    Args:
        before: The first text.
        after: The second text.
        mask: Whether credentials are masked in the values that are shown.

    Raises:
        msgspec.DecodeError: A text is not JSON.
    """
    show = _show_masked if mask else _show
    try:
        values = msgspec.json.decode(before), msgspec.json.decode(after)
        return list(islice(_find_differences("$", "", *values, show), MAX_DIFFERENCES))
    except RecursionError:  # nested too deeply to say more
        return [] if before == after else [JsonDifference("changed", "$")]


def _find_differences(
    path: str, name: str, before: Any, after: Any, show: ShowValue
) -> Iterator[JsonDifference]:
    if before is ABSENT:
        yield JsonDifference("added", path, after=show(name, after))
    elif after is ABSENT:
        yield JsonDifference("lost", path, before=show(name, before))
    elif isinstance(before, dict | list) and type(before) is type(after):
        ours, theirs = _match_parts(name, before, after)
        for step in {**ours, **theirs}:
            inner, one = ours.get(step, (name, ABSENT))
            inner, other = theirs.get(step, (inner, ABSENT))
            yield from _find_differences(path + step, inner, one, other, show)
    elif before != after or isinstance(before, bool) != isinstance(after, bool):
        yield JsonDifference("changed", path, show(name, before), show(name, after))


def _match_parts(name: str, *values: Any) -> list[dict[str, tuple[str, Any]]]:
    """Return the members of objects, or the items of lists, by the step that leads to each, with
    the name of the member that holds it."""
    if isinstance(values[0], dict):
        return [
            {_member_step(member): (member, item) for member, item in one.items()} for one in values
        ]
    for key in NAMES:
        keyed = [
            {
                f"[{item[key]}]": (name, item)
                for item in items
                if isinstance(item, dict) and key in item
            }
            for items in values
        ]
        if [len(items) for items in values] == [len(items) for items in keyed]:
            return keyed
    return [{f"[{index}]": (name, item) for index, item in enumerate(items)} for items in values]


def _member_step(name: str) -> str:
    return f".{name}" if name.isidentifier() else f"[{_show('', name)}]"


def _show(name: str, value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _show_masked(name: str, value: Any) -> str:
    """Return the JSON text of a value, as it would be masked in a message."""
    start = b"{%b:" % msgspec.json.encode(name)
    masked = mask_message(start + msgspec.json.encode(value) + b"}")
    if not masked.startswith(start):  # the name looks like a secret
        return f'"{MASK}"'
    return masked[len(start) : -1].decode()
