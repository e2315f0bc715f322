"""The details of relaying: questions, headers, names, errors and log levels."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Raw

from dovetail import Cache, Client, Context, Header, ProtocolError, Server
from dovetail.errors import Overloaded, UrlRequired
from dovetail.gateway import upstream
from dovetail.gateway.gateway import Gateway
from dovetail.gateway.input_requests import with_name
from dovetail.gateway.log_levels import WantedLevels
from dovetail.ports import Caller
from dovetail.protocol import RawObject, ToolResult
from dovetail.protocol.base import LOG_LEVEL
from dovetail.protocol.client_features import CreateMessageParams
from dovetail.revisions import BY_NAME
from dovetail.testing import Tape, pair
from tests.behaviour.web import on_a_port
from tests.gateway.programs import PATIENT
from tests.gateway.serving import ANN, BOB, KEYS, headers_of, post, recorded, served
from tests.gateway.stage import OPTIONS

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
ERAS = [HANDSHAKE, STATELESS]
STATELESS_REVISION = BY_NAME[STATELESS]
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
            assert (page.id, page.message) == ("up/visit", "up asks: Please sign in.")
            assert (await bob.call_tool("up__finish")).text == "finished"
            while "notifications/elicitation/complete" not in tapes["ann"].methods("server"):
                await asyncio.sleep(0.01)
            assert (await ann.call_tool("up__buy")).text == "bought"
    assert "notifications/elicitation/complete" not in tapes["bob"].methods("server")


async def test_a_server_cannot_say_that_a_visit_to_the_page_of_another_is_complete() -> None:
    tapes = {"ann": Tape(), "bob": Tape()}
    options: dict[str, Any] = {"revision": HANDSHAKE, "on_elicit": lambda request: True}
    honest, hostile = (selling_server(HANDSHAKE, set()) for _ in range(2))
    complete = "notifications/elicitation/complete"
    async with behind_gateway(honest, hostile) as gateway:
        async with (
            pair(gateway, record=tapes["ann"], **options) as ann,
            pair(gateway, record=tapes["bob"], **options) as bob,
        ):
            for caller, tool in ((ann, "up__buy"), (bob, "two__buy")):  # with the same id
                with pytest.raises(UrlRequired):
                    await caller.call_tool(tool)
            await bob.call_tool("two__finish")
            while complete not in tapes["bob"].methods("server"):
                await asyncio.sleep(0.01)
            await ann.call_tool("up__finish")
            while complete not in tapes["ann"].methods("server"):
                await asyncio.sleep(0.01)
    for name, id in (("ann", "up/visit"), ("bob", "two/visit")):
        messages = [one for one in tapes[name].messages("server") if one.get("method") == complete]
        assert [one["params"]["elicitationId"] for one in messages] == [id]


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
        async with served(source, mask_errors=masked, limits=PATIENT) as (_, own):
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


# changes of lists


@pytest.mark.parametrize("revision", ERAS)
async def test_many_changes_are_read_one_at_a_time_and_none_is_lost(revision: str) -> None:
    running = reads = most = 0
    slow = asyncio.Event()

    async def count(call: Any, call_next: Any) -> Any:
        nonlocal running, reads, most
        if call.name != "tools/list":
            return await call_next(call)
        running, reads = running + 1, reads + 1
        most = max(most, running)
        result = await call_next(call)  # as it is now
        if reads > 1:
            await slow.wait()
        running -= 1
        return result

    server = Server("up", revisions=[revision], middleware=[count])
    server.tool(lambda: "hello", name="hello")
    async with behind_gateway(server) as gateway, Client(gateway) as client:
        await client.list_tools()
        changed = asyncio.Event()
        async with client.on_change("tools", lambda _: changed.set()):
            for number in range(20):
                server.add_tool(lambda: "more", name=f"more_{number}")
                await asyncio.sleep(0.01)
            slow.set()
            while len(await client.list_tools(fresh=True)) < 21:
                await changed.wait()
                changed.clear()
    assert most == 1
    assert reads < 10


async def wait_for_tools(client: Client, count: int) -> None:
    """Wait until a gateway lists this many tools. It reads them in the background."""
    async with asyncio.timeout(60):
        while len(await client.list_tools(fresh=True)) < count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("revision", ERAS)
async def test_a_tool_that_is_added_while_the_lists_are_read_is_listed(revision: str) -> None:
    was_read, announced = asyncio.Event(), asyncio.Event()

    async def add_when_tools_were_read(call: Any, call_next: Any) -> Any:
        result = await call_next(call)
        if call.name == "tools/list" and not was_read.is_set():
            was_read.set()
            server.add_tool(lambda: "more", name="more")
        if call.name == "prompts/list":
            await announced.wait()
        return result

    server = Server("up", revisions=[revision], middleware=[add_when_tools_were_read])
    server.tool(lambda: "hello", name="hello")
    server.prompt(lambda: "hello", name="hello")
    async with (
        Client(server) as other,
        other.on_change("tools", lambda _: announced.set()),
        behind_gateway(server) as gateway,
        Client(gateway) as client,
    ):
        await wait_for_tools(client, 2)


async def test_lists_are_read_again_if_a_subscription_is_confirmed_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upstream, "SUBSCRIBE_SECONDS", 0.01)
    opened, confirmed, announced = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def confirm_late(call: Any, call_next: Any) -> Any:
        if call.name == "subscriptions/listen" and not opened.is_set():
            opened.set()
            await confirmed.wait()
        return await call_next(call)

    server = Server("up", revisions=[STATELESS], middleware=[confirm_late])
    server.tool(lambda: "hello", name="hello")
    async with behind_gateway(server) as gateway, Client(gateway) as client:
        await wait_for_tools(client, 1)
        await opened.wait()
        async with Client(server) as other, other.on_change("tools", lambda _: announced.set()):
            server.add_tool(lambda: "more", name="more")
            await announced.wait()
        confirmed.set()
        await wait_for_tools(client, 2)


async def test_lists_are_read_again_if_a_stream_has_ended_and_is_opened_again() -> None:
    streams, ended, opened = 0, asyncio.Event(), asyncio.Event()
    announced = asyncio.Event()

    async def end_the_first(call: Any, call_next: Any) -> Any:
        nonlocal streams
        streams += call.name == "subscriptions/listen"
        if call.name == "subscriptions/listen" and streams == 1:
            stream = asyncio.ensure_future(call_next(call))
            await ended.wait()
            stream.cancel()
            raise Overloaded("the server restarts")
        if call.name == "subscriptions/listen" and streams == 2:
            opened.set()
            await announced.wait()
        return await call_next(call)

    server = Server("up", revisions=[STATELESS], middleware=[end_the_first])
    server.tool(lambda: "hello", name="hello")
    async with behind_gateway(server) as gateway, Client(gateway) as client:
        await wait_for_tools(client, 1)
        ended.set()
        await opened.wait()
        async with Client(server) as other, other.on_change("tools", lambda _: announced.set()):
            server.add_tool(lambda: "more", name="more")
            await announced.wait()
        await wait_for_tools(client, 2)


async def test_lists_are_read_once_if_subscriptions_are_confirmed_in_time() -> None:
    methods: list[str] = []

    async def record(call: Any, call_next: Any) -> Any:
        methods.append(call.name)
        return await call_next(call)

    server = Server("up", revisions=[STATELESS], middleware=[record])
    server.tool(lambda: "hello", name="hello")
    async with behind_gateway(server) as gateway, Client(gateway) as client:
        await wait_for_tools(client, 1)
        await client.ping()
    assert methods.count("tools/list") == 1
    assert methods.index("subscriptions/listen") < methods.index("tools/list")


@pytest.mark.parametrize("revision", ERAS)
async def test_a_change_announces_only_the_list_that_changed(revision: str) -> None:
    server = Server("up", revisions=[revision])
    server.tool(lambda: "hello", name="hello")
    server.prompt(lambda: "hello", name="hello")
    server.resource("note://one")(lambda: "text")
    seen: asyncio.Queue[str] = asyncio.Queue()
    async with behind_gateway(server) as gateway, Client(gateway) as client:
        await client.list_tools()
        async with (
            client.on_change("tools", lambda _: seen.put_nowait("tools")),
            client.on_change("prompts", lambda _: seen.put_nowait("prompts")),
            client.on_change("resources", lambda _: seen.put_nowait("resources")),
        ):
            await client.ping()
            server.add_tool(lambda: "more", name="more")
            assert await seen.get() == "tools"
            server.prompt(lambda: "more", name="more")
            assert await seen.get() == "prompts"
            server.remove_tool("more")
            assert await seen.get() == "tools"
    assert seen.empty()


# log levels


def caller_with(session: str, level: int | None = 0) -> Caller:
    return Caller(STATELESS_REVISION, session_id=session, log_level=level)


def test_a_server_gets_the_lowest_level_that_a_caller_has_chosen() -> None:
    levels = WantedLevels()
    assert levels.lowest is None
    levels.add(caller_with("ann", 4), is_chosen=True)
    assert levels.lowest == "error"
    levels.add(caller_with("bob", 1), is_chosen=True)
    assert levels.lowest == "info"
    levels.add(caller_with("", None))  # wants none
    levels.add(caller_with("", 2))
    assert levels.lowest == "info"
    levels.remove("bob")
    assert levels.lowest == "notice"
    assert not levels.add(caller_with("", 3))
    levels.add(caller_with("new"))  # has not chosen
    assert levels.lowest == "debug"
    levels.add(caller_with("new", 3))  # has chosen in another process
    assert levels.lowest == "notice"
    levels.add(caller_with("ann", 0), is_chosen=True)
    assert levels.lowest == "debug"
    assert levels.remove("ann")
    assert not levels.remove("ann")


def test_the_server_decides_if_nobody_has_chosen() -> None:
    levels = WantedLevels()
    levels.add(caller_with("ann"))
    assert levels.lowest is None


class Logged:
    """A server that records the level of each request."""

    def __init__(self, revision: str) -> None:
        self.levels: list[str | None] = []
        self.server = Server("up", revisions=[revision], middleware=[self._record])

        @self.server.tool
        async def talk(ctx: Context) -> str:
            for level in ("debug", "info", "error"):
                await ctx.log(level, f"a {level}")  # type: ignore[arg-type]
            return "said"

    async def _record(self, call: Any, call_next: Any) -> Any:
        if call.name == "logging/setLevel":
            self.levels.append(call.params.level)
        elif call.name == "tools/call" and call.caller.revision.stateless:
            self.levels.append((call.params.meta or {}).get(LOG_LEVEL))
        return await call_next(call)


class Listener:
    """The options of a caller that keeps its log messages."""

    def __init__(self, revision: str) -> None:
        self.heard: list[Any] = []
        self.options: dict[str, Any] = {
            "revision": revision,
            "on_log": lambda entry: self.heard.append(entry.data),
        }

    async def hear(self, *expected: str) -> None:
        while len(self.heard) < len(expected):
            await asyncio.sleep(0.01)
        assert self.heard == list(expected)
        self.heard.clear()


@pytest.mark.parametrize("revision", ERAS)
async def test_each_request_to_a_stateless_server_has_the_level_of_its_caller(
    revision: str,
) -> None:
    logged, ann = Logged(STATELESS), Listener(revision)
    async with behind_gateway(logged.server) as gateway:
        async with Client(gateway, **ann.options) as client, Client(gateway) as silent:
            await silent.call_tool("up__talk")
            await client.call_tool("up__talk")
            await ann.hear("a debug", "a info", "a error")
            await client.set_log_level("error")
            await client.call_tool("up__talk")
            await ann.hear("a error")
    assert logged.levels == [None, "debug", "error"]


@pytest.mark.parametrize("transport", ["http", "websocket"])
@pytest.mark.parametrize("revision", ERAS)
async def test_a_connection_that_callers_share_has_the_lowest_level(
    revision: str, transport: str
) -> None:
    logged, ann, bob = Logged(HANDSHAKE), Listener(revision), Listener(HANDSHAKE)
    async with behind_gateway(logged.server, transport=transport) as gateway:
        async with Client(gateway, **bob.options) as other:
            await other.set_log_level("error")
            async with Client(gateway, **ann.options) as client:
                await client.call_tool("up__talk")
                await ann.hear("a debug", "a info", "a error")
                await other.call_tool("up__talk")
                await bob.hear("a error")
                assert logged.levels[-1] == "debug"
            if revision == HANDSHAKE:  # the session of the caller with the lowest level has ended
                while logged.levels[-1] != "error":
                    await asyncio.sleep(0.01)
    assert ann.heard == []


@pytest.mark.parametrize("listens", [True, False])
async def test_a_server_is_asked_for_logs_only_if_a_caller_wants_them(listens: bool) -> None:
    logged, ann = Logged(HANDSHAKE), Listener(HANDSHAKE)
    options = ann.options if listens else {"revision": HANDSHAKE}
    async with behind_gateway(logged.server) as gateway:
        async with Client(gateway, **options) as client:
            await client.call_tool("up__talk")
    assert logged.levels == (["debug"] if listens else [])


# cache hints


def cached(revision: str = STATELESS, **caches: Cache) -> Server:
    methods = {"tools/list": caches["tools"]} if "tools" in caches else {}
    server = Server("up", revisions=[revision], cache=methods or None)
    server.tool(lambda: "hello", name="hello")
    return server


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Cache(60, "public"), Cache(30, "public"), (30_000, "public")),
        (Cache(60, "public"), Cache(90, "private"), (60_000, "private")),
        (Cache(60, "public"), None, (None, None)),
    ],
)
async def test_a_merged_list_has_the_shortest_time_and_the_narrowest_scope(
    first: Cache, second: Cache | None, expected: Any
) -> None:
    servers = cached(tools=first), cached(**({} if second is None else {"tools": second}))
    async with behind_gateway(*servers) as gateway, Client(gateway) as client:
        found = await client.request("tools/list", fresh=True)
        assert [tool.name for tool in found.tools] == ["up__hello", "two__hello"]
        assert (found.ttl_ms or None, found.cache_scope if found.ttl_ms else None) == expected


async def test_a_list_of_a_handshake_server_may_not_be_kept() -> None:
    servers = cached(tools=Cache(60)), cached(HANDSHAKE)
    async with behind_gateway(*servers) as gateway, Client(gateway) as client:
        assert not (await client.request("tools/list", fresh=True)).ttl_ms


@pytest.mark.parametrize("looks_at_caller", [True, False])
async def test_a_list_is_private_if_the_policy_looks_at_the_caller(looks_at_caller: bool) -> None:
    rule = {"effect": "allow", **({"principal": "ann"} if looks_at_caller else {})}
    policy = {"rule": [rule, {"effect": "allow"}]}
    server = cached(tools=Cache(60, "public"))
    async with behind_gateway(server, policy=policy) as gateway, Client(gateway) as client:
        found = await client.request("tools/list", fresh=True)
    assert (found.ttl_ms, found.cache_scope) == (60_000, "private" if looks_at_caller else "public")


async def test_a_list_of_mounted_servers_is_kept_as_long_as_all_of_its_parts() -> None:
    outer = cached(tools=Cache(60, "public"))
    outer.mount(cached(tools=Cache(30, "public")), prefix="inner")
    async with Client(outer) as client:
        found = await client.request("tools/list", fresh=True)
    assert [tool.name for tool in found.tools] == ["hello", "inner__hello"]
    assert (found.ttl_ms, found.cache_scope) == (30_000, "public")


# results that the gateway keeps


class Library:
    """A server that counts the reads of its resources."""

    def __init__(self) -> None:
        self.reads: list[str] = []
        self.server = Server("up", revisions=[STATELESS])
        for name, cache in (
            ("public", Cache(60, "public")),
            ("private", Cache(60, "private")),
            ("fresh", None),
        ):
            self.server.resource(f"note://{name}", cache=cache)(partial(self.read, name))

    def read(self, name: str) -> str:
        self.reads.append(name)
        return f"{name} {len(self.reads)}"


async def read(url: str, uri: str, headers: Any = None, revision: str | None = None) -> str:
    """Read a resource as a caller that has nothing in its own cache."""
    async with Client(url, headers=headers or {}, revision=revision) as client:
        (contents,) = await client.read_resource(uri)
        return str(contents.text)


@pytest.mark.parametrize("revision", ERAS)
async def test_public_results_are_kept_for_all_and_private_ones_for_each_caller(
    revision: str,
) -> None:
    library = Library()
    ann, bob = headers_of(ANN), headers_of(BOB)
    async with recorded(library.server) as (url, _):
        async with served({"mcpServers": {"up": {"url": url}}}, auth=KEYS) as (_, own):
            for name, callers in (("public", 1), ("private", 2), ("fresh", 4)):
                library.reads.clear()
                for headers in (ann, ann, bob, bob):
                    text = await read(own, f"note://{name}", headers, revision)
                    assert text.startswith(name)
                assert len(library.reads) == callers, name


async def test_private_results_are_not_kept_for_callers_without_a_name() -> None:
    library = Library()
    async with recorded(library.server) as (url, _):
        async with served({"mcpServers": {"up": {"url": url}}}) as (_, own):
            for name in ("private", "private", "public", "public"):
                await read(own, f"note://{name}")
    assert library.reads == ["private", "private", "public"]


async def test_forwarded_values_are_part_of_the_key_of_a_result() -> None:
    library = Library()
    async with recorded(library.server) as (url, _):
        source = {"mcpServers": {"up": {"url": url, "dovetail": {"forward": ["X-Tenant"]}}}}
        async with served(source, auth=KEYS) as (_, own):
            for key, tenant in ((ANN, "blue"), (BOB, "blue"), (ANN, "red"), (ANN, "blue")):
                await read(own, "note://public", headers_of(key, X_Tenant=tenant))
    assert library.reads == ["public", "public"]


async def test_no_caller_can_choose_the_result_that_is_kept_for_others() -> None:
    library = Library()
    odd: list[dict[str, Any]] = [
        {"uri": "note://public", "URI": "note://private"},
        {"uri": "note://public", "cursor": "x"},
        {"uri": "note://public", "inputResponses": {}},
    ]
    own = {"Mcp-Param-Who": "eve", "Mcp-Name": "note://public"}
    async with recorded(library.server) as (url, recorder):
        async with served({"mcpServers": {"up": {"url": url}}}) as (_, address):
            for params in odd:
                await asyncio.to_thread(post, address, "resources/read", params, own)
            assert (await read(address, "note://public")).startswith("public")
    reads = [one for one in recorder.requests if one.get("mcp-method") == "resources/read"]
    assert not any("mcp-param-who" in one for one in reads)  # it is not part of the key


async def test_a_result_that_was_kept_says_how_long_it_may_still_be_kept() -> None:
    library = Library()
    async with behind_gateway(library.server) as gateway, gateway.lifespan():
        found = []
        for _ in range(2):
            async with Client(gateway) as client:
                found.append(await client.request("resources/read", {"uri": "note://public"}))
    assert library.reads == ["public"]
    assert found[0].ttl_ms == 60_000
    assert 0 < found[1].ttl_ms < 60_000
    assert found[1].contents == found[0].contents


async def test_a_result_is_dropped_when_its_resource_changes() -> None:
    library = Library()
    seen: asyncio.Queue[str] = asyncio.Queue()
    async with behind_gateway(library.server) as gateway, Client(gateway) as client:
        async with await client.subscribe("note://public", seen.put_nowait):
            await client.read_resource("note://public")
            library.server.notify_resource_updated("note://public")
            await seen.get()
            await client.read_resource("note://public", fresh=True)
        library.server.resource("note://new")(lambda: "new")
        while "note://new" not in gateway.upstreams.servers["up"].catalog.resources:
            await asyncio.sleep(0.01)
        await client.read_resource("note://public", fresh=True)
        await client.read_resource("note://public", fresh=True)
    assert library.reads == ["public"] * 3


HINTING = """
import json, sys

