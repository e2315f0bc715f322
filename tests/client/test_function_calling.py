"""Tools, calls and results in the formats of the models' APIs."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from dovetail.client.function_calling import (
    FORMATS,
    GOOGLE_KEYWORDS,
    MAX_DEPTH,
    read_calls,
    results_for,
    tools_for,
)
from dovetail.protocol.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    OtherContent,
    ResourceContents,
    ResourceLink,
    TextContent,
    ToolUseContent,
)
from dovetail.protocol.tools import Tool, ToolResult

PLAIN = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 1}},
    "required": ["city"],
}


def schema(format: str, value: dict[str, Any]) -> Any:
    (definition,) = tools_for(format, [Tool("t", value, description="d")])
    match format:
        case "openai":
            return definition["function"]["parameters"]
        case "anthropic":
            return definition["input_schema"]
    (declaration,) = definition["functionDeclarations"]
    return declaration.get("parametersJsonSchema")


# Definitions.


def test_a_tool_has_the_shape_that_each_api_expects() -> None:
    tools = [Tool("forecast", PLAIN, description="The weather")]
    about = {"name": "forecast", "description": "The weather"}
    assert tools_for("openai", tools) == [
        {"type": "function", "function": {**about, "parameters": PLAIN}}
    ]
    assert tools_for("anthropic", iter(tools)) == [{**about, "input_schema": PLAIN}]
    reduced = {**PLAIN, "properties": {"city": {"type": "string"}}}
    assert tools_for("google", tools) == [
        {"functionDeclarations": [{**about, "parametersJsonSchema": reduced}]}
    ]


def test_a_tool_without_a_description_or_parameters() -> None:
    bare = [Tool("bare", {"type": "object"})]
    empty = {"type": "object", "properties": {}}
    assert tools_for("openai", bare) == [
        {"type": "function", "function": {"name": "bare", "parameters": empty}}
    ]
    assert tools_for("anthropic", bare) == [{"name": "bare", "input_schema": empty}]
    assert tools_for("google", bare) == [
        {"functionDeclarations": [{"name": "bare", "description": "bare"}]}
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_without_tools_there_is_nothing_to_offer(format: str) -> None:
    assert tools_for(format, []) == []
    assert results_for(format, []) == []


def test_an_unknown_format_is_an_error_that_lists_the_known_ones() -> None:
    for use in (tools_for, results_for):
        with pytest.raises(ValueError, match=r"'x'\. Use one of: anthropic, google, openai"):
            use("x", [])
    with pytest.raises(ValueError, match="Use one of: anthropic, google, openai"):
        read_calls("x", {})


@pytest.mark.parametrize("format", FORMATS)
def test_alternatives_of_the_whole_schema_become_properties_and_nothing_else_at_the_root(
    format: str,
) -> None:
    value = {
        "type": "object",
        "properties": {"own": {"type": "string"}},
        "required": ["own"],
        "anyOf": [
            {"properties": {"url": {"type": "string"}}, "required": ["url"]},
            {"required": ["x"]},
            True,
        ],
        "oneOf": [{"properties": {"file": {"type": "string"}, "own": {"type": "integer"}}}],
        "allOf": "not a list",
        "not": {"required": ["own"]},
        "enum": [{}],
        "const": {},
    }
    before = copy.deepcopy(value)
    text = {"type": "string"}
    assert schema(format, value) == {
        "type": "object",
        "properties": {"url": text, "file": text, "own": text},
        "required": ["own"],
    }
    assert value == before


@pytest.mark.parametrize("format", FORMATS)
def test_a_reference_of_the_whole_schema_is_followed(format: str) -> None:
    text = {"type": "string"}
    arguments = {"type": "object", "properties": {"a": text}, "required": ["a"]}
    value = {"type": "object", "$ref": "#/$defs/Arguments", "$defs": {"Arguments": arguments}}
    reduced = schema(format, value)
    assert (reduced["properties"], reduced["required"]) == ({"a": text}, ["a"])
    assert "$ref" not in reduced
    for broken in ("#/$defs/None", "https://example.com", "#", 3):
        assert not (schema(format, {**value, "$ref": broken}) or {}).get("properties")


def test_openai_an_array_has_items() -> None:
    bare = {"type": "array"}
    value = {
        "type": "object",
        "properties": {
            "a": bare,
            "b": {"type": ["array", "null"]},
            "c": {"type": "array", "items": bare},
            "d": {"anyOf": [bare, {"type": "string"}]},
            "e": {"type": "object", "properties": {"f": bare}, "additionalProperties": bare},
        },
        "$defs": {"g": bare},
    }
    full = {"type": "array", "items": {}}
    assert schema("openai", value) == {
        "type": "object",
        "properties": {
            "a": full,
            "b": {"type": ["array", "null"], "items": {}},
            "c": {"type": "array", "items": full},
            "d": {"anyOf": [full, {"type": "string"}]},
            "e": {"type": "object", "properties": {"f": full}, "additionalProperties": full},
        },
        "$defs": {"g": full},
    }


def test_openai_a_long_description_is_cut() -> None:
    (definition,) = tools_for("openai", [Tool("t", PLAIN, description="x" * 1025)])
    assert definition["function"]["description"] == "x" * 1023 + "…"
    (definition,) = tools_for("openai", [Tool("t", PLAIN, description="x" * 1024)])
    assert definition["function"]["description"] == "x" * 1024


def test_anthropic_properties_with_names_that_it_refuses_are_left_out() -> None:
    names = ["ok", "a.b-c_1", "filter[id]", "ä", "", "x" * 65, "y" * 64]
    value = {"properties": {name: {} for name in names}, "required": ["ok", "filter[id]"]}
    assert schema("anthropic", value) == {
        "type": "object",
        "properties": {"ok": {}, "a.b-c_1": {}, "y" * 64: {}},
        "required": ["ok"],
    }
    assert list(schema("openai", value)["properties"]) == names


def test_google_only_the_keywords_that_it_knows_remain() -> None:
    value = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "default": 3},
            "b": {"const": "x", "description": "fixed"},
            "c": {"enum": ["x", 1, 1.5]},
            "d": {"enum": ["x", None]},
            "e": {"const": True},
            "f": {"type": "array", "items": False, "prefixItems": [{"pattern": "x"}]},
            "g": {"description": "one", "allOf": [{"$ref": "#/definitions/G"}]},
            "h": {"$ref": "#/$defs/H", "description": "beside"},
            "i": {"allOf": [{"type": "string"}, {"minLength": 1}]},
            "j": {"oneOf": [{"type": "string", "pattern": "x"}, {"type": "null"}]},
        },
        "definitions": {"G": {"type": "string", "x-internal": 1}},
        "additionalProperties": False,
        "required": ["a"],
    }
    assert schema("google", value) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 1},
            "b": {"enum": ["x"], "description": "fixed"},
            "c": {"enum": ["x", 1, 1.5]},
            "d": {},
            "e": {},
            "f": {"type": "array", "prefixItems": [{}]},
            "g": {"$ref": "#/$defs/G"},
            "h": {"$ref": "#/$defs/H"},
            "i": {},
            "j": {"oneOf": [{"type": "string"}, {"type": "null"}]},
        },
        "$defs": {"G": {"type": "string"}},
        "additionalProperties": False,
        "required": ["a"],
    }


@pytest.mark.parametrize("format", ["openai", "google"])
def test_a_deep_schema_is_cut_off(format: str) -> None:
    value: dict[str, Any] = {"type": "string"}
    for _ in range(10_000):
        value = {"type": "object", "properties": {"a": value}}
    reduced, depth = schema(format, value), 0
    while "properties" in reduced:
        reduced, depth = reduced["properties"]["a"], depth + 1
    assert (reduced, depth) == ({}, MAX_DEPTH)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from([*GOOGLE_KEYWORDS, "allOf", "const", "definitions", "not", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("format", FORMATS)
@given(value=st.dictionaries(st.sampled_from([*GOOGLE_KEYWORDS, "allOf", "const"]), ODD))
@example(value={"required": [[]], "properties": {"$id": None}})
def test_no_schema_of_a_server_causes_a_crash(format: str, value: dict[str, Any]) -> None:
    before = copy.deepcopy(value)
    reduced = schema(format, value)
    assert value == before
    assert reduced is None or (reduced["type"] == "object" and "anyOf" not in reduced)


# Calls.

CALLS = [ToolUseContent("c1", "forecast", {"city": "Oslo"}), ToolUseContent("c2", "time", {})]
OPENAI = {
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "forecast", "arguments": '{"city": "Oslo"}'},
                    },
                    {"id": "c0", "type": "custom", "custom": {"name": "x", "input": "y"}},
                    {"id": "c2", "type": "function", "function": {"name": "time", "arguments": ""}},
                ],
            }
        }
    ]
}
ANTHROPIC = {
    "content": [
        {"type": "text", "text": "Let me see."},
        {
            "type": "tool_use",
            "id": "c1",
            "name": "forecast",
            "input": {"city": "Oslo"},
            "caller": {},
        },
        {"type": "tool_use", "id": "c2", "name": "time", "input": {}},
    ]
}
GOOGLE = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "Let me see.", "functionCall": None},
                    {"functionCall": {"id": "c1", "name": "forecast", "args": {"city": "Oslo"}}},
                    {"functionCall": {"id": "c2", "name": "time"}, "thoughtSignature": "x"},
                ],
            }
        }
    ]
}
REPLIES = {"openai": OPENAI, "anthropic": ANTHROPIC, "google": GOOGLE}


@pytest.mark.parametrize("format", FORMATS)
def test_the_calls_of_a_model_are_read_in_order(format: str) -> None:
    reply = REPLIES[format]
    assert read_calls(format, reply) == CALLS
    assert read_calls(format, SimpleNamespace(model_dump=lambda by_alias: reply)) == CALLS


@pytest.mark.parametrize(
    ("format", "reply"),
    [
        ("openai", {"choices": [{"message": {"content": "Hello"}}]}),
        ("openai", {"choices": [{"message": {"content": "Hello", "tool_calls": None}}]}),
        ("anthropic", {"content": [{"type": "text", "text": "Hello"}]}),
        ("google", {"candidates": [{"content": {"parts": [{"text": "Hello"}]}}]}),
        ("google", {"candidates": [{"finishReason": "STOP"}]}),
    ],
)
def test_a_reply_without_calls_is_the_end(format: str, reply: Any) -> None:
    assert read_calls(format, reply) == []


def test_google_may_leave_out_the_id_of_a_call() -> None:
    part = {"functionCall": {"name": "time", "args": {}}}
    (call,) = read_calls("google", {"candidates": [{"content": {"parts": [part]}}]})
    assert call == ToolUseContent("", "time", {})
    (message,) = results_for("google", [(call, ToolResult(content=[TextContent("noon")]))])
    assert message["parts"] == [
        {"functionResponse": {"name": "time", "response": {"output": "noon"}}}
    ]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "reply", [{}, None, [], {"choices": []}, {"content": [{}]}, {"content": 3}]
)
def test_a_reply_that_is_not_valid_is_an_error(format: str, reply: Any) -> None:
    with pytest.raises(ValueError, match="The reply of the model is not valid"):
        read_calls(format, reply)


@pytest.mark.parametrize("arguments", ["{", "[]", "null"])
def test_arguments_that_are_not_an_object_are_an_error(arguments: str) -> None:
    call = {"id": "c", "function": {"name": "x", "arguments": arguments}}
    with pytest.raises(ValueError, match="The reply of the model is not valid"):
        read_calls("openai", {"choices": [{"message": {"tool_calls": [call]}}]})


# Results.

PIXEL = ImageContent("aW1n", "image/png")
RESULTS = [
    (CALLS[0], ToolResult(content=[TextContent("sunny"), PIXEL])),
    (CALLS[1], ToolResult(content=[TextContent("no clock")], is_error=True)),
]


def test_openai_each_result_is_a_message() -> None:
    assert results_for("openai", RESULTS) == [
        {"role": "tool", "tool_call_id": "c1", "content": "sunny\n[image: image/png]"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: no clock"},
    ]


def test_anthropic_all_results_are_in_one_message_with_their_images() -> None:
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aW1n"},
    }
    assert results_for("anthropic", iter(RESULTS)) == [
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "sunny"}, image],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": [{"type": "text", "text": "no clock"}],
                    "is_error": True,
                },
            ],
        }
    ]


def test_google_all_results_are_in_one_message_by_name() -> None:
    first = {"id": "c1", "name": "forecast", "response": {"output": "sunny\n[image: image/png]"}}
    second = {"id": "c2", "name": "time", "response": {"error": "no clock"}}
    assert results_for("google", RESULTS) == [
        {"role": "user", "parts": [{"functionResponse": first}, {"functionResponse": second}]}
    ]


BLOCKS = [
    (TextContent("hello"), "hello"),
    (ResourceLink("note://1", "a note"), "a note: note://1"),
    (EmbeddedResource(ResourceContents(uri="note://1", text="hello")), "hello"),
    (EmbeddedResource(ResourceContents(uri="x://1", blob="AA==")), "[binary data at x://1]"),
    (
        EmbeddedResource(ResourceContents(uri="x://1", blob="AA==", mime_type="font/ttf")),
        "[font/ttf data at x://1]",
    ),
    (AudioContent("AA==", "audio/wav"), "[audio: audio/wav]"),
    (OtherContent({"type": "hologram"}), "[hologram]"),
]


@pytest.mark.parametrize(("block", "text"), BLOCKS)
def test_a_model_that_reads_only_text_learns_what_else_there_was(block: Any, text: str) -> None:
    (message,) = results_for("openai", [(CALLS[0], ToolResult(content=[block]))])
    assert message["content"] == text
    (message,) = results_for("anthropic", [(CALLS[0], ToolResult(content=[block]))])
    assert message["content"][0]["content"] == [{"type": "text", "text": text}]


@pytest.mark.parametrize("format", FORMATS)
def test_structured_content_counts_if_there_is_nothing_else(format: str) -> None:
    result = ToolResult(content=[], structured_content={"$ref": "#/x", "degrees": 20})
    assert r'{"$ref":"#/x","degrees":20}' in str(results_for(format, [(CALLS[0], result)]))
