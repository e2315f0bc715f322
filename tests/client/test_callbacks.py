"""What a server asks of a client: who is asked what, with whose leave, and what may leave as an
answer."""

import asyncio
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

import dovetail.client.roots as module
from dovetail import Context, Server
from dovetail.client.callbacks import Callbacks, ElicitRequest, RootsRequest, SampleRequest
from dovetail.errors import (
    LOCAL,
    ConfigError,
    DovetailError,
    InvalidParams,
    InvalidRequest,
    Overloaded,
    ProtocolError,
)
from dovetail.limits import Limits
from dovetail.ports import Call, Caller
from dovetail.protocol.base import Implementation
from dovetail.protocol.client_features import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    Root,
)
from dovetail.protocol.content import ImageContent, TextContent, ToolUseContent
from dovetail.protocol.methods import METHODS
from dovetail.revisions import BY_NAME, decode
from dovetail.schema import Shape
from dovetail.testing import pair
from tests.behaviour.handmade import complete, handmade, notification, reply

SERVER = Implementation(name="shop", version="1", title="The Shop")
ANY = Shape(Any)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 0},
        "colour": {"type": "string", "enum": ["red", "blue"], "default": "blue"},
        "news": {"type": "boolean", "default": False},
    },
    "required": ["name"],
}
FORM = {"message": "Who are you?", "requestedSchema": PERSON}
PAGE = {
    "mode": "url",
    "message": "Pay here",
    "url": "https://shop.example/pay",
    "elicitationId": "e1",
}
TALK = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 5}
TOOLS = [{"name": "t", "inputSchema": {"type": "object"}}]


def callbacks(
    on_elicit: Any = None,
    on_sample: Any = None,
    roots: Any = None,
    *,
    sampling_tools: bool = False,
    sampling_context: bool = False,
    **options: Any,
) -> Callbacks:
    if on_sample is not None and (sampling_tools or sampling_context):
        on_sample = partial(on_sample)
        on_sample.tools, on_sample.context = sampling_tools, sampling_context
    return Callbacks(on_elicit, on_sample, roots, None, **options)


async def ask(
    client: Callbacks, method: str, params: Any = None, revision: str = "2025-11-25"
) -> Any:
    """What the client answers, in the handshake era."""
    row = METHODS[method]
    call = Call(
        1,
        row,
        decode(ANY.encode(params or {}), row.params),
        Caller(BY_NAME[revision], SERVER),
        None,
    )
    return await client.answers[method](call)


async def elicited(given: Any, params: Any = FORM, **options: Any) -> ElicitResult:
    answer: ElicitResult = await ask(
        callbacks(lambda request: given, **options), "elicitation/create", params
    )
    return answer


async def sampled(given: Any, params: Any = TALK, **options: Any) -> CreateMessageResult:
    answer: CreateMessageResult = await ask(
        callbacks(None, lambda request: given, **options), "sampling/createMessage", params
    )
    return answer


# what is declared


class Capable:
    tools = context = True

    def __call__(self, request: Any) -> str:
        return "yes"


@pytest.mark.requirement("sampling-declared", "roots-declared", "elicitation-declares")
@pytest.mark.parametrize(
    ("options", "declared"),
    [
        ({}, {}),
        ({"on_elicit": print}, {"elicitation": {"form": {}, "url": {}}}),
        ({"on_sample": print}, {"sampling": {}}),
        ({"on_sample": print, "sampling_tools": True}, {"sampling": {"tools": {}}}),
        ({"on_sample": print, "sampling_context": True}, {"sampling": {"context": {}}}),
        ({"on_sample": Capable()}, {"sampling": {"tools": {}, "context": {}}}),
        ({"sampling_tools": True}, {}),
        ({"roots": []}, {"roots": {"listChanged": True}}),
    ],
)
def test_only_what_can_be_answered_is_declared(options: dict[str, Any], declared: Any) -> None:
    capabilities = callbacks(**options).capabilities
    asked = capabilities.pop("tasks", {"requests": {}})["requests"]
    assert capabilities == declared
    assert asked.keys() == declared.keys() & {"elicitation", "sampling"}, (
        "what can be asked can be asked as a task"
    )


