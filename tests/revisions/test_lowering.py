"""What a peer of each revision is told. The properties hold this for any value; here it can be
read."""

from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import decode as plain
from msgspec.structs import fields

from dovetail.jsonrpc.messages import encode
from dovetail.protocol.base import Icon, Implementation, Open, Result
from dovetail.protocol.client_features import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    ListRootsResult,
    Root,
    SamplingMessage,
)
from dovetail.protocol.content import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    OtherContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
)
from dovetail.protocol.lifecycle import (
    ClientCapabilities,
    DiscoverResult,
    ElicitationCapability,
    InputRequiredResult,
    ProgressParams,
    RootsCapability,
    SamplingCapability,
    ServerCapabilities,
)
from dovetail.protocol.prompts import (
    GetPromptResult,
    ListPromptsResult,
    Message,
    Prompt,
    PromptArgument,
)
from dovetail.protocol.resources import ReadResourceResult
from dovetail.protocol.tools import (
    CallToolParams,
    ListToolsResult,
    Tool,
    ToolAnnotations,
    ToolExecution,
    ToolResult,
)
from dovetail.revisions import ALL, BY_NAME, OFFICIAL, Revision
from tests.strategies import KINDS

V1, V2, V3, V4, V5 = (revision.name for revision in OFFICIAL)
each_of_all = pytest.mark.parametrize("revision", ALL, ids=lambda revision: revision.name)


def told(revision: str, value: Any) -> Any:
    """What a peer of this revision sees of a value."""
    return plain(encode(BY_NAME[revision].lower(value)))


def told_keys(value: Any) -> dict[str, set[str]]:
    return {revision.name: set(told(revision.name, value)) for revision in OFFICIAL}


# Fields.


def test_a_tool_grows_with_the_revisions() -> None:
    tool = Tool(
        name="add",
        input_schema={"type": "object"},
        title="Add",
        description="Adds.",
        output_schema={"type": "object"},
        annotations=ToolAnnotations(read_only_hint=True),
        icons=[Icon("https://example.com/i.png")],
        execution=ToolExecution("optional"),
        meta={"a": 1},
    )
    first = {"name", "inputSchema", "description"}
    third = first | {"annotations", "title", "outputSchema", "_meta"}
    assert told_keys(tool) == {
        V1: first,
        V2: first | {"annotations"},
        V3: third,
        V4: third | {"icons", "execution"},
        V5: third | {"icons"},
    }


def test_fields_are_dropped_however_deep_they_stand() -> None:
    result = ListPromptsResult(
        prompts=[Prompt("p", arguments=[PromptArgument("a", title="A")], title="P", icons=[])]
    )
    assert told(V1, result) == {"prompts": [{"name": "p", "arguments": [{"name": "a"}]}]}
    assert told(V3, result) == {
        "prompts": [{"name": "p", "title": "P", "arguments": [{"name": "a", "title": "A"}]}]
    }


def test_a_field_that_goes_is_gone_even_if_its_parts_would_change_too() -> None:
    tool = Tool(name="t", input_schema={"type": "object"}, title="T")
    params = CreateMessageParams(messages=[], max_tokens=1, tools=[tool])
    for revision in (V1, V2, V3):
        assert told(revision, params) == {"messages": [], "maxTokens": 1}
    assert told(V4, params)["tools"] == [
        {"name": "t", "inputSchema": {"type": "object"}, "title": "T"}
    ]


def test_annotations_lose_what_the_revision_lacks_and_keep_what_nobody_declared() -> None:
    annotations = Annotations.of({"priority": 0.5, "lastModified": "2025-01-01", "x-mine": [1]})
    text = TextContent("hi", annotations)
    assert told(V1, text)["annotations"] == {"priority": 0.5, "x-mine": [1]}
    assert told(V3, text)["annotations"] == {
        "priority": 0.5,
        "lastModified": "2025-01-01",
        "x-mine": [1],
    }
    assert annotations.last_modified == "2025-01-01"


def test_meta_of_content_starts_with_the_third_revision() -> None:
    contents = TextResourceContents(uri="a:b", text="t", meta={"k": 1})
    for block in (
        TextContent("t", meta={"k": 1}),
        ImageContent("", "image/png", meta={"k": 1}),
        EmbeddedResource(contents),
    ):
        assert "_meta" not in str(told(V2, block))
        assert "_meta" in str(told(V3, block))


