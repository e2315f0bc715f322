"""What users of a client write and type checkers accept. This file is checked, not run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_type

from dovetail import (
    Client,
    ElicitRequest,
    Limits,
    Root,
    SampleRequest,
    Server,
    SharedCache,
    TaskHandle,
    ToolResult,
    openai_sampler,
    terminal_confirm,
    terminal_elicit,
)
from dovetail.auth import OAuth
from dovetail.client.blocking import BlockingTask
from dovetail.protocol import Tool


@dataclass
class Forecast:
    city: str


async def ask(request: ElicitRequest) -> dict[str, Any] | bool | None:
    assert_type(request.message, str)
    assert_type(request.schema, dict[str, Any] | None)
    assert_type(request.url, str | None)
    assert_type(request.target, str)
    if request.server is not None:
        assert_type(request.server.name, str)
    return True if request.mode == "url" else {"name": "Ada"}


def answer(request: SampleRequest) -> str:
    assert_type(request.system_prompt, str | None)
    assert_type(request.max_tokens, int)
    assert_type(request.asked_by, str)
    return str(request.messages[0].content)


Client(
    "server.py", on_elicit=ask, on_sample=answer, roots=[Path("."), "file:///x", Root("file:///y")]
)
Client(["uvx", "some-server"], env={"KEY": "x"}, cwd="/", on_stderr=print, timeout=5)
Client(Server("here"), limits=Limits(timeout=5), cache=SharedCache(), validate="strict")
Client({"mcpServers": {}}, server="one", on_elicit=terminal_elicit(), on_call=terminal_confirm())
Client("server.py", on_call=lambda request: request if request.arguments else None)
Client("https://x/mcp", auth=OAuth(), headers={"a": "b"}, verify="ca.pem", revision="stateless")
Client(
    Path("mcp.json"), auth="token", on_sample=openai_sampler("http://localhost/v1", models=["x"])
)


async def use(target: str) -> None:
    async with Client(target) as client:
        assert_type(await client.list_tools(), list[Tool])
        result = await client.call_tool("forecast", {"city": "Oslo"})
        assert_type(result, ToolResult)
        assert_type(result.is_error, bool)
        assert_type(result.text, str)
        typed = await client.call_tool("forecast", {"city": "Oslo"}, type=Forecast)
        assert_type(typed.data, Forecast)
        assert_type(typed.data.city, str)
        listed = await client.call_tool("all", type=list[Forecast])
        assert_type(listed.data, list[Forecast])
        assert_type(await client.start_tool("slow"), TaskHandle)
        async with client.on_change("tools", print):
            pass
        handle = await client.subscribe("config://app", print)
        await handle.close()
        contents = await client.read_resource("config://app")
        print(contents[0].text, contents[0].uri)
        completion = await client.complete(prompt="review", argument="language", value="py")
        assert_type(completion.values, list[str])


def use_blocking(target: str) -> None:
    with Client(target).blocking() as client:
        assert_type(client.list_tools(fresh=True), list[Tool])
        assert_type(client.call_tool("forecast", {"city": "Oslo"}), ToolResult)
        assert_type(client.call_tool("forecast", type=Forecast).data, Forecast)
        assert_type(client.start_tool("slow", ttl=60), BlockingTask)
        assert_type(client.start_tool("slow").result(timeout=5), ToolResult)
        assert_type(client.complete(prompt="a", argument="b").values, list[str])
        with client.subscribe("config://app", print):
            client.ping()
        assert_type(client.revision, str)