# what callbacks see


async def test_a_question_shows_what_is_asked_and_who_asks() -> None:
    seen: list[Any] = []
    client = callbacks(
        seen.append,
        seen.append,
        on_ask=lambda request: seen.append(request) or request,
        target="shop.py",
    )
    await ask(client, "elicitation/create", FORM)
    with pytest.raises(ProtocolError):
        await ask(
            client,
            "sampling/createMessage",
            {**TALK, "systemPrompt": "s", "modelPreferences": {"costPriority": 1}},
        )
    hooked, form, _, sample = seen
    assert hooked is form
    assert isinstance(form, ElicitRequest)
    assert (form.message, form.schema, form.mode, form.url) == (
        "Who are you?",
        PERSON,
        "form",
        None,
    )
    assert isinstance(sample, SampleRequest)
    assert (sample.max_tokens, sample.system_prompt, sample.tools) == (5, "s", None)
    assert sample.messages[0].content == TextContent("Hi")
    assert sample.model_preferences is not None
    assert sample.model_preferences.cost_priority == 1
    for request in (form, sample):
        assert request.server is SERVER
        assert request.asked_by == "The Shop (shop.py)"


@pytest.mark.parametrize(
    ("server", "target", "name"),
    [
        (None, "", "the server"),
        (None, "x.py", "x.py"),
        (Implementation(name="n", version="1"), "", "n"),
    ],
)
def test_whoever_asks_has_a_name(server: Any, target: str, name: str) -> None:
    assert RootsRequest(server=server, target=target).asked_by == name


# forms


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ({"name": "Ada"}, {"name": "Ada", "colour": "blue", "news": False}),
        (
            {"name": "Ada", "colour": "red", "age": None},
            {"name": "Ada", "colour": "red", "news": False},
        ),
        ({"name": "Ada", "colour": None}, {"name": "Ada", "news": False}),
        (
            ElicitResult(action="accept", content={"name": "Ada", "age": 3}),
            {"name": "Ada", "age": 3, "colour": "blue", "news": False},
        ),
    ],
)
async def test_an_accepted_form_is_filled_up_with_its_defaults(given: Any, content: Any) -> None:
    assert await elicited(given) == ElicitResult(action="accept", content=content)


async def test_true_accepts_the_defaults_where_they_are_enough() -> None:
    schema = {"type": "object", "properties": {"colour": {"type": "string", "default": "blue"}}}
    answer = await elicited(True, {"message": "?", "requestedSchema": schema})
    assert answer == ElicitResult(action="accept", content={"colour": "blue"})


@pytest.mark.requirement("elicitation-client-checks")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "name"),
        (True, "name"),
        ({"name": "A"}, "name"),
        ({"name": "Ada", "age": "three"}, "age"),
        ({"name": "Ada", "age": -1}, "age"),
        ({"name": "Ada", "colour": "green"}, "colour"),
        (ElicitResult(action="accept"), "name"),
        (ElicitResult(action="accept", content={"name": 5}), "name"),
        ("Ada", "a value for each form field"),
        (["Ada"], "a value for each form field"),
        ({"name": object()}, "cannot be sent"),
    ],
)
async def test_an_answer_that_does_not_fit_is_an_error_here_and_is_not_sent(
    given: Any, problem: str
) -> None:
    with pytest.raises(ConfigError, match=rf"on_elicit: .*{problem}"):
        await elicited(given)


@pytest.mark.parametrize(
    ("given", "action"),
    [
        (None, "decline"),
        (False, "decline"),
        (ElicitResult(action="decline", content={"name": "!"}), "decline"),
        (ElicitResult(action="cancel"), "cancel"),
    ],
)
@pytest.mark.parametrize("params", [FORM, PAGE])
async def test_who_does_not_accept_sends_no_content(given: Any, action: Any, params: Any) -> None:
    assert await elicited(given, params) == ElicitResult(action=action)


