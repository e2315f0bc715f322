"""Tools that raise, return, print, leak, cling and block as no tool should: one answer each, and
nobody else suffers."""

import asyncio
from typing import Any

import pytest

from dovetail import Limits, Server, ToolError
from dovetail.errors import InternalError, InvalidParams, ProtocolError
from dovetail.testing import bare, pair
from tests.faults import misbehaving
from tests.faults.conftest import Wire, alive, call

CANCEL = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}


def text_of(reply: dict[str, Any]) -> str:
    return reply["result"]["content"][0]["text"] if "result" in reply else reply["error"]["message"]


# raising


@pytest.mark.parametrize("where", ["raises", "raises_in_a_thread"])
async def test_whatever_a_tool_raises_is_one_failed_call(wire: Wire, where: str) -> None:
    async with wire() as peer:
        for what in misbehaving.RAISED:
            reply = await peer.ask("tools/call", {"name": where, "arguments": {"what": what}})
            failed = "error" in reply or reply["result"]["isError"]
            assert failed, what
            assert text_of(reply), what
            await alive(peer)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("code", misbehaving.WRONG_CODES, ids=str)
async def test_an_error_with_a_code_that_is_not_a_number_is_an_internal_error(
    revision: str, code: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(misbehaving.build(), revision=revision) as client:
        with pytest.raises(InternalError) as caught:
            await client.call_tool("raises", {"what": f"code {code!r}"}, timeout=10)
        assert caught.value.code == -32603
        assert [record.getMessage() for record in caplog.records] == ["tools/call failed"]


@pytest.mark.parametrize("error", [ProtocolError, InvalidParams])
async def test_the_first_argument_of_an_error_may_be_its_message_but_its_code_may_not(
    error: type[ProtocolError], caplog: pytest.LogCaptureFixture
) -> None:
    server, wrong = Server("s"), {"code": "x", "message": "m"}

    @server.tool
    async def refuse(with_code: bool) -> None:
        raise error(**wrong) if with_code else error("x")  # type: ignore[arg-type]

    async with pair(server) as client:
        with pytest.raises(ProtocolError, match=r"^x$") as caught:
            await client.call_tool("refuse", {"with_code": False}, timeout=10)
        assert (caught.value.code, caplog.records) == (error.code, [])
        with pytest.raises(InternalError, match="tools/call failed"):
            await client.call_tool("refuse", {"with_code": True}, timeout=10)
        assert [record.getMessage() for record in caplog.records] == ["tools/call failed"]


@pytest.mark.parametrize("tool", ["awaits_the_cancelled", "cancels_itself", "recurses"])
async def test_a_tool_that_trips_over_itself_is_one_failed_call(wire: Wire, tool: str) -> None:
    async with wire() as peer:
        reply = await peer.ask("tools/call", {"name": tool})
        assert reply["result"]["isError"]
        assert text_of(reply)
        await alive(peer)


async def test_what_ends_a_process_is_named_to_the_model() -> None:
    async with pair(misbehaving.build()) as client:
        for what in ("SystemExit", "KeyboardInterrupt", "Strange"):
            with pytest.raises(ToolError, match=what):
                await client.call_tool("raises", {"what": what})


@pytest.mark.parametrize("what", misbehaving.RAISED)
@pytest.mark.parametrize("threaded", [False, True])
async def test_resources_prompts_and_completions_may_raise_anything_too(
    what: str, threaded: bool
) -> None:
    server = Server("s")

    async def fail(name: str) -> str:
        raise misbehaving.RAISED[what]()

    def fail_in_a_thread(name: str) -> str:
        raise misbehaving.RAISED[what]()

    function = fail_in_a_thread if threaded else fail
    server.resource("x://{name}")(function)
    server.prompt("p")(function).complete("name")(function)  # type: ignore[attr-defined]
    async with bare(server) as peer:
        await peer.greet("2025-06-18")
        assert "error" in await peer.ask("resources/read", {"uri": "x://a"})
        assert "error" in await peer.ask("prompts/get", {"name": "p", "arguments": {"name": "a"}})
        reference = {
            "ref": {"type": "ref/prompt", "name": "p"},
            "argument": {"name": "name", "value": ""},
        }
        assert "error" in await peer.ask("completion/complete", reference)
        await alive(peer)


@pytest.mark.parametrize("what", misbehaving.RAISED)
async def test_middleware_may_raise_anything_too(what: str) -> None:
    async def broken(call: Any, next: Any) -> Any:
        if call.name == "tools/call":
            raise misbehaving.RAISED[what]()
        return await next(call)

    async with bare(Server("s", middleware=[broken])) as peer:
        await peer.greet("2025-06-18")
        assert "error" in await peer.ask("tools/call", {"name": "x"})
        await alive(peer)


# returning


@pytest.mark.requirement("tools-output-sane")
@pytest.mark.parametrize("where", ["returns", "returns_in_a_thread"])
async def test_whatever_a_tool_returns_is_one_valid_answer(wire: Wire, where: str) -> None:
    async with wire(outgoing=1_000_000) as peer:
        for what in misbehaving.RETURNED:
            reply = await peer.ask("tools/call", {"name": where, "arguments": {"what": what}})
            assert ("error" in reply) != ("result" in reply), what
            await alive(peer)


@pytest.mark.parametrize("what", ["object", "function", "module", "knot", "deep", "broken result"])
async def test_what_cannot_be_written_is_a_failure_that_says_so(what: str) -> None:
    async with bare(misbehaving.build()) as peer:
        await peer.greet("2025-06-18")
        reply = await peer.ask("tools/call", {"name": "returns", "arguments": {"what": what}})
        assert "error" in reply or reply["result"]["isError"]
        assert text_of(reply)


async def test_a_result_over_the_limit_is_an_error_that_names_it(wire: Wire) -> None:
    async with wire(outgoing=1_000_000) as peer:
        reply = await peer.ask(
            "tools/call", {"name": "returns", "arguments": {"what": "too large"}}
        )
        assert reply["error"]["code"] == -31002
        assert "1000000" in reply["error"]["message"]
        await alive(peer)


# printing, and other ways to get at the streams


@pytest.mark.requirement("stdio-stdout-clean")
async def test_what_a_tool_prints_goes_to_stderr(stdio: Wire) -> None:
    async with stdio() as peer:
        assert text_of(await peer.ask("tools/call", {"name": "prints"})) == "quiet"
        await alive(peer)
    said = "\n".join(stdio.stderr)
    for words in ("printed", "flushed", "written to 1", "written to __stdout__"):
        assert words in said


async def test_a_tool_finds_nothing_on_stdin(stdio: Wire) -> None:
    async with stdio() as peer:
        peer.send(call(1, "reads_stdin"))
        peer.send(call(2, "add", a=1, b=1))
        replies = {
            reply["id"]: text_of(reply) for reply in (await peer.receive(), await peer.receive())
        }
        assert replies == {1: "('', b'')", 2: "2"}
        await alive(peer)


@pytest.mark.requirement("stdio-stdout-clean")
async def test_a_child_of_a_tool_has_an_empty_stdin_and_prints_to_stderr(stdio: Wire) -> None:
    async with stdio() as peer:
        assert text_of(await peer.ask("tools/call", {"name": "starts_a_child"})) == "''"
        await alive(peer)
    assert "from a child" in stdio.stderr


# leaking and clinging


@pytest.mark.requirement("progress-stops")
async def test_a_leaked_task_and_a_leaked_thread_have_no_voice_after_the_answer(wire: Wire) -> None:
    async with wire() as peer:
        params = {"name": "leaks", "arguments": {}, "_meta": {"progressToken": "t"}}
        peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        assert (await peer.receive())["params"]["progress"] == 1
        assert text_of(await peer.receive()) == "done"
        await alive(peer)
        peer.send(call(2, "releases"))
        assert (await peer.receive())["id"] == 2
        await alive(peer)


async def test_a_leaked_failure_troubles_nobody(wire: Wire) -> None:
    async with wire() as peer:
        for _ in range(3):
            assert text_of(await peer.ask("tools/call", {"name": "leaks_a_failure"})) == "done"
            await alive(peer)


async def test_a_tool_that_swallows_its_cancellation_is_not_heard_of_again(wire: Wire) -> None:
    async with wire() as peer:
        peer.send(call(1, "clings"))
        assert (await peer.receive())["params"]["data"] == "clinging"
        for _ in range(3):
            peer.send(CANCEL)
            await alive(peer)
        assert "in flight" in text_of(await peer.ask("ping", id=1)), "it still holds its id"
        peer.send(call(2, "releases"))
        assert (await peer.receive())["id"] == 2
        while "error" in (reply := await peer.ask("ping", id=1)):
            assert "in flight" in text_of(reply)
        await alive(peer)


@pytest.mark.requirement("cancel-no-messages-after")
async def test_a_cancelled_thread_may_finish_but_not_answer(wire: Wire) -> None:
    async with wire() as peer:
        peer.send(call(1, "blocks"))
        await alive(peer)
        peer.send(CANCEL)
        await alive(peer)
        peer.send(call(2, "releases"))
        assert (await peer.receive())["id"] == 2
        await alive(peer)


# blocking


async def test_blocking_tools_starve_nobody_and_each_is_answered_once(wire: Wire) -> None:
    async with wire() as peer:
        for id in range(150):
            peer.send(call(id, "blocks"))
        for _ in range(10):
            await alive(peer)
            assert (
                text_of(
                    await peer.ask(
                        "tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}}, id="add"
                    )
                )
                == "2"
            )
            assert "result" in await peer.ask("tools/list", id="list")
        peer.send(call("go", "releases"))
        replies = [await peer.receive() for _ in range(151)]
        assert sorted((reply["id"] for reply in replies), key=str) == sorted(
            [*range(150), "go"], key=str
        )
        await alive(peer)


# the registry


async def test_a_tool_may_rebuild_the_server_while_it_runs(wire: Wire) -> None:
    async with wire() as peer:
        assert text_of(await peer.ask("tools/call", {"name": "rebuilds"})) == "rebuilt"
        tools = {tool["name"] for tool in (await peer.ask("tools/list"))["result"]["tools"]}
        assert "rebuilds" not in tools
        assert "extra_49" in tools
        assert "Unknown tool" in text_of(await peer.ask("tools/call", {"name": "rebuilds"}))
        echoed = await peer.ask("tools/call", {"name": "extra_49", "arguments": {"text": "hi"}})
        assert text_of(echoed) == "hi"


async def test_components_come_and_go_from_many_threads_while_lists_are_read() -> None:
    server = Server("s")

    @server.tool
    def churn(name: str) -> str:
        for _ in range(50):
            server.add_tool(lambda: None, name=name)
            server.remove_tool(name)
        return "done"

    async with pair(server, limits=Limits()) as client:
        churning = [
            asyncio.create_task(client.call_tool("churn", {"name": f"t{number}"}))
            for number in range(8)
        ]
        while not all(task.done() for task in churning):
            assert "churn" in [tool.name for tool in await client.list_tools()]
        assert [(await task).text for task in churning] == ["done"] * 8
        assert [tool.name for tool in await client.list_tools()] == ["churn"]
