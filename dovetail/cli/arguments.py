"""`key=value` on the command line, turned into the arguments of a tool.

    city=Oslo           text, where the tool's schema says string
    days=3              JSON, where it says anything else; where it says nothing, JSON if it is
                        JSON, else text
    days:=3             JSON in any case
    text=@notes.txt     the same, from a file; bytes in base64 where the schema asks for that

Whether the values are any good is for the server to say: it knows its schema, and its answer names
the argument.
"""

import re
from typing import Any

from ..errors import ConfigError

_PAIR = re.compile(r"([^=]+?)(:?)=(.*)", re.DOTALL)
_KINDS: dict[type, set[str]] = {
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    str: {"string"},
    list: {"array"},
    dict: {"object"},
    type(None): {"null"},
}
_MAX_SCHEMA_STEPS = 1000
"""How many references and members of unions are looked at; a hostile schema may have no end."""


def parse_arguments(
    pairs: list[str], schema: dict[str, Any], given: str | None = None
) -> dict[str, Any]:
    """The arguments that these pairs stand for, on top of those `given` as a JSON object."""
    arguments: dict[str, Any] = {} if given is None else _object(given)
    properties = schema.get("properties")
    others = schema.get("additionalProperties")
    for pair in pairs:
        match = _PAIR.fullmatch(pair)
        if match is None:
            raise ConfigError(f"{pair!r} is no argument; write key=value, or key:=json")
        key, forced, text = match.groups()
        wanted = properties.get(key, others) if isinstance(properties, dict) else others
        value = _read(key, text[1:], wanted) if text.startswith("@") else text
        arguments[key] = (
            _json(value, key) if forced else _value(value, key, schema_types(wanted, schema))
        )
    return arguments


def schema_types(schema: Any, root: dict[str, Any]) -> set[str]:
    """The JSON types that a schema lets pass; none where it does not say."""
    found: set[str] = set()
    waiting = [schema]
    for _ in range(_MAX_SCHEMA_STEPS):
        if not waiting:
            break
        one = waiting.pop()
        if not isinstance(one, dict):
            continue
        said = one.get("type")
        found |= {name for name in (said, *_as_list(said)) if isinstance(name, str)}
        if not said:
            values = [*_as_list(one.get("enum")), *([one["const"]] if "const" in one else [])]
            found |= {kind for value in values for kind in _KINDS[type(value)]}
            waiting += [
                *_as_list(one.get("anyOf")),
                *_as_list(one.get("oneOf")),
                _resolve_ref(one.get("$ref"), root),
            ]
    return found


def _resolve_ref(reference: Any, root: dict[str, Any]) -> Any:
    """What a reference within the same schema points at."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _value(text: str, key: str, wanted: set[str]) -> Any:
    if "string" in wanted or not wanted:
        try:
            value = _decoded(text)
        except ValueError:
            return text
        return value if not wanted or _KINDS[type(value)] & (wanted - {"string"}) else text
    return _json(text, key, " or ".join(sorted(wanted)))


def _json(text: str, key: str, wanted: str = "JSON") -> Any:
    try:
        return _decoded(text)
    except ValueError as error:
        raise ConfigError(f"argument {key}: {text!r} is no {wanted} ({error})") from None


def _object(text: str) -> dict[str, Any]:
    value = _json(_read("--args", text[1:]) if text.startswith("@") else text, "--args")
    if not isinstance(value, dict):
        raise ConfigError(f"--args takes a JSON object, not {text!r}")
    return value


def _decoded(text: str) -> Any:
    import msgspec

    return msgspec.json.decode(text)


def _read(key: str, path: str, schema: Any = None) -> str:
    """A file's text; its bytes in base64 where that is what the schema asks for."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        if isinstance(schema, dict) and schema.get("contentEncoding") == "base64":
            from base64 import b64encode

            return b64encode(data).decode()
        return data.decode()
    except OSError as error:
        hint = f"; to send the text itself, write {key}:='\"@{path}\"'"
        raise ConfigError(f"argument {key}: cannot read {path!r}: {error.strerror}{hint}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"argument {key}: {path!r} is no UTF-8 text") from None
