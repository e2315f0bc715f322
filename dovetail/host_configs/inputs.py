"""The `inputs` of VS Code: a list at the top level of its file, whose elements ask for values.

An entry that needs a secret names an input, `${input:weather-KEY}`. VS Code asks for its value when
it starts the server, and stores it encrypted. So the file does not hold it.
"""

from collections.abc import Collection, Sequence
from typing import Any

from . import edit_json
from .edit import Edit, EditError, remove_entry
from .splice import Splice, apply

KEY = "inputs"
INPUT_FIELDS = ("type", "id", "description", "password")
"""The fields of an input that `install` adds."""
_BOM = "\ufeff"


def make_inputs(name: str, variables: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """Return the inputs that ask for the values of variables.

    Args:
        name: The name of the entry.
        variables: The names of the variables.
    """
    return tuple(
        {
            "type": "promptString",
            "id": f"{name}-{variable}",
            "description": f"{variable} for {name}",
            "password": True,
        }
        for variable in variables
    )


def list_ids(text: str) -> list[Any]:
    """Return the ids of all inputs in a text, with None for those that have none.

    Args:
        text: The text of the file.
    """
    inputs = _read(_scan(text).value)
    return [one.get("id") if isinstance(one, dict) else None for one in inputs]


def add_inputs(text: str, inputs: Sequence[dict[str, Any]]) -> list[Edit]:
    """Return the edits that add inputs, one after the other. Those whose id exists are left out.

    Args:
        text: The text of the file, which has an object at its top level.
        inputs: The inputs.

    Raises:
        EditError: `inputs` is not a list in this file.
    """
    edits: list[Edit] = []
    for one in inputs:
        if one["id"] in list_ids(text):
            continue
        document = _scan(text)
        old = _read(document.value)
        if KEY in document.value:
            splices = edit_json.append_element(document, KEY, one)
        else:
            splices = edit_json.set_value(document, (KEY,), [one])
        edits.append(_apply(text, splices, [*old, one]))
        text = edits[-1].text
    return edits


def remove_inputs(text: str, ids: Collection[str]) -> list[Edit]:
    """Return the edits that remove inputs, one after the other. The list stays.

    Args:
        text: The text of the file.
        ids: The ids of the inputs.

    Raises:
        EditError: An input cannot be removed alone.
    """
    edits: list[Edit] = []
    for one in ids:
        known = list_ids(text)
        if one in known:
            document = _scan(text)
            index = known.index(one)
            left = [*document.value[KEY]]
            del left[index]
            edits.append(_apply(text, edit_json.remove_element(document, KEY, index), left))
            text = edits[-1].text
    return edits


def without_inputs(text: str, ids: Collection[str]) -> str:
    """Return a text without inputs, and without the list if nothing is left in it.

    Args:
        text: The text of the file.
        ids: The ids of the inputs.

    Raises:
        EditError: An input cannot be removed alone.
    """
    for edit in remove_inputs(text, ids):
        text = edit.text
    return text if _scan(text).value.get(KEY) else remove_entry(text, "json", (KEY,)).text


def _scan(text: str) -> Any:
    return edit_json.scan(text.removeprefix(_BOM))


def _read(value: Any) -> list[Any]:
    found = value.get(KEY, []) if isinstance(value, dict) else []
    if not isinstance(found, list):
        raise EditError(f"`{KEY}` is not a list, so no input can be added to it")
    return found


def _apply(text: str, splices: list[Splice], expected: list[Any]) -> Edit:
    """Apply the changes of a text without its byte order mark, and check the result."""
    offset = int(text.startswith(_BOM))
    edit = apply(text, [Splice(at + offset, end + offset, new) for at, end, new in splices])
    if _scan(edit.text).value != {**_scan(text).value, KEY: expected}:
        raise EditError(f"`{KEY}` cannot be changed without changing something else in the file")
    return edit