@pytest.mark.parametrize("given", [True, ElicitResult(action="accept", content={"a": 1})])
async def test_a_page_that_is_agreed_to_has_no_content(given: Any) -> None:
    assert await elicited(given, PAGE) == ElicitResult(action="accept")


@pytest.mark.requirement("elicitation-url-consent")
@pytest.mark.parametrize("given", [{}, {"name": "Ada"}, "yes", 1])
async def test_a_callback_that_knows_forms_only_agrees_to_no_page(given: Any) -> None:
    with pytest.raises(ConfigError, match="to accept a page"):
        await elicited(given, PAGE)


@pytest.mark.parametrize(
    "params",
    [
        {"message": "?", "requestedSchema": {"type": "nonsense"}},
        {"message": "?", "requestedSchema": {"$ref": "https://evil.example/schema"}},
        {"mode": "url", "message": "?"},
        {"mode": "url", "message": "?", "url": "file:///etc/passwd"},
        {"mode": "url", "message": "?", "url": "javascript:alert(1)"},
        {"mode": "url", "message": "?", "url": "https://"},
        {"mode": "url", "message": "?", "url": "https://a.example/\x1b[2J"},
        {"mode": "telepathy", "message": "?"},
    ],
)
async def test_nobody_is_asked_what_cannot_be_answered(params: Any) -> None:
    with pytest.raises(InvalidParams) as caught:
        await ask(callbacks(lambda request: pytest.fail("asked")), "elicitation/create", params)
    assert caught.value.data["parameter"] in ("requestedSchema", "url", "mode")


async def test_a_revision_without_pages_is_not_shown_any() -> None:
    client = callbacks(lambda request: True)
    with pytest.raises(InvalidParams, match=r"elicitation\.url"):
        await ask(client, "elicitation/create", PAGE, revision="2025-06-18")
    schema = {"message": "?", "requestedSchema": {"type": "object"}}
    assert (
        await ask(client, "elicitation/create", schema, revision="2025-06-18")
    ).action == "accept"


# samples


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ("Hello", TextContent("Hello")),
        (ImageContent("aW1n", "image/png"), ImageContent("aW1n", "image/png")),
        ([TextContent("a"), TextContent("b")], [TextContent("a"), TextContent("b")]),
    ],
)
async def test_a_model_answers_with_text_or_content(given: Any, content: Any) -> None:
    expected = CreateMessageResult(
        role="assistant", content=content, model="unknown", stop_reason="endTurn"
    )
    assert await sampled(given) == expected
    mine = CreateMessageResult(
        role="assistant", content=content, model="m", stop_reason="maxTokens"
    )
    assert await sampled(mine) is mine


@pytest.mark.parametrize("given", [5, {"text": "x"}, [], ["x"], ToolUseContent("u", "t", {})])
async def test_an_answer_that_no_model_gives_is_an_error_here(given: Any) -> None:
    with pytest.raises(ConfigError, match="on_sample"):
        await sampled(given)


async def test_a_model_with_tools_may_use_them() -> None:
    use = ToolUseContent("u", "t", {})
    answer = await sampled(use, {**TALK, "tools": TOOLS}, sampling_tools=True)
    assert (answer.content, answer.stop_reason) == (use, "toolUse")


def choosing(mode: Any) -> dict[str, Any]:
    return {**TALK, "tools": TOOLS, "toolChoice": {"mode": mode}}


@pytest.mark.requirement("sampling-tool-choice")
@pytest.mark.parametrize(
    ("name", "mode"), [("other", "auto"), ("other", "required"), ("t", "none")]
)
async def test_a_model_uses_no_tool_that_it_was_not_given_or_may_not_use(
    name: str, mode: str
) -> None:
    with pytest.raises(ConfigError, match=f"the model cannot use {name}"):
        await sampled(
            [TextContent("Well"), ToolUseContent("u", name, {})],
            choosing(mode),
            sampling_tools=True,
        )


