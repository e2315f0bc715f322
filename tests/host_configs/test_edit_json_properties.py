"""Any JSON document, however it is written: an entry is added, replaced and removed, and nothing
else changes."""

import json
from typing import Any

from hypothesis import given, strategies as st

from dovetail.host_configs.edit import parse, remove_entry, set_entry
from dovetail.host_configs.splice import Edit, Span, move_spans, remove_spans
from dovetail.jsonc import scan

NAMES = st.sampled_from(["mcpServers", "a", "b", "new", "", "//", '"'])
COMMENTS = ["/* c1 */", "// c2\n", "/* c3\n */", "//\r\n", "/**/"]
GAPS = st.lists(
    st.sampled_from(["", " ", "\t", "\n", "\r\n", "\n    ", "\r", *COMMENTS]), max_size=3
).map("".join)
SCALARS = st.sampled_from([None, True, 0, -1.5, 10**20, "", "x", "// not a comment", "}"])
ENTRIES = st.dictionaries(
    st.sampled_from(["command", "args", "env"]),
    SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(NAMES, SCALARS, max_size=2),
    max_size=3,
)
OBJECTS: Any = st.recursive(
    st.dictionaries(NAMES, SCALARS, max_size=3),
    lambda inner: st.dictionaries(NAMES, inner | SCALARS | st.lists(inner, max_size=2), max_size=3),
    max_leaves=8,
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)


def spell(value: Any, draw: st.DrawFn) -> str:
    """Write a value with white space, comments, trailing commas and keys that occur twice."""
    if not isinstance(value, dict | list):
        return json.dumps(value)
    items = list(value.items()) if isinstance(value, dict) else [(None, item) for item in value]
    if isinstance(value, dict) and items and draw(st.booleans()):
        items.insert(0, (items[-1][0], 0))
    parts = [
        draw(GAPS)
        + ("" if key is None else f"{json.dumps(key)}{draw(GAPS)}:{draw(GAPS)}")
        + spell(item, draw)
        for key, item in items
    ]
    trailing = "," if parts and draw(st.booleans()) else ""
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}{f'{draw(GAPS)},'.join(parts)}{draw(GAPS)}{trailing}{draw(GAPS)}{closing}"


@st.composite
def documents(draw: st.DrawFn) -> str:
    mark = draw(st.sampled_from(["", "\ufeff"]))
    return mark + draw(GAPS) + spell(draw(OBJECTS), draw) + draw(GAPS)


def with_entry(value: Any, path: tuple[str, ...], entry: Any) -> Any:
    """A copy of a value that has an entry; None if a parent is not an object."""
    if not isinstance(value, dict):
        return None
    inner = entry if len(path) == 1 else with_entry(value.get(path[0], {}), path[1:], entry)
    return None if inner is None else value | {path[0]: inner}


def without_entry(value: Any, path: tuple[str, ...]) -> Any:
    key, *rest = path
    if not rest:
        return {name: value[name] for name in value if name != key}
    return value | {key: without_entry(value[key], tuple(rest))}


def count_comments(text: str) -> list[int]:
    return [text.count(mark) for mark in ("c1", "c2", "c3")]


@given(documents(), PATHS, ENTRIES)
def test_an_entry_is_added_or_replaced_and_all_other_values_are_equal(
    text: str, path: tuple[str, ...], entry: dict[str, Any]
) -> None:
    value = scan(text).value
    expected = with_entry(value, path, entry)
    if expected is None:
        return  # refused, as the tables show
    edit = set_entry(text, "json", path, entry)
    assert scan(edit.text).value == expected
    if edit.inserted:
        assert remove_spans(edit.text, edit.inserted).text == text
        assert count_comments(edit.text) == count_comments(text)


@given(documents(), PATHS, ENTRIES)
def test_an_entry_that_was_added_is_removed_and_all_other_values_are_equal(
    text: str, path: tuple[str, ...], entry: dict[str, Any]
) -> None:
    value = scan(text).value
    expected = with_entry(value, path, entry)
    if expected is None:
        return
    added = set_entry(text, "json", path, entry)
    edit = remove_entry(added.text, "json", path)
    assert scan(edit.text).value == without_entry(expected, path)
    if added.inserted:
        assert count_comments(edit.text) == count_comments(text)
        assert not remove_entry(edit.text, "json", path).is_changed


@given(documents(), st.lists(st.tuples(NAMES, ENTRIES), min_size=1, max_size=4))
def test_the_text_that_edits_inserted_is_known_after_more_edits(
    text: str, entries: list[tuple[str, dict[str, Any]]]
) -> None:
    servers = parse(text, "json").get("mcpServers", {})
    if not isinstance(servers, dict) or servers.keys() & {name for name, _ in entries}:
        return
    edit = Edit(text, ())
    spans: tuple[Span, ...] = ()
    for name, entry in entries:  # the second entry with a name replaces the first
        edit = set_entry(edit.text, "json", ("mcpServers", name), entry)
        spans = move_spans(spans, edit.splices)
    assert remove_spans(edit.text, spans).text == text
