"""The details of relaying: questions, headers, names, errors and log levels."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Raw

from dovetail import Client, Context, Header, Limits, ProtocolError, Server
from dovetail.errors import UrlRequired
from dovetail.gateway.gateway import Gateway
from dovetail.gateway.input_requests import with_name
from dovetail.protocol import RawObject, ToolResult
from dovetail.protocol.client_features import CreateMessageParams
from dovetail.testing import Tape, pair
from tests.behaviour.web import on_a_port
from tests.gateway.serving import ANN, BOB, KEYS, headers_of, recorded, served
from tests.gateway.stage import OPTIONS

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
ERAS = [HANDSHAKE, STATELESS]
encode = msgspec.json.encode


@asynccontextmanager
async def behind_gateway(
    *servers: Server, transport: str = "http", **options: Any
) -> AsyncIterator[Gateway]:
    """A gateway in front of servers with the names up, two, …"""
    names = ("up", "two")[: len(servers)]
    async with AsyncExitStack() as stack:
        entries = {}
        for name, server in zip(names, servers, strict=True):
            app = server.asgi("/mcp", websocket="/ws")
            place = await stack.enter_async_context(on_a_port(app))
            is_http = transport == "http"
            entries[name] = {"url": f"http://{place}/mcp" if is_http else f"ws://{place}/ws"}
        yield Gateway({"mcpServers": entries}, **{**OPTIONS, **options})


# questions end with their call


@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_a_question_ends_when_the_server_answers_the_call(transport: str) -> None:
    server = Server("up", revisions=[HANDSHAKE])
    asked, ended = asyncio.Event(), asyncio.Event()
    background: set[Any] = set()

    @server.tool
    async def leave(ctx: Context) -> str:
        background.add(asyncio.ensure_future(ctx.elicit("Which size?", str)))
        await asked.wait()
        return "done"

    async def answer(request: Any) -> Any:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with behind_gateway(server, transport=transport) as gateway:
        async with Client(gateway, revision=HANDSHAKE, on_elicit=answer) as client:
            assert (await client.call_tool("up__leave")).text == "done"
            await ended.wait()
            assert not gateway.upstreams.servers["up"].questions


@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_a_question_survives_the_end_of_another_call(transport: str) -> None:
    server = Server("up", revisions=[HANDSHAKE])
    first, both = asyncio.Event(), asyncio.Barrier(2)
    asked, finish = asyncio.Event(), asyncio.Event()

    @server.tool
    async def order(ctx: Context) -> str:
        first.set()
        await both.wait()
        return str((await ctx.elicit("Which size?", str)).data)

    @server.tool
    async def other() -> str:
        await both.wait()
        await asked.wait()
        return "done"

    async def answer(request: Any) -> Any:
        asked.set()
        await finish.wait()
        return {"value": "large"}

    async with behind_gateway(server, transport=transport) as gateway:
        async with Client(gateway, revision=HANDSHAKE, on_elicit=answer) as client:
            waiting = asyncio.ensure_future(client.call_tool("up__order"))
            await first.wait()
            assert (await client.call_tool("up__other")).text == "done"
            finish.set()
            assert (await waiting).text == "large"


# names before questions


def sampling(messages: Any) -> RawObject:
    return RawObject(CreateMessageParams, {"messages": Raw(encode(messages))})


def message(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content, "x-new": 2**60}


TEXT = {"type": "text", "text": "Who?\u200d"}
IMAGE = {"type": "image", "data": "", "mimeType": "image/png"}
TOOL_RESULT = {"type": "tool_result", "toolUseId": "1", "content": []}
NAMED = {"type": "text", "text": "weather asks: Who?\u200d"}
OWN = {"role": "user", "content": {"type": "text", "text": "weather asks:"}}


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ([message(TEXT)], [message(NAMED)]),
        ([message(TEXT), message(TEXT)], [message(NAMED), message(TEXT)]),
        ([message([TEXT, IMAGE])], [message([NAMED, IMAGE])]),
        ([message(IMAGE)], [OWN, message(IMAGE)]),
        ([message([TOOL_RESULT])], [OWN, message([TOOL_RESULT])]),
        ([message(TEXT, "assistant")], [OWN, message(TEXT, "assistant")]),
    ],
    ids=["text", "two messages", "list", "image", "result of a tool", "assistant"],
)
def test_the_name_of_a_server_stands_before_its_messages_for_the_model(
    messages: Any, named: Any
) -> None:
    found = with_name(sampling(messages), "weather").fields["messages"]
    assert msgspec.json.decode(found) == named
    unnamed = with_name(sampling(messages), "").fields["messages"]
    assert msgspec.json.decode(unnamed) == messages


@pytest.mark.parametrize("messages", [[], {}, None, [7], [{"role": "user"}]])
def test_messages_that_are_malformed_stay_as_they_are(messages: Any) -> None:
    assert with_name(sampling(messages), "weather").fields["messages"] == Raw(encode(messages))


@pytest.mark.parametrize("upstream", ERAS)
@pytest.mark.parametrize("caller", ERAS)
async def test_a_question_to_the_model_says_which_server_asks(upstream: str, caller: str) -> None:
    server = Server("up", revisions=[upstream])

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("Who?", max_tokens=10)).text

    prompts: list[Any] = []

    def sample(request: Any) -> str:
        prompts.append(request.messages[0].content.text)
        return "Ada"

    async with behind_gateway(server, Server("two")) as gateway:
        async with Client(gateway, revision=caller, on_sample=sample) as client:
            assert (await client.call_tool("up__ask")).text == "Ada"
    assert prompts == ["up asks: Who?"]


# pages that a user has to visit


def selling_server(revision: str, visited: set[str]) -> Server:
    server = Server("up", revisions=[revision])

    @server.tool
    async def buy() -> str:
        if not visited:
            raise UrlRequired("Please sign in.", url="https://example.com/sign-in", id="visit")
        return "bought"

    @server.tool
    async def finish() -> str:
        visited.add("visit")
        server.elicitation_complete("visit")
        return "finished"

    return server


async def test_the_end_of_a_visit_reaches_only_the_caller_whose_call_required_it() -> None:
    tapes = {"ann": Tape(), "bob": Tape()}
    options: dict[str, Any] = {"revision": HANDSHAKE, "on_elicit": lambda request: True}
    async with behind_gateway(selling_server(HANDSHAKE, set()), Server("two")) as gateway:
        async with (
            pair(gateway, record=tapes["ann"], **options) as ann,
            pair(gateway, record=tapes["bob"], **options) as bob,
        ):
            with pytest.raises(UrlRequired) as required:
                await ann.call_tool("up__buy")
            (page,) = required.value.elicitations
            assert (page.id, page.message) == ("visit", "up asks: Please sign in.")
            assert (await bob.call_tool("up__finish")).text == "finished"
            while "notifications/elicitation/complete" not in tapes["ann"].methods("server"):
                await asyncio.sleep(0.01)
            assert (await ann.call_tool("up__buy")).text == "bought"
    assert "notifications/elicitation/complete" not in tapes["bob"].methods("server")


async def test_a_caller_without_a_session_is_asked_to_visit_the_page() -> None:
    visited: set[str] = set()
    asked: list[tuple[str, str]] = []

    def visit(request: Any) -> bool:
        asked.append((request.url, request.message))
        visited.add("visit")
        return True

    async with behind_gateway(selling_server(HANDSHAKE, visited), Server("two")) as gateway:
        async with Client(gateway, revision=STATELESS, on_elicit=visit) as client:
            assert (await client.call_tool("up__buy")).text == "bought"
    assert [text for _, text in asked] == ["up asks: Please sign in."]


# unknown fields


async def test_unknown_fields_of_a_question_pass() -> None:
    new = Raw(b'{"n":9007199254740993}')

    async def ask(call: Any, call_next: Any) -> Any:
        if call.name != "tools/call":
            return await call_next(call)
        question = {"method": "roots/list", "params": {"x-inner": new}, "x-beside": new}
        fields = {"resultType": Raw(b'"input_required"'), "requestState": Raw(b'"state"')}
        return RawObject(ToolResult, {**fields, "inputRequests": Raw(encode({"q": question}))})

    server = Server("up", revisions=[STATELESS], middleware=[ask])
    server.tool(lambda: "never", name="ask")
    async with behind_gateway(server) as gateway, Client(gateway, roots=["file:///x"]) as client:
        result = await client.relay("tools/call", {"name": "up__ask", "arguments": {}})
    assert b'"x-beside":{"n":9007199254740993}' in bytes(result)
    assert b'"x-inner":{"n":9007199254740993}' in bytes(result)


# headers


def finding_server() -> Server:
    server = Server("up", revisions=[STATELESS])

    @server.tool
    def find(text: str, region: Annotated[str, Header("Region")]) -> str:
        return f"{text} in {region}"

    return server


@pytest.mark.parametrize("settings", [{"forward": ["X-Tenant"]}, {"share": "caller"}, {}])
@pytest.mark.parametrize("caller", ERAS)
async def test_the_first_call_on_each_connection_is_one_request(
    caller: str, settings: dict[str, Any]
) -> None:
    async with recorded(finding_server()) as (url, recorder):
        source = {"mcpServers": {"up": {"url": url, "dovetail": settings}}}
        async with served(source, auth=KEYS) as (gateway, own):
            await gateway.upstreams.servers["up"].start()
            recorder.requests.clear()
            for key in (ANN, BOB):
                headers = headers_of(key, X_Tenant=key, Mcp_Param_Later="new")
                async with Client(own, headers=headers, revision=caller) as client:
                    arguments = {"text": "x", "region": "söuth"}
                    assert (await client.call_tool("up__find", arguments)).text == "x in söuth"
    methods = [one["mcp-method"] for one in recorder.requests if "mcp-method" in one]
    assert methods.count("tools/call") == 2
    assert set(methods) <= {"tools/call", "server/discover"}  # the latter opens a connection
    assert [one["mcp-param-region"] for one in recorder.calls] == ["=?base64?c8O2dXRo?="] * 2
    assert [one["mcp-param-later"] for one in recorder.calls] == ["new", "new"]


# errors


@pytest.mark.parametrize("masked", [True, False])
async def test_a_server_that_does_not_answer_in_time_is_named_with_the_time(masked: bool) -> None:
    server = Server("up")

    @server.tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    async with recorded(server) as (url, _):
        source = {"mcpServers": {"up": {"url": url, "dovetail": {"timeout": 1}}}}
        async with served(source, mask_errors=masked, limits=Limits(catalog_wait=30)) as (_, own):
            async with Client(own) as client:
                with pytest.raises(ProtocolError) as failed:
                    await client.call_tool("up__wait")
    expected = "up: the server did not answer within 1 s"
    assert failed.value.message == (expected if masked else "up: tools/call: no answer within 1 s")


# closing


@pytest.mark.parametrize("transport", ["http", "websocket"])
@pytest.mark.parametrize("revision", ERAS)
async def test_a_client_in_this_process_is_closed_after_the_servers(
    transport: str, revision: str
) -> None:
    server = Server("up", revisions=[revision])
    server.tool(lambda: "hello", name="hello")
    async with behind_gateway(server, transport=transport) as gateway:
        async with Client(gateway) as client:
            assert (await client.call_tool("up__hello")).text == "hello"
            up = gateway.upstreams.servers["up"]
        assert up.connections == 0
        assert gateway.upstreams.servers["up"] is not up
