"""What a client adds to a relayed request and what it leaves alone: questions, capabilities,
middleware, retries, headers, and answers that are not valid."""

import asyncio
import json
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Raw, Struct

from dovetail import Client, Context, Header, Server, audit
from dovetail.errors import ConnectionClosed, InvalidParams, InvalidRequest, MethodNotFound
from dovetail.ports import Call, CallHandler
from dovetail.protocol import (
    CallToolParams,
    ClientCapabilities,
    ElicitationCapability,
    RawObject,
    TextContent,
    ToolResult,
)
from dovetail.testing import Bare, pair
from dovetail.transports import memory
from tests.behaviour.raw_service import BIG, NEW, RawEcho, RelayService, split
from tests.behaviour.web import on_a_port
from tests.spec import REVISIONS

STATELESS = "2026-07-28"
CAN_ELICIT = ClientCapabilities(elicitation=ElicitationCapability(form={}))


class Name(Struct):
    name: str


def asking_server() -> Server:
    server = Server("asks")

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask for a name."""
        answer = await ctx.elicit("Who?", Name)
        return f"Hello {answer.data.name}" if answer else "nobody"

    return server


# questions and capabilities


async def test_a_question_is_returned_and_its_answer_relayed() -> None:
    async with pair(asking_server(), revision=STATELESS) as client:
        asked = split(await client.relay("tools/call", {"name": "ask"}, capabilities=CAN_ELICIT))
        assert bytes(asked["resultType"]) == b'"input_required"'
        requests: dict[str, Any] = json.loads(bytes(asked["inputRequests"]))
        (key,) = requests
        assert requests[key]["params"]["message"] == "Who?"
        params = {
            "name": "ask",
            "inputResponses": {key: {"action": "accept", "content": {"name": "Ann"}}},
            "requestState": asked["requestState"],
        }
        result = await client.relay("tools/call", params, capabilities=CAN_ELICIT)
        assert msgspec.json.decode(result, type=ToolResult).text == "Hello Ann"


async def test_capabilities_are_declared_for_one_request_only() -> None:
    seen: list[Any] = []
    server = Server("s")

    @server.tool
    async def look(ctx: Context) -> None:
        seen.append(dict(ctx._call.caller.capabilities))

    async with pair(server, revision=STATELESS) as client:
        await client.relay("tools/call", {"name": "look"}, capabilities=CAN_ELICIT)
        await client.relay("tools/call", {"name": "look"}, capabilities=ClientCapabilities())
        await client.relay("tools/call", {"name": "look"})
    assert seen[0] == {"elicitation": {"form": {}}}
    assert seen[1] == {}
    assert "elicitation" not in seen[2]


async def test_in_the_handshake_era_the_clients_own_callbacks_answer() -> None:
    def on_elicit(request: Any) -> dict[str, str]:
        assert request.parent is None  # in memory, a question does not name its request
        return {"name": "Ann"}

    async with pair(asking_server(), revision="2025-11-25", on_elicit=on_elicit) as client:
        result = await client.relay("tools/call", {"name": "ask"}, capabilities=CAN_ELICIT)
    assert msgspec.json.decode(result, type=ToolResult).text == "Hello Ann"


# middleware and extensions


@pytest.mark.parametrize("revision", REVISIONS)
async def test_middleware_of_a_client_reads_and_changes_raw_messages(revision: str) -> None:
    async def rename(call: Call, call_next: CallHandler) -> Any:
        assert isinstance(call.params, RawObject)
        assert call.params.type is CallToolParams
        assert call.params.name == "other"
        call.params.name = "echo"
        result = await call_next(call)
        assert result.is_error is False
        assert result.content == [TextContent("done")]
        result.content = [*result.content, TextContent("more")]
        return result

    echo = RawEcho()
    async with pair(echo, revision=revision, middleware=[rename]) as client:
        result = split(await client.relay("tools/call", {"name": "other", "x-param": NEW}))
    received = split(echo.received[0])
    assert bytes(received["name"]) == b'"echo"'
    assert bytes(received["x-param"]) == bytes(NEW)
    assert bytes(result["x-new"]) == bytes(NEW)
    assert [block["text"] for block in json.loads(bytes(result["content"]))] == ["done", "more"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_middleware_of_a_server_reads_and_changes_raw_results(revision: str) -> None:
    async def shorten(call: Call, call_next: CallHandler) -> Any:
        result = await call_next(call)
        if call.name == "tools/list":
            result.tools = [tool for tool in result.tools if tool.name != "echo"]
        elif call.name == "tools/call":
            result.meta = {"com.example/checked": True}
            result.structured_content = None
        return result

    async with pair(RawEcho(middleware=[shorten]), revision=revision) as client:
        assert await client.list_tools() == []
        result = split(await client.relay("tools/call", {"name": "echo"}))
    assert json.loads(bytes(result["_meta"]))["com.example/checked"] is True
    assert "structuredContent" not in result
    assert bytes(result["x-new"]) == bytes(NEW)


async def test_a_relayed_call_is_audited_on_both_sides() -> None:
    server = Server("s")

    @server.tool
    def fail(a: int) -> None:
        raise ValueError("no")

    records: list[Any] = []
    sink = audit(records.append)
    async with pair(server, middleware=[sink]) as behind:
        async with pair(RelayService(behind, middleware=[sink])) as client:
            result = await client.relay("tools/call", {"name": "fail", "arguments": {"a": 1}})
    assert json.loads(bytes(split(result)["isError"])) is True
    told = [(one.target, one.outcome, one.arguments) for one in records if one.target]
    assert told == [("fail", "tool-error", ["a"])] * 2


async def test_a_question_is_audited_as_asked() -> None:
    records: list[Any] = []
    async with pair(
        asking_server(), revision=STATELESS, middleware=[audit(records.append)]
    ) as client:
        await client.relay("tools/call", {"name": "ask"}, capabilities=CAN_ELICIT)
    assert [one.outcome for one in records] == ["asked"]


async def test_a_completion_is_audited_with_its_prompt() -> None:
    server = Server("s")

    @server.prompt
    def greet(name: str) -> str:
        return name

    greet.complete("name", ["Ann"])
    records: list[Any] = []
    params = {
        "ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "name", "value": "A"},
    }
    async with pair(server, middleware=[audit(records.append)]) as client:
        await client.relay("completion/complete", params)
    assert [(one.target, one.arguments) for one in records] == [("greet", ["name"])]


# what cannot be sent, and what cannot be returned


@pytest.mark.parametrize("params", [Raw(b"[]"), Raw(b'"a"'), Raw(b"3"), Raw(b"{")])
async def test_params_that_are_not_an_object_are_refused(params: Raw) -> None:
    echo = RawEcho()
    async with pair(echo) as client:
        with pytest.raises(InvalidParams):
            await client.relay("tools/call", params)
        with pytest.raises(InvalidParams, match="_meta"):
            await client.relay("tools/call", {"name": "echo", "_meta": Raw(b"[]")})
    assert echo.received == []


async def test_a_method_that_nobody_defines_is_refused() -> None:
    async with pair(RawEcho()) as client:
        with pytest.raises(MethodNotFound, match="nobody/knows"):
            await client.relay("nobody/knows")


@pytest.mark.parametrize("result", [None, 3, [], "text"])
async def test_an_answer_that_is_not_an_object_is_an_error(result: Any) -> None:
    near, far = memory.pair()
    peer = Bare(far)

    async def answer() -> None:
        hello = await peer.receive()
        capabilities = {"tools": {}}
        info = {"name": "odd", "version": "0"}
        peer.send(
            {
                "jsonrpc": "2.0",
                "id": hello["id"],
                "result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": capabilities,
                    "serverInfo": info,
                },
            }
        )
        await peer.receive()
        call = await peer.receive()
        peer.send({"jsonrpc": "2.0", "id": call["id"], "result": result})

    answering = asyncio.create_task(answer())
    async with Client(near, revision="2025-11-25") as client:
        with pytest.raises(InvalidRequest, match="tools/call is malformed"):
            await client.relay("tools/call", {"name": "a"})
    await answering


@pytest.mark.parametrize("safe", [False, True])
async def test_only_a_safe_request_is_sent_again_when_the_connection_breaks(
    safe: bool, tmp_path: Any
) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        f"""
import os, pathlib
from dovetail import Server
server, file = Server("s"), pathlib.Path({str(tmp_path / "calls")!r})

