"""Tools for a model: definitions, calls and results in the formats of OpenAI, Anthropic and Google.

    request["tools"] = tools_for("anthropic", tools)
    calls = read_calls("anthropic", reply)
    messages += results_for("anthropic", [(call, await call_tool(…)) for call in calls])

An API that does not understand a part of one tool refuses the whole request, so each definition is
reduced to what the API accepts. The full schema still validates the call when it arrives at the
server. This is what each format changes, at the root of a schema and below it:

                                 OpenAI       Anthropic    Google
    root: allOf, anyOf, oneOf    merged       merged       merged
    root: enum, const, not       removed      removed      removed
    root: $ref                   followed     followed     followed
    root: no properties          added empty  added empty  the schema is left out
    root: names of properties    kept         [1]          kept
    array without items          added empty  kept         kept
    allOf of one schema          kept         kept         replaced by that schema
    const                        kept         kept         an enum of one value
    definitions                  kept         kept         $defs
    keywords beside $ref         kept         kept         removed
    other keywords               kept         kept         removed, except `GOOGLE_KEYWORDS`
    description of the tool      1024 chars   kept         the name if there is none

"Merged" means that the properties of all alternatives are offered, and none of them is required.
[1] A property is removed if its name has other characters than letters, digits, `_`, `.` and `-`,
or more than 64 of them.

Sources: the APIs' reference pages and their error messages. OpenAI is the Chat Completions API, and
Google the JSON Schema field of function declarations (`parametersJsonSchema`).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from ..protocol.content import (
    AudioContent,
    Content,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from ..protocol.tools import Tool, ToolResult

Json = dict[str, Any]
GOOGLE_KEYWORDS: Final = (
    "$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items",
    "prefixItems", "minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties",
    "additionalProperties", "required", "propertyOrdering",
)  # fmt: skip
"""The keywords of JSON Schema that Google's API supports."""
OPENAI_DESCRIPTION_CHARS: Final = 1024
MAX_DEPTH: Final = 64
"""The nesting depth below which a schema is cut off."""
_COMBINED: Final = ("allOf", "anyOf", "oneOf")
_ROOT_REMOVED: Final = (*_COMBINED, "enum", "const", "not", "$ref")
_ANTHROPIC_PROPERTY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAPS: Final = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_LISTS: Final = (*_COMBINED, "prefixItems")
_SINGLE: Final = ("items", "additionalProperties", "contains", "propertyNames", "not")


class FunctionCallingFormat(Struct, frozen=True, eq=False):
    """How one API writes tools, calls and results."""

    tools: Callable[[Sequence[Tool]], list[Json]]
    calls: Callable[[Mapping[str, Any]], list[ToolUseContent]]
    results: Callable[[Sequence[tuple[ToolUseContent, ToolResultContent]]], list[Json]]


def tools_for(format: str, tools: Iterable[Tool]) -> list[Json]:
    """Return the value of `tools` in a request to a model.

    Args:
        format: "openai", "anthropic" or "google".
        tools: The tools.

    Raises:
        ValueError: The format is unknown.
    """
    return _find(format).tools(list(tools))


def read_calls(format: str, reply: Any) -> list[ToolUseContent]:
    """Return the tools that a model wants to call, in its order.

    Args:
        format: "openai", "anthropic" or "google".
        reply: The reply of the API, decoded from JSON, or as an object of the provider's own SDK.

    Raises:
        ValueError: The format is unknown, or the reply is not valid.
    """
    convert = _find(format)
    decoded = reply.model_dump(by_alias=True) if hasattr(reply, "model_dump") else reply
    try:
        return convert.calls(decoded)
    except (AttributeError, KeyError, IndexError, TypeError, msgspec.MsgspecError) as error:
        raise ValueError(f"The reply of the model is not valid: {error!r}") from None


def results_for(format: str, results: Iterable[tuple[ToolUseContent, ToolResult]]) -> list[Json]:
    """Return the messages that give results back to a model.

    Content that the format lacks, such as images for OpenAI, becomes a note that it was there.

    Args:
        format: "openai", "anthropic" or "google".
        results: Each call, as `read_calls` returned it, and its result. A model needs the results
            of all of its calls at once.

    Raises:
        ValueError: The format is unknown.
    """
    convert = _find(format)
    answered = []
    for call, one in results:
        result = ToolResultContent(call.id, one.content, one.structured_content, one.is_error)
        answered.append((call, result))
    return convert.results(answered) if answered else []


