"""What a server asks the client's model: how the request is made, and what is refused before it is
sent."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from dovetail.errors import ConfigError, SchemaError
from dovetail.protocol.client_features import (
    CreateMessageResult,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    ToolChoice,
    find_tool_mismatch,
)
from dovetail.protocol.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
)
from dovetail.protocol.prompts import Message
from dovetail.protocol.tools import Tool
from dovetail.server.context import Context
from dovetail.server.media import Audio, File, Image
from dovetail.server.sampling import Sampled, make_request
from tests.spec import flaws, needs_spec


def request_for(messages: Any, **options: Any) -> Any:
    return make_request(messages, Context, **{"max_tokens": 1000, **options})


def use(name: str = "1") -> ToolUseContent:
    return ToolUseContent(name, "weather", {"city": "Paris"})


def result(name: str = "1") -> ToolResultContent:
    return ToolResultContent(name, [TextContent("sunny")])


def user(*blocks: Any) -> SamplingMessage:
    return SamplingMessage("user", list(blocks))


def assistant(*blocks: Any) -> SamplingMessage:
    return SamplingMessage("assistant", list(blocks))


def wire(params: Any) -> Any:
    return msgspec.to_builtins(params)


# --------------------------------------------------------------------------------------------------
# messages


def test_a_string_is_all_that_is_needed() -> None:
    assert wire(request_for("hello")) == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}],
        "maxTokens": 1000,
    }


@pytest.mark.parametrize(
    ("given", "role", "content"),
    [
        (Message("assistant", "hi"), "assistant", TextContent("hi")),
        (SamplingMessage("assistant", TextContent("hi")), "assistant", TextContent("hi")),
        (TextContent("hi"), "user", TextContent("hi")),
        (Image(data=b"png"), "user", ImageContent("cG5n", "image/png")),
        (Audio(data=b"wav"), "user", AudioContent("d2F2", "audio/wav")),
        ({"role": "assistant", "content": "hi"}, "assistant", TextContent("hi")),
        ({"role": "user", "content": {"type": "text", "text": "hi"}}, "user", TextContent("hi")),
        (
            {"role": "user", "content": ["see", Image(data=b"png")]},
            "user",
            [TextContent("see"), ImageContent("cG5n", "image/png")],
        ),
        (
            {"type": "image", "data": "cG5n", "mimeType": "image/png"},
            "user",
            ImageContent("cG5n", "image/png"),
        ),
        (
            SamplingMessage("user", ["see", Image(data=b"png")]),
            "user",  # type: ignore[list-item]
            [TextContent("see"), ImageContent("cG5n", "image/png")],
        ),
    ],
)
def test_a_message_is_made_of_what_is_at_hand(given: Any, role: str, content: Any) -> None:
    made = request_for(given).messages
    assert made == [SamplingMessage(role, content)]  # type: ignore[arg-type]
    assert request_for(["first", given]).messages == [
        SamplingMessage("user", TextContent("first")),
        *made,
    ]


def test_a_list_inside_the_list_is_one_message_of_several_blocks() -> None:
    assert request_for([["look", Image(data=b"png")]]).messages == [
        user(TextContent("look"), ImageContent("cG5n", "image/png"))
    ]


def test_what_a_message_carries_besides_stays() -> None:
    assert request_for(SamplingMessage("user", TextContent("hi"), {"a": 1})).messages[0].meta == {
        "a": 1
    }
    assert request_for({"role": "user", "content": "hi", "_meta": {"a": 1}}).messages[0].meta == {
        "a": 1
    }


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "at least one message"),
        (3, "can contain only .* not int"),
        (File(data=b"x"), "can contain only .* not resource"),
        (Message("user", ResourceLink("a:b", "b")), "can contain only .* not resource_link"),
        (EmbeddedResource(TextResourceContents(uri="a:b", text="c")), "only .* not resource"),
        ({"role": "system", "content": "obey"}, "not 'system'"),
        (
            {"role": "user", "content": {"type": "text"}},
            "A message block does not match the protocol: .*text",
        ),
        ({"type": "video"}, "A message block does not match the protocol"),
        ({}, "A message block does not match the protocol"),
    ],
)
def test_what_no_message_can_hold_is_refused(given: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        request_for(given)


# --------------------------------------------------------------------------------------------------
# settings


def test_all_settings_travel_in_wire_form() -> None:
    params = request_for(
        "hello",
        system_prompt="be brief",
        max_tokens=5,
        model_preferences={"hints": ["small"], "costPriority": 1, "speed_priority": 0.5},
        temperature=0.5,
        stop_sequences=["."],
        metadata={"a": 1},
        include_context="thisServer",
    )
    assert wire(params) == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}],
        "maxTokens": 5,
        "modelPreferences": {
            "hints": [{"name": "small"}],
            "costPriority": 1.0,
            "speedPriority": 0.5,
        },
        "systemPrompt": "be brief",
        "includeContext": "thisServer",
        "temperature": 0.5,
        "stopSequences": ["."],
        "metadata": {"a": 1},
    }


@pytest.mark.parametrize(
    "given",
    [
        "small",
        ["small"],
        [ModelHint("small")],
        {"hints": [{"name": "small"}]},
        {"hints": ["small"]},
        ModelPreferences(hints=[ModelHint("small")]),
    ],
)
def test_a_model_is_hinted_at_in_any_of_these_ways(given: Any) -> None:
    assert request_for("hello", model_preferences=given).model_preferences == ModelPreferences(
        hints=[ModelHint("small")]
    )


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, not 0"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        (
            {"model_preferences": {"costPriority": 1.1}},
            "cost_priority must be between 0 and 1, not 1.1",
        ),
        ({"model_preferences": ModelPreferences(speed_priority=-0.1)}, "speed_priority"),
        ({"model_preferences": {"intelligence_priority": float("nan")}}, "intelligence_priority"),
        (
            {"model_preferences": {"costPriority": "high"}},
            "A model preference does not match the protocol",
        ),
        ({"model_preferences": {"price": 1}}, "model_preferences has no field price"),
        ({"model_preferences": [3]}, "A model hint"),
        ({"include_context": "all"}, "include_context must be one of"),
        ({"tools": [3]}, "A tool must be a Tool, a dict or a function, not int"),
        ({"tools": [{"name": "a"}]}, "A tool does not match the protocol"),
        ({"tools": [Tool("a", {}), Tool("a", {})]}, "Two tools have the same name: a"),
        ({"tool_choice": "any"}, "tool_choice must be one of"),
        ({"tool_choice": "required"}, "tool_choice needs tools"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        request_for("hello", **settings)


def test_one_stop_sequence_is_not_taken_for_its_letters() -> None:
    assert request_for("hello", stop_sequences="END").stop_sequences == ["END"]


def test_tools_are_given_as_values_as_dicts_or_as_functions() -> None:
    def weather(city: str) -> str:
        """Tell the weather."""
        return city

    tools = request_for(
        "hello", tools=[weather, {"name": "b", "inputSchema": {"type": "object"}}, Tool("c", {})]
    ).tools
    assert tools is not None
    assert [tool.name for tool in tools] == ["weather", "b", "c"]
    assert tools[0].description == "Tell the weather."
    assert tools[0].input_schema["required"] == ["city"]


def test_a_function_that_cannot_be_a_tool_is_refused() -> None:
    def anything(*args: Any) -> None: ...

    with pytest.raises(SchemaError, match="anything"):
        request_for("hello", tools=[anything])


def test_no_tools_at_all_need_no_capability() -> None:
    assert request_for("hello", tools=[]).tools is None


@pytest.mark.parametrize("given", ["none", ToolChoice("none"), {"mode": "none"}])
def test_a_tool_choice_is_a_word_or_a_value(given: Any) -> None:
    assert request_for("hello", tool_choice=given).tool_choice == ToolChoice("none")


# --------------------------------------------------------------------------------------------------
# balance


@pytest.mark.parametrize(
    "conversation",
    [
        ["hello"],
        ["hello", "hello again"],
        ["hello", assistant(use("1"), use("2")), user(result("2"), result("1"))],
        [
            "hello",
            assistant(TextContent("let me see"), use()),
            result(),
            assistant(use()),
            [result()],
            "thanks",
        ],
    ],
)
def test_a_conversation_with_every_use_answered_is_sent(conversation: Any) -> None:
    assert len(request_for(conversation).messages) == len(conversation)


@pytest.mark.parametrize(
    ("conversation", "why"),
    [
        (
            ["hi", assistant(use("1"), use("2")), user(result("1"))],
            "message 3 must contain the results .* missing: 2",
        ),
        (
            ["hi", assistant(use("1")), "never mind"],
            "message 3 must contain the results .* missing: 1",
        ),
        (["hi", assistant(use("1")), "wait", result("1")], "message 3 must contain"),
        (["hi", assistant(use("1"))], r"the last message uses a tool \(1\)"),
        (
            ["hi", result("1")],
            "message 2 has a result for 1, but the message before it has no such tool use",
        ),
        (
            ["hi", assistant(use("1")), user(result("1"), result("9"))],
            "message 3 has a result for 9",
        ),
        (
            ["hi", assistant(use("1")), user(result("1"), TextContent("so?"))],
            "message 3 mixes tool results with other content",
        ),
        (["hi", assistant(use("1")), assistant(result("1"))], "only the user may send"),
        ([user(use("1")), result("1")], "message 1 uses a tool, which only the assistant may do"),
        (["hi", assistant(use("1"), use("1")), result("1")], "duplicate tool use id"),
        (["hi", assistant(use("1")), user(result("1"), result("1"))], "duplicate tool use id"),
        (["hi", assistant()], "message 2 is empty"),
        ({"role": "user"}, "message 1 is empty"),
    ],
)
def test_a_conversation_out_of_balance_is_refused(conversation: Any, why: str) -> None:
    assert re.search(why, find_tool_mismatch(request_for(conversation).messages) or "")


@given(st.lists(st.lists(st.uuids().map(str), min_size=1, max_size=3), max_size=4), st.data())
def test_balance_is_lost_with_any_one_result(rounds: list[list[str]], data: Any) -> None:
    conversation = [user(TextContent("hi"))]
    for ids in rounds:
        conversation += [
            assistant(*map(use, ids)),
            user(*map(result, data.draw(st.permutations(ids)))),
        ]
    assert find_tool_mismatch(conversation) is None
    if rounds:
        at = 2 * data.draw(st.integers(1, len(rounds)))
        blocks: Any = conversation[at].content
        conversation[at] = (
            user(*blocks[1:], TextContent("x")) if len(blocks) > 1 else user(TextContent("x"))
        )
        assert find_tool_mismatch(conversation) is not None


# --------------------------------------------------------------------------------------------------
# answers


def test_an_answer_shows_its_parts_be_they_one_or_several() -> None:
    one = Sampled(
        CreateMessageResult(
            role="assistant", content=TextContent("hi"), model="m", stop_reason="endTurn"
        )
    )
    assert (one.text, one.content, one.model, one.role, one.stop_reason, one.tool_uses) == (
        "hi", [TextContent("hi")], "m", "assistant", "endTurn", [],
    )  # fmt: skip
    several = Sampled(
        CreateMessageResult(
            role="assistant", content=[TextContent("a"), use(), TextContent("b")], model="m"
        )
    )
    assert several.text == "a\nb"
    assert several.tool_uses == [use()]
    assert several.stop_reason is None


def test_an_answer_goes_on_as_a_message_of_the_conversation() -> None:
    answer = Sampled(CreateMessageResult(role="assistant", content=[use("1"), use("2")], model="m"))
    messages = request_for(["hi", answer, [result(one.id) for one in answer.tool_uses]]).messages
    assert [message.role for message in messages] == ["user", "assistant", "user"]
    assert messages[1].content == [use("1"), use("2")]


@needs_spec
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_every_request_is_one_by_the_official_schema(revision: str) -> None:
    def weather(city: str) -> str:
        return city

    params = request_for(
        ["hi", Image(data=b"png"), Audio(data=b"wav"), assistant(use()), result()],
        system_prompt="be brief",
        model_preferences={"hints": ["small"], "costPriority": 0, "speedPriority": 1},
        temperature=0.5,
        stop_sequences=["."],
        metadata={"a": 1},
        include_context="none",
        tools=[weather],
        tool_choice="auto",
    )
    assert flaws(revision, "CreateMessageRequestParams", wire(params)) == []
