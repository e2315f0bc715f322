"""langchain-mcp-adapters: `load_mcp_tools`, and `MultiServerMCPClient` with callbacks."""

from typing import Any

# isort: off
from common import ARGUMENTS, TARGET, TRANSPORT, run  # must come first: it replaces `mcp`
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient


async def program() -> dict[str, Any]:
    progress: list[float] = []

    async def on_progress(done: float, total: Any, message: Any, context: Any) -> None:
        progress.append(done)

    connection: dict[str, Any] = {"transport": TRANSPORT}
    if TRANSPORT == "stdio":
        connection |= {"command": TARGET[0], "args": TARGET[1:]}
    else:
        connection |= {"url": TARGET[0], "headers": {"x-test": "1"}}
    client = MultiServerMCPClient(
        {"probe": connection}, callbacks=Callbacks(on_progress=on_progress)
    )
    tools = {tool.name: tool for tool in await client.get_tools()}
    result = await tools["add"].ainvoke(ARGUMENTS)
    failed = await tools["fail"].ainvoke({})
    blobs = await client.get_resources("probe", uris=["note://one"])
    prompt = await client.get_prompt("probe", "greet", arguments={"name": "Ada"})
    return {
        "tools": sorted(tools),
        "result": result[0]["text"],
        "failed": failed[0]["text"],
        "resource": blobs[0].as_string(),
        "prompt": prompt[0].content,
        "progress": progress,
    }


run(program)