reads = 0
for line in sys.stdin:
    message = json.loads(line)
    method, error = message["method"], None
    if "id" not in message:
        continue
    if method == "initialize":
        info = {"name": "raw", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"resources": {}}}
        result["serverInfo"] = info
    elif method == "resources/list":
        result = {"resources": [{"uri": "note://one", "name": "one"}]}
    elif method == "resources/read":
        reads += 1
        result = {"contents": [{"uri": "note://one", "text": str(reads)}]}
        result |= {"ttlMs": 60000, "cacheScope": "public"}
    else:
        error = {"code": -32601, "message": "unknown"}
    answer = {"result": result} if error is None else {"error": error}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


async def test_hints_of_a_handshake_server_have_no_effect() -> None:
    source = {"mcpServers": {"up": {"command": sys.executable, "args": ["-c", HINTING]}}}
    gateway = Gateway(source, **OPTIONS)
    async with gateway.lifespan(), Client(gateway) as client:
        for expected in ("1", "2"):
            (contents,) = await client.read_resource("note://one", fresh=True)
            assert contents.text == expected


async def test_a_list_is_read_again_when_its_time_is_over(tmp_path: Path) -> None:
    """Callers get the old one meanwhile, and are notified if it is another one."""
    file = tmp_path / "lists.json"

    def write(name: str, ttl: int) -> None:
        tools = json.dumps([{"name": name, "inputSchema": {"type": "object"}}])
        file.write_text(json.dumps({"tools": tools, "ttl": str(ttl)}))

    write("old", 1)
    program = Path(__file__).with_name("raw_server.py")
    entry = {"command": sys.executable, "args": [str(program), str(file)]}
    changed = asyncio.Event()
    gateway = Gateway({"mcpServers": {"up": entry}}, limits=PATIENT)
    async with gateway.lifespan(), Client(gateway) as client:
        await gateway.upstreams.servers["up"].start()
        async with client.on_change("tools", lambda _: changed.set()):
            write("new", 3_600_000)
            await client.list_tools(fresh=True)
            async with asyncio.timeout(30):
                await changed.wait()
            assert [tool.name for tool in await client.list_tools(fresh=True)] == ["up__new"]
            asked = file.with_suffix(".log").read_text().split()
            await client.list_tools(fresh=True)
            assert file.with_suffix(".log").read_text().split() == asked
