"""Extensions, as server and client see them: over each kind of transport, in every revision.

The extension is the one of extended.py. Revisions before 2025-06-18 have no place to declare one,
so there it falls back.
"""

import asyncio
import json
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, ProtocolError, Rate, Rates, ToolResult
from dovetail.auth import ApiKeys
from dovetail.errors import ConfigError, HeaderMismatch, MethodNotFound, MissingCapability
from dovetail.limits import Limits
from dovetail.testing import Bare, Tape, Taped, bare, pair
from dovetail.transports import memory
from dovetail.transports.process import spawn
from tests.behaviour import conftest as behaviour, everything, extended
from tests.behaviour.conftest import REVISIONS, Talk
from tests.behaviour.extended import ID, LATE
from tests.behaviour.web import on_a_port
from tests.spec import check_tape

KINDS = ["memory", "stdio", "http", "websocket"]
MATRIX = [pair for pair in behaviour.MATRIX if pair[0] in KINDS]
DECLARE = REVISIONS[2:]
"""The revisions that can carry a declaration."""


class Extended(Talk):
    """Opens conversations with the server of extended.py."""

    @property
    def declares(self) -> bool:
        return self.revision in DECLARE

    @asynccontextmanager
    async def open(self, extensions: Any = None, **options: Any) -> AsyncIterator[Client]:
        options["extensions"] = extended.part() if extensions is None else extensions
        if self.transport != "stdio":
            async with self(extended.build(), **options) as client:
                yield client
            return
        command = [sys.executable, "-m", "tests.behaviour.extended"]
        channel = await spawn(command, cwd=Path(__file__).parents[2], on_stderr=lambda line: None)
        async with Client(Taped(channel, self.tape), revision=self.revision, **options) as client:
            yield client
        check_tape(self.tape, self.revision)


@pytest.fixture(params=MATRIX, ids="-".join)
def meet(request: pytest.FixtureRequest) -> Extended:
    return Extended(*request.param)


@pytest.mark.requirement("stateless-extension-names")
async def test_both_sides_declare_what_they_have_where_the_revision_can_carry_it(
    meet: Extended,
) -> None:
    async with meet.open() as client:
        await client.list_tools()
        offered = client.capabilities.extensions
    if not meet.declares:
        assert offered is None
        assert "extensions" not in str(meet.tape.messages())
        return
    expected: dict[str, Any] = {ID: {"languages": ["en"]}, "com.example/free": {}}
    assert offered == expected | ({LATE: {}} if meet.stateless else {})
    said = [str(message) for message in meet.tape.messages("client")]
    assert any(ID in message for message in said)
    assert any(LATE in message for message in said) == meet.stateless


async def test_a_method_of_an_extension_is_answered_with_its_type(meet: Extended) -> None:
    async with meet.open() as client:
        if meet.declares:
            said = await client.request("greetings/say", {"name": "Ada", "spokenLoud": True})
            assert isinstance(said, extended.SayResult)
            assert said.text == "HELLO ADA"
        else:
            with pytest.raises(
                MethodNotFound, match=r"does not offer the extension com.example/greetings"
            ):
                await client.request("greetings/say", {"name": "Ada"})
        assert (await client.call_tool("greet_", {"name": "Ada"})).text == "good day, Ada"


@pytest.mark.requirement("extensions-untrusted")
async def test_wrong_params_of_such_a_method_are_refused(meet: Extended) -> None:
    if not meet.declares:
        pytest.skip("it is not to be had here")
    careless = extended.Method("greetings/say", "client", extended.Params, extended.SayResult)
    async with meet.open([extension_of(careless)]) as client:
        with pytest.raises(ProtocolError, match="name") as caught:
            await client.request("greetings/say")
    assert caught.value.code == -32602


def extension_of(*methods: Any, **more: Any) -> extended.Extension:
    return extended.Extension(id=ID, methods=methods, **more)


async def test_a_caller_who_did_not_declare_it_is_told_which_extension_it_takes(
    meet: Extended,
) -> None:
    """The client here knows the methods by another extension of its own, so that it asks all the
    same."""
    other = extended.Extension(
        id="com.example/other", methods=[extended.SAY, extended.RECALL], mutual=False
    )
    async with meet.open([other]) as client:
        for method, params in (("greetings/say", {"name": "Ada"}), ("greetings/recall", None)):
            with pytest.raises(
                ProtocolError, match=r"declares the extension com.example/greetings"
            ) as caught:
                await client.request(method, params)
            assert isinstance(caught.value, MissingCapability if meet.stateless else MethodNotFound)
            assert caught.value.code == (-32021 if meet.stateless else -32601)
            assert caught.value.data == {"requiredCapabilities": {"extensions": {ID: {}}}}
        assert await client.list_tools()


