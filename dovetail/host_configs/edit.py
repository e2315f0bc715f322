"""Change one entry in the text of a host's configuration file, and leave every other byte as it is.

    edit = set_entry(text, "json", ("mcpServers", "weather"), {"command": "uvx", …})
    edit.text                                    # the new text
    remove_entry(edit.text, "json", ("mcpServers", "weather")).text

An edit is checked: the old and the new text are parsed, and everything but the entry must be equal.
Objects that contain the entry are created if they are missing. Empty ones stay when the entry is
removed, except in TOML, in which a table without contents need not be written.

Messages contain the line, the column and names of keys, but no values, which may be secrets.
"""

from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from typing import Any, Literal, NamedTuple

from ..text import quote, with_article
from . import edit_json, edit_toml, edit_yaml
from .splice import Edit, EditError, KeyPath, Splice, apply

__all__ = [
    "EDITORS",
    "Edit",
    "EditError",
    "Editor",
    "Format",
    "KeyPath",
    "find_entry",
    "parse",
    "remove_entry",
    "removes_only",
    "set_entry",
]

Format = Literal["json", "toml", "yaml"]
"""The formats of configuration files. JSON may have comments and trailing commas."""

_BOM = "\ufeff"
_MISSING: Any = object()
_TYPES = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "list",
    type(None): "null value",
}


class Editor(NamedTuple):
    """The functions for one format. What `scan` returns has a `value` and positions."""

    title: str
    scan: Callable[[str], Any]
    set_value: Callable[[Any, KeyPath, Any], list[Splice]]
    remove_value: Callable[[Any, KeyPath], list[Splice]]
    empty_parents: tuple[type, ...]
    """The types of a value to which entries can be added."""


EDITORS: dict[Format, Editor] = {
    "json": Editor("JSON", edit_json.scan, edit_json.set_value, edit_json.remove_value, (dict,)),
    "toml": Editor("TOML", edit_toml.scan, edit_toml.set_value, edit_toml.remove_value, (dict,)),
    "yaml": Editor(
        "YAML", edit_yaml.scan, edit_yaml.set_value, edit_yaml.remove_value, (dict, type(None))
    ),
}


def parse(text: str, format: Format) -> Any:
    """Return the value of a text. A text without a value, such as an empty one, is an empty object.
    Do not change the value, because another call may return the same one.

    Args:
        text: The text.
        format: Its format.

    Raises:
        EditError: The text is not valid. The message names the line and the column.
        ConfigError: The format is YAML, and the extra `install` is not installed.
    """
    return _scan(EDITORS[format], text).value


@lru_cache(4)
def _scan(editor: Editor, text: str) -> Any:
    """Decode a text and find its values. A change reads the same texts several times: to plan, to
    show and to write it, and to check each step."""
    return editor.scan(text.removeprefix(_BOM))


def find_entry(value: Any, path: KeyPath, default: Any = None) -> Any:
    """Return the entry of a parsed text.

    Args:
        value: What `parse` returned.
        path: The keys that lead to the entry.
        default: What to return if there is no such entry.
    """
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return default
        value = value[key]
    return value


def set_entry(text: str, format: Format, path: KeyPath, entry: dict[str, Any]) -> Edit:
    """Add an entry, or replace the one that has its name. If an equal entry exists, nothing
    changes.

    Args:
        text: The text of the file; empty for a new file.
        format: The format of the file.
        path: The keys that lead to the entry, of which the last one is its name.
        entry: The entry, made of JSON values.

    Raises:
        EditError: The text is not valid, or the entry cannot be added without changing more.
        ConfigError: The format is YAML, and the extra `install` is not installed.
    """
    editor = EDITORS[format]
    _check_entry(entry, path, editor)
    before = _scan(editor, text)
    _check_parents(before.value, path, editor)
    if _is_equal(find_entry(before.value, path, _MISSING), entry):
        return Edit(text, ())
    edit = _apply(text, editor.set_value(before, path, entry))
    _check_result(before.value, edit, path, entry, editor)
    return edit


