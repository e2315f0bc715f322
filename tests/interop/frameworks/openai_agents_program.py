"""openai-agents: `MCPServerStdio`, `MCPServerStreamableHttp` and `MCPServerSse`."""

from typing import Any

# isort: off
from common import ARGUMENTS, TARGET, TRANSPORT, run  # must come first: it replaces `mcp`
from agents.mcp import MCPServerSse, MCPServerStdio, MCPServerStreamableHttp

KINDS: dict[str, Any] = {"http": MCPServerStreamableHttp, "sse": MCPServerSse}


async def program() -> dict[str, Any]:
    server: Any = (
        MCPServerStdio({"command": TARGET[0], "args": TARGET[1:]})
        if TRANSPORT == "stdio"
        else KINDS[TRANSPORT]({"url": TARGET[0], "headers": {"x-test": "1"}})
    )
    async with server:
        tools = await server.list_tools()
        result = await server.call_tool("add", ARGUMENTS)
        failed = await server.call_tool("fail", {})
        resource = await server.read_resource("note://one")
        prompt = await server.get_prompt("greet", {"name": "Ada"})
    return {
        "tools": sorted(tool.name for tool in tools),
        "result": result.content[0].text,
        "failed": failed.content[0].text,
        "resource": resource.contents[0].text,
        "prompt": prompt.messages[0].content.text,
    }


run(program)
