"""Samplers over real HTTP, against a stand-in that is strict about what it is sent."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from dovetail.client.samplers import Model, ModelError, Sampler, anthropic_sampler, openai_sampler
from dovetail.errors import ConfigError, InvalidParams, TimedOut
from dovetail.protocol.client_features import (
    CreateMessageParams,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    ToolChoice,
)
from dovetail.protocol.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from dovetail.protocol.tools import Tool
from tests.behaviour.handmade import complete, handmade, reply

KEY = "sk-very-secret"
PIXEL = ImageContent("aW1n", "image/png")
WEATHER = Tool(
    "weather",
    {"type": "object", "properties": {"city": {"type": "string"}}},
    description="How it is there",
)
COMPLETION = {
    "id": "c-1",
    "object": "chat.completion",
    "model": "small-2026",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Paris."}, "finish_reason": "stop"}
    ],
    "usage": {"total_tokens": 5},
}
MESSAGE = {
    "id": "m-1",
    "type": "message",
    "role": "assistant",
    "model": "small-2026",
    "content": [{"type": "text", "text": "Paris."}],
    "stop_reason": "end_turn",
    "usage": {"output_tokens": 2},
}


class Api:
    """A stand-in for a vendor: it keeps what it was sent, and answers from a script whose last line
    it repeats."""

    def __init__(self, path: str, script: list[Any]) -> None:
        self.path, self.script = path, script
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        assert request.method == "POST", request.method
        assert request.path == self.path, request.path
        assert request.content_type == "application/json"
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.bodies.append(await request.json())
        turn = self.script[min(len(self.bodies), len(self.script)) - 1]
        if callable(turn):
            turn = await turn()
        status, headers, body = turn if isinstance(turn, tuple) else (200, {}, turn)
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(
            status=status, headers=headers, text=text, content_type="application/json"
        )


@asynccontextmanager
async def api(*script: Any, path: str = "/v1/chat/completions") -> AsyncIterator[Api]:
    stand_in = Api(path, list(script))
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", stand_in.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    stand_in.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield stand_in
    finally:
        await runner.cleanup()


def asked(*messages: SamplingMessage, **fields: Any) -> CreateMessageParams:
    return CreateMessageParams(
        messages=list(messages) or [user("Capital of France?")], **{"max_tokens": 50, **fields}
    )


def user(*blocks: Any) -> SamplingMessage:
    content = [TextContent(block) if isinstance(block, str) else block for block in blocks]
    return SamplingMessage("user", content[0] if len(content) == 1 else content)


def model(*blocks: Any) -> SamplingMessage:
    return SamplingMessage("assistant", user(*blocks).content)


TOOL_TALK = (
    user("Weather?"),
    model(
        "Let me see.",
        ToolUseContent("u1", "weather", {"city": "Paris"}),
        ToolUseContent("u2", "weather", {}),
    ),
    user(
        ToolResultContent("u1", [TextContent("18 degrees"), TextContent("cloudy")]),
        ToolResultContent("u2", [TextContent("no city")], is_error=True),
    ),
)


# OpenAI's kind


async def test_openai_a_plain_question_is_sent_as_the_simplest_api_takes_it() -> None:
    async with api(COMPLETION) as there:
        answer = await openai_sampler(f"{there.url}/v1/", models=["small"])(asked())
    assert there.bodies == [
        {
            "model": "small",
            "max_tokens": 50,
            "messages": [{"role": "user", "content": "Capital of France?"}],
        }
    ]
    assert "authorization" not in there.headers[0]
    assert (answer.role, answer.content, answer.model, answer.stop_reason) == (
        "assistant",
        TextContent("Paris."),
        "small-2026",
        "endTurn",
    )


async def test_openai_everything_that_can_be_asked_for_arrives() -> None:
    request = asked(
        user("Look", PIXEL, AudioContent("c25k", "audio/mpeg")),
        model("I looked."),
        user("And?"),
        system_prompt="Be brief.",
        temperature=0.0,
        stop_sequences=["END"],
        tools=[WEATHER, Tool("bare", {"type": "object"})],
        tool_choice=ToolChoice("required"),
        metadata={"model": "the-dearest", "n": 99},
    )
    async with api(COMPLETION) as there:
        await openai_sampler(there.url, KEY, models=["m"], max_tokens="max_completion_tokens")(
            request
        )
    assert there.headers[0]["authorization"] == f"Bearer {KEY}"
    assert there.bodies == [
        {
            "model": "m",
            "max_completion_tokens": 50,
            "temperature": 0.0,
            "stop": ["END"],
            "messages": [
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Look"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}},
                        {"type": "input_audio", "input_audio": {"data": "c25k", "format": "mp3"}},
                    ],
                },
                {"role": "assistant", "content": "I looked."},
                {"role": "user", "content": "And?"},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "weather",
                        "description": "How it is there",
                        "parameters": WEATHER.input_schema,
                    },
                },
                {
                    "type": "function",
                    "function": {
                        "name": "bare",
                        "parameters": {"type": "object", "properties": {}},
                    },
                },
            ],
            "tool_choice": "required",
        }
    ]


async def test_openai_uses_and_results_of_tools_go_both_ways() -> None:
    call = {
        "id": "u9",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
    }
    choice = {
        "message": {"role": "assistant", "content": None, "tool_calls": [call, call]},
        "finish_reason": "stop",
    }
    async with api({**COMPLETION, "choices": [choice]}) as there:
        answer = await openai_sampler(there.url, models=["m"])(asked(*TOOL_TALK, tools=[WEATHER]))
    arguments = [
        {
            "id": "u1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"city":"Paris"}'},
        },
        {"id": "u2", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
    ]
    assert there.bodies[0]["messages"] == [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": arguments},
        {"role": "tool", "tool_call_id": "u1", "content": "18 degrees\ncloudy"},
        {"role": "tool", "tool_call_id": "u2", "content": "Error: no city"},
    ]
    use = ToolUseContent("u9", "weather", {"city": "Rome"})
    assert answer.content == [use, use]
    assert answer.stop_reason == "toolUse"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "endTurn"),
        ("length", "maxTokens"),
        ("content_filter", "content_filter"),
        (None, None),
    ],
)
async def test_openai_the_reason_to_stop_is_told_in_the_words_of_the_protocol(
    theirs: str | None, ours: str | None
) -> None:
    choice = {
        "message": {"role": "assistant", "content": None, "refusal": "I will not."},
        "finish_reason": theirs,
    }
    async with api({"choices": [choice]}) as there:
        answer = await openai_sampler(there.url, models=["m"])(asked())
    assert (answer.content, answer.model, answer.stop_reason) == (
        TextContent("I will not."),
        "m",
        ours,
    )


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (user(AudioContent("c25k", "audio/midi")), "accepts mp3, wav audio, not audio/midi"),
        (model(PIXEL), "does not support image content in a model message"),
        (user(ToolUseContent("u", "t", {})), "does not support tool_use content"),
        (
            user(ToolResultContent("u", [PIXEL])),
            "does not support image content in a tool result",
        ),
    ],
)
async def test_openai_what_it_has_no_place_for_is_refused_before_anything_is_sent(
    message: Any, why: str
) -> None:
    async with api(COMPLETION) as there:
        with pytest.raises(InvalidParams, match=why):
            await openai_sampler(there.url, models=["m"])(asked(message))
    assert there.bodies == []


# Anthropic's kind


async def test_anthropic_everything_that_can_be_asked_for_arrives() -> None:
    request = asked(
        user("Look", PIXEL),
        system_prompt="Be brief.",
        temperature=0.5,
        stop_sequences=["END"],
        tools=[WEATHER],
        tool_choice=ToolChoice("required"),
    )
    async with api(MESSAGE, path="/v1/messages") as there:
        answer = await anthropic_sampler(there.url, KEY, models=["m"])(request)
    assert there.headers[0]["x-api-key"] == KEY
    assert there.headers[0]["anthropic-version"] == "2023-06-01"
    assert there.bodies == [
        {
            "model": "m",
            "max_tokens": 50,
            "system": "Be brief.",
            "temperature": 0.5,
            "stop_sequences": ["END"],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Look"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "aW1n"},
                        },
                    ],
                }
            ],
            "tools": [
                {
                    "name": "weather",
                    "description": "How it is there",
                    "input_schema": WEATHER.input_schema,
                }
            ],
            "tool_choice": {"type": "any"},
        }
    ]
    assert (answer.content, answer.model, answer.stop_reason) == (
        TextContent("Paris."),
        "small-2026",
        "endTurn",
    )


async def test_anthropic_uses_and_results_of_tools_go_both_ways() -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "u9", "name": "weather", "input": {"city": "Rome"}},
    ]
    talk = (
        *TOOL_TALK,
        model(ToolUseContent("u3", "weather", {}), ToolUseContent("u4", "weather", {})),
        user(
            ToolResultContent("u3", [PIXEL, ResourceLink("file:///a", "a"), embedded("inside")]),
            ToolResultContent("u4", [], structured_content={"degrees": 3}),
        ),
    )
    async with api(
        {**MESSAGE, "content": content, "stop_reason": "tool_use"}, path="/base/v1/messages"
    ) as there:
        answer = await anthropic_sampler(f"{there.url}/base", models=["m"])(asked(*talk))
    assert "x-api-key" not in there.headers[0]
    sent = there.bodies[0]["messages"]
    assert [message["role"] for message in sent] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert sent[1]["content"][1] == {
        "type": "tool_use",
        "id": "u1",
        "name": "weather",
        "input": {"city": "Paris"},
    }
    text = [{"type": "text", "text": "18 degrees"}, {"type": "text", "text": "cloudy"}]
    assert sent[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "u1", "content": text},
        {
            "type": "tool_result",
            "tool_use_id": "u2",
            "content": [{"type": "text", "text": "no city"}],
            "is_error": True,
        },
    ]
    first, second = sent[4]["content"]
    assert [block["type"] for block in first["content"]] == ["image", "text", "text"]
    assert [block.get("text") for block in first["content"]] == [None, "a: file:///a", "inside"]
    assert second["content"] == [{"type": "text", "text": '{"degrees":3}'}]
    assert answer.content == [
        TextContent("I look."),
        ToolUseContent("u9", "weather", {"city": "Rome"}),
    ]
    assert answer.stop_reason == "toolUse"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("stop_sequence", "stopSequence"), ("max_tokens", "maxTokens"), ("refusal", "refusal")],
)
async def test_anthropic_the_reason_to_stop_is_told_in_the_words_of_the_protocol(
    theirs: str, ours: str
) -> None:
    async with api({**MESSAGE, "stop_reason": theirs, "content": []}, path="/v1/messages") as there:
        answer = await anthropic_sampler(f"{there.url}/v1", models=["m"])(asked())
    assert (answer.content, answer.stop_reason) == (TextContent(""), ours)


async def test_anthropic_sound_is_refused_before_anything_is_sent() -> None:
    async with api(MESSAGE, path="/v1/messages") as there:
        with pytest.raises(InvalidParams, match="does not support audio content"):
            await anthropic_sampler(there.url, models=["m"])(
                asked(user(AudioContent("c25k", "audio/wav")))
            )
    assert there.bodies == []


def embedded(text: str) -> EmbeddedResource:
    return EmbeddedResource(ResourceContents(uri="file:///b", text=text))


# what both share

BOTH = pytest.mark.parametrize(
    ("make", "path", "reply"),
    [
        (openai_sampler, "/v1/chat/completions", COMPLETION),
        (anthropic_sampler, "/v1/messages", MESSAGE),
    ],
)


@BOTH
async def test_the_model_is_chosen_by_the_servers_preferences(
    make: Callable[..., Sampler], path: str, reply: Any
) -> None:
    models = [
        Model("large", cost=0.9, intelligence=0.9),
        Model("small", cost=0.1, intelligence=0.1),
        "other-family",
    ]
    wishes = [
        (None, "large"),
        (ModelPreferences(hints=[ModelHint("family")]), "other-family"),
        (ModelPreferences(cost_priority=1), "small"),
    ]
    async with api(reply, path=path) as there:
        sampler = make(there.url, models=models)
        for preferences, _ in wishes:
            await sampler(asked(model_preferences=preferences))
    assert [body["model"] for body in there.bodies] == [name for _, name in wishes]


@BOTH
async def test_an_api_that_is_busy_is_asked_again_when_it_says(
    make: Callable[..., Sampler], path: str, reply: Any
) -> None:
    busy = (429, {"Retry-After": "0"}, {"error": {"message": "slow down"}})
    async with api(
        busy, (503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, "{}"), reply, path=path
    ) as there:
        answer = await make(there.url, models=["m"])(asked())
    assert answer.content == TextContent("Paris.")
    assert len(there.bodies) == 3
    assert there.bodies[0] == there.bodies[2]


async def test_an_api_that_is_busy_without_a_word_is_asked_again_soon() -> None:
    async with api((500, {"Retry-After": "whenever"}, "{}"), COMPLETION) as there:
        await openai_sampler(there.url, models=["m"])(asked())
    assert len(there.bodies) == 2


async def test_nobody_waits_longer_for_a_busy_api_than_there_is_time() -> None:
    busy = (429, {"Retry-After": "3600"}, {"error": {"message": f"quota of {KEY} is used up"}})
    async with api(busy) as there:
        async with asyncio.timeout(60):
            with pytest.raises(ModelError, match=r"429: quota of … is used up") as refusal:
                await openai_sampler(there.url, KEY, models=["m"], timeout=600)(asked())
    assert refusal.value.status == 429
    assert len(there.bodies) == 1


async def test_an_api_that_says_nothing_in_time_is_given_up() -> None:
    release = asyncio.Event()

    async def never() -> Any:
        await release.wait()
        return COMPLETION

    async with api(never) as there:
        with pytest.raises(TimedOut, match=r"no response within 0\.2 s"):
            await openai_sampler(there.url, models=["m"], timeout=0.2)(asked())
        release.set()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 418])
async def test_a_refusal_is_one_line_without_the_key_and_final(status: int) -> None:
    said = {"error": {"message": f"Incorrect API key provided:\n {KEY}" + "!" * 5000}}
    async with api((status, {}, said)) as there:
        sampler = openai_sampler(there.url, KEY, models=["m"])
        with pytest.raises(ModelError) as refusal:
            await sampler(asked())
    assert refusal.value.status == status
    assert len(there.bodies) == 1
    assert str(status) in str(refusal.value)
    assert "Incorrect API key provided: …" in str(refusal.value)
    assert len(str(refusal.value)) < 500
    assert KEY not in str(refusal.value)
    assert KEY not in repr(sampler)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize(
    "reply",
    [
        "no JSON at all",
        "[]",
        {"choices": []},
        {"choices": [{"message": {"content": 5}}]},
        {
            "choices": [
                {
                    "message": {
                        "tool_calls": [{"id": "u", "function": {"name": "t", "arguments": "[1]"}}]
                    }
                }
            ]
        },
        {
            "choices": [
                {
                    "message": {
                        "tool_calls": [{"id": "u", "function": {"name": "t", "arguments": "{"}}]
                    }
                }
            ]
        },
    ],
)
async def test_an_answer_that_makes_no_sense_is_said_to_be_one(reply: Any) -> None:
    async with api(reply) as there:
        with pytest.raises(ModelError, match="is not valid"):
            await openai_sampler(there.url, models=["m"])(asked())


async def test_an_api_that_is_not_there_is_an_error_of_the_model_not_of_the_server() -> None:
    async with api(COMPLETION) as there:
        pass
    with pytest.raises(ModelError, match=r"cannot be reached: .*connection refused"):
        await openai_sampler(there.url, models=["m"])(asked())


async def test_a_redirect_to_another_origin_never_sees_the_key() -> None:
    async with api(COMPLETION) as other:
        async with api((307, {"Location": f"{other.url}/v1/chat/completions"}, "{}")) as there:
            with pytest.raises(ModelError, match="another origin"):
                await openai_sampler(there.url, KEY, models=["m"])(asked())
    assert other.bodies == []


@pytest.mark.parametrize(
    ("url", "key", "why"),
    [
        ("http://models.example.com/v1", KEY, "sent only over https or to localhost"),
        ("http://127.0.0.1.example.com", KEY, "sent only over https or to localhost"),
        ("ftp://127.0.0.1", None, "must look like https"),
        ("127.0.0.1:8000", None, "must look like https"),
        ("https://me:pass@example.com", None, "must look like https"),
        ("https://example.com/v1?key=1", None, "must look like https"),
        ("http://[::1", None, "not a URL"),
    ],
)
def test_a_base_url_that_will_not_do_is_refused_at_once(
    url: str, key: str | None, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as refusal:
        anthropic_sampler(url, key, models=["m"])
    assert KEY not in str(refusal.value)


@pytest.mark.parametrize(
    "url", ["http://localhost:1/v1", "http://127.0.0.9", "http://[::1]:5", "https://example.com"]
)
def test_a_key_may_go_over_tls_or_to_this_machine(url: str) -> None:
    assert KEY not in repr(openai_sampler(url, KEY, models=["m"]))


def test_a_sampler_needs_a_model() -> None:
    with pytest.raises(ConfigError, match="at least one model"):
        openai_sampler("http://localhost", models=[])


QUESTION = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "?"}}],
    "maxTokens": 7,
    "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
}
ANSWER = {
    "role": "assistant",
    "content": {"type": "text", "text": "Paris."},
    "model": "small-2026",
    "stopReason": "endTurn",
}


@pytest.mark.requirement("sampling-max-tokens")
async def test_a_sampler_serves_a_client_of_the_handshake_era_tools_and_all() -> None:
    async with api(COMPLETION) as there:
        async with handmade("2025-11-25", on_sample=openai_sampler(there.url, models=["m"])) as (
            _,
            server,
        ):
            assert (await server.ask("sampling/createMessage", QUESTION))["result"] == ANSWER
    assert there.bodies[0]["max_tokens"] == 7


async def test_a_sampler_serves_a_client_of_the_stateless_era_tools_and_all() -> None:
    async with api(MESSAGE, path="/v1/messages") as there:
        async with handmade(on_sample=anthropic_sampler(there.url, models=["m"])) as (
            client,
            server,
        ):
            asking = asyncio.create_task(client.call_tool("x"))
            first = await server.receive()
            assert first["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"][
                "sampling"
            ] == {"tools": {}}
            question = {"method": "sampling/createMessage", "params": QUESTION}
            server.send(
                reply(first, {"resultType": "input_required", "inputRequests": {"q": question}})
            )
            second = await server.receive()
            assert second["params"]["inputResponses"] == {"q": ANSWER}
            server.send(reply(second, complete(content=[])))
            await asking


@pytest.mark.requirement("sampling-not-retained")
async def test_a_model_is_told_nothing_of_the_question_before() -> None:
    async with api(COMPLETION) as there:
        async with handmade("2025-11-25", on_sample=openai_sampler(there.url, models=["m"])) as (
            _,
            server,
        ):
            for word in ("secret", "weather"):
                message = {"role": "user", "content": {"type": "text", "text": word}}
                await server.ask("sampling/createMessage", {**QUESTION, "messages": [message]})
    assert [[message["content"] for message in body["messages"]] for body in there.bodies] == [
        ["secret"],
        ["weather"],
    ]


@pytest.mark.requirement("sampling-sensitive")
async def test_what_an_api_says_of_its_failure_is_not_told_to_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with api((401, {}, {"error": {"message": f"bad key {KEY}"}})) as there:
        async with handmade(
            "2025-11-25", on_sample=openai_sampler(there.url, KEY, models=["m"])
        ) as (_, server):
            error = (await server.ask("sampling/createMessage", QUESTION))["error"]
    assert error["code"] == -32603
    assert there.url not in str(error)
    assert "bad key" in caplog.text
    assert KEY not in caplog.text
