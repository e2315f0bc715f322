"""dspy: `Tool.from_mcp_tool`, and the call of a tool."""

from typing import Any

# isort: off
from common import ARGUMENTS, run, transport  # must come first: it replaces `mcp`
import dspy
from mcp import ClientSession


async def program() -> dict[str, Any]:
    async with transport() as (read, write, *_), ClientSession(read, write) as session:
        await session.initialize()
        listed = await session.list_tools()
        tools = {tool.name: dspy.Tool.from_mcp_tool(session, tool) for tool in listed.tools}
        result = await tools["add"].acall(**ARGUMENTS)
        try:
            await tools["fail"].acall()
            failed = ""
        except RuntimeError as error:
            failed = str(error)
    return {"tools": sorted(tools), "result": result, "failed": failed.rpartition(": ")[2]}


run(program)
