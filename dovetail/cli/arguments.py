"""Turn `key=value` words of the command line into the arguments of a tool.

    city=Oslo           a string, if the tool's schema says so
    days=3              JSON, if the schema says anything else; if it says nothing, JSON if it
                        parses as JSON, else a string
    days:=3             always JSON
    text=@notes.txt     the same, read from a file; base64 of its bytes if the schema asks for that

Values are not checked here: the server checks them, and its error names the argument.
"""

import re
from typing import Any

from ..errors import ConfigError
from ..text import with_article

_PAIR = re.compile(r"([^=]+?)(:?)=(.*)", re.DOTALL)
_JSON_TYPES: dict[type, set[str]] = {
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    str: {"string"},
    list: {"array"},
    dict: {"object"},
    type(None): {"null"},
}
_MAX_SCHEMA_STEPS = 1000
"""The maximum number of references and union members to follow; a hostile schema may be endless."""


def parse_arguments(
    pairs: list[str], schema: dict[str, Any], base: str | None = None
) -> dict[str, Any]:
    """Return the arguments from the pairs, added to those of `base`, a JSON object or @FILE."""
    arguments: dict[str, Any] = {} if base is None else _parse_object(base)
    properties = schema.get("properties")
    others = schema.get("additionalProperties")
    for pair in pairs:
        match = _PAIR.fullmatch(pair)
        if match is None:
            raise ConfigError(f"{pair!r} is not an argument; write key=value or key:=json")
        key, is_json, text = match.groups()
        expected = properties.get(key, others) if isinstance(properties, dict) else others
        value = _read_file(key, text[1:], expected) if text.startswith("@") else text
        if is_json:
            arguments[key] = _parse_json(value, key)
        else:
            arguments[key] = _parse_value(value, key, schema_types(expected, schema))
    return arguments


def schema_types(schema: Any, root: dict[str, Any]) -> set[str]:
    """Return the JSON types that a schema accepts; empty if it does not say."""
    found: set[str] = set()
    pending = [schema]
    for _ in range(_MAX_SCHEMA_STEPS):
        if not pending:
            break
        node = pending.pop()
        if not isinstance(node, dict):
            continue
        type_ = node.get("type")
        found |= {name for name in (type_, *_as_list(type_)) if isinstance(name, str)}
        if not type_:
            values = [*_as_list(node.get("enum")), *([node["const"]] if "const" in node else [])]
            found |= {name for value in values for name in _JSON_TYPES[type(value)]}
            pending += [
                *_as_list(node.get("anyOf")),
                *_as_list(node.get("oneOf")),
                _resolve_ref(node.get("$ref"), root),
            ]
    return found


def _resolve_ref(reference: Any, root: dict[str, Any]) -> Any:
    """Return what a reference within the same schema points to, or None."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _parse_value(text: str, key: str, types: set[str]) -> Any:
    if "string" in types or not types:
        try:
            value = _decode(text)
        except ValueError:
            return text
        return value if not types or _JSON_TYPES[type(value)] & (types - {"string"}) else text
    return _parse_json(text, key, with_article(" or ".join(sorted(types))))


def _parse_json(text: str, key: str, expected: str = "valid JSON") -> Any:
    try:
        return _decode(text)
    except ValueError as error:
        raise ConfigError(f"Argument {key}: {text!r} is not {expected} ({error})") from None


def _parse_object(text: str) -> dict[str, Any]:
    value = _parse_json(_read_file("--args", text[1:]) if text.startswith("@") else text, "--args")
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
