"""`.dovetail/calls.json`: named calls of tools, with what is expected of them.

    {
      "calls": [
        {
          "name": "adds",
          "tool": "add",
          "arguments": {"a": 1, "b": 2},
          "expect": {"equals": 3, "under_ms": 200}
        }
      ]
    }

The file is meant to be committed and edited by hand. It is written with a fixed order of keys, and
replaced at once. A file that cannot be read is never overwritten.
"""

import json
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ..errors import ConfigError
from ..jsonc import JsoncError, scan
from ..text import escape_json, one_line, quote
from .json_text import locate, parse_json
from .refusal import Refused

CALLS_FILE: Final = Path(".dovetail", "calls.json")
MAX_NAME_CHARS: Final = 200

CallName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]


class Expectations(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What is expected of the answer to a call. An answer that is an error is never expected."""

    equals: Any = UNSET
    """The answer."""
    schema: dict[str, Any] | bool | UnsetType = UNSET
    """A JSON schema that the answer matches."""
    under_ms: Annotated[int, Meta(gt=0)] | Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    """The number of milliseconds within which it arrives."""


class SavedCall(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A call of a tool that can be run again."""

    name: CallName
    tool: str
    arguments: dict[str, Any] = {}
    expect: Expectations = Expectations()


class _SavedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The document in `calls.json`."""

    calls: list[SavedCall]


def read_calls(file: Path = CALLS_FILE) -> list[SavedCall]:
    """Return the saved calls; none if there is no file.

    Args:
        file: The file (default: that of the current folder).

    Raises:
        Refused: The file cannot be read or is not valid; with line and column if they are known.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as problem:
        raise Refused(f"{file} cannot be read: {one_line(str(problem))}") from None
    try:
        return _parse(text)
    except Refused as problem:
        raise Refused(
            f"{file}: {problem.message}",
            "Correct the file. Until then, nothing is written to it.",
            line=problem.line,
            column=problem.column,
        ) from None


def save_call(call: SavedCall, replaces: str | None = None, file: Path = CALLS_FILE) -> None:
    """Add a call at the end of the file, or put it in the place of another.

    Args:
        call: The call.
        replaces: The name of the call that it replaces (default: none, and its name must be new).
        file: The file (default: that of the current folder).

    Raises:
        Refused: The name is in use, or there is no call to replace, or the file cannot be read.
        ConfigError: The file cannot be written.
    """
    calls = read_calls(file)
    if call.name != replaces and any(one.name == call.name for one in calls):
        raise Refused(
            f"There is already a saved call named {quote(call.name)}.",
            "Choose another name.",
            status=409,
        )
    if replaces is None:
        calls.append(call)
    else:
        calls[find_call(calls, replaces)] = call
    _write(calls, file)


def forget_call(name: str, file: Path = CALLS_FILE) -> None:
    """Remove a call from the file.

    Args:
        name: The name of the call.
        file: The file (default: that of the current folder).

    Raises:
        Refused: There is no such call, or the file cannot be read.
        ConfigError: The file cannot be written.
    """
    calls = read_calls(file)
    del calls[find_call(calls, name)]
    _write(calls, file)


def find_call(calls: Sequence[SavedCall], name: str) -> int:
    """Return the index of a call.

    Args:
        calls: The calls.
        name: The name of the call.

    Raises:
        Refused: There is no such call.
    """
    for index, call in enumerate(calls):
        if call.name == name:
            return index
    raise Refused(f"There is no saved call named {quote(name)}.", status=404)


def format_calls(calls: Sequence[SavedCall]) -> str:
    """Return the text of the file.

    Args:
        calls: The calls.
    """
    document = msgspec.to_builtins(_SavedFile(list(calls)))
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    return escape_json(text) + "\n"


def describe_saved() -> dict[str, Any]:
    """Return what the page shows of the file."""
    try:
        return {"calls": [_show(one) for one in read_calls()]}
    except Refused as problem:
        return {"calls": [], "problem": problem.message, "what_to_do": problem.what_to_do}


def _show(one: SavedCall) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(one)
    found["arguments"] = json.dumps(one.arguments)
    expect = found.pop("expect", {})
    for name in ("equals", "schema"):
        if name in expect:
            expect[name] = json.dumps(expect[name])
    return {**found, "expect": expect}


def _parse(text: str) -> list[SavedCall]:
    document = parse_json(text.removeprefix("\ufeff"), unique_keys=True)
    try:
        calls = msgspec.convert(document, _SavedFile).calls
    except msgspec.ValidationError as problem:
        raise _describe(problem, text) from None
    for index, call in enumerate(calls):
        if find_call(calls, call.name) != index:
            raise _refuse_at(
                f"two calls are named {quote(call.name)}", f"$.calls[{index}].name", text
            )
    return calls


def _describe(problem: Exception, text: str) -> Refused:
    message, _, path = str(problem).partition(" - at ")
    return _refuse_at(one_line(message), path.strip("`") or "$", text)


def _refuse_at(message: str, path: str, text: str) -> Refused:
    """Return an error that names the position of a value in the file."""
    try:
        found = locate(f"`{path}`: {message}", scan(text))
    except JsoncError:
        found = {}
    line, column = found.get("line"), found.get("column")
    where = "" if line is None else f"line {line}, column {column}: "
    return Refused(f"{where}{message} (at {path})", line=line, column=column)


def _write(calls: Sequence[SavedCall], file: Path) -> None:
    """Replace the file at once, so that it is never half written."""
    try:
        data = format_calls(calls).encode()
        file.parent.mkdir(exist_ok=True)
        place = file.resolve()
        mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else None
        handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=".calls-")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            os.chmod(temporary, _default_mode() if mode is None else mode)
            os.replace(temporary, place)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as problem:
        raise ConfigError(f"{file} cannot be written: {problem.strerror or problem}") from None


def _default_mode() -> int:
    """Return the mode of new files."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