def test_capabilities_are_lowered_inside_out() -> None:
    capabilities = ClientCapabilities(
        roots=RootsCapability(list_changed=True),
        sampling=SamplingCapability(tools={}),
        elicitation=ElicitationCapability(form={}, url={}),
        tasks={"list": {}},
        extensions={"io.example/x": {}},
    )
    listening = {"listChanged": True}
    sampling: dict[str, Any] = {"tools": {}}
    assert told(V1, capabilities) == {"roots": listening, "sampling": {}}
    # Extensions are negotiated in `initialize` too (SEP-2133): what capabilities are lowered to
    # keeps them from V3 on.
    extended = {"extensions": {"io.example/x": {}}}
    assert told(V3, capabilities) == {
        "roots": listening,
        "sampling": {},
        "elicitation": {},
        **extended,
    }
    assert told(V4, capabilities) == {
        "roots": listening,
        "sampling": sampling,
        "elicitation": {"form": {}, "url": {}},
        "tasks": {"list": {}},
        **extended,
    }
    assert told(V5, capabilities) == {
        "roots": {},
        "sampling": sampling,
        "elicitation": {"form": {}, "url": {}},
        "extensions": {"io.example/x": {}},
    }


def test_a_server_says_that_it_completes_from_the_second_revision_on() -> None:
    capabilities = ServerCapabilities(completions={}, experimental={"x": {}})
    assert told(V1, capabilities) == {"experimental": {"x": {}}}
    assert told(V2, capabilities) == {"experimental": {"x": {}}, "completions": {}}


def test_capabilities_keep_what_nobody_declared() -> None:
    capabilities = ServerCapabilities.of({"x-vendor": {"deep": [1]}, "extensions": {}})
    assert told(V1, capabilities) == {"x-vendor": {"deep": [1]}}


def test_progress_has_words_from_the_second_revision_on() -> None:
    progress = ProgressParams(progress_token="t", progress=1, total=2, message="half")
    assert told_keys(progress)[V1] == {"progressToken", "progress", "total"}
    assert told_keys(progress)[V2] == {"progressToken", "progress", "total", "message"}


def test_a_question_by_url_loses_its_id_in_the_stateless_era() -> None:
    params = ElicitParams(
        message="m", mode="url", url="https://example.com", elicitation_id="1", meta={"a": 1}
    )
    assert told_keys(params)[V4] == {"message", "mode", "url", "elicitationId", "_meta"}
    assert told_keys(params)[V5] == {"message", "mode", "url"}


# Stamps.


def test_results_say_that_they_are_complete_in_the_stateless_era_only() -> None:
    result = ToolResult(content=[])
    assert told(V4, result) == {"content": [], "isError": False}
    assert told(V5, result) == {"content": [], "isError": False, "resultType": "complete"}


@pytest.mark.requirement("cache-hints")
def test_lists_and_reads_carry_hints_for_caches_in_the_stateless_era_only() -> None:
    stamped = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    assert told(V4, ListToolsResult(tools=[])) == {"tools": []}
    assert told(V5, ListToolsResult(tools=[])) == {"tools": []} | stamped
    assert told(V5, ReadResourceResult(contents=[])) == {"contents": []} | stamped
    assert (
        told(V5, DiscoverResult(supported_versions=[], capabilities=ServerCapabilities())).keys()
        >= stamped.keys()
    )


def test_hints_that_were_given_are_kept_where_there_are_hints() -> None:
    page = ListToolsResult(tools=[], ttl_ms=5000, cache_scope="public")
    assert told(V5, page) == {
        "tools": [],
        "resultType": "complete",
        "ttlMs": 5000,
        "cacheScope": "public",
    }
    assert told(V3, page) == {"tools": []}


def test_a_question_says_that_it_is_one() -> None:
    assert told(V5, InputRequiredResult(request_state="s")) == {
        "resultType": "input_required",
        "requestState": "s",
    }


@pytest.mark.parametrize(
    "answer",
    [
        ElicitResult(action="accept", content={"a": 1}, meta={"b": 1}),
        ListRootsResult(roots=[Root("file:///a")], meta={"b": 1}),
        CreateMessageResult(
            role="user", content=TextContent("t"), model="m", result_type="complete"
        ),
    ],
)
def test_answers_inside_a_request_have_no_type(answer: Result) -> None:
    assert not {"resultType"} & told(V5, answer).keys()


# Kinds of content that a revision lacks.


