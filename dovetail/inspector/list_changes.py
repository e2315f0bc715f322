"""Say in words how two versions of a server's lists differ: `+1 tool: add`, `order: items now
required`.

The functions are pure. They compare the lists as the protocol has them, so a change to any field
is found; only the fields below have words of their own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Item = Mapping[str, Any]
"""A tool, resource, template or prompt in its JSON form."""
DecodedLists = Mapping[str, Sequence[Item] | None]
"""The lists of a server by name; None if the server does not offer that list."""

KINDS = {
    "tools": ("tool", "name"),
    "resources": ("resource", "uri"),
    "templates": ("template", "uriTemplate"),
    "prompts": ("prompt", "name"),
}
"""For each list, the word for one item, and the field that identifies an item."""
FIELD_WORDS = {
    "inputSchema": "input schema",
    "outputSchema": "output schema",
    "mimeType": "MIME type",
    "_meta": "metadata",
}
"""The words for fields whose names are not words."""
MAX_NAMES = 3
"""How many items that were added or removed are named."""
MAX_CHANGES = 30
"""How many changes are listed; the others are counted."""


def describe_changes(before: DecodedLists, after: DecodedLists) -> list[str]:
    """Return what changed, in words: first how many items were added and removed, then the changes
    to each item that is in both.

    Args:
        before: The lists of the server before it was restarted.
        after: Its lists now.
    """
    counts = [text for kind in KINDS for text in _count(kind, before, after)]
    changes = [text for kind in KINDS for text in _compare_items(kind, before, after)]
    changes = counts + changes
    if len(changes) > MAX_CHANGES:
        changes[MAX_CHANGES - 1 :] = [f"{len(changes) - MAX_CHANGES + 1} more changes"]
    return changes


def _count(kind: str, before: DecodedLists, after: DecodedLists) -> Iterator[str]:
    word = KINDS[kind][0]
    old, new = _by_key(kind, before), _by_key(kind, after)
    added, removed = [key for key in new if key not in old], [key for key in old if key not in new]
    for sign, keys in (("+", added), ("-", removed)):
        if keys:
            more = f" and {len(keys) - MAX_NAMES} more" if len(keys) > MAX_NAMES else ""
            names = ", ".join(keys[:MAX_NAMES]) + more
            yield f"{sign}{len(keys)} {word}{'s' if len(keys) > 1 else ''}: {names}"


def _compare_items(kind: str, before: DecodedLists, after: DecodedLists) -> Iterator[str]:
    old, new = _by_key(kind, before), _by_key(kind, after)
    for key, item in new.items():
        if key in old:
            yield from (f"{key}: {text}" for text in _compare(old[key], item))
    kept_old, kept_new = [key for key in old if key in new], [key for key in new if key in old]
    if kept_old != kept_new:
        yield f"{kind}: order changed"


def _by_key(kind: str, lists: DecodedLists) -> dict[str, Item]:
    key = KINDS[kind][1]
    items = (item for item in lists.get(kind) or () if isinstance(item, Mapping))
    return {str(item.get(key)): item for item in items}


def _compare(old: Item, new: Item) -> Iterator[str]:
    for field in dict.fromkeys([*new, *old]):
        if old.get(field) != new.get(field) or (field in old) != (field in new):
            yield from DETAILS.get(field, _compare_field)(field, old.get(field), new.get(field))


def _compare_field(field: str, old: Any, new: Any) -> Iterator[str]:
    yield f"{FIELD_WORDS.get(field, field)} changed"


def _compare_schema(field: str, old: Any, new: Any) -> Iterator[str]:
    """Compare the schema of an object by its properties. Whatever has no words of its own is
    reported once, as a change of the schema."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        yield from _compare_field(field, old, new)
        return
    found = list(
        _compare_arguments(
            _object(old.get("properties")),
            _object(new.get("properties")),
            _names(old.get("required")),
            _names(new.get("required")),
        )
    )
    rest = [{key: schema[key] for key in schema if key not in PARTS} for schema in (old, new)]
    yield from found
    if rest[0] != rest[1] or not found:
        yield from _compare_field(field, old, new)


PARTS = ("properties", "required")
"""The keywords of a schema that are compared argument by argument."""


def _compare_prompt_arguments(field: str, old: Any, new: Any) -> Iterator[str]:
    tables = [
        {str(item.get("name")): item for item in value if isinstance(item, Mapping)}
        for value in (_list(old), _list(new))
    ]
    required = [{name for name, item in table.items() if item.get("required")} for table in tables]
    bare = [
        {name: {k: v for k, v in item.items() if k != "required"} for name, item in table.items()}
        for table in tables
    ]
    found = list(_compare_arguments(bare[0], bare[1], required[0], required[1]))
    yield from found or _compare_field(field, old, new)


def _compare_arguments(
    old: Mapping[str, Any], new: Mapping[str, Any], old_required: set[str], new_required: set[str]
) -> Iterator[str]:
    for name, schema in new.items():
        if name not in old:
            optional = "" if name in new_required else "optional "
            yield f"new {optional}argument {name}"
            continue
        before = old[name]
        if (name in old_required) != (name in new_required):
            yield f"{name} {'now' if name in new_required else 'no longer'} required"
            before, schema = _without_default(before), _without_default(schema)
        if before != schema:
            yield _compare_argument(name, before, schema)
    for name in old:
        if name not in new:
            yield f"argument {name} removed"


def _compare_argument(name: str, old: Any, new: Any) -> str:
    fields = (
        [key for key in dict.fromkeys([*new, *old]) if old.get(key) != new.get(key)]
        if isinstance(old, Mapping) and isinstance(new, Mapping)
        else []
    )
    if "type" in fields and isinstance(new.get("type"), str):
        return f"{name} is now of type {new['type']}"
    return f"{fields[0]} of {name} changed" if len(fields) == 1 else f"{name} changed"


def _without_default(schema: Any) -> Any:
    """Return a schema without its default, which comes and goes with `required`."""
    if not isinstance(schema, Mapping):
        return schema
    return {key: value for key, value in schema.items() if key != "default"}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _names(value: Any) -> set[str]:
    return {name for name in _list(value) if isinstance(name, str)}


DETAILS: dict[str, Callable[[str, Any, Any], Iterator[str]]] = {
    "inputSchema": _compare_schema,
    "arguments": _compare_prompt_arguments,
}
"""The functions that compare a field in detail."""
