"""FastMCP's middleware on a Dovetail server."""

import logging
from typing import Any

import pytest

from dovetail import Client
from dovetail.compat import (
    CallNext,
    ErrorHandlingMiddleware,
    FastMCP,
    LoggingMiddleware,
    McpError,
    Middleware,
    MiddlewareContext,
    ToolError,
    ToolResult,
)
from dovetail.errors import Forbidden, ProtocolError
from dovetail.ports import Principal
from dovetail.testing import pair


def server_with(*middleware: Any, **options: Any) -> FastMCP:
    server = FastMCP("s", middleware=middleware, **options)

    @server.tool(tags={"even"})
    def double(number: int) -> int:
        return 2 * number

    @server.tool(scopes=["admin"], name="triple")
    def triple(number: int) -> int:
        return 3 * number

    @server.tool
    def fail(text: str = "no") -> None:
        raise ValueError(text)

    @server.resource("doc://{name}")
    def doc(name: str) -> str:
        return name

    @server.resource("doc://only")
    def only() -> str:
        return "one"

    @server.prompt
    def ask(name: str = "") -> str:
        return name

    return server


class Record(Middleware):
    """Notes each hook that is called."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            self.seen.append(name)
        return object.__getattribute__(self, name)


async def test_each_hook_is_called_for_its_method() -> None:
    record = Record()
    async with pair(server_with(record), revision="handshake") as client:
        await client.call_tool("double", {"number": 1})
        await client.list_tools()
        await client.list_resources()
        await client.list_resource_templates()
        await client.list_prompts()
        await client.read_resource("doc://only")
        await client.get_prompt("ask")
    methods = [name for name in record.seen if name not in ("on_message", "on_request")]
    assert methods == [
        "on_initialize",
        "on_call_tool",
        "on_list_tools",
        "on_list_resources",
        "on_list_resource_templates",
        "on_list_prompts",
        "on_read_resource",
        "on_get_prompt",
    ]
    assert record.seen.count("on_message") == record.seen.count("on_request") == len(methods)


async def test_a_changed_message_reaches_the_server_and_a_changed_result_the_client() -> None:
    class Change(Middleware):
        async def on_call_tool(
            self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
        ) -> Any:
            assert (context.method, context.type, context.source) == (
                "tools/call",
                "request",
                "client",
            )
            context.message.arguments["number"] += 1
            result = await call_next(context.copy(message=context.message))
            return ToolResult(f"got {result.structured_content['result']}", {"result": 0})

        async def on_read_resource(self, context: Any, call_next: Any) -> Any:
            context.message.uri = "doc://other"
            return await call_next(context)

        async def on_get_prompt(self, context: Any, call_next: Any) -> Any:
            context.message.arguments = {"name": "Ada"}
            return await call_next(context)

    async with pair(server_with(Change())) as client:
        result = await client.call_tool("double", {"number": 1})
        assert (result.text, result.data) == ("got 4", 0)
        assert (await client.read_resource("doc://only"))[0].text == "other"
        assert (await client.get_prompt("ask")).messages[0].content.text == "Ada"


async def test_lists_are_components_that_middleware_may_filter() -> None:
    class Filter(Middleware):
        async def on_list_tools(self, context: Any, call_next: Any) -> Any:
            tools = await call_next(context)
            return [tool for tool in tools if "even" in tool.tags]

    server = server_with(Filter())
    async with pair(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["double"]
    assert [tool.name for tool in await server.list_tools()] == ["double"]


async def test_a_failed_tool_is_an_exception_in_middleware_and_a_result_for_the_client() -> None:
    seen: list[str] = []

    class Watch(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            try:
                return await call_next(context)
            except ToolError as error:
                seen.append(str(error))
                raise

    async with pair(server_with(Watch())) as client:
        with pytest.raises(ToolError, match=r"^broken$"):
            await client.call_tool("fail", {"text": "broken"})
    assert seen == ["broken"]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(ToolError("not you"), ToolError), (ValueError("not you"), ToolError)],
    ids=["tool", "other"],
)
async def test_what_middleware_raises_for_a_tool_is_an_error_result(
    raised: Exception, expected: type[Exception]
) -> None:
    class Refuse(Middleware):
        async def on_request(self, context: Any, call_next: Any) -> Any:
            if context.method in ("tools/call", "tools/list"):
                raise raised
            return await call_next(context)

    async with pair(server_with(Refuse())) as client:
        with pytest.raises(expected, match="not you"):
            await client.call_tool("double", {"number": 1})
        with pytest.raises(ProtocolError, match="not you"):
            await client.list_tools()


async def test_a_protocol_error_is_sent_as_it_is() -> None:
    class Refuse(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            raise ProtocolError(-31403, "not you")

    async with pair(server_with(Refuse())) as client:
        with pytest.raises(ProtocolError, match="not you") as caught:
            await client.call_tool("double", {"number": 1})
    assert caught.value.code == -31403
    assert issubclass(McpError, Exception)


async def test_on_initialize_sees_the_client_and_may_refuse_it() -> None:
    names: list[str] = []

    class Door(Middleware):
        async def on_initialize(self, context: Any, call_next: Any) -> Any:
            names.append(context.message.params.clientInfo.name)
            await call_next(context)
            if len(names) > 1:
                raise ProtocolError(-32000, "one client only")

    server = server_with(Door())
    async with pair(server, revision="handshake") as client:
        await client.list_tools()
    with pytest.raises(ProtocolError, match="one client only"):
        async with pair(server, revision="handshake"):
            pass
    assert len(names) == 2


async def test_a_renamed_tool_still_needs_its_scopes() -> None:
    class Rename(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            context.message.name = "triple"
            return await call_next(context)

    from dovetail.auth import ApiKeys

    server = server_with(Rename(), auth=ApiKeys({"a-key-of-sixteen": "ada"}))
    async with pair(server, user=Principal("ada")) as client:
        with pytest.raises(Forbidden, match="admin"):
            await client.call_tool("double", {"number": 1})


async def test_middleware_may_be_added_later_and_runs_in_order() -> None:
    order: list[str] = []

    class Named(Middleware):
        def __init__(self, name: str) -> None:
            self.name = name

        async def on_message(self, context: Any, call_next: Any) -> Any:
            order.append(self.name)
            return await call_next(context)

    async def own(call: Any, call_next: Any) -> Any:
        order.append("dovetail")
        return await call_next(call)

    server = server_with(Named("first"), own)
    server.add_middleware(Named("second"))
    async with Client(server) as client:
        order.clear()
        await client.list_tools()
    assert order == ["dovetail", "first", "second"]


async def test_ready_made_middleware_logs(caplog: pytest.LogCaptureFixture) -> None:
    caught: list[str] = []
    handling = ErrorHandlingMiddleware(error_callback=lambda error, _: caught.append(str(error)))
    logger = logging.getLogger("mine")
    with caplog.at_level(logging.INFO, "mine"):
        async with pair(server_with(handling, LoggingMiddleware(logger=logger))) as client:
            await client.call_tool("double", {"number": 1})
            with pytest.raises(ToolError):
                await client.call_tool("fail")
    assert caught == ["no"]
    lines = [record.getMessage() for record in caplog.records if record.name == "mine"]
    assert [line.rpartition(" in ")[0] for line in lines[-2:]] == [
        "Request tools/call completed",
        "Request tools/call failed",
    ]
