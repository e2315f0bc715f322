"""What comes in: decoding into the superset is the lift, and what peers get wrong in known ways is
mended."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dovetail.jsonrpc.messages import encode
from dovetail.protocol.base import ListParams, Params
from dovetail.protocol.client_features import (
    CreateMessageParams,
    CreateMessageResult,
    SamplingMessage,
)
from dovetail.protocol.content import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    OtherContent,
    ResourceContents,
    TextContent,
    ToolUseContent,
)
from dovetail.protocol.lifecycle import (
    ClientCapabilities,
    InitializeParams,
    RootsCapability,
    ServerCapabilities,
)
from dovetail.protocol.methods import METHODS
from dovetail.protocol.prompts import GetPromptResult
from dovetail.protocol.tools import CallToolParams, ListToolsResult, ToolAnnotations, ToolResult
from dovetail.protocol.utilities import (
    CompleteParams,
    CompleteResult,
    PromptReference,
    ResourceReference,
)
from dovetail.revisions import OFFICIAL, decode


def lift(kind: Any, value: Any) -> Any:
    return decode(encode(value), kind)


# The superset.


def test_what_any_revision_says_is_understood_under_any_revision() -> None:
    wire = encode(
        {
            "content": [{"type": "audio", "data": "", "mimeType": "audio/wav", "_meta": {"a": 1}}],
            "structuredContent": 1,
        }
    )
    for revision in OFFICIAL:
        result = revision.lift_result(METHODS["tools/call"], wire)
        assert result.content == [AudioContent("", "audio/wav", meta={"a": 1})]
        assert result.structured_content == 1


@pytest.mark.parametrize("raw", [b"", b"null", Raw(), Raw(b"null"), b"{}"])
def test_nothing_at_all_is_an_empty_object(raw: Any) -> None:
    assert decode(raw, ListParams) == ListParams()
    assert decode(raw, Params) == Params()


@pytest.mark.parametrize("raw", [b"", b"null"])
def test_nothing_at_all_is_not_enough_where_something_is_required(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError, match="name"):
        decode(raw, CallToolParams)


def test_an_empty_cursor_is_a_cursor() -> None:
    assert lift(ListParams, {"cursor": ""}).cursor == ""
    assert lift(ListParams, {"cursor": None}).cursor is None


def test_the_arguments_of_a_tool_stay_as_they_came() -> None:
    params = decode(b'{"name":"t","arguments":{ "a" : 1e2 }}', CallToolParams)
    assert bytes(params.arguments) == b'{ "a" : 1e2 }'


def test_references_are_told_apart_by_their_type() -> None:
    argument = {"name": "a", "value": ""}
    assert lift(
        CompleteParams, {"ref": {"type": "ref/prompt", "name": "p"}, "argument": argument}
    ).ref == PromptReference("p")
    by_uri = lift(
        CompleteParams, {"ref": {"type": "ref/resource", "uri": "a:{b}"}, "argument": argument}
    )
    assert by_uri.ref == ResourceReference("a:{b}")


def test_resource_contents_are_bytes_either_way() -> None:
    text = lift(ResourceContents, {"uri": "a:b", "text": "héllo"})
    blob = lift(ResourceContents, {"uri": "a:b", "blob": "aGk="})
    assert (text.data, blob.data, lift(ResourceContents, {"uri": "a:b"}).data) == (
        "héllo".encode(),
        b"hi",
        b"",
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ToolResult, {"content": "text"}),
        (ToolResult, {"content": [{"type": "text"}]}),
        (ToolResult, {"content": [{"type": "text", "text": 1}]}),
        (ListToolsResult, {"tools": [{"name": "a"}]}),
        (ListToolsResult, []),
        (
            GetPromptResult,
            {"messages": [{"role": "robot", "content": {"type": "text", "text": ""}}]},
        ),
        (ClientCapabilities, {"roots": []}),
        (Annotations, {"priority": "high"}),
        (ToolAnnotations, {"readOnlyHint": "yes"}),
        (
            InitializeParams,
            {"protocolVersion": "x", "capabilities": [], "clientInfo": {"name": "", "version": ""}},
        ),
        (CompleteResult, {"completion": {"values": [{"label": "a"}]}}),
    ],
)
def test_what_cannot_be_understood_is_a_validation_error(kind: Any, value: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        lift(kind, value)


# Open objects.


def test_unknown_keys_of_open_objects_survive_in_and_out() -> None:
    value = {"priority": 0.5, "x-audience": ["all"]}
    text = lift(TextContent, {"type": "text", "text": "", "annotations": value})
    assert text.annotations.priority == 0.5
    assert json.loads(encode(OFFICIAL[0].lower(text)))["annotations"] == value


def test_capabilities_are_typed_all_the_way_down_and_keep_what_they_do_not_know() -> None:
    value = {"roots": {"listChanged": True, "x": 1}, "x-vendor": {"a": None}, "sampling": {}}
    capabilities = lift(ClientCapabilities, value)
    assert isinstance(capabilities.roots, RootsCapability)
    assert capabilities.roots.list_changed is True
    assert capabilities.sampling == {}
    assert capabilities.elicitation is None
    assert capabilities == value


def test_nulls_among_the_known_keys_of_open_objects_are_dropped() -> None:
    assert lift(
        ServerCapabilities, {"tools": None, "prompts": {"listChanged": None}, "x": None}
    ) == {
        "prompts": {},
        "x": None,
    }


def test_an_open_object_is_the_same_by_attribute_and_by_key() -> None:
    annotations = Annotations(last_modified="now", priority=None)
    assert annotations == {"lastModified": "now"}
    annotations.priority = 0.5
    annotations["audience"] = ["user"]
    annotations.last_modified = None
    annotations.last_modified = None
    assert annotations == {"priority": 0.5, "audience": ["user"]}
    assert annotations.audience == ["user"]


def test_an_open_object_of_another_is_a_copy() -> None:
    first = Annotations(priority=1)
    second = Annotations.of(first)
    second.priority = 0
    assert (first.priority, second.priority) == (1, 0)


# What is mended.


@pytest.mark.parametrize("kind", ["video", "", None, 7, [], {}, "dovetail/other"])
def test_content_of_an_unknown_kind_is_kept_whole(kind: Any) -> None:
    block = {"type": kind, "frames": [1, 2], "annotations": {"priority": 1}}
    result = lift(ToolResult, {"content": [{"type": "text", "text": "a"}, block]})
    assert result.content == [TextContent("a"), OtherContent(block)]
    assert result.content[1].type == str(kind)


def test_content_without_a_kind_is_kept_whole() -> None:
    assert lift(ToolResult, {"content": [{"text": "a"}]}).content == [OtherContent({"text": "a"})]


def test_unknown_kinds_in_prompts_and_sampling_are_kept_too() -> None:
    block = {"type": "video"}
    messages = {
        "messages": [
            {"role": "user", "content": block},
            {"role": "user", "content": {"type": "text", "text": "a"}},
        ]
    }
    assert [one.content for one in lift(GetPromptResult, messages).messages] == [
        OtherContent(block),
        TextContent("a"),
    ]
    asked = lift(
        CreateMessageParams, {"messages": [{"role": "user", "content": [block]}], "maxTokens": 1}
    )
    assert asked.messages == [SamplingMessage("user", [OtherContent(block)])]
    answered = lift(CreateMessageResult, {"role": "user", "content": block, "model": "m"})
    assert answered.content == OtherContent(block)


def test_a_tool_result_in_sampling_may_hold_an_unknown_kind() -> None:
    given = {"type": "tool_result", "toolUseId": "1", "content": [{"type": "video"}]}
    asked = lift(
        CreateMessageParams, {"messages": [{"role": "user", "content": given}], "maxTokens": 1}
    )
    assert asked.messages[0].content.content == [OtherContent({"type": "video"})]


def test_a_tool_result_in_sampling_holds_no_further_tool_result() -> None:
    nested: Any = {"type": "video"}
    for _ in range(100):
        nested = {"type": "tool_result", "toolUseId": "1", "content": [nested]}
    with pytest.raises(msgspec.ValidationError):
        lift(
            CreateMessageParams, {"messages": [{"role": "user", "content": nested}], "maxTokens": 1}
        )


@pytest.mark.parametrize("part", [b'{"messages":[', b'{"content":[', b'{"content":', b"["])
@pytest.mark.parametrize("depth", [100, 300, 450, 600, 900, 990, 100_000])
def test_nesting_is_understood_or_refused_at_any_depth(part: bytes, depth: int) -> None:
    closing = part.translate(bytes.maketrans(b"{[", b"}]"), b'"messagescontent:')[::-1]
    deep = part * depth + b"1" + closing * depth
    refused = 0
    for wire in (deep, b'{"_meta":{"a":' + deep + b'},"content":1,"messages":1}'):
        for kind in (GetPromptResult, ToolResult, CreateMessageParams):
            try:
                decode(wire, kind)
            except msgspec.ValidationError:
                refused += 1
    assert refused >= 5


def test_one_block_or_several_are_both_understood_in_sampling() -> None:
    use = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
    for content in (use, [use]):
        lifted = lift(SamplingMessage, {"role": "assistant", "content": content}).content
        assert lifted == (
            ToolUseContent("1", "f", {}) if content is use else [ToolUseContent("1", "f", {})]
        )


def test_completion_values_that_are_objects_become_their_values() -> None:
    result = lift(
        CompleteResult, {"completion": {"values": [{"value": "a", "label": "A"}, "b"], "total": 2}}
    )
    assert (result.completion.values, result.completion.total) == (["a", "b"], 2)


def test_mending_does_not_hide_what_else_is_wrong() -> None:
    with pytest.raises(msgspec.ValidationError, match="isError"):
        lift(ToolResult, {"content": [{"type": "video"}], "isError": "yes"})


def test_an_embedded_resource_is_lifted_with_its_contents() -> None:
    block = {"type": "resource", "resource": {"uri": "a:b", "blob": "aGk=", "mimeType": "x/y"}}
    (content,) = lift(ToolResult, {"content": [block]}).content
    assert isinstance(content, EmbeddedResource)
    assert (content.resource.data, content.resource.mime_type) == (b"hi", "x/y")


@pytest.mark.parametrize("revision", OFFICIAL, ids=lambda revision: revision.name)
def test_a_null_is_error_counts_as_absent(revision: Any) -> None:
    raw = Raw(encode({"content": [{"type": "text", "text": "a"}], "isError": None}))
    result = revision.lift_result(METHODS["tools/call"], raw)
    assert result.is_error is False and result.text == "a"
