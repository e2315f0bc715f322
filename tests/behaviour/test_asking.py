"""Asking the client: the same handlers in every revision, over every transport, live and run
again."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw, Struct
from msgspec.structs import replace

from dovetail import CannotAsk, Client, Context, ElicitRequest, Server, ToolError
from dovetail.connection import input_requests as engine, multi_round_trip as rounds
from dovetail.errors import ConfigError, MissingCapability, ProtocolError
from dovetail.limits import Limits
from dovetail.protocol.base import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from dovetail.protocol.client_features import ElicitParams, ElicitResult
from dovetail.protocol.lifecycle import InputRequired
from dovetail.server import root_paths
from dovetail.testing import Bare, Taped, bare
from dovetail.transports.process import spawn
from tests.behaviour.asking import ANSWERS, BOOKED, UNASKED, build
from tests.behaviour.conftest import MATRIX, Talk
from tests.transports.http.raw import (
    BOTH,
    hosted,
    modern as modern_http,
    request as old_request,
    text,
)

ASKING = ["2025-06-18", "2025-11-25", "2026-07-28"]
NEW = ASKING[-1]
EVERYTHING = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}


class AskingTalk(Talk):
    """Conversations with the server that asks, as a process too."""

    resume = "live"

    def __call__(self, server: Server | None = None, **options: Any) -> Any:
        served = (
            None
            if self.transport == "stdio" and server is None
            else server or build(resume=self.resume)
        )
        return super().__call__(served, **options)

    @asynccontextmanager
    async def _stdio(self, server: Server | None, options: dict[str, Any]) -> AsyncIterator[Client]:
        command = [sys.executable, "-m", "tests.behaviour.asking"]
        env = {"RESUME": self.resume}
        channel = await spawn(
            command, cwd=Path(__file__).parents[2], env=env, on_stderr=lambda line: None
        )
        async with Client(Taped(channel, self.tape), revision=self.revision, **options) as client:
            yield client


@pytest.fixture(params=MATRIX, ids="-".join)
def talk(request: pytest.FixtureRequest) -> AskingTalk:
    """Every transport, every revision."""
    return AskingTalk(*request.param)


@pytest.fixture(params=ASKING)
def revision(request: pytest.FixtureRequest) -> str:
    """The revisions that have forms."""
    return request.param


@pytest.fixture
def in_memory(revision: str) -> AskingTalk:
    return AskingTalk("memory", revision)


def questions(talk: Talk) -> list[str]:
    """The methods of all that the client was asked, however it was asked."""
    if not talk.stateless:
        return [
            name for name in talk.tape.methods("server") if not name.startswith("notifications/")
        ]
    results = [message.get("result") or {} for message in talk.tape.messages("server")]
    return [
        asked["method"] for result in results for asked in result.get("inputRequests", {}).values()
    ]


def modern(capabilities: Any = EVERYTHING, **params: Any) -> dict[str, Any]:
    """Params of the stateless era."""
    meta = {
        PROTOCOL_VERSION: NEW,
        CLIENT_CAPABILITIES: capabilities,
        CLIENT_INFO: {"name": "bare", "version": "0"},
    }
    return {**params, "_meta": {**meta, **params.get("_meta", {})}}


def called(tool: str, capabilities: Any = EVERYTHING, **params: Any) -> dict[str, Any]:
    """Params of a tool call of the stateless era."""
    return modern(capabilities, **{"name": tool, "arguments": {}, **params})


# one body, every era


@pytest.mark.parametrize("resume", ["live", "replay"])
@pytest.mark.requirement(
    "rounds-no-requests", "elicitation-message", "elicitation-form-schema", "sampling-roles"
)
async def test_one_tool_body_gives_the_same_answer_wherever_it_can_ask_and_finishes_where_it_cannot(
    talk: AskingTalk, resume: str
) -> None:
    talk.resume = resume
    async with talk(**ANSWERS) as client:
        for _ in range(2 if talk.transport == "memory" else 1):
            result = await client.call_tool("book", {"city": "Rome"})
            if talk.revision in ASKING:
                assert result.data.startswith(BOOKED[:-1])
            else:
                assert result.data == UNASKED
    if talk.revision in ASKING:
        one = ["elicitation/create", "elicitation/create", "sampling/createMessage"]
        assert questions(talk) == one * (2 if talk.transport == "memory" else 1)
    else:
        assert questions(talk) == []


async def test_the_draft_dialect_meets_the_exception_too() -> None:
    async with bare(build()) as peer:
        said = {"mcpVersion": "2025-06-18", "clientCapabilities": EVERYTHING}
        await peer.ask("initialize", {**said, "client": {"name": "old", "version": "1"}})
        peer.send({"jsonrpc": "2.0", "method": "initialized"})
        reply = await peer.ask(
            "tools/invoke", {"name": "book", "arguments": {"city": "Rome"}}, id=2
        )
    assert UNASKED in str(reply["result"])


async def test_a_refusal_names_the_dialect_that_has_no_such_question() -> None:
    server = Server("asks")

    @server.tool
    async def why(ctx: Context) -> str:
        try:
            await ctx.elicit("?", bool)
        except CannotAsk as error:
            return str(error)
        return "asked"

    async with bare(server) as peer:
        said = {"mcpVersion": "2025-06-18", "clientCapabilities": EVERYTHING}
        await peer.ask("initialize", {**said, "client": {"name": "old", "version": "1"}})
        reply = await peer.ask("tools/invoke", {"name": "why", "arguments": {}}, id=2)
    assert "draft" in str(reply["result"])


async def test_the_model_can_be_asked_in_every_revision(talk: AskingTalk) -> None:
    async with talk(**ANSWERS) as client:
        assert (await client.call_tool("wish")).data == "Godspeed!"
    assert questions(talk) == ["sampling/createMessage"]


async def test_a_client_that_declared_nothing_is_asked_nothing(in_memory: AskingTalk) -> None:
    async with in_memory() as client:
        assert (await client.call_tool("book", {"city": "Rome"})).data == UNASKED
    assert questions(in_memory) == []


async def test_prompts_and_resources_ask_too(talk: AskingTalk) -> None:
    if talk.revision not in ASKING:
        pytest.skip("there is nobody to ask")
    async with talk(**ANSWERS) as client:
        assert (await client.get_prompt("letter")).messages[0].content.text == "Dear Ann"
        assert (await client.read_resource("guide://mine"))[0].text == "Ann's guide"


@pytest.mark.parametrize("resume", ["live", "replay"])
async def test_questions_asked_at_once_are_answered_at_once(
    in_memory: AskingTalk, resume: str
) -> None:
    in_memory.resume = resume
    waiting, all_here = [], asyncio.Event()

    async def on_elicit(request: Any) -> Any:
        waiting.append(request.message)
        if len(waiting) == 3:
            all_here.set()
        await all_here.wait()
        return {"value": int(request.message[7]) * 10}

    async with in_memory(on_elicit=on_elicit) as client:
        assert (await client.call_tool("three")).data == [0, 10, 20]
    if in_memory.stateless:
        assert in_memory.tape.methods("client").count("tools/call") == 2


@pytest.mark.requirement("elicitation-declined")
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_may_say_no(in_memory: AskingTalk, action: str) -> None:
    server = Server("asks")

    @server.tool
    async def polite(ctx: Context) -> str:
        answer = await ctx.elicit("May I?")
        return f"{bool(answer)} {answer.action} {answer.data}"

    async with in_memory(server, on_elicit=lambda request: ElicitResult(action=action)) as client:
        assert (await client.call_tool("polite")).data == f"False {action} None"


@pytest.mark.requirement("elicitation-declined")
@pytest.mark.parametrize("revision", ASKING[:2], indirect=True)
async def test_a_client_that_answers_with_an_error_has_refused(revision: str) -> None:
    server = Server("asks")

    @server.tool
    async def polite(ctx: Context, catch: bool) -> str:
        try:
            said = await ctx.sample("Hello?")
        except ToolError as error:
            if catch:
                return f"never mind: {error}"
            raise
        return said.text

    async with bare(server) as peer:
        await peer.greet(revision, EVERYTHING)
        for catch in (True, False):
            peer.send(
                old_request("tools/call", {"name": "polite", "arguments": {"catch": catch}}, 7)
            )
            asked = await peer.receive()
            assert asked["method"] == "sampling/createMessage"
            peer.send(
                {
                    "jsonrpc": "2.0",
                    "id": asked["id"],
                    "error": {"code": -1, "message": "User rejected it"},
                }
            )
            result = (await peer.receive())["result"]
            assert "User rejected it" in result["content"][0]["text"]
            assert bool(result.get("isError")) is not catch


@pytest.mark.requirement("elicitation-answer-checked")
async def test_a_form_that_is_not_filled_in_as_asked_is_refused_and_can_be_filled_in_again() -> (
    None
):
    async with bare(build()) as peer:
        first = (await peer.ask("tools/call", called("book", arguments={"city": "Rome"})))["result"]
        [key] = first["inputRequests"]
        again = {"arguments": {"city": "Rome"}, "requestState": first["requestState"]}
        for content in ({"name": 3}, {}, {"name": "Ann", "age": "old"}, None):
            answer = (
                {"action": "accept", "content": content}
                if content is not None
                else {"action": "accept"}
            )
            reply = await peer.ask(
                "tools/call", called("book", **again, inputResponses={key: answer})
            )
            assert reply["error"]["code"] == -32602
        answer = {"action": "accept", "content": {"name": "Ann"}}
        second = (
            await peer.ask("tools/call", called("book", **again, inputResponses={key: answer}))
        )["result"]
        [question] = second["inputRequests"].values()
        assert question["params"]["message"] == "Really to Rome?"


# in the protocol's own words


def by_hand() -> Server:
    server = Server("asks")

    def asked(ctx: Context) -> InputRequired | str:
        if not ctx.input_responses:
            assert ctx.request_state is None
            form = {"type": "object", "properties": {"name": {"type": "string"}}}
            return InputRequired(
                {"who": ElicitParams(message="Who?", requested_schema=form), "where": None}, "mine"
            )
        answers = ctx.input_responses
        return (
            f"{answers['who']['content']['name']} {answers['where']['roots'][0]['uri']} "
            f"{ctx.request_state}"
        )

    @server.tool
    async def tool(ctx: Context) -> Any:
        return asked(ctx)

    @server.prompt
    async def prompt(ctx: Context) -> Any:
        return asked(ctx)

    @server.resource("asks://fixed")
    async def resource(ctx: Context) -> Any:
        return asked(ctx)

    @server.resource("asks://{name}/template")
    def template(name: str, ctx: Context) -> Any:
        return asked(ctx)

    return server


async def test_handlers_may_ask_by_themselves_in_both_eras(
    in_memory: AskingTalk, tmp_path: Path
) -> None:
    expected = f"Ann {tmp_path.as_uri()} mine"
    async with in_memory(by_hand(), **ANSWERS, roots=[tmp_path]) as client:
        assert (await client.call_tool("tool")).data == expected
        assert (await client.get_prompt("prompt")).messages[0].content.text == expected
        assert (await client.read_resource("asks://fixed"))[0].text == expected
        assert (await client.read_resource("asks://x/template"))[0].text == expected


async def test_a_handler_that_asks_by_itself_over_a_port(talk: AskingTalk) -> None:
    if talk.revision not in ASKING:
        pytest.skip("there is nobody to ask")
    async with talk(**ANSWERS) as client:
        assert (await client.call_tool("by_hand")).data == "Ann, asked"


async def test_state_only_rounds_go_through_the_client_where_it_can_come_back(
    in_memory: AskingTalk,
) -> None:
    server = Server("asks")

    @server.tool
    async def patient(ctx: Context) -> Any:
        return (
            "ready"
            if ctx.request_state == "xx"
            else InputRequired(state=f"{ctx.request_state or ''}x")
        )

    async with in_memory(server) as client:  # which can be asked nothing at all
        assert (await client.call_tool("patient")).data == "ready"
    assert in_memory.tape.methods("client").count("tools/call") == (3 if in_memory.stateless else 1)


async def test_a_handler_that_asks_by_itself_without_end_is_stopped(in_memory: AskingTalk) -> None:
    server = Server("asks", limits=Limits(asks=3))

    @server.tool
    async def curious() -> Any:
        return InputRequired(
            {
                "who": ElicitParams(
                    message="Who?", requested_schema={"type": "object", "properties": {}}
                )
            }
        )

    async with in_memory(server, on_elicit=lambda request: True) as client:
        with pytest.raises(ProtocolError, match="3 times in a row"):
            await client.call_tool("curious")


@pytest.mark.requirement("rounds-where")
async def test_completions_and_the_like_may_not_ask(revision: str) -> None:
    server = Server("asks")

    @server.prompt
    async def greet(name: str) -> str:
        return name

    call: list[Any] = []

    async def spy(made: Any, answer: Any) -> Any:
        if made.name == "completion/complete":
            with pytest.raises(CannotAsk):
                await engine.ask(made, "roots/list", None)
            call.append(made)
        return await answer(made)

    greet.complete("name", ["Ann"])  # type: ignore[attr-defined]
    asks = Server("asks", middleware=[spy])
    asks.add_prompt(greet)
    async with bare(asks) as peer:
        if revision == NEW:
            await peer.ask(
                "completion/complete",
                modern(ref={"type": "ref/prompt", "name": "greet"}, argument=ARGUMENT),
            )
        else:
            await peer.greet(revision, EVERYTHING)
            await peer.ask(
                "completion/complete",
                {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": ARGUMENT},
            )
    assert call


ARGUMENT = {"name": "name", "value": "A"}


# what may be asked


def curious() -> Server:
    """A tool for each question, none of which catches anything."""
    server = Server("asks")
    tool = {"name": "t", "inputSchema": {"type": "object"}}
    kinds: dict[str, Callable[[Context], Any]] = {
        "form": lambda ctx: ctx.elicit("?", bool),
        "url": lambda ctx: ctx.elicit_url("?", "https://example.com/pay"),
        "sample": lambda ctx: ctx.sample("?"),
        "tools": lambda ctx: ctx.sample("?", tools=[tool]),
        "context": lambda ctx: ctx.sample("?", include_context="thisServer"),
        "roots": lambda ctx: ctx.list_roots(),
    }

    def add(name: str, ask: Callable[[Context], Any]) -> None:
        async def handle(ctx: Context) -> str:
            await ask(ctx)
            return "asked"

        server.add_tool(handle, name=name)
        server.add_prompt(handle, name=name)
        server.add_resource(handle, f"asks://{name}")

    for name, ask in kinds.items():
        add(name, ask)
    return server


NEEDS: dict[str, Any] = {
    "form": {"elicitation": {"form": {}}},
    "url": {"elicitation": {"url": {}}},
    "sample": {"sampling": {}},
    "tools": {"sampling": {"tools": {}}},
    "context": {"sampling": {"context": {}}},
    "roots": {"roots": {}},
}
DECLARED: list[tuple[Any, set[str]]] = [
    ({}, set()),
    ({"elicitation": {}}, {"form"}),
    ({"elicitation": {"form": {}}}, {"form"}),
    ({"elicitation": {"url": {}}}, {"url"}),
    ({"elicitation": {"form": {}, "url": {}}}, {"form", "url"}),
    ({"sampling": {}}, {"sample"}),
    ({"sampling": {"tools": {}}}, {"sample", "tools"}),
    ({"sampling": {"context": {}}}, {"sample", "context"}),
    ({"roots": {}}, {"roots"}),
    (EVERYTHING, set(NEEDS)),
]


@pytest.mark.parametrize(("capabilities", "allowed"), DECLARED)
@pytest.mark.requirement(
    "asking-declared", "elicitation-modes-asked", "sampling-tools-asked", "sampling-context-asked",
    "stateless-missing-capability", "rounds-content",
)  # fmt: skip
async def test_in_the_stateless_era_nothing_is_asked_that_was_not_declared(
    capabilities: Any, allowed: set[str]
) -> None:
    async with bare(curious()) as peer:
        for kind, needs in NEEDS.items():
            requests = [
                ("tools/call", called(kind, capabilities)),
                ("prompts/get", modern(capabilities, name=kind)),
            ]
            for method, params in [
                *requests,
                ("resources/read", modern(capabilities, uri=f"asks://{kind}")),
            ]:
                reply = await peer.ask(method, params)
                if kind in allowed:
                    assert reply["result"]["resultType"] == "input_required"
                    assert len(reply["result"]["inputRequests"]) == 1
                else:
                    assert reply["error"]["code"] == MissingCapability.code
                    assert reply["error"]["data"] == {"requiredCapabilities": needs}
        assert peer.waiting() == 0


@pytest.mark.parametrize(("capabilities", "allowed"), DECLARED)
@pytest.mark.requirement(
    "asking-declared", "elicitation-modes-asked", "sampling-tools-asked", "sampling-context-asked"
)
async def test_in_the_handshake_era_it_is_a_tool_error(
    capabilities: Any, allowed: set[str]
) -> None:
    for revision in ASKING[:2]:
        async with bare(curious()) as peer:
            await peer.greet(revision, capabilities)
            for kind in NEEDS:
                peer.send(old_request("tools/call", {"name": kind, "arguments": {}}, kind))
                reply = await peer.receive()
                old = revision == ASKING[0]
                may = kind in allowed and not (old and kind in ("url", "tools"))
                # which nobody had to declare
                may = may or (
                    old
                    and (kind, *capabilities) in (("context", "sampling"), ("form", "elicitation"))
                )
                if may:
                    assert reply["method"] in (
                        "elicitation/create",
                        "sampling/createMessage",
                        "roots/list",
                    )
                    peer.send(
                        {
                            "jsonrpc": "2.0",
                            "id": reply["id"],
                            "error": {"code": -1, "message": "no"},
                        }
                    )
                    reply = await peer.receive()
                assert reply["id"] == kind
                assert reply["result"]["isError"], (revision, kind)
            assert peer.waiting() == 0


@pytest.mark.requirement("http-capability-missing")
async def test_over_http_an_undeclared_question_is_400() -> None:
    async with hosted(curious()) as site:
        for kind, needs in NEEDS.items():
            answer = await site.call(kind)
            assert answer.status == 400
            error = (await answer.json())["error"]
            assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": needs})


async def test_a_handler_that_asks_by_itself_what_it_may_not_fails_in_the_same_way(
    revision: str,
) -> None:
    async with bare(by_hand()) as peer:
        if revision == NEW:
            reply = await peer.ask("tools/call", called("tool", {"elicitation": {}}))
            assert reply["error"]["data"] == {"requiredCapabilities": {"roots": {}}}
        else:
            await peer.greet(revision)
            reply = await peer.ask("tools/call", {"name": "tool", "arguments": {}})
            assert reply["result"]["isError"]


@pytest.mark.requirement("elicitation-no-secrets")
async def test_no_form_asks_for_a_secret(in_memory: AskingTalk) -> None:
    server = Server("asks")

    class Login(Struct):
        user: str
        password: str

    @server.tool
    async def login(ctx: Context) -> str:
        with pytest.raises(ConfigError, match="elicit_url"):
            await ctx.elicit("Log in", Login)
        return "refused"

    async with in_memory(server, **ANSWERS) as client:
        assert (await client.call_tool("login")).data == "refused"
    assert questions(in_memory) == []


@pytest.mark.requirement("elicitation-url", "elicitation-url-valid", "elicitation-complete")
async def test_a_page_to_visit_is_asked_for_in_the_words_of_the_revision(
    in_memory: AskingTalk,
) -> None:
    server = Server("asks")

    @server.tool
    async def pay(ctx: Context) -> str:
        with pytest.raises(ConfigError):
            await ctx.elicit_url("Pay", "javascript:alert(1)")
        answer = await ctx.elicit_url("Pay", "https://example.com/pay", id="payment-1")
        ctx.elicitation_complete("payment-1")
        return answer.action

    seen: list[Any] = []
    async with in_memory(server, on_elicit=lambda request: seen.append(request) or True) as client:
        result = await client.call_tool("pay", raise_on_error=False)
    if in_memory.revision == ASKING[0]:
        assert result.is_error
        assert seen == []
        return
    assert result.data == "accept"
    [request] = seen
    assert (request.mode, request.url, request.message) == ("url", "https://example.com/pay", "Pay")
    told = [
        message
        for message in in_memory.tape.messages("server")
        if "elicitation/complete" in message.get("method", "")
    ]
    if in_memory.stateless:
        assert (request.elicitation_id, told) == (None, [])
    else:
        assert request.elicitation_id == "payment-1"
        assert [message["params"] for message in told] == [{"elicitationId": "payment-1"}]


async def test_a_page_without_an_id_is_the_same_question_when_the_tool_is_run_again() -> None:
    server = Server("asks", resume="replay")

    @server.tool
    async def pay(ctx: Context) -> str:
        return (await ctx.elicit_url("Pay", "https://example.com/pay")).action

    async with AskingTalk("memory", NEW)(server, on_elicit=lambda request: True) as client:
        assert (await client.call_tool("pay")).data == "accept"


@pytest.mark.requirement("sampling-tool-balance", "sampling-tool-results")
async def test_a_model_that_used_tools_is_answered_with_all_their_results_and_nothing_else() -> (
    None
):
    server = Server("asks")

    @server.tool
    async def chat(ctx: Context) -> str:
        use = {"type": "tool_use", "id": "u1", "name": "t", "input": {}}
        result = {
            "type": "tool_result",
            "toolUseId": "u1",
            "content": [{"type": "text", "text": "42"}],
        }
        used = {"role": "assistant", "content": [use]}
        for after in (
            [],
            [result, {"type": "text", "text": "so?"}],
            [{**result, "toolUseId": "u2"}],
            ["so?"],
        ):
            with pytest.raises(ConfigError):
                await ctx.sample(
                    ["?", used, *([{"role": "user", "content": after}] if after else [])]
                )
        return (
            await ctx.sample(
                ["?", used, [result]], tools=[{"name": "t", "inputSchema": {"type": "object"}}]
            )
        ).text

    async with bare(server) as peer:
        reply = await peer.ask("tools/call", called("chat"))
        [question] = reply["result"]["inputRequests"].values()
        assert [message["role"] for message in question["params"]["messages"]] == [
            "user",
            "assistant",
            "user",
        ]


# roots


@pytest.mark.requirement("roots-consulted", "roots-changes-heard")
async def test_roots_are_read_once_and_again_when_they_changed(
    in_memory: AskingTalk, tmp_path: Path
) -> None:
    server = Server("asks")

    @server.tool
    async def where(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.list_roots()]

    async with in_memory(server, roots=[tmp_path]) as client:
        for _ in range(3):
            assert (await client.call_tool("where")).data == [tmp_path.as_uri()]
        assert len(questions(in_memory)) == (3 if in_memory.stateless else 1)
        await client.set_roots([])
        assert (await client.call_tool("where")).data == []


@pytest.mark.requirement("roots-bounds")
async def test_a_path_is_held_against_the_roots(in_memory: AskingTalk, tmp_path: Path) -> None:
    server = Server("asks")
    inside, gone = tmp_path / "inside", tmp_path / "gone"
    for folder in (inside, gone):
        folder.mkdir()
    (inside / "link").symlink_to(tmp_path)

    @server.tool
    async def open_it(path: str, ctx: Context) -> str:
        return str(root_paths.resolve(await ctx.list_roots(), path))

    async with in_memory(server, roots=[inside, gone]) as client:
        gone.rmdir()
        assert (
            await client.call_tool("open_it", {"path": f"{inside}/file"})
        ).data == f"{inside}/file"
        for path in (
            f"{inside}/../file",
            f"{inside}/link/file",
            f"{tmp_path}/insider",
            f"{gone}/file",
        ):
            with pytest.raises(ToolError, match="outside"):
                await client.call_tool("open_it", {"path": path})


@pytest.mark.parametrize("revision", ASKING[:2], indirect=True)
async def test_the_roots_of_a_client_that_tells_of_no_changes_are_read_each_time(
    revision: str,
) -> None:
    server = Server("asks")

    @server.tool
    async def where(ctx: Context) -> int:
        return len(await ctx.list_roots())

    async with bare(server) as peer:
        await peer.greet(revision, {"roots": {}})
        for count in range(3):
            peer.send(old_request("tools/call", {"name": "where", "arguments": {}}, 7))
            asked = await peer.receive()
            roots = [{"uri": f"file:///{number}"} for number in range(count)]
            peer.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": roots}})
            assert (await peer.receive())["result"]["content"][0]["text"] == str(count)


@pytest.mark.requirement("roots-changes-heard")
@pytest.mark.parametrize("first", ["answer", "change"])
async def test_roots_that_changed_while_their_answer_was_on_its_way_are_asked_for_again(
    first: str,
) -> None:
    server = Server("asks")

    @server.tool
    async def where(ctx: Context) -> int:
        return len(await ctx.list_roots())

    async with bare(server) as peer:
        await peer.greet(ASKING[1], {"roots": {"listChanged": True}})
        for _ in range(2):
            peer.send(old_request("tools/call", {"name": "where", "arguments": {}}, 7))
            asked = await peer.receive()
            assert asked["method"] == "roots/list"
            messages = [
                {"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}},
                {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
            ]
            for message in messages if first == "answer" else reversed(messages):
                peer.send(message)
            assert (await peer.receive())["id"] == 7


# time, cancellation, and whose request it is


async def test_time_stands_still_while_the_client_is_asked(in_memory: AskingTalk) -> None:
    server = Server("asks")

    @server.tool(timeout=0.1)
    async def slow(ctx: Context) -> list[str]:
        one = await ctx.elicit("slow?")
        both = await asyncio.gather(ctx.elicit("fast?"), ctx.elicit("slow too?"))
        return [answer.action for answer in (one, *both)]

    async def on_elicit(request: Any) -> bool:
        await asyncio.sleep(0.25 if "slow" in request.message else 0)
        return True

    async with in_memory(server, on_elicit=on_elicit) as client:
        assert (await client.call_tool("slow")).data == ["accept"] * 3


async def test_time_goes_on_after_the_answer(in_memory: AskingTalk) -> None:
    server = Server("asks")

    @server.tool(timeout=0.1)
    async def stuck(ctx: Context) -> None:
        await ctx.elicit("May I?")
        await asyncio.Event().wait()

    async with in_memory(server, on_elicit=lambda request: True) as client:
        with pytest.raises(ToolError, match="did not finish"):
            await client.call_tool("stuck")


HERE = Path(__file__).parent.as_uri()
KINDS = {
    "model": ("2024-11-05", "sampling/createMessage", "Godspeed!"),
    "roots": ("2024-11-05", "roots/list", HERE),
    "form": ("2025-06-18", "elicitation/create", "accept"),
    "page": ("2025-11-25", "elicitation/create", "accept"),
}
"""Each kind of question: since when there is one, its method, and the answer to it."""


class SlowUser:
    """A client that reports its progress before it answers, or never answers."""

    def __init__(self, talk: Talk) -> None:
        self.talk, self.answers = talk, False
        self.updates: list[tuple[float, float | None, str | None]] = []
        self.heard, self.idle = asyncio.Event(), asyncio.Event()
        self.idle.set()

    @property
    def options(self) -> dict[str, Any]:
        return {
            "on_ask": self.on_ask,
            "on_progress": self.on_progress,
            "on_elicit": lambda request: True,
            "on_sample": lambda request: "Godspeed!",
            "roots": [HERE],
        }

    def on_progress(self, update: Any) -> None:
        self.updates.append((update.progress, update.total, update.message))
        self.heard.set()

    async def on_ask(self, request: Any) -> Any:
        if self.answers:
            request.progress(1, 2, "half")
        if self.talk.stateless:
            await asyncio.sleep(0 if self.answers else 0.1)
            return request
        self.idle.clear()
        try:
            await (self.heard if self.answers else asyncio.Event()).wait()
        finally:
            self.idle.set()
        return request


@pytest.mark.parametrize("kind", KINDS)
async def test_a_question_may_have_a_deadline_and_report_progress(
    talk: AskingTalk, kind: str
) -> None:
    since, method, answer = KINDS[kind]
    if not talk.at_least(since):
        pytest.skip("there is no such question")
    user = SlowUser(talk)
    async with talk(**user.options) as client:
        late = await client.call_tool("patient", {"kind": kind, "seconds": 0.1})
        if talk.stateless:  # no request is open that could time out
            assert late.text == answer
        else:
            assert late.text == f"TimedOut: The client did not answer {method} within 0.1 s"
            async with asyncio.timeout(60):
                await user.idle.wait()  # its callback is cancelled
        user.answers = True
        result = await client.call_tool("patient", {"kind": kind, "seconds": 60})
        assert result.text == answer
        said = "half" if talk.at_least("2025-03-26") else None
        assert user.updates == ([] if talk.stateless else [(1, 2, said)])
    if not talk.stateless:
        sent = talk.tape.messages("server")
        asked, _ = [message["id"] for message in sent if message.get("method") == method]
        [withdrawn] = [one for one in sent if one.get("method") == "notifications/cancelled"]
        assert withdrawn["params"]["requestId"] == asked


async def test_a_changed_question_reports_progress_too(in_memory: AskingTalk) -> None:
    updates: list[Any] = []

    async def on_elicit(request: Any) -> bool:
        await asyncio.to_thread(request.progress, 1, 2, request.message)
        return True

    async with in_memory(
        on_ask=lambda request: replace(request, message="Changed"),
        on_elicit=on_elicit,
        on_progress=updates.append,
    ) as client:
        await client.call_tool("patient", {"kind": "form", "seconds": 60})
    assert [one.message for one in updates] == ([] if in_memory.stateless else ["Changed"])


async def test_a_client_reports_progress_seldom_and_only_upwards() -> None:
    updates: list[float] = []

    async def on_elicit(request: Any) -> bool:
        for done in (1, 3, 2, *range(4, 1000), float("nan"), float("inf"), 5):
            request.progress(done)
        return True

    talk = AskingTalk("memory", "2025-11-25")
    async with talk(
        on_elicit=on_elicit, on_progress=lambda update: updates.append(update.progress)
    ) as client:
        await client.call_tool("patient", {"kind": "form", "seconds": 60})
    assert (updates[0], updates[-1]) == (1, 999)
    assert updates == sorted(updates)
    assert talk.tape.methods("client").count("notifications/progress") < 20


async def test_no_progress_is_reported_to_a_server_that_did_not_ask_for_it(
    in_memory: AskingTalk,
) -> None:
    server = Server("asks")

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Sure?")).action

    def on_elicit(request: Any) -> bool:
        request.progress(1)
        return True

    async with in_memory(server, on_elicit=on_elicit) as client:
        assert (await client.call_tool("ask")).data == "accept"
    assert "notifications/progress" not in in_memory.tape.methods("client")
    ElicitRequest(message="made by hand").progress(1)  # and nobody is told


PATIENT = {"name": "patient", "arguments": {"kind": "form", "seconds": 60}}
ACCEPT = {"action": "accept", "content": {}}


def progress(token: Any, value: Any, **more: Any) -> dict[str, Any]:
    params = {"progressToken": token, "progress": value, **more}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def hostile(token: Any) -> list[dict[str, Any]]:
    """Progress that makes no sense: only 1 and 7 count."""
    return [
        progress(token, 1),
        *(progress(wrong, 100) for wrong in ("unknown", 12345, -1, 10**30, f"{token}x")),
        *(progress(token, wrong) for wrong in ("high", None, [], {})),
        progress(None, 5),
        {"jsonrpc": "2.0", "method": "notifications/progress"},
        *(progress(token, value) for value in (1, 0.5, -5)),
        progress(token, 7, total=-3, message="m" * 10_000),
    ]


@pytest.mark.parametrize("revision", ASKING[:2], indirect=True)
async def test_progress_that_makes_no_sense_is_harmless(revision: str) -> None:
    async with bare(build()) as peer:
        await peer.greet(revision, EVERYTHING)
        peer.send(old_request("tools/call", {**PATIENT, "_meta": {"progressToken": "mine"}}, 7))
        asked = await peer.receive()
        token = asked["params"]["_meta"]["progressToken"]
        for message in hostile(token):
            peer.send(message)
        for number in range(5000):
            peer.send(progress(token, 8 + number))
            if not number % 100:
                await asyncio.sleep(0)
        peer.send({"jsonrpc": "2.0", "id": asked["id"], "result": ACCEPT})
        heard = []
        while "result" not in (message := await peer.receive()):
            heard.append(message["params"]["progress"])
        assert text(message) == "accept"
        assert heard == sorted({*heard})
        assert (heard[0], heard[-1]) == (1, 5007)
        assert len(heard) < 1000
        for message in hostile(token):  # the question is over
            peer.send(message)
        assert (await peer.ask("ping", id="alive?"))["result"] == {}


async def test_progress_that_makes_no_sense_is_harmless_over_http() -> None:
    async with hosted(build()) as site:
        ours, theirs = [await _greeted(site, EVERYTHING) for _ in range(2)]
        params = {**PATIENT, "_meta": {"progressToken": "mine"}}
        stream = await ours.ask("tools/call", params)
        event = await stream.next()
        asked = (event if event.data else await stream.next()).message
        token = asked["params"]["_meta"]["progressToken"]
        assert (await theirs.post(progress(token, 6))).status == 202
        for message in hostile(token):
            assert (await ours.post(message)).status in (202, 400)
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": ACCEPT}
        assert (await ours.post(answer)).status == 202
        *heard, result = [event.message for event in await stream.rest()]
        assert [one["params"]["progress"] for one in heard] == [1, 7]
        assert text(result) == "accept"
        assert (await ours.post(progress(token, 9))).status == 202, "nobody asks any more"


@pytest.mark.parametrize("revision", ASKING[:2], indirect=True)
async def test_a_late_answer_is_ignored(revision: str) -> None:
    async with bare(build()) as peer:
        await peer.greet(revision, EVERYTHING)
        late = {"name": "patient", "arguments": {"kind": "form", "seconds": 0.01}}
        peer.send(old_request("tools/call", late, 7))
        asked, withdrawn, result = [await peer.receive() for _ in range(3)]
        assert withdrawn["params"]["requestId"] == asked["id"]
        assert text(result).startswith("TimedOut")
        peer.send({"jsonrpc": "2.0", "id": asked["id"], "result": ACCEPT})
        peer.send(progress(asked["params"]["_meta"]["progressToken"], 1))
        assert (await peer.ask("ping", id="alive?"))["result"] == {}
        assert peer.waiting() == 0


async def test_a_late_answer_is_ignored_over_http() -> None:
    async with hosted(build()) as site:
        session = await _greeted(site, EVERYTHING)
        stream = await session.call("patient", kind="form", seconds=0.01)
        messages = [event.message for event in await stream.rest() if event.data]
        asked, withdrawn, result = messages
        assert withdrawn["params"]["requestId"] == asked["id"]
        assert text(result).startswith("TimedOut")
        late = {"jsonrpc": "2.0", "id": asked["id"], "result": ACCEPT}
        assert (await session.post(late)).status == 202  # 400 would end some clients


async def test_progress_extends_the_deadline_of_a_question() -> None:
    async with bare(build()) as peer:
        await peer.greet("2025-11-25", EVERYTHING)
        slow = {"name": "patient", "arguments": {"kind": "form", "seconds": 2}}
        peer.send(old_request("tools/call", slow, 7))
        asked = await peer.receive()
        for number in range(4):
            await asyncio.sleep(0.7)
            peer.send(progress(asked["params"]["_meta"]["progressToken"], number))
        peer.send({"jsonrpc": "2.0", "id": asked["id"], "result": ACCEPT})
        assert text(await peer.receive()) == "accept"


async def test_progress_does_not_extend_the_deadline_for_ever() -> None:
    async with bare(build(limits=Limits(ask_time=0.5))) as peer:
        await peer.greet("2025-11-25", EVERYTHING)
        slow = {"name": "patient", "arguments": {"kind": "form", "seconds": 0.4}}
        peer.send(old_request("tools/call", slow, 7))
        token = (await peer.receive())["params"]["_meta"]["progressToken"]
        async with asyncio.timeout(20):
            number = 0
            while not peer.waiting():
                peer.send(progress(token, number := number + 1))
                await asyncio.sleep(0.01)
        assert (await peer.receive())["method"] == "notifications/cancelled"
        assert "did not answer elicitation/create within 0." in text(await peer.receive())


def stoppable() -> tuple[Server, asyncio.Event, asyncio.Event]:
    server, works, ended = Server("asks"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def work(ctx: Context) -> None:
        try:
            await ctx.elicit("May I?", key="may")
            works.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    return server, works, ended


@pytest.mark.parametrize("revision", ASKING[:2], indirect=True)
async def test_a_call_that_is_cancelled_while_it_asks_takes_its_question_back(
    revision: str,
) -> None:
    server, _, ended = stoppable()
    async with bare(server) as peer:
        await peer.greet(revision, EVERYTHING)
        peer.send(old_request("tools/call", {"name": "work", "arguments": {}}, 7))
        asked = await peer.receive()
        peer.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        )
        taken_back = await peer.receive()
        assert taken_back["method"] == "notifications/cancelled"
        assert taken_back["params"]["requestId"] == asked["id"]
        await ended.wait()
        peer.send(
            {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}}
        )  # late: ignored
        assert (await peer.ask("ping", id="alive?"))["result"] == {}


async def test_cancelling_a_request_that_was_answered_with_a_question_does_nothing() -> None:
    server, works, ended = stoppable()
    async with bare(server) as peer:
        first = (await peer.ask("tools/call", called("work"), id=7))["result"]
        peer.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": modern(requestId=7)}
        )
        again = {
            "requestState": first["requestState"],
            "inputResponses": {"may": {"action": "accept"}},
        }
        peer.send(old_request("tools/call", called("work", **again), 8))
        await works.wait()
        assert not ended.is_set()
        peer.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": modern(requestId=8)}
        )
        await ended.wait()
        assert peer.waiting() == 0
        works.clear()
        peer.send(old_request("tools/call", called("work", **again), 9))
        await works.wait()  # the same state starts it again
        peer.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": modern(requestId=9)}
        )


async def test_a_client_that_leaves_takes_parked_runs_along() -> None:
    server, _, ended = stoppable()
    async with bare(server) as peer:
        await peer.ask("tools/call", called("work"))
        assert not ended.is_set()
    await ended.wait()


@pytest.mark.parametrize("resume", ["live", "replay"])
async def test_what_a_tool_says_belongs_to_the_request_that_it_goes_on_for(resume: str) -> None:
    server = Server("asks", resume=resume)
    seen: list[Any] = []

    @server.tool
    async def talk(ctx: Context) -> str:
        for number in (1, 2):
            await ctx.elicit(f"{number}?", key=str(number))
            seen.append((ctx.request_id, ctx.headers.get("x-round"), ctx.meta["round"]))
            ctx.progress(number)
        return "done"

    capabilities = {"elicitation": {}}
    async with hosted(server) as site:
        state: dict[str, Any] = {}
        for number, answers in enumerate(
            [{}, {"1": {"action": "accept"}}, {"2": {"action": "accept"}}]
        ):
            meta = {"progressToken": f"token {number}", "round": number}
            params = {"name": "talk", "arguments": {}, "_meta": meta, **state}
            if answers:
                params["inputResponses"] = answers
            headers = {"X-Round": str(number)}
            answer = await site.ask(
                "tools/call", params, id=f"id {number}", headers=headers, capabilities=capabilities
            )
            *progress, reply = (
                await answer.messages()
                if "event" in answer.headers["content-type"]
                else [await answer.json()]
            )
            assert reply["id"] == f"id {number}"
            assert {message["params"]["progressToken"] for message in progress} <= {
                f"token {number}"
            }
            if number:
                assert [message["params"]["progress"] for message in progress][-1] == number
            state = {"requestState": reply["result"].get("requestState")}
    assert text(reply) == "done"
    assert seen[-1] == ("id 2", "2", 2)
    assert seen[0] == ("id 1", "1", 1)


async def test_what_a_tool_says_before_it_asks_is_heard_before_the_question(
    in_memory: AskingTalk,
) -> None:
    server = Server("asks")
    heard: list[Any] = []

    @server.tool
    async def talk(ctx: Context) -> str:
        ctx.progress(1, message="before")
        await ctx.elicit("May I?")
        ctx.progress(2, message="after")
        return "done"

    def on_elicit(request: Any) -> bool:
        heard.append(request.message)
        return True

    async with in_memory(
        server, on_elicit=on_elicit, on_progress=lambda told: heard.append(told.message)
    ) as client:
        await client.call_tool("talk")
    assert heard == ["before", "May I?", "after"]


async def test_a_client_that_hangs_up_cancels_what_went_on_for_it() -> None:
    server, works, ended = stoppable()
    async with hosted(server) as site:
        params = {"name": "work", "arguments": {}}
        first = (await (await site.ask("tools/call", params, capabilities=EVERYTHING)).json())[
            "result"
        ]
        params |= {
            "requestState": first["requestState"],
            "inputResponses": {"may": {"action": "accept"}},
        }
        message, headers = modern_http("tools/call", params, capabilities=EVERYTHING)
        proper = {"Content-Type": "application/json", "Accept": BOTH, **headers}
        _, writer = await site.begin("POST", proper, json.dumps(message).encode())
        await works.wait()
        assert not ended.is_set()
        writer.close()
        await ended.wait()


async def test_a_client_that_lost_its_stream_finds_the_question_when_it_comes_back() -> None:
    async with hosted(build()) as site:
        session = await _greeted(site, EVERYTHING)
        stream = await session.call("by_hand", _id="mine")
        first = await stream.next()
        assert first.data == "", "there is an event to come back to before the question"
        question = await stream.next()
        stream.cut()
        resumed = await session.get(first.id)
        again = await resumed.next()
        again = again if again.data else await resumed.next()
        assert (again.id, again.data) == (question.id, question.data)
        answer = {"action": "accept", "content": {"name": "Ann"}}
        posted = await session.post({"jsonrpc": "2.0", "id": again.message["id"], "result": answer})
        assert posted.status == 202
        assert text((await resumed.rest())[-1].message) == "Ann, asked"


# what it costs those who do not ask


async def test_a_tool_without_a_context_is_answered_without_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []
    begun = rounds.SuspendableCall.__init__

    def counted(run: Any, *args: Any) -> None:
        made.append(run)
        begun(run, *args)

    monkeypatch.setattr(rounds.SuspendableCall, "__init__", counted)
    async with AskingTalk("memory", NEW)(**ANSWERS) as client:
        assert (await client.call_tool("pid")).data == os.getpid()
        assert made == []
        await client.call_tool("book", {"city": "Rome"})
        assert len(made) == 1


async def test_a_call_that_becomes_one_that_asks_sends_no_request_in_the_stateless_era() -> None:
    async def reroute(call: Any, answer: Any) -> Any:
        if call.name == "tools/call" and call.params.name == "pid":
            call.params.name, call.params.arguments = "book", Raw(b'{"city": "Rome"}')
        return await answer(call)

    talk = AskingTalk("memory", NEW)
    async with talk(build(middleware=[reroute]), **ANSWERS) as client:
        assert (await client.call_tool("pid")).data == UNASKED
    assert talk.tape.methods("server") == []


# a state on its way


@pytest.mark.requirement("rounds-state-protected", "rounds-state-request", "rounds-state-expires")
async def test_on_the_wire_no_two_bad_states_can_be_told_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with bare(build(limits=Limits(state_life=0.05))) as peer, bare(build()) as lasting:

        async def state(of: Bare, city: str) -> str:
            reply = await of.ask("tools/call", called("book", arguments={"city": city}))
            return str(reply["result"]["requestState"])

        expired, tampered, other = (
            await state(peer, "Rome"),
            await state(lasting, "Rome"),
            await state(lasting, "Oslo"),
        )
        await asyncio.sleep(0.1)
        bad = [
            (peer, expired),
            (lasting, tampered[:-6] + "AAAAAA"),
            (lasting, other),
            (lasting, "x"),
            (lasting, ""),
        ]
        with caplog.at_level(logging.WARNING, "dovetail"):
            replies = [
                await one.ask(
                    "tools/call", called("book", arguments={"city": "Rome"}, requestState=state)
                )
                for one, state in bad
            ]
    assert {str(reply["error"]) for reply in replies} == {str(replies[0]["error"])}
    assert replies[0]["error"]["code"] == -32602
    assert len({record.getMessage() for record in caplog.records}) == 3


@pytest.mark.parametrize("field", ["requestState", "inputResponses"])
@pytest.mark.requirement("rounds-malformed")
async def test_answers_of_no_sense_are_refused_as_invalid_params(field: str) -> None:
    async with bare(build()) as peer:
        for value in (3, [], True) if field == "requestState" else (3, "x", [], True):
            reply = await peer.ask(
                "tools/call", called("book", arguments={"city": "Rome"}, **{field: value})
            )
            assert reply["error"]["code"] == -32602, value


# answers by a request of their own


@pytest.mark.requirement("elicitation-bound")
async def test_an_answer_counts_once_in_its_own_session_only() -> None:
    async with hosted(build()) as site:
        ours, theirs = [await _greeted(site, EVERYTHING) for _ in range(2)]
        stream = await ours.call("by_hand", _id="mine")
        event = await stream.next()
        asked = (
            event if event.data else await stream.next()
        ).message  # an empty one may come first
        answer = {
            "jsonrpc": "2.0",
            "id": asked["id"],
            "result": {"action": "accept", "content": {"name": "Eve"}},
        }
        assert (await theirs.post(answer)).status == 400
        assert (await site.post(answer)).status == 400
        answer["result"]["content"]["name"] = "Ann"
        assert (await ours.post(answer)).status == 202
        assert text((await stream.rest())[-1].message) == "Ann, asked"
        assert (await ours.post(answer)).status == 400, "nobody asks any more"


async def test_a_client_that_takes_no_stream_cannot_be_asked_in_the_handshake_era() -> None:
    async with hosted(build()) as site:
        session = await _greeted(site, EVERYTHING)
        answer = await session.call("book", _headers={"Accept": "application/json"}, city="Rome")
        assert text(await answer.json()) == UNASKED


async def _greeted(site: Any, capabilities: Any) -> Any:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": {"name": "raw", "version": "0"},
    }
    answer = await site.post(old_request("initialize", params, 0))
    session = type(await site.greet())(
        site, answer.headers["mcp-session-id"], "2025-11-25", await answer.json()
    )
    await session.tell("notifications/initialized")
    return session