def test_a_sound_becomes_an_embedded_resource_with_the_same_bytes() -> None:
    sound = AudioContent("UklG", "audio/wav", Annotations(priority=1))
    embedded = {"uri": "attachment:audio", "mimeType": "audio/wav", "blob": "UklG"}
    assert told(V1, sound) == {
        "type": "resource",
        "resource": embedded,
        "annotations": {"priority": 1},
    }
    assert told(V2, sound) == {
        "type": "audio",
        "data": "UklG",
        "mimeType": "audio/wav",
        "annotations": {"priority": 1},
    }


@pytest.mark.parametrize("revision", [V1, V2])
def test_a_link_becomes_text_that_names_it(revision: str) -> None:
    link = ResourceLink(
        "file:///a.txt",
        "a.txt",
        title="Notes",
        description="read me",
        annotations=Annotations(priority=1),
    )
    text = {
        "type": "text",
        "text": "[Notes](file:///a.txt): read me",
        "annotations": {"priority": 1},
    }
    assert told(revision, link) == text
    assert told(revision, ResourceLink("x:y", "y"))["text"] == "[y](x:y)"


def test_a_link_has_its_icons_from_the_fourth_revision_on() -> None:
    link = ResourceLink("x:y", "y", icons=[Icon("https://example.com/i.png")])
    assert told(V3, link) == {"type": "resource_link", "uri": "x:y", "name": "y"}
    assert "icons" in told(V4, link)


def test_content_is_replaced_wherever_it_stands() -> None:
    link, text = ResourceLink("x:y", "y"), {"type": "text", "text": "[y](x:y)"}
    assert told(V1, ToolResult(content=[TextContent("a"), link]))["content"][1] == text
    assert (
        told(V1, GetPromptResult(messages=[Message("user", link)]))["messages"][0]["content"]
        == text
    )


@pytest.mark.parametrize("revision", [V1, V2, V3])
def test_tool_blocks_of_sampling_become_text(revision: str) -> None:
    use = ToolUseContent("1", "add", {"a": 1})
    given = ToolResultContent(
        "1", [TextContent("two"), TextContent("lines"), ImageContent("", "image/png")]
    )
    assert told(revision, use) == {"type": "text", "text": '[calls add with {"a":1}]'}
    assert told(revision, given) == {"type": "text", "text": "two\nlines"}


@pytest.mark.parametrize("revision", [V1, V2, V3])
def test_messages_of_several_blocks_become_several_messages(revision: str) -> None:
    many = SamplingMessage("user", [TextContent("a"), ToolUseContent("1", "f", {})])
    params = CreateMessageParams(
        messages=[many, SamplingMessage("assistant", TextContent("b"))], max_tokens=1
    )
    assert [
        (one["role"], one["content"]["text"]) for one in told(revision, params)["messages"]
    ] == [
        ("user", "a"),
        ("user", "[calls f with {}]"),
        ("assistant", "b"),
    ]
    assert len(told(V4, params)["messages"]) == 2


@pytest.mark.parametrize("revision", [V1, V2, V3])
def test_a_sampled_message_of_several_blocks_becomes_its_text_or_its_first_block(
    revision: str,
) -> None:
    def content(*blocks: Any) -> Any:
        return told(
            revision, CreateMessageResult(role="assistant", content=list(blocks), model="m")
        )["content"]

    image = ImageContent("aWJt", "image/png")
    assert content(TextContent("a"), image, TextContent("b")) == {"type": "text", "text": "a\nb"}
    assert content(image) == {"type": "image", "data": "aWJt", "mimeType": "image/png"}
    assert content(ToolUseContent("1", "f", {})) == {"type": "text", "text": "[calls f with {}]"}
    assert content() == {"type": "text", "text": ""}


def test_a_sound_in_sampling_becomes_text_where_sampling_had_no_sound() -> None:
    sound = AudioContent("UklG", "audio/wav")
    params = CreateMessageParams(
        messages=[SamplingMessage("user", sound), SamplingMessage("user", [sound])], max_tokens=1
    )
    result = CreateMessageResult(role="assistant", content=[sound], model="m")
    text = {"type": "text", "text": "[audio/wav]"}
    assert [message["content"] for message in told(V1, params)["messages"]] == [text, text]
    assert told(V1, result)["content"] == text
    assert [message["content"]["type"] for message in told(V2, params)["messages"]] == [
        "audio",
        "audio",
    ]
    assert told(V2, result)["content"]["type"] == "audio"


