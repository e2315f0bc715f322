"""The client of the official Python SDK, 1.x."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from script import ROOT, main, plain


async def elicit(context, params):
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def sample(context, params):
    said = types.TextContent(type="text", text="Godspeed!")
    return types.CreateMessageResult(role="assistant", model="interop", content=said)


async def roots(context):
    return types.ListRootsResult(roots=[types.Root(uri=ROOT)])


def transport(case):
    target = case["target"]
    if case["transport"] == "stdio":
        return stdio_client(
            StdioServerParameters(command=target[0], args=target[1:], env=case["env"])
        )
    return sse_client(target) if case["transport"] == "sse" else streamable_http_client(target)


@asynccontextmanager
async def opened(case, heard):
    async def log(params):
        heard.logs.append(plain(params))

    async def message(one):
        if isinstance(getattr(one, "root", None), types.ToolListChangedNotification):
            heard.changes.append("tools")
        elif isinstance(getattr(one, "root", None), types.ResourceUpdatedNotification):
            heard.changes.append(str(one.root.params.uri))

    async def progress(done, total, text):
        heard.progress.append({"progress": done, "total": total, "message": text})

    async with AsyncExitStack() as stack:
        read, write, *_ = await stack.enter_async_context(transport(case))
        session = await stack.enter_async_context(
            ClientSession(
                read,
                write,
                elicitation_callback=elicit,
                sampling_callback=sample,
                list_roots_callback=roots,
                logging_callback=log,
                message_handler=message,
            )
        )
        opening = await session.initialize()

        async def server(step):
            return plain(opening.serverInfo) | {"revision": opening.protocolVersion}

        async def call(step):
            if "level" in step:
                await session.set_logging_level(step["level"])
            return plain(
                await session.call_tool(step["tool"], step["arguments"], progress_callback=progress)
            )

        async def subscribe(step):
            await session.subscribe_resource(step["uri"])
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
            reference = types.PromptReference(type="ref/prompt", name=step["prompt"])
            return plain(
                await session.complete(
                    reference, {"name": step["argument"], "value": step["value"]}
                )
            )

        async def tools(step):
            return plain(await session.list_tools())

        async def resources(step):
            return plain(await session.list_resources())

        async def templates(step):
            return plain(await session.list_resource_templates())

        async def read_resource(step):
            return plain(await session.read_resource(step["uri"]))

        async def prompts(step):
            return plain(await session.list_prompts())

        async def prompt(step):
            return plain(await session.get_prompt(step["prompt"], step["arguments"]))

        async def ping(step):
            return plain(await session.send_ping())

        yield {
            "server": server,
            "tools": tools,
            "call": call,
            "change": call,
            "resources": resources,
            "templates": templates,
            "read": read_resource,
            "prompts": prompts,
            "prompt": prompt,
            "complete": complete,
            "ping": ping,
            "subscribe": subscribe,
            "many": many,
        }


main(opened)
