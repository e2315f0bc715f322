"""JSON that a user wrote: where it is wrong, and where it does not match a schema."""

import json
import re
from math import isfinite
from typing import Any

import msgspec

from ..errors import SchemaError
from ..jsonc import JsoncError, JsonDocument, scan
from ..schema.validation import compile
from ..text import one_line, quote
from .refusal import Refused

REQUIRED = "is required"
_MISSING = re.compile(r'"(?P<name>.+)" is a required property')
_STEP = re.compile(r'\.(?P<name>\w+)|\[(?P<step>[0-9]+|"(?:[^"\\]|\\.)*")\]')


def parse_json(text: str, *, unique_keys: bool = False) -> Any:
    """Return the value of a JSON text.

    Args:
        text: The text.
        unique_keys: Whether to refuse an object that has a key twice, and numbers that Python
            cannot hold, so that the value contains everything that the text does.

    Raises:
        Refused: It is not JSON; with the line and column of the problem.
    """
    hooks: dict[str, Any] = _EXACT if unique_keys else {}
    try:
        return json.loads(text, **hooks)
    except json.JSONDecodeError as problem:
        raise Refused(
            f"This is not valid JSON: {problem.msg} (line {problem.lineno}, column "
            f"{problem.colno}).",
            line=problem.lineno,
            column=problem.colno,
        ) from None
    except RecursionError:
        raise Refused("This JSON is nested too deeply.") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Refused(f"The key {quote(twice)} occurs twice in an object.")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise Refused(f"The number {one_line(text)} is too large, or is not a number in JSON.")
    return number


_EXACT = {"object_pairs_hook": _unique, "parse_float": _finite, "parse_constant": _finite}


def raw_object(text: str) -> msgspec.Raw:
    """Return a JSON object exactly as it was written.

    Raises:
        Refused: It is not a JSON object.
    """
    if not isinstance(parse_json(text), dict):
        raise Refused("This must be a JSON object.", line=1, column=1)
    try:
        msgspec.json.decode(text)  # `json` also accepts NaN and Infinity
        return msgspec.Raw(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError) as problem:
        raise Refused(f"This is not valid JSON: {problem}") from None


def find_problems(text: str, schema: str | None) -> list[dict[str, Any]]:
    """Return what is wrong with a JSON text: message, and line, column and path if they are known.

    Args:
        text: The text.
        schema: The JSON Schema, as JSON text; None checks only whether it is JSON.
    """
    try:
        value = parse_json(text)
        if schema is None:
            return []
        problems = compile(parse_json(schema)).problems(value, at_most=20)
    except Refused as problem:
        found = {"message": problem.message, "line": problem.line, "column": problem.column}
        return [{key: value for key, value in found.items() if value is not None}]
    except SchemaError as problem:
        return [{"message": f"The schema cannot be used: {problem}"}]
    try:
        document = scan(text)
    except JsoncError:  # nested too deeply for positions
        document = None
    return [_name_field(locate(problem, document)) for problem in problems]


def describe_problem(problem: str) -> str:
    """Return a problem as people say it: "guests is required", "count: 0 is less than 1".

    Args:
        problem: The text, which begins with the path in backquotes.
    """
    named = _name_field(locate(problem, None))
    path, message = named["path"], named["message"]
    colon = "" if message == REQUIRED else ":"
    return f"{path}{colon} {message}" if path else message


def _name_field(problem: dict[str, Any]) -> dict[str, Any]:
    """Return a problem with its field as a form names it: `guests`, not `$`, if it is missing."""
    path = problem["path"].removeprefix("$").removeprefix(".")
    missing = _MISSING.fullmatch(problem["message"])
    if missing is None:
        return problem | {"path": path}
    return problem | {"path": f"{path}.{missing['name']}".removeprefix("."), "message": REQUIRED}


def locate(problem: str, document: JsonDocument | None) -> dict[str, Any]:
    """Return a problem with its position.

    Args:
        problem: The text, which begins with the path in backquotes.
        document: The text that it is about.
    """
    path, _, message = problem.removeprefix("`").partition("`: ")
    found: dict[str, Any] = {"message": message or problem, "path": path}
    node = None if document is None else document.find(*_steps(path))
    if document is not None and node is not None:
        before = document.text[: node.start]
        found["line"] = before.count("\n") + 1
        found["column"] = len(before) - before.rfind("\n")
    return found


def _steps(path: str) -> list[str | int]:
    """Return the steps of a path such as `$.items[0]["first name"]`."""
    return [found["name"] or json.loads(found["step"]) for found in _STEP.finditer(path, pos=1)]