async def test_what_is_not_mutual_is_answered_to_anybody(meet: Extended) -> None:
    anybody = extended.Extension(id="com.example/any", methods=[extended.FREE], mutual=False)
    async with meet.open([anybody]) as client:
        assert isinstance(await client.request("greetings/free"), extended.EmptyResult)


async def test_what_the_handshake_era_lacks_is_not_there_whoever_asks(meet: Extended) -> None:
    anybody = extended.Extension(id=LATE, methods=[extended.LATER], mutual=False)
    async with meet.open([anybody]) as client:
        if meet.stateless:
            assert isinstance(await client.request("greetings/later"), extended.EmptyResult)
        else:
            with pytest.raises(MethodNotFound, match="method 'greetings/later' is not supported"):
                await client.request("greetings/later")


async def test_a_server_notifies_while_it_answers(meet: Extended) -> None:
    heard: list[str] = []
    async with meet.open(extended.part(heard)) as client:
        if meet.declares:
            await client.request("greetings/say", {"name": "Ada"})
    assert heard == (["hello Ada"] if meet.declares else [])


async def test_a_server_tells_all_who_declared_it_whatever_they_do(meet: Extended) -> None:
    """In the stateless era those that listen; each notification by itself, though they come at
    once."""
    if not meet.declares:
        pytest.skip("it is not to be had here")
    heard = Words()
    async with meet.open(extended.part(heard)) as client:
        if meet.stateless:
            await client.on_change("tools", lambda kind: None)
        while not heard:  # the stream of news of a session may be on its way
            await client.request("greetings/announce", {"text": "one two"})
            await heard.more(0.2)
        while len(heard) % 2:
            await heard.more(5)
    assert heard[:2] == ["one", "two"]


@pytest.mark.parametrize("revision", DECLARE)
async def test_who_did_not_declare_it_is_told_nothing(revision: str) -> None:
    server, tape, later = extended.build(), Tape(), asyncio.Event()
    async with pair(server, revision=revision, record=tape, extensions=[]) as client:
        await client.on_change("tools", lambda kind: later.set())
        server.notify(extended.HEARD.name, extended.Heard(text="psst"))
        server.add_tool(lambda: None, name="later")
        await later.wait()
    assert extended.HEARD.name not in tape.methods("server")


def test_a_server_tells_only_what_its_extensions_have_a_notification_for() -> None:
    server = extended.build()
    for method in (
        "notifications/tools/list_changed",
        extended.TOLD.name,
        extended.SAY.name,
        "notifications/x",
    ):
        with pytest.raises(
            ConfigError, match="is not a notification that this server's extensions send"
        ):
            server.notify(method, extended.Heard(text="hi"))


class Words(list[str]):
    """What was heard."""

    def __init__(self) -> None:
        super().__init__()
        self._came = asyncio.Event()

    def append(self, word: str) -> None:
        super().append(word)
        self._came.set()

    async def more(self, seconds: float) -> None:
        """Wait for another, for so long."""
        self._came.clear()
        try:
            await asyncio.wait_for(self._came.wait(), seconds)
        except TimeoutError:
            pass


async def test_a_client_notifies_whenever_it_likes(meet: Extended) -> None:
    async with meet.open() as client:
        if not meet.declares:
            with pytest.raises(MethodNotFound, match="does not offer the extension"):
                await client.notify("notifications/greetings/told", {"text": "hi"})
            return
        await client.notify("notifications/greetings/told", {"text": "hi"})
        await client.notify("notifications/greetings/told", extended.Heard(text="ho"))
        recalled = (await client.request("greetings/recall")).text
        assert set(recalled.split(", ")) == {f"hi in {meet.revision}", f"ho in {meet.revision}"}


async def test_a_result_of_another_kind_becomes_the_one_that_the_caller_waits_for(
    meet: Extended,
) -> None:
    async with meet.open() as client:
        result = await client.call_tool("greet", {"name": "Ada"})
        assert type(result) is ToolResult
        assert result.text == ("hello good day, Ada" if meet.stateless else "good day, Ada")


