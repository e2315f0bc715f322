"""The client that the official conformance suite tests: one small function per scenario.

    MCP_CONFORMANCE_SCENARIO=tools_call python tests/conformance/client.py http://localhost:8000/mcp

The suite starts this once per scenario, against a server of its own that takes notes. Which scenario it is, the revision to
speak, and data for some, come in the environment. Nothing here but the public API.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from dovetail import Client

Scenario = Callable[[Client, dict[str, Any]], Awaitable[None]]
BLANKS = {"string": "text", "integer": 1, "number": 1.5, "boolean": True}


def filled(schema: dict[str, Any]) -> dict[str, Any]:
    """An object as the schema wants it: its defaults, and something of the right type where it has none."""
    return {name: one.get("default", BLANKS.get(one.get("type"))) for name, one in schema.get("properties", {}).items()}


async def list_tools(client: Client, data: dict[str, Any]) -> None:
    """Opening the connection is the test; the list makes sure that it works."""
    await client.list_tools()


async def call_every_tool(client: Client, data: dict[str, Any]) -> None:
    """Call each tool that the library lists: those with malformed `x-mcp-header` are not among them."""
    for tool in await client.list_tools():
        await client.call_tool(tool.name, filled(tool.input_schema))


async def call_as_told(client: Client, data: dict[str, Any]) -> None:
    """Make the calls that the suite hands over. Annotated arguments travel as headers too."""
    await client.list_tools()
    for call in data["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def use_everything(client: Client, data: dict[str, Any]) -> None:
    """List, call, read and get: each has its own standard headers."""
    await call_every_tool(client, data)
    for resource in await client.list_resources():
        await client.read_resource(resource.uri)
    for prompt in await client.list_prompts():
        await client.get_prompt(prompt.name)


async def return_schema(client: Client, data: dict[str, Any]) -> None:
    """Send an input schema back as it came: no keyword may get lost on the way."""
    tools = {tool.name: tool for tool in await client.list_tools()}
    await client.call_tool("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema})


SCENARIOS: dict[str, Scenario] = {
    "initialize": list_tools,
    "tools_call": call_every_tool,
    "elicitation-sep1034-client-defaults": call_every_tool,
    "sse-retry": call_every_tool,
    "request-metadata": list_tools,
    "sep-2322-client-request-state": call_every_tool,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_every_tool,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": return_schema,
}


async def main(url: str, scenario: Scenario) -> None:
    client = Client(
        url,
        revision="stateless" if os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"] == "2026-07-28" else "handshake",
        on_elicit=lambda question: filled(question.schema or {}),
        on_sample=lambda question: "A text that a model might have written.",
        roots=["file:///project"],
        timeout=20,
    )
    async with client:
        await scenario(client, json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")))


if __name__ == "__main__":
    name = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if name not in SCENARIOS:
        sys.exit(f"This client has no scenario {name!r}")
    asyncio.run(main(sys.argv[1], SCENARIOS[name]))