def _find(format: str) -> FunctionCallingFormat:
    if format not in FORMATS:
        raise ValueError(f"Unknown format {format!r}. Use one of: {', '.join(sorted(FORMATS))}")
    return FORMATS[format]


# content


def content_text(block: Content) -> str:
    """Return a block of a tool result as text, for a model that reads only text."""
    match block:
        case TextContent():
            return block.text
        case ResourceLink():
            return f"{block.name}: {block.uri}"
        case EmbeddedResource() if block.resource.text is not None:
            return block.resource.text
        case EmbeddedResource():
            return f"[{block.resource.mime_type or 'binary'} data at {block.resource.uri}]"
        case ImageContent() | AudioContent():
            return f"[{block.type}: {block.mime_type}]"
    return f"[{block.type}]"


def result_text(result: ToolResultContent) -> str:
    """Return a tool result as text. Structured content is used if there is nothing else."""
    if not result.content and result.structured_content is not None:
        return msgspec.json.encode(result.structured_content).decode()
    return "\n".join(map(content_text, result.content))


# schemas


def _reduce_root(schema: Mapping[str, Any]) -> Json:
    """Return a schema that is an object with properties and no alternatives."""
    schema = {**_follow_reference(schema), **schema}
    properties: Json = {}
    for keyword in _COMBINED:
        options = schema.get(keyword)
        for option in options if isinstance(options, list) else ():
            more = option.get("properties") if isinstance(option, Mapping) else None
            properties |= more if isinstance(more, dict) else {}
    own = schema.get("properties")
    properties |= own if isinstance(own, dict) else {}
    kept = {key: value for key, value in schema.items() if key not in _ROOT_REMOVED}
    return {**kept, "type": "object", "properties": properties}