@pytest.mark.requirement("sampling-tool-choice")
async def test_a_model_that_should_have_used_a_tool_is_noticed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for mode in ("auto", None, "none"):
        await sampled("I know it", choosing(mode), sampling_tools=True)
    assert caplog.text == ""
    await sampled(ToolUseContent("u", "t", {}), choosing("required"), sampling_tools=True)
    assert caplog.text == ""
    assert (
        await sampled("I know it", choosing("required"), sampling_tools=True)
    ).content == TextContent("I know it")
    assert "requires the model to use a tool" in caplog.text


@pytest.mark.requirement("sampling-tool-choice", "sampling-errors", "sampling-validated")
@pytest.mark.parametrize(
    ("params", "why"),
    [
        (choosing("bogus"), "one of auto, required, none"),
        ({**TALK, "maxTokens": 0}, "1"),
        ({**TALK, "maxTokens": -5}, "1"),
    ],
)
async def test_a_question_to_a_model_that_makes_no_sense_is_refused(params: Any, why: str) -> None:
    with pytest.raises(InvalidParams, match=why):
        await sampled("never", params, sampling_tools=True)


def talk(*messages: tuple[str, Any]) -> dict[str, Any]:
    return {
        "messages": [{"role": role, "content": content} for role, content in messages],
        "maxTokens": 5,
        "tools": TOOLS,
    }


TEXT = {"type": "text", "text": "Hi"}
USE = {"type": "tool_use", "id": "u1", "name": "t", "input": {}}
RESULT = {"type": "tool_result", "toolUseId": "u1", "content": []}


async def test_uses_and_results_of_tools_that_balance_are_passed_on() -> None:
    other_use, other_result = {**USE, "id": "u2"}, {**RESULT, "toolUseId": "u2"}
    params = talk(
        ("user", TEXT),
        ("assistant", [TEXT, USE, other_use]),
        ("user", [other_result, RESULT]),
        ("user", TEXT),
    )
    assert (await sampled("fine", params, sampling_tools=True)).content == TextContent("fine")


@pytest.mark.requirement("sampling-errors", "sampling-validated")
@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ((("user", TEXT), ("assistant", USE)), "its result must follow"),
        ((("assistant", USE), ("user", TEXT)), "missing: u1"),
        ((("assistant", [USE, {**USE, "id": "u2"}]), ("user", RESULT)), "missing: u2"),
        ((("user", RESULT),), "has no such tool use"),
        ((("assistant", USE), ("user", [RESULT, TEXT])), "mixes tool results with other content"),
        ((("assistant", USE), ("user", [RESULT, RESULT])), "duplicate tool use id"),
        ((("user", USE), ("user", RESULT)), "only the assistant"),
        ((("assistant", USE), ("assistant", RESULT)), "only the user"),
    ],
)
async def test_uses_and_results_of_tools_that_do_not_balance_are_refused(
    messages: Any, why: str
) -> None:
    with pytest.raises(InvalidParams, match=why):
        await sampled("never", talk(*messages), sampling_tools=True)


@pytest.mark.parametrize(
    "params", [{**TALK, "tools": []}, {**TALK, "toolChoice": {"mode": "auto"}}]
)
async def test_tools_that_were_not_declared_are_refused(params: Any) -> None:
    with pytest.raises(InvalidParams, match=r"sampling\.tools") as caught:
        await sampled("never", params)
    assert caught.value.data["parameter"] == "tools"
    with pytest.raises(InvalidParams, match=r"sampling\.tools"):
        await sampled(
            "never", {key: value for key, value in talk(("user", RESULT)).items() if key != "tools"}
        )


# consent


async def refused(request: Any, *answer: Any) -> None:
    return None


HOOKS = pytest.mark.parametrize("hook", ["on_ask", "on_answer"])


@pytest.mark.requirement("elicitation-approval")
@HOOKS
async def test_a_form_that_is_refused_is_declined(hook: str) -> None:
    assert await elicited({"name": "Ada"}, **{hook: refused}) == ElicitResult(action="decline")