@server.tool
def crash_once() -> str:
    calls = len(file.read_text()) if file.exists() else 0
    file.write_text("x" * (calls + 1))
    if not calls:
        os._exit(1)
    return "done"

server.run()
"""
    )
    async with Client(script, on_stderr=lambda line: None) as client:
        if safe:
            result = await client.relay("tools/call", {"name": "crash_once"}, safe=True)
            assert msgspec.json.decode(result, type=ToolResult).text == "done"
        else:
            with pytest.raises(ConnectionClosed):
                await client.relay("tools/call", {"name": "crash_once"})
    assert (tmp_path / "calls").read_text() == ("xx" if safe else "x")


# headers


def server_with_header() -> Server:
    server = Server("s")

    @server.tool
    def where(region: Annotated[str, Header("Region")], ctx: Context) -> dict[str, str]:
        return {name: value for name, value in ctx.headers.items() if name.startswith("mcp-")}

    return server


@pytest.mark.parametrize("listed", [True, False])
async def test_headers_repeat_the_name_and_parameters_of_a_relayed_call(listed: bool) -> None:
    """If the tools were not listed before, the server's refusal makes the client list them."""
    async with on_a_port(server_with_header().asgi(path="/mcp")) as address:
        async with Client(f"http://{address}/mcp", revision=STATELESS) as client:
            if listed:
                await client.relay("tools/list")
            params = Raw(b'{"name":"where","arguments":{"region":"north pole"},"x-param":1}')
            result = split(await client.relay("tools/call", params))
    headers = json.loads(bytes(result["structuredContent"]))
    assert headers["mcp-name"] == "where"
    assert headers["mcp-method"] == "tools/call"
    assert headers["mcp-param-region"] == "north pole"


async def test_a_raw_list_lacks_the_tools_that_cannot_be_called_over_http() -> None:
    bad = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
    fine = {"name": "fine", "inputSchema": {"type": "object"}, "x-new": BIG}
    odd = {"name": "odd"}
    tools = [{"name": "bad", "inputSchema": bad}, fine, odd]

    async def list_tools(call: Call, call_next: CallHandler) -> Any:
        if call.name != "tools/list":
            return await call_next(call)
        return RawObject(call.method.result, {"tools": Raw(msgspec.json.encode(tools))})

    server = RawEcho(middleware=[list_tools])
    async with on_a_port(server.asgi(path="/mcp")) as address:
        async with Client(f"http://{address}/mcp", revision=STATELESS) as client:
            listed = split(await client.relay("tools/list"))
    assert json.loads(bytes(listed["tools"])) == [fine, odd]


# other ways in


def test_a_blocking_client_relays() -> None:
    with Client(RawEcho()).blocking() as client:
        result = split(client.relay("tools/call", {"name": "echo", "x-param": NEW}))
        assert bytes(split(result["x-received"])["x-param"]) == bytes(NEW)


async def test_a_relayed_list_is_not_cached() -> None:
    echo = RawEcho()
    async with pair(echo) as client:
        await client.relay("tools/list")
        await client.relay("tools/list")
    assert len(echo.received) == 2
