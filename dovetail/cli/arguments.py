"""Convert `key=value` words from the command line to the arguments of a tool.

    city=Oslo           a string, if the tool's schema requires a string
    days=3              JSON, if the schema requires another type; if it requires no type, JSON if
                        the text is valid JSON, and a string otherwise
    days:=3             always JSON
    text=@notes.txt     the text of a file, or its bytes in base64 if the schema requires base64
    note.title=Milk     a field of the argument `note`
    tags=a tags=b       an array

Values are not checked here: the server checks them, and its error names the argument.
"""

import re
import sys
from collections.abc import Set
from typing import Any

from ..errors import ConfigError
from ..text import with_article
from .schema_view import JSON_TYPES, find_items, find_property, schema_types

_PAIR = re.compile(r"([^=]+?)(:?)=(.*)", re.DOTALL)


def parse_arguments(
    pairs: list[str], schema: dict[str, Any], base: str | None = None
) -> dict[str, Any]:
    """Return the arguments in `base` (a JSON object, @FILE, or - for stdin), updated with the
    pairs."""
    arguments: dict[str, Any] = {} if base is None else _parse_object(base)
    given: dict[tuple[str, str], list[str]] = {}
    for pair in pairs:
        match = _PAIR.fullmatch(pair)
        if match is None:
            raise ConfigError(f"{pair!r} is not an argument; write key=value or key:=json")
        key, is_json, text = match.groups()
        given.setdefault((key, is_json), []).append(text)
    for (key, is_json), texts in given.items():
        if is_json and (len(texts) > 1 or (key, "") in given):
            raise _repeated(key, f"{key}:=json sets the whole value")
        path, expected = _find_argument(key, schema)
        values = [
            _read_file(key, text[1:], expected) if text.startswith("@") else text for text in texts
        ]
        value = _parse_json(values[0], key) if is_json else _parse(values, key, expected, schema)
        _set(arguments, path, value)
    return arguments


def _find_argument(key: str, schema: dict[str, Any]) -> tuple[list[str], Any]:
    """Return the path that a key stands for, and the schema at that path. A dot separates names
    only after a declared argument, because a name may contain a dot."""
    declared = find_property(schema, schema, key)
    head, *rest = key.split(".")
    found = find_property(schema, schema, head)
    if declared is not None or not rest or found is None:
        return [key], schema.get("additionalProperties") if declared is None else declared
    for name in rest:
        found = find_property(found, schema, name)
    return [head, *rest], found


def _set(arguments: dict[str, Any], path: list[str], value: Any) -> None:
    *parents, name = path
    for parent in parents:
        arguments = arguments.setdefault(parent, {})
        if not isinstance(arguments, dict):
            raise ConfigError(f"Argument {'.'.join(path)}: {parent} is not an object")
    arguments[name] = value


def _parse(texts: list[str], key: str, expected: Any, schema: dict[str, Any]) -> Any:
    """Return the value of an argument. The value is an array if the argument is given several
    times, or if its schema accepts only arrays."""
    types = schema_types(expected, schema)
    if len(texts) == 1 and (types - {"null"} != {"array"} or _is_json(texts[0], list, type(None))):
        return _parse_value(texts[0], key, types)
    if types - {"null"} and "array" not in types:
        raise _repeated(key, f"it accepts {_describe(types - {'null'})}, not an array")
    items = schema_types(find_items(expected, schema), schema)
    return [_parse_value(text, key, items) for text in texts]


def _repeated(key: str, why: str) -> ConfigError:
    return ConfigError(f"Argument {key} is given more than once, but {why}")


def _describe(types: Set[str]) -> str:
    return with_article(" or ".join(sorted(types)))


def _is_json(text: str, *kinds: type) -> bool:
    try:
        return isinstance(_decode(text), kinds)
    except ValueError:
        return False


def _parse_value(text: str, key: str, types: set[str]) -> Any:
    if "string" in types or not types:
        try:
            value = _decode(text)
        except ValueError:
            return text
        return value if not types or JSON_TYPES[type(value)] & (types - {"string"}) else text
    return _parse_json(text, key, types)


def _parse_json(text: str, key: str, types: Set[str] = frozenset()) -> Any:
    """Decode JSON. An error gives the decoder's reason, unless the types are all scalar."""
    try:
        return _decode(text)
    except ValueError as error:
        expected = _describe(types) if types else "valid JSON"
        reason = "" if types and not types & {"array", "object"} else f" ({error})"
        raise ConfigError(f"Argument {key}: {text!r} is not {expected}{reason}") from None


def _parse_object(text: str) -> dict[str, Any]:
    if text == "-":
        source = sys.stdin.read() if sys.stdin else ""
    else:
        source = _read_file("--args", text[1:]) if text.startswith("@") else text
    value = _parse_json(source, "--args")
    if not isinstance(value, dict):
        raise ConfigError(f"--args must be a JSON object, not {text!r}")
    return value


def _decode(text: str) -> Any:
    import msgspec

    return msgspec.json.decode(text)


def _read_file(key: str, path: str, schema: Any = None) -> str:
    """Return a file's text, or its bytes in base64 if the schema asks for that."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        if isinstance(schema, dict) and schema.get("contentEncoding") == "base64":
            from base64 import b64encode

            return b64encode(data).decode()
        return data.decode()
    except OSError as error:
        hint = f"; to send the text itself, write {key}:='\"@{path}\"'"
        raise ConfigError(f"Argument {key}: cannot read {path!r}: {error.strerror}{hint}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"Argument {key}: {path!r} is not UTF-8 text") from None