@pytest.mark.requirement("sampling-errors", "roots-consent")
@HOOKS
async def test_a_sample_or_roots_that_are_refused_are_error_minus_one(
    hook: str, tmp_path: Path
) -> None:
    client = callbacks(None, lambda request: "secret", [tmp_path], **{hook: refused})
    for method, what in (("sampling/createMessage", "sampling"), ("roots/list", "roots")):
        with pytest.raises(ProtocolError, match=f"User rejected {what} request") as refusal:
            await ask(client, method, TALK if what == "sampling" else None)
        assert refusal.value.code == -1
        assert refusal.value.fault == LOCAL


@pytest.mark.requirement("sampling-approval", "elicitation-approval")
async def test_nobody_is_asked_what_was_refused() -> None:
    client = callbacks(
        lambda request: pytest.fail("asked"), lambda request: pytest.fail("asked"), on_ask=refused
    )
    assert (await ask(client, "elicitation/create", FORM)).action == "decline"
    with pytest.raises(ProtocolError):
        await ask(client, "sampling/createMessage", TALK)


@pytest.mark.requirement("sampling-approval")
async def test_both_the_question_and_the_answer_can_be_changed() -> None:
    def calmer(request: Any) -> Any:
        return replace(request, system_prompt="Be kind.", max_tokens=1)

    async def shorter(request: Any, answer: Any) -> Any:
        assert request.system_prompt == "Be kind."
        return replace(answer, content=TextContent(answer.content.text[:3]))

    client = callbacks(
        None,
        lambda request: f"{request.system_prompt} {request.max_tokens}",
        on_ask=calmer,
        on_answer=shorter,
    )
    assert (
        await ask(client, "sampling/createMessage", {**TALK, "systemPrompt": "Be rude."})
    ).content == TextContent("Be ")


async def test_a_changed_answer_must_fit_too() -> None:
    answer = await elicited(
        {"name": "Ada"}, on_answer=lambda request, answer: replace(answer, content={"name": "Bob"})
    )
    assert answer.content == {"name": "Bob", "colour": "blue", "news": False}
    with pytest.raises(ConfigError, match="name"):
        await elicited(
            {"name": "Ada"}, on_answer=lambda request, answer: replace(answer, content={"name": 5})
        )


@HOOKS
@pytest.mark.parametrize("given", [True, False, "yes", {}])
async def test_a_hook_that_gives_back_something_else_is_told_so(hook: str, given: Any) -> None:
    with pytest.raises(ConfigError, match=f"{hook} must return"):
        await elicited({"name": "Ada"}, **{hook: lambda *shown: given})


@pytest.mark.requirement("roots-consent")
async def test_the_server_gets_fewer_roots_where_the_user_wants_that(tmp_path: Path) -> None:
    def fewer(request: Any, answer: Any) -> Any:
        assert isinstance(request, RootsRequest)
        return ListRootsResult(roots=answer.roots[:1])

    client = callbacks(roots=[tmp_path, tmp_path.parent], on_answer=fewer)
    assert (await ask(client, "roots/list")).roots == [Root(tmp_path.as_uri(), tmp_path.name)]


# bounds


@pytest.mark.requirement("sampling-rate-limit", "elicitation-rate-limit")
async def test_a_server_that_asks_too_much_is_refused_until_a_minute_has_passed() -> None:
    client = callbacks(lambda request: None, lambda request: "x", limits=Limits(questions=3))
    for _ in range(2):
        await ask(client, "elicitation/create", FORM)
    await ask(client, "sampling/createMessage", TALK)
    for method, params in (("elicitation/create", FORM), ("sampling/createMessage", TALK)):
        with pytest.raises(Overloaded, match="3 questions per minute"):
            await ask(client, method, params)
    client.question_limit.recent[0] -= 61
    await ask(client, "elicitation/create", FORM)
    with pytest.raises(Overloaded):
        await ask(client, "elicitation/create", FORM)


# rounds


def form(message: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"echo": {"type": "string"}}}
    return {
        "method": "elicitation/create",
        "params": {"message": message, "requestedSchema": schema},
    }


async def respond(client: Callbacks, **questions: Any) -> dict[str, Any]:
    session: Any = SimpleNamespace(agreed_revision=BY_NAME["2026-07-28"], server_info=None)
    return await client.answer_all(questions, session)


