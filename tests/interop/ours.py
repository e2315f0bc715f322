"""Our client, driven through the same steps as the peers' clients, and telling what it saw in the
same form."""

import asyncio
from typing import Any

import msgspec
from msgspec.structs import replace

from dovetail import Client
from dovetail.errors import DovetailError, ProtocolError

from .cases import Case
from .clients.script import ROOT, STEP_SECONDS, Heard, told

Seen = dict[str, Any]
OPEN_SECONDS = 20


async def seen(case: Case) -> dict[str, Seen]:
    """What comes of each step of a case; under `open` why there was none."""
    heard, found = Heard(), dict[str, Seen]()
    client = Client(
        case.target,
        revision=case.revision,
        on_elicit=lambda request: {"name": "Ada"},
        on_sample=lambda request: "Godspeed!",
        roots=[ROOT],
        on_log=lambda entry: heard.logs.append(plain(replace(entry, request_id=None))),
        on_stderr=lambda line: None,
        env=case.env,
        timeout=OPEN_SECONDS,
    )
    try:
        async with client:
            for step in case.told()["steps"]:
                heard.forget()
                found[step["name"]] = await _done(client, step, heard)
    except DovetailError as problem:
        found["open"] = {"error": {"message": told(problem)}}
    return found


async def _done(client: Client, step: dict[str, Any], heard: Heard) -> Seen:
    try:
        got: Seen = {
            "result": await asyncio.wait_for(VERBS[step["do"]](client, step, heard), STEP_SECONDS)
        }
    except Exception as problem:
        code = problem.code if isinstance(problem, ProtocolError) else None
        got = {"error": {"code": code, "message": told(problem)}}
    await heard.wait(step["awaits"])
    return got | vars(heard)


def plain(value: Any) -> Any:
    """A value as it goes over the wire."""
    return msgspec.json.decode(msgspec.json.encode(value))


async def server(client: Client, step: Any, heard: Heard) -> Any:
    return {"name": client.server_info and client.server_info.name, "revision": client.revision}


async def call(client: Client, step: Any, heard: Heard) -> Any:
    if (
        "level" in step and client.capabilities.logging is not None
    ):  # some log without having declared it
        await client.set_log_level(step["level"])
    on_progress: Any = lambda update: heard.progress.append(plain(update))  # noqa: E731
    result = await client.call_tool(
        step["tool"], step["arguments"], raise_on_error=False, on_progress=on_progress
    )
    return plain(result)


async def change(client: Client, step: Any, heard: Heard) -> Any:
    handle = await client.on_change("tools", heard.changes.append)
    result = await call(client, step, heard)
    await heard.wait(step["awaits"])
    await handle.close()
    return result


async def many(client: Client, step: Any, heard: Heard) -> Any:
    calls = [client.call_tool(step["tool"], {"a": n, "b": 0}) for n in range(step["count"])]
    return {"texts": [result.text for result in await asyncio.gather(*calls)]}


async def complete(client: Client, step: Any, heard: Heard) -> Any:
    found = await client.complete(
        prompt=step["prompt"], argument=step["argument"], value=step["value"]
    )
    return {"completion": plain(found)}


async def tools(client: Client, step: Any, heard: Heard) -> Any:
    return {"tools": plain(await client.list_tools())}


async def resources(client: Client, step: Any, heard: Heard) -> Any:
    return {"resources": plain(await client.list_resources())}


async def templates(client: Client, step: Any, heard: Heard) -> Any:
    return {"resourceTemplates": plain(await client.list_resource_templates())}


async def read(client: Client, step: Any, heard: Heard) -> Any:
    return {"contents": plain(await client.read_resource(step["uri"]))}


async def prompts(client: Client, step: Any, heard: Heard) -> Any:
    return {"prompts": plain(await client.list_prompts())}


async def prompt(client: Client, step: Any, heard: Heard) -> Any:
    return plain(await client.get_prompt(step["prompt"], step["arguments"]))


async def ping(client: Client, step: Any, heard: Heard) -> Any:
    await client.ping()
    return {}


VERBS = {
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
    "many": many,
}
