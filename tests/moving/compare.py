"""Compare what a server lists and answers on its own library and on Dovetail.

`NORMALISATIONS` is the complete list of the differences that do not count. Each is described in
docs/guides/moving.md.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .wire import METHOD_NOT_FOUND

KEYS = {"tools": "name", "resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}
SCHEMAS = ("inputSchema", "outputSchema")
Snapshot = dict[str, Any]


class Normalisation(NamedTuple):
    """A difference that does not count."""

    reason: str
    apply: Callable[[Any], Any]


def _walk(value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Apply a change to all objects in a value, from the inside out."""
    if isinstance(value, dict):
        return change({key: _walk(each, change) for key, each in value.items()})
    return [_walk(each, change) for each in value] if isinstance(value, list) else value


def _drop(*pairs: tuple[str, Any]) -> Callable[[Any], Any]:
    """Return a function that drops keys with certain values (`...`: any value) everywhere."""

    def change(found: dict[str, Any]) -> dict[str, Any]:
        gone = {key for key, value in pairs if key in found and value in (..., found[key])}
        return {key: value for key, value in found.items() if key not in gone}

    return lambda value: _walk(value, change)


def _drop_titles(schema: Any) -> Any:
    """Drop the titles that are derived from names, but no property that is called `title`."""
    if isinstance(schema, list):
        return [_drop_titles(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _drop_titles(each) for name, each in value.items()}
        if key in ("properties", "$defs") and isinstance(value, dict)
        else _drop_titles(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def _inline(schema: Any) -> Any:
    """Replace references by what they refer to, because the names of definitions may differ."""
    definitions = schema.get("$defs", {}) if isinstance(schema, dict) else {}

    def resolve(value: Any, depth: int) -> Any:
        if isinstance(value, list):
            return [resolve(each, depth) for each in value]
        if not isinstance(value, dict):
            return value
        reference = str(value.get("$ref", ""))
        name = reference.removeprefix("#/$defs/")
        if reference and name in definitions and depth < 6:
            rest = {key: each for key, each in value.items() if key != "$ref"}
            return resolve({**definitions[name], **rest}, depth + 1)
        return {key: resolve(each, depth) for key, each in value.items() if key != "$defs"}

    return resolve(schema, 0)


def _sort_required(schema: Any) -> Any:
    return _walk(
        schema,
        lambda found: {
            key: sorted(value)
            if key == "required" and isinstance(value, list) and all(map(_is_text, value))
            else value
            for key, value in found.items()
        },
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _parse_json_text(answer: Any) -> Any:
    def change(found: dict[str, Any]) -> dict[str, Any]:
        text = found.get("text")
        if not isinstance(text, str):
            return found
        try:
            return {**found, "text": json.loads(text)}
        except ValueError:
            return found

    return _walk(answer, change)


PREFIX = re.compile(
    r"^Error (executing tool|calling tool|reading resource|rendering prompt) \S+?(: |$)"
    r"|^Error creating resource from template: "
)


HIDDEN = {"failed": ""}
"""An error whose text the library hides."""
UNASKED = {"failed": "Handler returned an invalid result"}
"""The answer of release 2 of the SDK if a function returns questions in the handshake era. Dovetail
asks them there, too."""


def _drop_error_prefix(answer: Any) -> Any:
    """Return what a failed call says, as a result or as an error, without the library's prefix."""
    result = answer.get("result") or {}
    if "error" not in answer and not result.get("isError"):
        return answer
    if answer.get("error", {}).get("code") == METHOD_NOT_FOUND:
        return {"failed": "method not found"}
    texts = [each.get("text", "") for each in result.get("content", [])]
    text = answer["error"]["message"] if "error" in answer else "\n".join(texts)
    return {"failed": PREFIX.sub("", text).removeprefix("KeyError: ")}


CONTENT = ("text", "image", "audio", "resource", "resource_link")


def _drop_content_schema(schema: Any) -> Any:
    properties = (schema or {}).get("properties", {})
    items = properties.get("result", {}).get("items", {})
    kinds = [each.get("properties", {}) for each in items.get("anyOf", [items])]
    is_list = all(each.get("type", {}).get("const") in CONTENT for each in kinds)
    is_content = properties.get("type", {}).get("const") in CONTENT
    return None if is_content or is_list else schema


def _drop_repeated_content(answer: Any) -> Any:
    result = answer.get("result") or {}
    repeated = result.get("structuredContent") or {}
    items = repeated.get("result") or [repeated]
    is_list = isinstance(items, list) and all(isinstance(each, dict) for each in items)
    if not is_list or any(each.get("type") not in CONTENT for each in items):
        return answer
    rest = {key: value for key, value in result.items() if key != "structuredContent"}
    return {**answer, "result": rest}


SCHEMA_NORMALISATIONS = (
    Normalisation("titles that are derived from names are left out", _drop_titles),
    Normalisation("the names of definitions may differ", _inline),
    Normalisation("content is not described as structured content", _drop_content_schema),
    Normalisation("unknown arguments are refused", _drop(("additionalProperties", False))),
    Normalisation("other properties are allowed by default", _drop(("additionalProperties", True))),
    Normalisation("FastMCP marks wrapped results", _drop(("x-fastmcp-wrap-result", True))),
    Normalisation("the order of required properties has no meaning", _sort_required),
    Normalisation("the dialect may be named", _drop(("$schema", ...))),
)
ANSWER_NORMALISATIONS = (
    Normalisation("error messages have no prefix, and texts are not hidden", _drop_error_prefix),
    Normalisation("content is not repeated as structured content", _drop_repeated_content),
    Normalisation("JSON in a text may have spaces", _parse_json_text),
    Normalisation(
        "empty fields, and fields that have their default value, may be left out",
        _drop(("isError", False), ("annotations", None), ("description", "")),
    ),
    Normalisation("the libraries add `_meta` of their own", _drop(("_meta", ...))),
    Normalisation(
        "questions that a function returns are asked in the handshake era, where the SDK fails",
        lambda answer: answer,  # `find_differences` sees both answers
    ),
)


def _normalise(value: Any, table: tuple[Normalisation, ...]) -> Any:
    for each in table:
        value = each.apply(value)
    return value


def list_names(snapshot: Snapshot) -> dict[str, list[str]]:
    """Return the names of everything that a server lists."""
    return {kind: sorted(each[key] for each in snapshot[kind]) for kind, key in KEYS.items()}


def unstable_answers(first: Snapshot, second: Snapshot) -> set[str]:
    """Return the answers that differ between two runs on the same library."""
    return {key for key, answer in first["answers"].items() if second["answers"].get(key) != answer}


def find_differences(peer: Snapshot, ours: Snapshot, skipped: set[str]) -> Iterator[str]:
    """Return the differences, each in one line.

    Args:
        peer: What the server says on its own library.
        ours: What it says on Dovetail.
        skipped: Answers that are not compared.
    """
    names, own = list_names(peer), list_names(ours)
    for kind in KEYS:
        if names[kind] != own[kind]:
            yield f"{kind}: {_shorten(names[kind])}, on Dovetail {_shorten(own[kind])}"
    yield from _schema_differences(peer, ours)
    for key, answer in peer["answers"].items():
        if key in skipped or key not in ours["answers"]:
            continue
        expected = _normalise(answer, ANSWER_NORMALISATIONS)
        found = _normalise(ours["answers"][key], ANSWER_NORMALISATIONS)
        is_hidden, is_unasked = expected == HIDDEN, expected == UNASKED
        if expected != found and not (is_hidden if "failed" in found else is_unasked):
            yield f"{key}: {_point_out(expected, found)}"


def _schema_differences(peer: Snapshot, ours: Snapshot) -> Iterator[str]:
    own = {tool["name"]: tool for tool in ours["tools"]}
    for tool in peer["tools"]:
        for field in SCHEMAS if tool["name"] in own else ():
            expected = _normalise(tool.get(field), SCHEMA_NORMALISATIONS)
            found = _normalise(own[tool["name"]].get(field), SCHEMA_NORMALISATIONS)
            if expected != found:
                yield f"tool {tool['name']}, {field}: {_point_out(expected, found)}"
    prompts = {prompt["name"]: prompt for prompt in ours["prompts"]}
    for prompt in peer["prompts"]:
        if prompt["name"] in prompts:
            expected, found = (_arguments(each) for each in (prompt, prompts[prompt["name"]]))
            if expected != found:
                yield f"prompt {prompt['name']}: {expected}, on Dovetail {found}"


def _arguments(prompt: dict[str, Any]) -> dict[str, bool]:
    return {each["name"]: bool(each.get("required")) for each in prompt.get("arguments") or []}


def _point_out(expected: Any, found: Any, path: str = "") -> str:
    """Describe the first place where two values differ."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() & found.keys():
        for key in [*expected, *found]:
            if expected.get(key, ...) != found.get(key, ...):
                return _point_out(expected.get(key, ...), found.get(key, ...), f"{path}.{key}")
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            if one != other:
                return _point_out(one, other, f"{path}[{index}]")
    where = f"{path.removeprefix('.')} is " if path else ""
    return f"{where}{_shorten(expected)}, on Dovetail {_shorten(found)}"


def _shorten(value: Any, limit: int = 160) -> str:
    if value is ...:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]}…"