@pytest.mark.requirement("stateless-extensions")
async def test_a_client_without_the_extension_gets_what_the_core_has(meet: Extended) -> None:
    async with meet.open([]) as client:
        assert (await client.call_tool("greet", {"name": "Ada"})).text == "good day, Ada"
        assert [tool.name for tool in await client.list_tools()] == ["greet_", "greet"]
        with pytest.raises(MethodNotFound, match="an extension of this client has a method"):
            await client.request("greetings/say", {"name": "Ada"})
        with pytest.raises(MethodNotFound, match="defines the notification"):
            await client.notify("notifications/greetings/told", {"text": "hi"})
    assert "notifications/greetings/heard" not in meet.tape.methods("server"), (
        "it is not told of what it has no word for"
    )


@pytest.mark.requirement("extensions-opt-in")
async def test_where_nothing_was_given_nothing_is_declared_but_a_clients_tasks_which_can_be_turned_off(  # noqa: E501
    revision: str,
) -> None:
    """Tasks are on by default, so that `call_tool` can wait for one: a departure, and the only
    one."""
    for tasks in (False, True):
        tape = Tape()
        async with pair(
            everything.build(),
            revision=revision,
            record=tape,
            tasks=tasks,
            on_elicit=lambda _: None,
        ) as client:
            await client.call_tool("add", {"a": 1})
            assert client.capabilities.extensions is None
            assert client.capabilities.tasks is None
        said = [
            capabilities
            for message in tape.messages("client")
            for capabilities in declared_in(message)
        ]
        found = {
            name
            for capabilities in said
            for name in capabilities
            if name in ("tasks", "extensions")
        }
        own = {"2026-07-28": {"extensions"}, "2025-11-25": {"tasks"}}.get(revision, set())
        assert said and found == (own if tasks else set())
        assert {name for one in said for name in one.get("extensions", ())} <= {
            "io.modelcontextprotocol/tasks"
        }


def declared_in(message: dict[str, Any]) -> list[dict[str, Any]]:
    params = message.get("params") or {}
    found = [
        params.get("capabilities"),
        (params.get("_meta") or {}).get("io.modelcontextprotocol/clientCapabilities"),
    ]
    return [one for one in found if one is not None]


@pytest.mark.requirement("stateless-extensions")
async def test_a_server_without_the_extension_leaves_the_client_with_the_core(
    revision: str,
) -> None:
    async with pair(everything.build(), revision=revision, extensions=extended.part()) as client:
        assert (await client.call_tool("add", {"a": 1})).text == "2"
        with pytest.raises(
            MethodNotFound, match=r"does not offer the extension com.example/greetings"
        ):
            await client.request("greetings/say", {"name": "Ada"})


@pytest.mark.parametrize("revision", REVISIONS[:4])
async def test_a_client_answers_and_hears_only_a_server_that_declared_it(revision: str) -> None:
    """A server of the handshake era may ask. This one is played by hand."""
    asked: list[str] = []

    async def answer(call: Any) -> Any:
        asked.append(call.name)
        return extended.SayResult(text="me too")

    async def hear(call: Any) -> None:
        asked.append(call.params.text)

    ask = extended.Method("greetings/ask", "server", extended.Params, extended.SayResult)
    handlers = {"greetings/ask": answer, extended.HEARD.name: hear}
    mine = extension_of(ask, extended.HEARD, handlers=handlers)
    for declared in ({}, {ID: {}}):
        asked.clear()
        ours, theirs = memory.pair()
        server = Bare(theirs)
        client = Client(ours, revision=revision, extensions=[mine])
        opening = asyncio.ensure_future(client.connect())
        greeting = await server.receive()
        capabilities = {"tools": {}, "extensions": declared}
        info = {"name": "by hand", "version": "0"}
        result = {"protocolVersion": revision, "capabilities": capabilities, "serverInfo": info}
        server.send({"jsonrpc": "2.0", "id": greeting["id"], "result": result})
        await opening
        assert (await server.receive())["method"] == "notifications/initialized"
        server.send({"jsonrpc": "2.0", "method": extended.HEARD.name, "params": {"text": "psst"}})
        server.send({"jsonrpc": "2.0", "id": 7, "method": "greetings/ask"})
        reply = await server.receive()
        if declared:
            assert reply["result"]["text"] == "me too"
            assert sorted(asked) == ["greetings/ask", "psst"]
        else:
            assert reply["error"]["code"] == -32601
            assert asked == []
        await client.close()
        await server.close()