def remove_entry(text: str, format: Format, path: KeyPath) -> Edit:
    """Remove an entry. If there is none, nothing changes.

    Comments inside the entry, and at the end of its line, are removed with it. Other comments stay.

    Args:
        text: The text of the file.
        format: The format of the file.
        path: The keys that lead to the entry.

    Raises:
        EditError: The text is not valid, or the entry cannot be removed without changing more.
        ConfigError: The format is YAML, and the extra `install` is not installed.
    """
    editor = EDITORS[format]
    before = _scan(editor, text)
    if find_entry(before.value, path, _MISSING) is _MISSING:
        return Edit(text, ())
    edit = _apply(text, editor.remove_value(before, path))
    _check_result(before.value, edit, path, _MISSING, editor)
    return edit


def removes_only(text: str, format: Format, path: KeyPath, edit: Edit) -> bool:
    """Return whether an edit of a text removes one entry, and changes no other value.

    Args:
        text: The text before the edit.
        format: The format of the text.
        path: The keys that lead to the entry.
        edit: The edit.
    """
    try:
        _check_result(parse(text, format), edit, path, _MISSING, EDITORS[format])
    except EditError:
        return False
    return True


def _apply(text: str, splices: list[Splice]) -> Edit:
    """Apply the changes of a text without its byte order mark."""
    offset = int(text.startswith(_BOM))
    return apply(text, [Splice(at + offset, end + offset, new) for at, end, new in splices])


def _check_result(before: Any, edit: Edit, path: KeyPath, entry: Any, editor: Editor) -> None:
    """Raise an error if anything but the entry changed."""
    problem = EditError(
        f"{quote(path[-1])} cannot be changed without changing something else in the file. "
        "Change it by hand."
    )
    try:
        after = _scan(editor, edit.text).value
    except EditError:
        raise problem from None
    found = find_entry(after, path, _MISSING)
    if not (_is_equal(found, entry) and _is_equal_beside(before, after, path)):
        raise problem


def _check_entry(entry: Any, path: KeyPath, editor: Editor) -> None:
    try:
        "".join([*path, *_strings(entry, path[-1], editor)]).encode()
    except UnicodeEncodeError:
        raise EditError(
            f"{quote(path[-1])} contains text that is not valid Unicode, such as a file name in "
            "another encoding."
        ) from None


def _strings(value: Any, name: str, editor: Editor) -> list[str]:
    """Return all strings and keys of an entry, and check that the format has all of its values."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return [*value, *(each for key in value for each in _strings(value[key], key, editor))]
    if isinstance(value, list):
        return [each for item in value for each in _strings(item, name, editor)]
    if value is None and editor.title != "TOML":
        return []
    if isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        return []
    raise EditError(f"{quote(name)} has a value that {editor.title} cannot represent")


def _check_parents(value: Any, path: KeyPath, editor: Editor) -> None:
    for depth in range(len(path)):
        found = find_entry(value, path[:depth], _MISSING)
        if found is _MISSING:
            return
        if not isinstance(found, editor.empty_parents):
            name = quote(".".join(path[:depth])) if depth else "The top level of the file"
            kind = with_article(_TYPES.get(type(found), "value"))
            raise EditError(f"{name} is {kind}, not an object, so no entry can be added to it")


def _is_equal_beside(before: Any, after: Any, path: KeyPath) -> bool:
    """Return whether two values are equal except at a path. Objects on the path may be missing or
    empty."""
    before, after = ({} if each is None else each for each in (before, after))
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return False
    key, *rest = path
    others = [{name: each[name] for name in each if name != key} for each in (before, after)]
    if not _is_equal(*others):
        return False
    inner = before.get(key), after.get(key)
    return not rest or _is_equal_beside(*inner, tuple(rest))


def _is_equal(first: Any, second: Any) -> bool:
    """Return whether two values are equal, and have equal types: 1 is not 1.0 or true."""
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(
            _is_equal(first[key], second[key]) for key in first
        )
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_is_equal, first, second))
    return bool(first == second) or (first != first and second != second)  # not a number