def _follow_reference(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definition that a whole schema refers to, or an empty one."""
    found: Any = schema
    for step in str(schema.get("$ref", "")).removeprefix("#/").split("/"):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _change_all(schema: Any, change: Callable[[Json], Json], depth: int = 0) -> Any:
    """Apply a change to a schema and to all schemas inside it, the innermost first."""
    if not isinstance(schema, Mapping):
        return schema  # true or false
    if depth >= MAX_DEPTH:
        return {}

    def inner(one: Any) -> Any:
        return _change_all(one, change, depth + 1)

    copy = dict(schema)
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, Mapping):
            copy[key] = {name: inner(one) for name, one in value.items()}
        elif key in _LISTS and isinstance(value, list):
            copy[key] = [inner(one) for one in value]
        elif key in _SINGLE:
            copy[key] = inner(value)
    return change(copy)


# OpenAI: https://platform.openai.com/docs/api-reference/chat


def openai_tool(tool: Tool) -> Json:
    """Return the definition of a tool."""
    description = tool.description
    if description is not None and len(description) > OPENAI_DESCRIPTION_CHARS:
        description = f"{description[: OPENAI_DESCRIPTION_CHARS - 1]}…"
    parameters = _change_all(_reduce_root(tool.input_schema), _with_items)
    about = {"name": tool.name} | ({} if description is None else {"description": description})
    return {"type": "function", "function": {**about, "parameters": parameters}}


def _with_items(schema: Json) -> Json:
    kind = schema.get("type")
    is_array = kind == "array" or (isinstance(kind, list) and "array" in kind)
    return {**schema, "items": {}} if is_array and "items" not in schema else schema


def _openai_calls(reply: Mapping[str, Any]) -> list[ToolUseContent]:
    calls = reply["choices"][0]["message"].get("tool_calls") or ()
    functions = [(call["id"], call["function"]) for call in calls if call.get("function")]
    return [openai_call(id, one["name"], one.get("arguments") or "") for id, one in functions]


def openai_call(id: str, name: str, arguments: str) -> ToolUseContent:
    """Return a call, whose arguments are a string of JSON."""
    return ToolUseContent(id, name, msgspec.json.decode(arguments or "{}", type=Json))


def openai_result(result: ToolResultContent) -> Json:
    """Return the message with a result."""
    text = result_text(result)
    return {
        "role": "tool",
        "tool_call_id": result.tool_use_id,
        "content": f"Error: {text}" if result.is_error else text,
    }


# Anthropic: https://docs.anthropic.com/en/api/messages


def anthropic_tool(tool: Tool) -> Json:
    """Return the definition of a tool."""
    schema = _reduce_root(tool.input_schema)
    accepted = {
        name: one
        for name, one in schema["properties"].items()
        if _ANTHROPIC_PROPERTY.fullmatch(name)
    }
    if len(accepted) < len(schema["properties"]):
        required = schema.get("required")
        names = required if isinstance(required, list) else []
        schema["required"] = [name for name in names if isinstance(name, str) and name in accepted]
        schema["properties"] = accepted
    about = {"name": tool.name, "description": tool.description}
    return {key: value for key, value in about.items() if value is not None} | {
        "input_schema": schema
    }


def _anthropic_calls(reply: Mapping[str, Any]) -> list[ToolUseContent]:
    return [
        msgspec.convert({**block, "type": "tool_use"}, ToolUseContent)
        for block in reply["content"]
        if block["type"] == "tool_use"
    ]


def anthropic_image(block: ImageContent) -> Json:
    """Return an image."""
    source = {"type": "base64", "media_type": block.mime_type, "data": block.data}
    return {"type": "image", "source": source}


def anthropic_result(result: ToolResultContent) -> Json:
    """Return the content block with a result."""
    content = [
        anthropic_image(block)
        if isinstance(block, ImageContent)
        else {"type": "text", "text": content_text(block)}
        for block in result.content
    ]
    if not content and result.structured_content is not None:
        content = [{"type": "text", "text": result_text(result)}]
    block = {"type": "tool_result", "tool_use_id": result.tool_use_id, "content": content}
    return {**block, "is_error": True} if result.is_error else block


# Google: https://ai.google.dev/api/caching#FunctionDeclaration


def _google_tool(tool: Tool) -> Json:
    declaration = {"name": tool.name, "description": tool.description or tool.title or tool.name}
    schema = _change_all(_reduce_root(tool.input_schema), _google_schema)
    if not schema["properties"]:
        return declaration  # an object without properties is refused
    return {**declaration, "parametersJsonSchema": schema}


def _google_schema(schema: Json) -> Json:
    options = schema.get("allOf")
    if isinstance(options, list) and len(options) == 1 and isinstance(options[0], Mapping):
        schema = {**schema, **options[0]}
    if "$ref" in schema:
        ref = str(schema["$ref"]).replace("#/definitions/", "#/$defs/")
        schema = {key: one for key, one in schema.items() if key.startswith("$")} | {"$ref": ref}
    if isinstance(schema.get("definitions"), Mapping):
        schema = {"$defs": schema["definitions"], **schema}
    if "const" in schema:
        schema = {**schema, "enum": [schema["const"]]}
    kept = {key: one for key, one in schema.items() if key in GOOGLE_KEYWORDS}
    if not _is_google_enum(kept.get("enum", [])):
        del kept["enum"]
    if isinstance(kept.get("items"), bool):
        del kept["items"]
    return kept


def _is_google_enum(values: Any) -> bool:
    """Return whether the values are only strings and numbers."""
    return isinstance(values, list) and all(
        isinstance(value, str | int | float) and not isinstance(value, bool) for value in values
    )


def _google_calls(reply: Mapping[str, Any]) -> list[ToolUseContent]:
    parts = (reply["candidates"][0].get("content") or {}).get("parts") or ()
    calls = [part["functionCall"] for part in parts if part.get("functionCall")]
    return [
        ToolUseContent(call.get("id") or "", call["name"], dict(call.get("args") or {}))
        for call in calls
    ]


def _google_result(call: ToolUseContent, result: ToolResultContent) -> Json:
    # Text, not the structured content: the API reads a `$ref` in it as a reference to other parts.
    response = {"error" if result.is_error else "output": result_text(result)}
    identity = {"id": call.id} if call.id else {}
    return {"functionResponse": {**identity, "name": call.name, "response": response}}


FORMATS: Final[dict[str, FunctionCallingFormat]] = {
    "openai": FunctionCallingFormat(
        lambda tools: [openai_tool(tool) for tool in tools],
        _openai_calls,
        lambda results: [openai_result(result) for _, result in results],
    ),
    "anthropic": FunctionCallingFormat(
        lambda tools: [anthropic_tool(tool) for tool in tools],
        _anthropic_calls,
        lambda results: [
            {"role": "user", "content": [anthropic_result(result) for _, result in results]}
        ],
    ),
    "google": FunctionCallingFormat(
        lambda tools: (
            [{"functionDeclarations": [_google_tool(tool) for tool in tools]}] if tools else []
        ),
        _google_calls,
        lambda results: [
            {"role": "user", "parts": [_google_result(call, result) for call, result in results]}
        ],
    ),
}
"""The formats by name."""
