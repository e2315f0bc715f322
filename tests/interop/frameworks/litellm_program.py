"""litellm: `load_mcp_tools` in the format of OpenAI, and `call_openai_tool`."""

import json
from typing import Any

# isort: off
from common import ARGUMENTS, run, transport  # must come first: it replaces `mcp`
from litellm import experimental_mcp_client
from mcp import ClientSession


async def program() -> dict[str, Any]:
    async with transport() as (read, write, *_), ClientSession(read, write) as session:
        await session.initialize()
        tools: Any = await experimental_mcp_client.load_mcp_tools(session, format="openai")
        call: Any = {"function": {"name": "add", "arguments": json.dumps(ARGUMENTS)}}
        result = await experimental_mcp_client.call_openai_tool(session, call)
    return {
        "tools": sorted(tool["function"]["name"] for tool in tools),
        "result": result.content[0].text,
    }


run(program)
