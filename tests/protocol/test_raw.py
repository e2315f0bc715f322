"""Raw objects: attributes are decoded one by one, and what cannot be decoded is not touched."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dovetail.protocol import (
    AudioContent,
    CallToolParams,
    ElicitParams,
    ListToolsResult,
    OtherContent,
    RawObject,
    TextContent,
    ToolResult,
)
from dovetail.protocol.raw import with_meta
from dovetail.revisions import ALL, Revision

VIDEO = {"type": "video", "frames": 3}


def raw(type: Any, value: Any) -> RawObject:
    return RawObject.parse(type, msgspec.json.encode(value))


def lowered(revision: Revision, value: RawObject) -> Any:
    return msgspec.json.decode(msgspec.json.encode(revision.lower(value)))


def test_an_attribute_is_the_decoded_field_or_its_default() -> None:
    result = raw(ToolResult, {"content": [{"type": "text", "text": "a"}], "isError": True})
    assert result.is_error is True
    assert result.content == [TextContent("a")]
    assert result.meta is None
    assert raw(ToolResult, {"content": [], "isError": None}).is_error is False


def test_content_of_an_unknown_kind_is_read_as_it_is_in_a_typed_result() -> None:
    assert raw(ToolResult, {"content": [VIDEO]}).content == [OtherContent(VIDEO)]


@pytest.mark.parametrize(
    ("fields", "attribute"),
    [({}, "content"), ({"content": 3}, "content"), ({"content": []}, "colour")],
)
def test_what_an_object_does_not_have_is_an_attribute_error(
    fields: dict[str, Any], attribute: str
) -> None:
    with pytest.raises(AttributeError):
        getattr(raw(ToolResult, fields), attribute)
    assert getattr(raw(ToolResult, fields), attribute, "nothing") == "nothing"


def test_a_set_attribute_replaces_one_field_and_none_removes_it() -> None:
    result = raw(ToolResult, {"content": [], "structuredContent": 1, "x-new": 2})
    result.content = [TextContent("a"), OtherContent(VIDEO)]
    result.structured_content = None
    assert msgspec.json.decode(msgspec.json.encode(result.fields)) == {
        "content": [{"type": "text", "text": "a"}, VIDEO],
        "x-new": 2,
    }
    with pytest.raises(AttributeError, match="colour"):
        result.colour = "red"


def test_meta_is_added_to_the_meta_that_is_there() -> None:
    params = raw(CallToolParams, {"name": "a", "_meta": {"b": 1, "c": 2}})
    assert with_meta(params, {"c": 3}).meta == {"b": 1, "c": 3}
    assert params.meta == {"b": 1, "c": 2}
    assert with_meta(raw(CallToolParams, {"name": "a"}), {"c": 3}).meta == {"c": 3}


def test_a_raw_object_cannot_be_encoded_by_mistake() -> None:
    with pytest.raises(TypeError):
        msgspec.json.encode(raw(ToolResult, {"content": []}))


@pytest.mark.parametrize("revision", ALL, ids=lambda revision: revision.name)
@pytest.mark.parametrize(
    "value",
    [
        raw(ToolResult, {"content": 3}),
        raw(ToolResult, {"content": {"type": "audio"}}),
        raw(ToolResult, {"content": [3, None, {"type": 5}, {"type": "audio"}, ["x"], VIDEO]}),
        raw(ListToolsResult, {"tools": {"a": 1}}),
        raw(ListToolsResult, {"tools": [1, {"name": "a", "annotations": [], "outputSchema": 7}]}),
        raw(ElicitParams, {"message": "a", "requestedSchema": {"properties": {"a": {"oneOf": 3}}}}),
        raw(
            ElicitParams,
            {"message": "a", "requestedSchema": {"properties": {"a": {"items": {"anyOf": [1]}}}}},
        ),
    ],
    ids=lambda value: value.type.__name__,
)
def test_what_cannot_be_decoded_is_passed_on(revision: Revision, value: RawObject) -> None:
    after = lowered(revision, value)
    for name, before in value.fields.items():
        if name in after:
            kept = msgspec.json.decode(before)
            assert after[name] == kept or isinstance(kept, list)
    assert "resultType" not in after or revision.stateless


def test_one_block_is_replaced_and_the_others_keep_what_no_revision_knows() -> None:
    sound = msgspec.to_builtins(AudioContent("UklGRg==", "audio/wav"))
    text = {"type": "text", "text": "a", "x-new": 9007199254740993}
    result = raw(ToolResult, {"content": [text, sound, VIDEO]})
    after = lowered(ALL[0], result)["content"]
    assert after[0] == text
    assert after[1]["type"] == "resource"
    assert after[2] == VIDEO


def test_nothing_is_copied_if_nothing_changes() -> None:
    result = RawObject(ToolResult, {"content": Raw(b"[]"), "resultType": Raw(b'"complete"')})
    assert ALL[4].lower(result) is result.fields
