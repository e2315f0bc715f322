"""What a server tells its client besides the answer, with the names of the official SDK."""

import asyncio
import threading
from typing import Any

import pytest
from anyio import from_thread

from dovetail.compat import Context, FunctionResource, FunctionTool, MCPServer, SDKFastMCP
from dovetail.compat.client import create_connected_server_and_client_session
from dovetail.compat.types import (
    EmptyResult,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    ProgressNotification,
    ProgressNotificationParams,
    ResourceUpdatedNotification,
    ToolListChangedNotification,
)
from dovetail.testing import Tape, pair

eras = pytest.mark.parametrize("revision", ["handshake", "stateless"])


@eras
async def test_a_tool_announces_changed_lists(revision: str) -> None:
    server = MCPServer("s")

    @server.resource("note://a")
    def note() -> str:
        return "a"

    @server.prompt()
    def prompt() -> str:
        return "a"

    @server.tool()
    async def change(ctx: Context) -> str:
        await ctx.notify_tools_changed()
        await ctx.notify_resources_changed()
        await ctx.notify_prompts_changed()
        await ctx.session.send_notification(ToolListChangedNotification())
        return "changed"

    heard: asyncio.Queue[str] = asyncio.Queue()
    async with pair(server, revision=revision) as client:
        for kind in ("tools", "resources", "prompts"):
            await client.on_change(kind, heard.put_nowait)
        await client.call_tool("change")
        async with asyncio.timeout(60):
            assert {await heard.get() for _ in range(3)} == {"tools", "resources", "prompts"}


async def test_a_tool_sends_notifications() -> None:
    server, tape = MCPServer("s"), Tape()

    @server.tool()
    async def tell(ctx: Context) -> str:
        text = LoggingMessageNotificationParams(level="info", data="step", logger="own")
        await ctx.session.send_notification(
            LoggingMessageNotification(params=text), related_request_id=ctx.request_id
        )
        params = ProgressNotificationParams(progress_token=1, progress=2)
        await ctx.session.send_notification(ProgressNotification(params=params))
        await ctx.session.send_notification(ResourceUpdatedNotification(params={"uri": "note://a"}))
        await ctx.session.send_elicit_complete("visit", related_request_id=ctx.request_id)
        assert ctx.client_capabilities == ctx.session.client_capabilities
        return "told"

    logs: list[Any] = []
    async with pair(server, revision="handshake", record=tape, on_log=logs.append) as client:
        await client.set_log_level("info")
        await client.call_tool("tell")
    assert [(log.data, log.logger) for log in logs] == [("step", "own")]
    assert "notifications/progress" in tape.methods("server")


async def test_functions_become_components_by_their_constructors() -> None:
    server = MCPServer("s")
    resource = FunctionResource(uri="note://a", name="a", mime_type="text/plain", fn=lambda: "A")
    server.add_resource(resource)
    server.add_tool(FunctionTool(fn=lambda text: text, name="echo"))
    assert isinstance(resource, FunctionResource) and not isinstance(resource, FunctionTool)
    async with pair(server) as client:
        assert (await client.read_resource("note://a"))[0].text == "A"
        assert (await client.call_tool("echo", {"text": "x"})).text == "x"
        server._resource_manager._resources.pop("note://a", None)
        assert await client.list_resources() == []
        server._tool_manager._tools["echo"].parameters = {"type": "object", "title": "Own"}
        assert (await client.list_tools())[0].input_schema == {"type": "object", "title": "Own"}


@pytest.mark.parametrize("kind", [MCPServer, SDKFastMCP])
async def test_the_low_level_server_inside_has_handlers(kind: Any) -> None:
    server, seen = kind("s", retry_interval=100), []

    @server.resource("note://a")
    def note() -> str:
        return "a"

    @server._mcp_server.subscribe_resource()
    async def subscribe(uri: Any) -> None:
        seen.append(str(uri))

    async def set_level(ctx: Any, params: Any) -> EmptyResult:
        seen.append(params.level)
        return EmptyResult()

    server._lowlevel_server.add_request_handler("logging/setLevel", object, set_level)
    async with pair(server, revision="handshake") as client:
        await client.subscribe("note://a", lambda _: None)
        await client.set_log_level("error")
    assert seen == ["note://a", "error"]
    server.streamable_http_app()
    assert server.limits.retry == 0.1


async def test_a_plain_function_finds_out_in_a_thread_of_anyio_that_it_was_cancelled() -> None:
    server, (started, ended, stop) = MCPServer("s"), (threading.Event() for _ in range(3))

    @server.tool()
    def wait(forever: bool) -> str:
        started.set()
        try:
            while forever and not stop.is_set():
                from_thread.check_cancelled()
        except asyncio.CancelledError:
            ended.set()
            raise
        return "done"

    async with pair(server) as client:
        assert (await client.call_tool("wait", {"forever": False})).data == "done"
        started.clear()
        call = asyncio.create_task(client.call_tool("wait", {"forever": True}))
        assert await asyncio.to_thread(started.wait, 5)
        call.cancel()
        try:
            assert await asyncio.to_thread(ended.wait, 5)
        finally:
            stop.set()


async def test_a_session_to_a_server_of_the_program() -> None:
    server = SDKFastMCP("s")
    server.add_tool(lambda: "hello", name="hi")
    async with create_connected_server_and_client_session(server._mcp_server) as session:
        assert (await session.call_tool("hi")).content[0].text == "hello"
    assert MCPServer[int]("typed").name == "typed"
