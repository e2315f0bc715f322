"""Tools, in every revision and over every transport."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import Struct

from dovetail import ProtocolError, Server, ToolError
from dovetail.errors import InvalidParams
from dovetail.testing import bare
from tests.behaviour.conftest import Overheard, Talk


class Point(Struct):
    x: int
    y: int


@pytest.mark.requirement("lifecycle-version-respected")
@pytest.mark.requirement("tools-list")
async def test_tools_are_listed_as_the_revision_knows_them(talk: Talk) -> None:
    async with talk() as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
    add = tools["add"]
    assert add.description == "Add two numbers."
    assert add.input_schema["properties"]["b"] == {
        "type": "integer",
        "description": "the other one",
        "default": 1,
    }
    assert add.input_schema["required"] == ["a"]
    assert (add.title == "Add") == talk.at_least("2025-06-18")
    assert (add.annotations is not None) == talk.at_least("2025-03-26")
    assert (add.output_schema is not None) == talk.at_least("2025-06-18")
    assert (add.icons is not None) == talk.at_least("2025-11-25")
    assert (add.meta is not None) == talk.at_least("2025-06-18")


@pytest.mark.requirement("tools-call")
async def test_a_tool_is_called_and_answers(talk: Talk) -> None:
    async with talk() as client:
        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert result.text == "5"
        assert not result.is_error
        assert (await client.call_tool("add", {"a": 2})).text == "3"


@pytest.mark.requirement("tools-call")
async def test_a_result_says_whether_it_is_an_error(talk: Talk) -> None:
    async with talk() as client:
        for name, arguments in (
            ("add", {"a": 2}),
            ("shout", {"text": "hi"}),
            ("content", {}),
            ("fail", {"kind": "plain"}),
            ("add", {}),
        ):
            await client.call_tool(name, arguments, raise_on_error=False)
    results = [
        message["result"]
        for message in talk.tape.messages("server")
        if "content" in message.get("result", ())
    ]
    assert [result.get("isError") for result in results] == [False, False, False, True, True]


@pytest.mark.requirement("tools-structured-content")
async def test_structured_content_is_there_where_the_revision_has_it(in_memory: Talk) -> None:
    async with in_memory() as client:
        number = await client.call_tool("add", {"a": 2, "b": 3})
        point = await client.call_tool("point", {"x": 1, "y": 2})
    if in_memory.at_least("2025-06-18"):
        assert number.structured_content == {"result": 5}
        assert number.data == 5
        assert point.structured_content == {"x": 1, "y": 2}
    else:
        assert number.structured_content is None
        assert number.data == "5"
    assert point.text == '{"x":1,"y":2}'


async def test_a_result_comes_back_as_the_type_asked_for(in_memory: Talk) -> None:
    async with in_memory() as client:
        assert (await client.call_tool("point", {"x": 1, "y": 2}, type=Point)).data == Point(1, 2)
        assert (await client.call_tool("add", {"a": 1, "b": 1}, type=int)).data == 2
        assert (await client.call_tool("shout", {"text": "hi"}, type=str)).data == "HI"


@pytest.mark.requirement("tools-content-kinds")
async def test_content_of_every_kind_arrives_as_the_nearest_the_revision_has(
    in_memory: Talk,
) -> None:
    async with in_memory() as client:
        kinds = [block.type for block in (await client.call_tool("content")).content]
    audio = "audio" if in_memory.at_least("2025-03-26") else "resource"
    link = "resource_link" if in_memory.at_least("2025-06-18") else "text"
    assert kinds == ["text", "image", audio, audio, link, "resource", "resource"]


@pytest.mark.requirement("tools-unknown")
async def test_an_unknown_tool_is_an_error_of_the_protocol(talk: Talk) -> None:
    async with talk() as client:
        with pytest.raises(InvalidParams, match="Unknown tool: nothing") as caught:
            await client.call_tool("nothing")
        assert caught.value.code == -32602


@pytest.mark.requirement("tools-input-checked")
@pytest.mark.requirement("tools-errors")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"a": "x"}, '`a` must be an integer, got the string "x"'),
        ({}, "`a` is missing"),
        ({"a": 1, "c": 2}, "`c` is not an argument of add"),
    ],
)
async def test_wrong_arguments_are_a_result_that_a_model_can_act_on(
    in_memory: Talk, arguments: dict[str, Any], said: str
) -> None:
    async with in_memory() as client:
        result = await client.call_tool("add", arguments, raise_on_error=False)
        assert result.is_error
        assert said in result.text


NOT_OBJECTS = [[], [{"a": 1}], 3, "", '{"a": 1}', False]


@pytest.mark.requirement("tools-errors")
async def test_arguments_that_are_not_an_object_are_a_protocol_error(
    talk: Talk, overheard: list[Overheard]
) -> None:
    async with talk() as client:
        for arguments in NOT_OBJECTS:
            with pytest.raises(InvalidParams, match="arguments of add must be an object") as caught:
                await client.request("tools/call", {"name": "add", "arguments": arguments})
            assert caught.value.code == -32602
            assert caught.value.data["parameter"] == "arguments"
        # null and nothing count as an empty object, in which `a` is missing
        for params in ({"name": "add", "arguments": None}, {"name": "add"}):
            result = await client.request("tools/call", params)
            assert result.is_error
            assert "`a` is missing" in result.text
        assert (await client.call_tool("add", {"a": 2})).text == "3"
        _mark_as_handmade(talk, overheard)


def _mark_as_handmade(talk: Talk, overheard: list[Overheard]) -> None:
    """The client broke the schema on purpose: hold only the server's messages against it."""
    for conversation in overheard:
        conversation.handmade.add("client")
    for at, (sender, data) in enumerate(talk.tape.entries):
        message = json.loads(data)
        if sender == "client" and "arguments" in message.get("params", ()):
            message["params"]["arguments"] = {}
            talk.tape.entries[at] = sender, json.dumps(message).encode()