async def test_all_questions_of_a_round_are_open_at_once_and_answered_by_key() -> None:
    everybody = asyncio.Barrier(3)

    async def answer(request: Any) -> Any:
        await everybody.wait()
        return {"echo": request.message}

    answers = await respond(callbacks(answer), a=form("1"), b=form("2"), c=form("3"))
    assert {key: bytes(raw) for key, raw in answers.items()} == {
        key: b'{"action":"accept","content":{"echo":"%d"}}' % number
        for number, key in enumerate("abc", 1)
    }


async def test_the_first_failure_ends_the_round_and_is_raised_as_it_is() -> None:
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def answer(request: Any) -> Any:
        if request.message == "fail":
            await waiting.wait()
            raise DovetailError("the window was closed")
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(DovetailError, match="the window was closed"):
        await respond(callbacks(answer), a=form("wait"), b=form("fail"), c=form("wait"))
    assert ended.is_set()
    assert len(asyncio.all_tasks()) == 1


async def test_a_round_that_is_cancelled_asks_nobody_any_more() -> None:
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def answer(request: Any) -> Any:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(respond(callbacks(answer), a=form("1")))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


@pytest.mark.parametrize(
    "bad",
    [
        {"method": "sampling/createMessage", "params": TALK},
        {"method": "no/such"},
        {"params": {}},
        {"method": "elicitation/create", "params": {"message": 5}},
    ],
)
async def test_a_round_with_a_question_that_makes_no_sense_asks_nobody(bad: Any) -> None:
    with pytest.raises(InvalidRequest):
        await respond(callbacks(lambda request: pytest.fail("asked")), a=form("1"), b=bad)


# over the wire


@pytest.mark.requirement("sampling-errors")
@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        (FORM, None),
        (PAGE, None),
        ({"message": "?", "requestedSchema": {"type": 5}}, "requestedSchema"),
        ({"message": 5}, "message"),
        ({}, "message"),
    ],
)
async def test_a_refusal_in_the_handshake_era_is_an_answer_or_a_code(
    params: Any, parameter: str | None
) -> None:
    async with handmade(
        "2025-11-25", on_elicit=lambda request: None, on_sample=lambda request: None
    ) as (_, server):
        answer = await server.ask("elicitation/create", params)
        if parameter is None:
            assert answer["result"] == {"action": "decline"}
        else:
            assert answer["error"]["code"] == -32602
            assert answer["error"]["data"]["parameter"] == parameter
        refusal = (await server.ask("sampling/createMessage", TALK))["error"]
        assert (refusal["code"], refusal["message"]) == (-1, "User rejected sampling request")


async def test_a_refusal_in_the_stateless_era_is_raised_to_whoever_called() -> None:
    async with handmade(on_sample=lambda request: None) as (client, server):
        asking = asyncio.create_task(client.call_tool("x"))
        question = {"method": "sampling/createMessage", "params": TALK}
        server.send(
            reply(
                await server.receive(),
                {"resultType": "input_required", "inputRequests": {"q": question}},
            )
        )
        with pytest.raises(ProtocolError, match="User rejected sampling request"):
            await asking
        assert server.waiting() == 0


@pytest.mark.requirement("elicitation-client-checks")
async def test_what_does_not_fit_never_reaches_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async with handmade("2025-11-25", on_elicit=lambda request: {"name": 12345}) as (_, server):
        error = (await server.ask("elicitation/create", FORM))["error"]
    assert error["code"] == -32603
    assert "12345" not in str(error)
    assert "does not match the form from handmade (MemoryChannel)" in caplog.text


async def test_a_round_in_the_stateless_era_names_its_server_where_it_said_who_it_is() -> None:
    seen: list[Any] = []
    async with handmade(on_elicit=seen.append) as (client, server):
        asking = asyncio.create_task(client.call_tool("x"))
        server.send(
            reply(
                await server.receive(),
                {"resultType": "input_required", "inputRequests": {"q": form("?")}},
            )
        )
        server.send(reply(await server.receive(), complete(content=[])))
        await asking
        assert seen[0].server == client.server_info


