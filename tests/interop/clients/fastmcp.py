"""The client of FastMCP: one script for its releases 3 and 4, which differ only in what they find
out by themselves."""

import sys

sys.path.append(
    sys.path.pop(0)
)  # this folder last: there is a library of this name, which is meant
import asyncio
from contextlib import asynccontextmanager

from fastmcp import Client
from fastmcp.client.messages import MessageHandler
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from script import ROOT, main, plain


async def elicit(message, response_type, params, context):
    return response_type(name="Ada")


async def sample(messages, params, context):
    return "Godspeed!"


def transport(case):
    if case["transport"] == "stdio":
        command, *arguments = case["target"]
        return StdioTransport(command, arguments, env=case["env"], keep_alive=False)
    return (SSETransport if case["transport"] == "sse" else StreamableHttpTransport)(case["target"])


def reference(name):
    try:
        from mcp_types import PromptReference
    except ImportError:
        from mcp.types import PromptReference
    return PromptReference(type="ref/prompt", name=name)


@asynccontextmanager
async def opened(case, heard):
    class Changes(MessageHandler):
        async def on_tool_list_changed(self, message):
            heard.changes.append("tools")

        async def on_resource_updated(self, message):
            heard.changes.append(str(message.params.uri))

    async def log(entry):
        heard.logs.append(plain(entry))

    async def progress(done, total, text):
        heard.progress.append({"progress": done, "total": total, "message": text})

    client = Client(
        transport(case),
        elicitation_handler=elicit,
        sampling_handler=sample,
        roots=[ROOT],
        log_handler=log,
        message_handler=Changes(),
    )
    async with client:
        modern = case["revision"] >= "2026"

        async def server(step):
            about = client.initialize_result
            info = (
                client.server_info
                if modern
                else getattr(about, "server_info", None) or about.serverInfo
            )
            return {"name": info and info.name}

        async def call(step):
            meta = {"io.modelcontextprotocol/logLevel": step["level"]} if "level" in step else None
            if meta and not modern:
                meta = await client.set_logging_level(step["level"])
            return plain(
                await client.call_tool_mcp(step["tool"], step["arguments"], progress, meta=meta)
            )

        async def subscribe(step):
            await client.session.subscribe_resource(step["uri"])
            return await call(step)

        async def many(step):
            calls = [
                call({"tool": step["tool"], "arguments": {"a": n, "b": 0}})
                for n in range(step["count"])
            ]
            return {
                "texts": [result["content"][0]["text"] for result in await asyncio.gather(*calls)]
            }

        async def complete(step):
            argument = {"name": step["argument"], "value": step["value"]}
            return plain(await client.complete_mcp(reference(step["prompt"]), argument))

        async def tools(step):
            return plain(await client.list_tools_mcp())

        async def resources(step):
            return plain(await client.list_resources_mcp())

        async def templates(step):
            return plain(await client.list_resource_templates_mcp())

        async def read(step):
            return plain(await client.read_resource_mcp(step["uri"]))

        async def prompts(step):
            return plain(await client.list_prompts_mcp())

        async def prompt(step):
            return plain(await client.get_prompt_mcp(step["prompt"], step["arguments"]))

        async def ping(step):
            return {} if await client.ping() else None

        yield {
            "server": server,
            "tools": tools,
            "call": call,
            "change": call,
            "resources": resources,
            "templates": templates,
            "read": read,
            "prompts": prompts,
            "prompt": prompt,
            "complete": complete,
            "ping": ping,
            "subscribe": subscribe,
            "many": many,
        }


main(opened)