@pytest.mark.parametrize("spaces", [b"", b" ", b"\r\n\t"])
@pytest.mark.parametrize("task", [None, {}])
async def test_neither_a_schema_nor_a_task_nor_a_space_changes_what_an_object_is(
    spaces: bytes, task: Any
) -> None:
    server = Server("s")
    calls: list[Any] = []

    @server.tool(schema={"type": "object"})
    async def free(**arguments: Any) -> None:
        calls.append(arguments)

    @server.tool(task="optional")
    async def slow(a: int = 0) -> None:
        calls.append(a)

    name = "free" if task is None else "slow"
    more = b"" if task is None else b', "task": {}'
    request = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s}}'
    )
    async with bare(server) as peer:
        await peer.greet("2025-11-25")
        for wrong in (b"[]", b"7", b'"{}"', b"true"):
            peer.send(request % (name.encode(), spaces + wrong + spaces + more))
            error = (await peer.receive())["error"]
            assert (error["code"], error["data"]["parameter"]) == (-32602, "arguments")
        assert calls == []
        peer.send(request % (name.encode(), spaces + b"{}" + spaces + more))
        assert "result" in await peer.receive()


@pytest.mark.requirement("tools-errors")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("tool", "as it is"),
        ("plain", "plain trouble"),
        ("exit", "SystemExit"),
        ("missing", "no such thing"),
    ],
)
async def test_a_tool_that_fails_says_so_and_the_server_lives_on(
    talk: Talk, kind: str, said: str
) -> None:
    async with talk() as client:
        with pytest.raises(ToolError, match=said):
            await client.call_tool("fail", {"kind": kind})
        assert (await client.call_tool("add", {"a": 1})).text == "2"


async def test_an_error_of_the_protocol_passes_through_a_tool(in_memory: Talk) -> None:
    async with in_memory() as client:
        with pytest.raises(ProtocolError, match="closed on Sundays") as caught:
            await client.call_tool("fail", {"kind": "protocol"})
        assert (caught.value.code, caught.value.data) == (1234, {"open": "Monday"})


async def test_a_tool_that_takes_too_long_is_told_off(talk: Talk) -> None:
    async with talk() as client:
        with pytest.raises(ToolError, match=r"late did not finish within 0.05 s"):
            await client.call_tool("late")


async def test_masked_errors_keep_their_text_to_themselves() -> None:
    server = Server("s", mask_errors=True)

    @server.tool
    def leak() -> None:
        raise ValueError("the password is 123")

    from dovetail.testing import pair

    async with pair(server) as client:
        with pytest.raises(ToolError) as caught:
            await client.call_tool("leak")
        assert str(caught.value) == "leak failed"


@pytest.mark.requirement("tools-list-changed")
async def test_tools_that_come_and_go_are_announced(talk: Talk) -> None:
    async with talk() as client:
        changed: asyncio.Queue[str] = asyncio.Queue()
        await client.on_change("tools", changed.put_nowait)
        await client.call_tool("grow", {"name": "extra"})
        assert await changed.get() == "tools"
        assert "extra" in [tool.name for tool in await client.list_tools()]
        assert (await client.call_tool("extra", {"text": "x"})).text == "X"
        await client.call_tool("shrink", {"name": "extra"})
        assert await changed.get() == "tools"
        assert "extra" not in [tool.name for tool in await client.list_tools()]


async def test_a_handler_knows_who_calls(talk: Talk) -> None:
    async with talk() as client:
        told = await client.call_tool("who", type=dict[str, Any])
        assert told.data == {
            "client": "dovetail",
            "revision": talk.revision,
            "state": {"started": True},
        }


async def test_blocking_tools_never_starve_the_rest(talk: Talk) -> None:
    async with talk() as client:
        blocked = [asyncio.create_task(client.call_tool("block")) for _ in range(40)]
        for _ in range(5):
            await client.ping()
            assert (await client.call_tool("add", {"a": 1})).text == "2"
        for task in blocked:
            task.cancel()
        await asyncio.gather(*blocked, return_exceptions=True)