@pytest.mark.requirement("elicitation-complete-unknown")
async def test_news_of_a_page_that_nobody_was_sent_to_is_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with handmade("2025-11-25", on_elicit=lambda request: True) as (_, server):
        await server.ask("elicitation/create", PAGE)
        for id in ("never", "e1", "e1"):
            server.send(notification("notifications/elicitation/complete", elicitationId=id))
        assert (await server.ask("elicitation/create", PAGE))["result"] == {"action": "accept"}
        assert server.waiting() == 0
    assert caplog.text == ""


# roots


@pytest.mark.parametrize(
    "give",
    [str, Path, Path.as_uri, lambda path: Root(path.as_uri()), lambda path: {"uri": path.as_uri()}],
)
async def test_a_root_is_a_path_or_a_uri(give: Callable[[Path], Any], tmp_path: Path) -> None:
    (root,) = (await ask(callbacks(roots=[give(tmp_path)]), "roots/list")).roots
    assert root.uri == tmp_path.as_uri()


async def test_a_path_is_resolved_and_must_exist(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (root,) = (await ask(callbacks(roots=[tmp_path / "real" / ".." / "link"]), "roots/list")).roots
    assert root == Root((tmp_path / "real").as_uri(), "real")
    with pytest.raises(ConfigError, match="not a root: No such file"):
        callbacks(roots=[tmp_path / "missing"])


@pytest.mark.requirement("roots-traversal")
@pytest.mark.parametrize(
    "bad",
    [
        "https://example.com",
        "file:relative",
        "file://other-host/share",
        "file:///a/../etc",
        "file:///a/%2e%2e/etc",
        "file:///a%00b",
        "file:///a\nb",
        "file:///a?query",
        Root("http://x/"),
        {"name": "no uri"},
        "a\0b",
        5,
        None,
    ],
)
def test_what_is_no_root_is_said_to_be_none(bad: Any, tmp_path: Path) -> None:
    client = callbacks(roots=[tmp_path])
    with pytest.raises(ConfigError, match="not a root"):
        client.set_roots([tmp_path, bad])
    assert client.roots == [Root(tmp_path.as_uri(), tmp_path.name)]


@pytest.mark.requirement("roots-list-changed", "roots-accessible")
async def test_a_root_that_vanishes_is_dropped_and_announced_once_by_whoever_sees_it(
    tmp_path: Path,
) -> None:
    here, gone, elsewhere = (
        tmp_path / "here",
        tmp_path / "gone",
        "file:///only/the/server/sees/this",
    )
    here.mkdir()
    gone.mkdir()
    async with handmade("2025-11-25", roots=[here, gone.as_uri(), elsewhere]) as (_, server):
        assert len((await server.ask("roots/list"))["result"]["roots"]) == 3
        gone.rmdir()
        server.send({"jsonrpc": "2.0", "id": 9, "method": "roots/list"})
        assert (await server.receive())["method"] == "notifications/roots/list_changed"
        roots = (await server.receive())["result"]["roots"]
        assert [root["uri"] for root in roots] == [here.as_uri(), elsewhere]
        assert (await server.ask("roots/list"))["result"]["roots"] == roots
        assert server.waiting() == 0


async def test_a_round_in_which_a_root_vanishes_is_answered_without_it(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    async with handmade(roots=[tmp_path, gone]) as (client, server):
        asking = asyncio.create_task(client.call_tool("x"))
        first = await server.receive()
        gone.rmdir()
        server.send(
            reply(
                first,
                {"resultType": "input_required", "inputRequests": {"q": {"method": "roots/list"}}},
            )
        )
        second = await server.receive()
        assert [root["uri"] for root in second["params"]["inputResponses"]["q"]["roots"]] == [
            tmp_path.as_uri()
        ]
        server.send(reply(second, complete(content=[])))
        await asking


async def test_a_file_system_that_hangs_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, over = [0], threading.Event()

    def hangs(path: str) -> bool:
        looks[0] += 1
        return over.wait()

    async with handmade("2025-11-25", roots=[tmp_path]) as (client, server):
        monkeypatch.setattr(os.path, "exists", hangs)
        monkeypatch.setattr(module, "CHECK_TIMEOUT_SECONDS", 0.01)
        try:
            for _ in range(3):
                pinging = asyncio.create_task(client.ping())
                server.send(reply(await server.receive(), {}))
                await pinging
            assert (await server.ask("roots/list"))["result"]["roots"] == [
                {"uri": tmp_path.as_uri(), "name": tmp_path.name}
            ]
            assert looks == [1], "while one look is under way there is no other"
        finally:
            over.set()


@pytest.mark.requirement("roots-traversal", "roots-file-uris")
@pytest.mark.parametrize(
    "bad", ["https://evil.example/", "file:///a/../etc", "file:///a/%2e%2e/etc"]
)
async def test_roots_that_a_hook_puts_in_are_checked_too(bad: str) -> None:
    client = callbacks(
        roots=["file:///a"], on_answer=lambda request, answer: replace(answer, roots=[Root(bad)])
    )
    with pytest.raises(ConfigError, match="not a root"):
        await ask(client, "roots/list")


@pytest.mark.requirement("roots-errors")
async def test_a_client_without_roots_has_no_such_method() -> None:
    async with handmade("2025-11-25") as (_, server):
        assert (await server.ask("roots/list"))["error"]["code"] == -32601


async def test_roots_can_be_replaced_but_not_invented(tmp_path: Path) -> None:
    client = callbacks(roots=[])
    client.set_roots([tmp_path])
    assert [root.uri for root in (await ask(client, "roots/list")).roots] == [tmp_path.as_uri()]
    with pytest.raises(ConfigError, match="without roots="):
        callbacks().set_roots([tmp_path])


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_returns_the_roots_each_time_that_the_server_asks(
    tmp_path: Path, revision: str, is_async: bool
) -> None:
    server, current, requests = Server("roots"), [tmp_path], []

    @server.tool
    async def list_them(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.list_roots())

    def on_roots(request: RootsRequest) -> list[Path]:
        requests.append(request)
        return current

    async def on_roots_async(request: RootsRequest) -> list[Path]:
        return on_roots(request)

    async with pair(
        server, revision=revision, roots=on_roots_async if is_async else on_roots
    ) as client:
        assert (await client.call_tool("list_them")).data == tmp_path.as_uri()
        current = [tmp_path.parent]
        await client.set_roots(on_roots_async if is_async else on_roots)
        assert (await client.call_tool("list_them")).data == tmp_path.parent.as_uri()
    assert {request.server.name for request in requests} == {"roots"}
    assert {request.method for request in requests} == {"roots/list"}


async def test_a_function_that_returns_the_roots_is_declared_like_a_list_and_may_refuse() -> None:
    client = callbacks(roots=lambda request: None)
    assert client.capabilities == {"roots": {"listChanged": True}}
    with pytest.raises(ProtocolError, match="User rejected roots request") as refusal:
        await ask(client, "roots/list")
    assert refusal.value.code == -1


@pytest.mark.requirement("roots-traversal", "roots-file-uris")
@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (["https://example.com"], "pass a path or a file:// URI"),
        (["file:///a/../b"], "its path must not contain .."),
        (["/does/not/exist"], "is not a root"),
        ("/tmp", "not a list of roots"),
        ({"uri": "file:///a"}, "not a list of roots"),
        (1, "not a list of roots"),
    ],
)
async def test_what_a_function_returns_is_checked_as_a_list_is(returned: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        await ask(callbacks(roots=lambda request: returned), "roots/list")


async def test_a_list_can_replace_a_function_and_a_function_a_list(tmp_path: Path) -> None:
    client = callbacks(roots=lambda request: ["file:///a"])
    client.set_roots(["file:///b"])
    assert (await ask(client, "roots/list")).roots == [Root("file:///b")]
    client.set_roots(lambda request: ["file:///c"])
    assert (await ask(client, "roots/list")).roots == [Root("file:///c")]