@pytest.mark.parametrize(
    "missing",
    ["io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/protocolVersion"],
)
async def test_a_notification_that_does_not_say_who_sends_it_is_not_heard_and_ends_nothing(
    missing: str,
) -> None:
    told = {
        "method": extended.TOLD.name,
        "params": {"text": "hi", "_meta": {**STATELESS, missing: None}},
    }
    del told["params"]["_meta"][missing]
    async with bare(extended.build()) as peer:
        peer.send({"jsonrpc": "2.0", **told})
        peer.send(
            {
                "jsonrpc": "2.0",
                "method": extended.TOLD.name,
                "params": {"text": "ho", "_meta": STATELESS},
            }
        )
        recalled = await peer.ask("greetings/recall", {"_meta": STATELESS})
        assert recalled["result"]["text"] == "ho in 2026-07-28"
    async with on_a_port(extended.build().asgi(path="/mcp")) as address:
        assert await posted(address, told) == (202 if "protocolVersion" in missing else 400)
        assert await posted(address, {**told, "params": {"text": "ho", "_meta": STATELESS}}) == 202


STATELESS: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {ID: {}}},
}


async def posted(address: str, message: dict[str, Any]) -> int:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": message["method"],
    }
    data = json.dumps({"jsonrpc": "2.0", **message}).encode()

    def post() -> int:
        request = urllib.request.Request(f"http://{address}/mcp", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code

    return await asyncio.to_thread(post)


# Over HTTP.


@pytest.mark.parametrize("revision", DECLARE)
async def test_who_tells_something_over_a_guarded_endpoint_is_known_to_who_hears_it(
    revision: str,
) -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def hear(call: Any) -> None:
        extended.notify(call, extended.HEARD.name, extended.Heard(text="nobody waits for this"))
        heard.put_nowait(
            (call.principal.id, call.caller.principal.id, call.connection.headers["x-from"])
        )

    part = extension_of(extended.TOLD, extended.HEARD, handlers={extended.TOLD.name: hear})
    server = extended.Server(
        "guarded",
        auth=ApiKeys({f"{who} has this key": who for who in ("ada", "bob")}),
        extensions=[part],
    )
    async with on_a_port(server.asgi(path="/mcp")) as address:
        for who in ("ada", "bob"):
            headers = {"X-API-Key": f"{who} has this key", "X-From": f"{who}'s desk"}
            url = f"http://{address}/mcp"
            async with Client(
                url, revision=revision, headers=headers, extensions=extended.part()[:1]
            ) as client:
                await client.notify(extended.TOLD.name, {"text": "hi"})
                assert await heard.get() == (who, who, f"{who}'s desk")


async def test_over_http_who_tells_too_much_is_told_so() -> None:
    go = asyncio.Event()

    async def hear(call: Any) -> None:
        await go.wait()

    part = extension_of(extended.TOLD, handlers={extended.TOLD.name: hear})
    told = {"method": extended.TOLD.name, "params": {"text": "hi", "_meta": STATELESS}}
    async with on_a_port(
        extended.Server("few", limits=Limits(calls=2), extensions=[part]).asgi(path="/mcp")
    ) as address:
        assert [await posted(address, told) for _ in range(4)] == [202, 202, 503, 503]
        go.set()
        assert await posted(address, told) == 202
    rates = Rates(others=Rate(1, per=60, burst=2))
    async with on_a_port(
        extended.Server("slow", rates=rates, extensions=[part]).asgi(path="/mcp")
    ) as address:
        assert [await posted(address, told) for _ in range(3)] == [202, 202, 429]


class Opened(extended.Params, kw_only=True):
    door_id: str


async def test_what_a_method_is_about_is_repeated_in_a_header_that_the_server_compares() -> None:
    """As with the methods of the core; the client here is ours, and then one that leaves it out."""
    opened = extended.Method(
        "greetings/open", "client", Opened, extended.EmptyResult, named="door_id"
    )
    names: list[str] = []

    async def open_(call: Any) -> Any:
        names.append(call.connection.headers["mcp-name"])
        return extended.EmptyResult()

    server = extended.Server(
        "doors", extensions=[extension_of(opened, handlers={opened.name: open_})]
    )
    async with on_a_port(server.asgi(path="/mcp")) as address:
        url = f"http://{address}/mcp"
        async with Client(url, revision="stateless", extensions=[extension_of(opened)]) as client:
            await client.request("greetings/open", {"doorId": "front"})
            await client.request("greetings/open", Opened(door_id="bäck"))
        careless = extended.Method("greetings/open", "client", Opened, extended.EmptyResult)
        async with Client(url, revision="stateless", extensions=[extension_of(careless)]) as client:
            with pytest.raises(
                HeaderMismatch, match=r"Mcp-Name is missing\. Set it to the value of params\.doorId"
            ):
                await client.request("greetings/open", {"doorId": "front"})
    assert names == ["front", "=?base64?YsOkY2s=?="]
