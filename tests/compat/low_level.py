"""A low-level server with every handler, written as for each release of the official SDK."""

import asyncio
import sys
from typing import Any

from dovetail.compat import (
    INVALID_PARAMS,
    CallToolResult,
    Completion,
    ErrorData,
    GetPromptResult,
    ListToolsResult,
    LowLevelServer as Server,
    MCPError,
    McpError,
    NotificationOptions,
    Prompt,
    PromptMessage,
    ReadResourceContents,
    Resource,
    ResourceTemplate,
    TextContent,
    Tool,
    stdio_server,
)

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = Tool(name="add", description="Add one.", inputSchema=SCHEMA)


def release1() -> Any:
    server: Any = Server("low", version="1.5", instructions="Low.")

    @server.list_tools()
    async def list_tools() -> list[Tool]:
        return [TOOL]

    @server.call_tool()
    async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
        context = server.request_context
        if name == "add":
            await context.session.send_log_message(level="info", data="adding")
            return [TextContent(type="text", text=str(arguments["a"] + 1))]
        if name == "data":
            return {"token": context.meta.progressToken if context.meta else None}
        if name == "both":
            return [TextContent(type="text", text="text")], {"a": 1}
        raise ValueError(f"Unknown tool: {name}")

    @server.list_resources()
    async def list_resources() -> list[Resource]:
        return [Resource(uri="x://a", name="a", mimeType="text/plain")]

    @server.list_resource_templates()
    async def list_resource_templates() -> list[ResourceTemplate]:
        return [ResourceTemplate(uriTemplate="x://{name}", name="x")]

    @server.read_resource()
    async def read_resource(uri: Any) -> Any:
        if str(uri) == "x://a":
            return [ReadResourceContents(content="text", mime_type="text/x")]
        raise McpError(ErrorData(code=INVALID_PARAMS, message=f"No {uri}"))

    @server.list_prompts()
    async def list_prompts() -> list[Prompt]:
        return [Prompt(name="p")]

    @server.get_prompt()
    async def get_prompt(name: str, arguments: dict[str, str] | None) -> GetPromptResult:
        text = TextContent(type="text", text=f"{name} {arguments}")
        return GetPromptResult(messages=[PromptMessage(role="user", content=text)])

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        return Completion(values=[argument.value + "!"])

    @server.subscribe_resource()
    async def subscribe(uri: Any) -> None:
        server.subscribed = str(uri)

    @server.progress_notification()
    async def on_progress(token: Any, progress: float, total: Any, message: Any) -> None: ...

    return server


def release2() -> Any:
    async def list_tools(ctx: Any, params: Any) -> Any:
        return ListToolsResult(tools=[TOOL])

    async def call_tool(ctx: Any, params: Any) -> Any:
        if params.name == "add":
            await ctx.session.send_log_message(level="info", data="adding")
            text = str(params.arguments["a"] + 1)
            return CallToolResult(content=[TextContent(type="text", text=text)])
        raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {params.name}")

    return Server("low", version="1.5", on_list_tools=list_tools, on_call_tool=call_tool)


async def main(server: Any) -> None:
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (read, write):
        await server.run(read, write, options)


if __name__ == "__main__":
    asyncio.run(main({"1": release1, "2": release2}[sys.argv[1]]()))
