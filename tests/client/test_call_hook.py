"""`on_call`: no tool call leaves the client unseen, and each is shown once."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from dovetail import CallRequest, Client, Context, Rate, Rates, Server
from dovetail.errors import ConfigError, ConsentDenied, InvalidParams
from dovetail.protocol import CallToolParams
from dovetail.testing import pair

ERAS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28", "detailed-draft"])


class Seen(list[CallRequest]):
    """A hook that allows everything and remembers it."""

    def __call__(self, request: CallRequest) -> CallRequest:
        self.append(request)
        return request


def make_server() -> tuple[Server, list[Any]]:
    server, received = Server("bank", version="2"), list[Any]()

    @server.tool
    def pay(amount: int, to: str = "Ann") -> str:
        """Pay somebody."""
        received.append((amount, to))
        return f"{amount} to {to}"

    @server.tool
    async def ask(ctx: Context) -> str:
        received.append("asked")
        return f"{(await ctx.elicit('Who?', str)).data}"

    @server.tool(task="required")
    async def slow(amount: int) -> str:
        received.append(amount)
        return f"slowly {amount}"

    return server, received


async def called(client: Client, how: str, name: str = "pay", **arguments: Any) -> Any:
    if how == "call_tool":
        return (await client.call_tool(name, arguments)).text
    if how == "typed":
        return (await client.call_tool(name, arguments, type=str)).data
    if how == "start_tool":
        return (await (await client.start_tool(name, arguments)).result()).text
    if how == "request":
        return (await client.request("tools/call", {"name": name, "arguments": arguments})).text
    params = CallToolParams(name=name, arguments=Raw(json.dumps(arguments).encode()))
    return (await client.request("tools/call", params, manual=True)).text


WAYS = pytest.mark.parametrize("how", ["call_tool", "typed", "start_tool", "request", "manual"])


@ERAS
@WAYS
async def test_each_way_to_call_a_tool_shows_the_call_first(how: str, revision: str) -> None:
    server, received = make_server()
    seen = Seen()
    async with pair(server, revision=revision, on_call=seen) as client:
        assert await called(client, how, amount=5) == "5 to Ann"
        await client.list_tools()
        assert await called(client, how, amount=6, to="Bo") == "6 to Bo"
    first, second = seen
    assert (first.name, first.arguments) == ("pay", {"amount": 5})
    assert first.tool is None or how == "start_tool"  # which has to look, in one revision
    assert first.server is not None
    assert (first.server.name, first.target) == ("bank", "MemoryChannel")
    assert second.tool is not None
    assert second.tool.description == "Pay somebody."
    assert received == [(5, "Ann"), (6, "Bo")]


@ERAS
@WAYS
async def test_what_is_refused_is_not_sent(how: str, revision: str) -> None:
    server, received = make_server()

    async def refuse(request: CallRequest) -> None:
        await asyncio.sleep(0)

    async with pair(server, revision=revision, on_call=refuse) as client:
        with pytest.raises(ConsentDenied, match=r"refused by on_call\. Nothing was sent"):
            await called(client, how, amount=5)
    assert received == []


@WAYS
async def test_a_changed_call_is_sent_as_changed(how: str) -> None:
    server, received = make_server()

    def cheaper(request: CallRequest) -> CallRequest:
        request.arguments["amount"] = 1
        return replace(request, arguments={**request.arguments, "to": "Bo"})

    async with pair(server, on_call=cheaper) as client:
        assert await called(client, how, amount=500) == "1 to Bo"
    assert received == [(1, "Bo")]


async def test_a_call_may_become_a_call_to_another_tool() -> None:
    server, received = make_server()
    async with pair(server, on_call=lambda request: replace(request, name="slow")) as client:
        assert (await client.call_tool("pay", {"amount": 5})).text == "slowly 5"
    assert received == [5]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_task_is_shown_before_it_starts(revision: str) -> None:
    server, received = make_server()
    seen = Seen()
    async with pair(server, revision=revision, on_call=seen) as client:
        await client.call_tool("slow", {"amount": 1})
        await (await client.start_tool("slow", {"amount": 2})).result()
    assert [request.arguments for request in seen] == [{"amount": 1}, {"amount": 2}]
    async with pair(server, revision=revision, on_call=lambda request: None) as client:
        for start in (client.call_tool, client.start_tool):
            with pytest.raises(ConsentDenied):
                await start("slow", {"amount": 3})
    assert received == [1, 2]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_rounds_of_questions_ask_once(revision: str) -> None:
    server, _ = make_server()
    seen = Seen()
    async with pair(
        server, revision=revision, replay=True, on_call=seen, on_elicit=lambda _: {"value": "Bo"}
    ) as client:
        assert (await client.call_tool("ask")).text == "Bo"
    assert len(seen) == 1


DIES_ONCE = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "frail", "version": "1"}}
    elif message["method"] == "tools/call":
        with open(sys.argv[1], "a") as log:
            log.write(line)
        if open(sys.argv[1]).read().count("\\n") == 1:
            os._exit(1)
        result = {"content": [{"type": "text", "text": "done"}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"],
                          "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize("how", ["call_tool", "request"])
async def test_a_call_that_is_sent_twice_is_shown_once(how: str, tmp_path: Path) -> None:
    script, log = tmp_path / "frail.py", tmp_path / "log"
    script.write_text(DIES_ONCE)
    seen = Seen()

    def change(request: CallRequest) -> CallRequest:
        seen(request)
        return replace(request, arguments={"seen": len(seen)})

    command = [sys.executable, script, log]
    async with Client(command, on_call=change, on_stderr=lambda _: None, timeout=30) as client:
        if how == "call_tool":
            result = await client.call_tool("go", {"a": 1}, retry=True)
        else:
            result = await client.request("tools/call", {"name": "go", "arguments": {"a": 1}})
    assert result.text == "done"
    sent = [json.loads(line)["params"]["arguments"] for line in log.read_text().splitlines()]
    assert sent == [{"seen": 1}, {"seen": 1}]
    assert len(seen) == 1


async def test_a_relay_decides_for_itself() -> None:
    server, received = make_server()
    async with pair(server, on_call=lambda request: None) as client:
        params = {"name": Raw(b'"pay"'), "arguments": Raw(b'{"amount": 7}')}
        assert b"7 to Ann" in bytes(await client.relay("tools/call", params))
    assert received == [(7, "Ann")]


def test_the_blocking_client_shows_its_calls_too() -> None:
    server, received = make_server()
    seen = Seen()
    with Client(server, on_call=seen).blocking() as client:
        client.call_tool("pay", {"amount": 1})
        client.request("tools/call", {"name": "pay", "arguments": {"amount": 2}})
    with (
        Client(server, on_call=lambda request: None).blocking() as client,
        pytest.raises(ConsentDenied),
    ):
        client.call_tool("pay", {"amount": 3})
    assert [request.arguments["amount"] for request in seen] == [1, 2]
    assert received == [(1, "Ann"), (2, "Ann")]


async def test_the_server_gets_what_was_shown_and_nothing_else() -> None:
    server, received = make_server()
    seen = Seen()
    async with pair(server, on_call=seen) as client:
        twice = CallToolParams(name="pay", arguments=Raw(b'{"amount": 9, "amount": 1}'))
        await client.request("tools/call", twice)
        big = 2**53 + 1
        await client.call_tool("pay", {"amount": big})
        for absent in (Raw(), Raw(b"null")):
            await client.request("tools/call", CallToolParams(name="pay", arguments=absent))
    assert [request.arguments for request in seen] == [{"amount": 1}, {"amount": big}, {}, {}]
    assert received == [(1, "Ann"), (big, "Ann")]


async def test_a_changed_call_is_validated_too() -> None:
    server, received = make_server()
    wrong = {"amount": "lots"}
    async with pair(
        server, validate="strict", on_call=lambda request: replace(request, arguments=wrong)
    ) as client:
        with pytest.raises(InvalidParams, match="input schema"):
            await client.call_tool("pay", {"amount": 1})
    assert received == []


@pytest.mark.parametrize("given", [True, False, "pay", {}, ()])
async def test_a_hook_that_returns_something_else_is_told_so(given: Any) -> None:
    server, received = make_server()
    async with pair(server, on_call=lambda request: given) as client:
        with pytest.raises(ConfigError, match="on_call must return the CallRequest"):
            await client.call_tool("pay", {"amount": 1})
    assert received == []


async def test_a_hook_that_fails_sends_nothing() -> None:
    server, received = make_server()

    def fail(request: CallRequest) -> CallRequest:
        raise RuntimeError("the screen is gone")

    async with pair(server, on_call=fail) as client:
        with pytest.raises(RuntimeError, match="the screen is gone"):
            await client.call_tool("pay", {"amount": 1})
        with pytest.raises(InvalidParams, match="requires the name"):
            await client.request("tools/call")
    async with pair(
        server, on_call=lambda request: replace(request, arguments={"amount": object()})
    ) as client:
        with pytest.raises(ConfigError, match="the arguments cannot be sent"):
            await client.call_tool("pay", {"amount": 1})
    assert received == []


async def test_an_overloaded_server_is_called_again_without_asking_again() -> None:
    seen, received = Seen(), []
    server = Server("busy", rates=Rates(calls=Rate(1, per=0.2)))

    @server.tool
    def go() -> str:
        received.append("go")
        return "done"

    async with pair(server, on_call=seen) as client:
        await client.call_tool("go")
        await client.call_tool("go")
    assert (len(seen), received) == (2, ["go", "go"])
