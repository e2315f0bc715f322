"""The client of the official Python SDK, 2.x."""

import asyncio
from contextlib import asynccontextmanager

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from script import ROOT, main, plain


async def elicit(context, params):
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def sample(context, params):
    said = types.TextContent(type="text", text="Godspeed!")
    return types.CreateMessageResult(role="assistant", model="interop", content=said)


async def roots(context):
    return types.ListRootsResult(roots=[types.Root(uri=ROOT)])


def target(case):
    if case["transport"] == "stdio":
        command, *arguments = case["target"]
        return StdioServerParameters(command=command, args=arguments, env=case["env"])
    return sse_client(case["target"]) if case["transport"] == "sse" else case["target"]


@asynccontextmanager
async def opened(case, heard):
    async def log(params):
        heard.logs.append(plain(params))

    async def message(one):
        if modern:
            return  # there they come as events
        if isinstance(one, types.ToolListChangedNotification):
            heard.changes.append("tools")
        elif isinstance(one, types.ResourceUpdatedNotification):
            heard.changes.append(str(one.params.uri))

    async def progress(done, total, text):
        heard.progress.append({"progress": done, "total": total, "message": text})

    modern = case["revision"] >= "2026"
    client = Client(
        target(case),
        elicitation_callback=elicit,
        sampling_callback=sample,
        list_roots_callback=roots,
        log_level="debug",
        logging_callback=log,
        message_handler=message,
    )
    async with client:

        async def server(step):
            return {
                "name": client.server_info and client.server_info.name,
                "revision": client.protocol_version,
            }

        async def call(step):
            if "level" in step and not modern:
                await client.set_logging_level(step["level"])
            return plain(
                await client.call_tool(step["tool"], step["arguments"], progress_callback=progress)
            )

        async def listen(step, **wanted):
            async with client.listen(**wanted) as subscription:
                result = await call(step)
                async with asyncio.timeout(3):
                    async for event in subscription:
                        heard.changes.append(getattr(event, "uri", "tools"))
                        break
            return result

        async def change(step):
            return await (listen(step, tools_list_changed=True) if modern else call(step))

        async def subscribe(step):
            if modern:
                return await listen(step, resource_subscriptions=[step["uri"]])
            await client.subscribe_resource(step["uri"])
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
                await client.complete(reference, {"name": step["argument"], "value": step["value"]})
            )

        async def tools(step):
            return plain(await client.list_tools())

        async def resources(step):
            return plain(await client.list_resources())

        async def templates(step):
            return plain(await client.list_resource_templates())

        async def read(step):
            return plain(await client.read_resource(step["uri"]))

        async def prompts(step):
            return plain(await client.list_prompts())

        async def prompt(step):
            return plain(await client.get_prompt(step["prompt"], step["arguments"]))

        async def ping(step):
            return plain(await client.send_ping())

        yield {
            "server": server,
            "tools": tools,
            "call": call,
            "change": change,
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