@each_of_all
def test_content_of_an_unknown_kind_goes_out_as_it_came(revision: Revision) -> None:
    block = {"type": "video", "data": "…", "annotations": {"priority": 1}}
    lowered = revision.lower(ToolResult(content=[OtherContent(block)]))
    assert plain(encode(lowered))["content"] == [block]


@pytest.mark.parametrize("value", [[1], "text", 1, 2.5, True, False])
def test_structured_content_that_is_no_object_is_left_to_the_text(value: Any) -> None:
    result = ToolResult(content=[TextContent("t")], structured_content=value)
    block = ToolResultContent("1", [TextContent("t")], structured_content=value)
    for revision in (V1, V2, V3, V4):
        assert "structuredContent" not in told(revision, result)
        assert "structuredContent" not in told(
            revision, ToolResult(content=[], structured_content=Raw(encode(value)))
        )
        assert "structuredContent" not in told(revision, block)
    assert told(V5, result)["structuredContent"] == value
    assert told(V5, block)["structuredContent"] == value


def test_structured_content_that_is_an_object_is_told_from_the_third_revision_on() -> None:
    for value in ({"a": 1}, Raw(b'{"a":1}')):
        keys = told_keys(ToolResult(content=[], structured_content=value))
        assert [name for name in keys if "structuredContent" in keys[name]] == [V3, V4, V5]


def test_an_output_schema_of_something_else_than_an_object_waits_for_the_stateless_era() -> None:
    tool = Tool(name="t", input_schema={"type": "object"}, output_schema={"type": "array"})
    assert [name for name, keys in told_keys(tool).items() if "outputSchema" in keys] == [V5]


# What does not change is not copied.


@pytest.mark.parametrize(
    "value",
    [
        ToolResult(content=[TextContent("a"), ImageContent("", "image/png")], is_error=True),
        ReadResourceResult(
            contents=[
                TextResourceContents(uri="a:b", text=""),
                BlobResourceContents(uri="a:b", blob=""),
            ]
        ),
        GetPromptResult(
            messages=[Message("user", EmbeddedResource(TextResourceContents(uri="a:b", text="")))]
        ),
        ListToolsResult(tools=[Tool("a", {"type": "object"}, description="d")], next_cursor=""),
        CallToolParams(name="t", arguments=Raw(b"{}"), meta={"progressToken": 1}),
        CreateMessageParams(messages=[SamplingMessage("user", TextContent("t"))], max_tokens=1),
        ClientCapabilities(roots=RootsCapability(list_changed=True)),
        Implementation(name="n", version="v"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_without_news_is_the_same_object_in_every_revision_with_a_handshake(
    value: Any,
) -> None:
    for revision in OFFICIAL[:-1]:
        assert revision.lower(value) is value


def test_the_newest_value_is_the_same_object_in_the_newest_revision() -> None:
    tool = Tool(
        "a",
        {"type": "object"},
        title="A",
        output_schema={"type": "array"},
        icons=[Icon("https://example.com/")],
    )
    page = ListToolsResult(tools=[tool], result_type="complete", ttl_ms=1, cache_scope="public")
    assert OFFICIAL[-1].lower(page) is page


def test_what_has_no_type_of_the_vocabulary_passes_as_it_is() -> None:
    for value in (None, 1, "text", {"title": "T"}, [Tool("a", {})], Raw(b"{}")):
        assert all(revision.lower(value) is value for revision in ALL)


def test_lowering_one_part_shares_the_others() -> None:
    plain_tool = Tool("a", {"type": "object"})
    titled = Tool("b", {"type": "object"}, title="B")
    page = ListToolsResult(tools=[plain_tool, titled])
    lowered = BY_NAME[V1].lower(page)
    assert lowered.tools[0] is plain_tool
    assert lowered.tools[1] is not titled
    assert titled.title == "B"


@each_of_all
def test_every_type_can_be_lowered_to_every_revision(revision: Revision) -> None:
    for kind in KINDS:
        value = kind() if issubclass(kind, Open) else smallest(kind)
        lowered = revision.lower(value)
        assert revision.lower(lowered) is lowered
        encode(lowered)


def smallest(kind: Any) -> Any:
    """A value with nothing but its required fields, each of them empty."""
    empty: dict[Any, Any] = {
        "content": [],
        "ref": None,
        "resource": TextResourceContents(uri="", text=""),
        "value": {},
    }
    return kind(
        **{field.name: empty.get(field.name, "") for field in fields(kind) if field.required}
    )
