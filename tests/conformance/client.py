"""The client that the official conformance suite tests: one small function per scenario.

    MCP_CONFORMANCE_SCENARIO=tools_call python tests/conformance/client.py http://localhost:8000/mcp

The suite starts this once per scenario, against a server of its own that takes notes. Which
scenario it is, the revision to speak, and data for some, come in the environment. Nothing here but
the public API.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dovetail import Client
from dovetail.auth import ClientCredentials, EnterpriseManaged, MemoryStore, OAuth, WorkloadIdentity

Scenario = Callable[[Client, dict[str, Any]], Awaitable[None]]
Data = dict[str, Any]
BLANKS = {"string": "text", "integer": 1, "number": 1.5, "boolean": True}


def filled(schema: dict[str, Any]) -> dict[str, Any]:
    """An object as the schema wants it: its defaults, and something of the right type where it has
    none."""
    return {
        name: one.get("default", BLANKS.get(one.get("type")))
        for name, one in schema.get("properties", {}).items()
    }


async def list_tools(client: Client, data: dict[str, Any]) -> None:
    """Opening the connection is the test; the list makes sure that it works."""
    await client.list_tools()


async def call_every_tool(client: Client, data: dict[str, Any]) -> None:
    """Call each tool that the library lists: those with malformed `x-mcp-header` are not among
    them."""
    for tool in await client.list_tools():
        await client.call_tool(tool.name, filled(tool.input_schema))


class StreamLog(logging.Handler):
    """Learns from the log when the stream of the session is open."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.is_open = asyncio.Event()
        log = logging.getLogger("dovetail.transports")
        log.setLevel(logging.DEBUG)
        log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "A stream is open":
            self.is_open.set()


streams = StreamLog()


async def call_with_open_stream(client: Client, data: dict[str, Any]) -> None:
    """Call each tool once the stream of the session is open. If it opened during the call, the
    suite would take that for a reconnection."""
    async with asyncio.timeout(30):
        await streams.is_open.wait()
    await call_every_tool(client, data)


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
    await client.call_tool(
        "json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema}
    )


async def list_skills(client: Client, data: dict[str, Any]) -> None:
    """Build the registry of a host: nothing of a skill is read for that."""
    assert await client.list_skills()


async def use_skills(client: Client, data: dict[str, Any]) -> None:
    """Read each skill with all its files, as far as it can be trusted: the suite tampers with its
    SKILL.md."""
    for entry in await client.list_skills():
        skill = await client.read_skill(entry)
        for path in skill.files:
            await skill.read(path)


class Robot:
    """A user and their browser: consents to everything at once."""

    redirect_uri = "http://localhost:3000/callback"

    @asynccontextmanager
    async def session(self) -> AsyncIterator["Robot"]:
        """Nobody needs to listen: the answer is in the redirect."""
        yield self

    async def go(self, url: str, about: str) -> Mapping[str, str]:
        """Visit the page; the parameters that it sends us back with."""
        return await asyncio.to_thread(visited, url)


def visited(url: str) -> dict[str, str]:
    """The parameters of the address that a page redirects to."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=10)
    connection.request("GET", f"{parts.path}?{parts.query}")
    return dict(parse_qsl(urlsplit(connection.getresponse().headers["Location"]).query))


def user(data: Data) -> OAuth:
    """Somebody who logs in."""
    document = "https://conformance-test.local/client-metadata.json"
    known = {name: data[name] for name in ("client_id", "client_secret", "issuer") if name in data}
    return OAuth(**known, client_metadata_url=document, store=MemoryStore(), browser=Robot())


def enterprise(data: Data) -> EnterpriseManaged:
    """Somebody whose employer has logged them in."""
    return EnterpriseManaged(
        data["client_id"],
        data["client_secret"],
        id_token=data["idp_id_token"],
        idp_token_endpoint=data["idp_token_endpoint"],
        idp_client_id=data["idp_client_id"],
    )


def key_holder(data: Data) -> ClientCredentials:
    """A program with a private key."""
    return ClientCredentials(
        data["client_id"], private_key=data["private_key_pem"], algorithm=data["signing_algorithm"]
    )


CREDENTIALS: dict[str, Callable[[Data], Any]] = {
    "auth/client-credentials-jwt": key_holder,
    "auth/client-credentials-basic": lambda data: ClientCredentials(
        data["client_id"], data["client_secret"]
    ),
    "auth/enterprise-managed-authorization": enterprise,
    "auth/wif-jwt-bearer": lambda data: WorkloadIdentity(data["client_id"], data["valid_jwt"]),
}
"""Who gets in otherwise than by logging in."""

SCENARIOS: dict[str, Scenario] = {
    "initialize": list_tools,
    "tools_call": call_every_tool,
    "elicitation-sep1034-client-defaults": call_every_tool,
    "sse-retry": call_with_open_stream,
    "request-metadata": list_tools,
    "sep-2322-client-request-state": call_every_tool,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_every_tool,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": return_schema,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": use_skills,
    "sep-2640-client-verify-size": use_skills,
    "sep-2640-client-verify-frontmatter": use_skills,
}


async def main(url: str, name: str) -> None:
    data = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    guarded = name.startswith("auth/")
    client = Client(
        url,
        revision="stateless"
        if os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"] == "2026-07-28"
        else "handshake",
        auth=CREDENTIALS.get(name, user)(data) if guarded else None,
        on_elicit=lambda question: filled(question.schema or {}),
        on_sample=lambda question: "A text that a model might have written.",
        roots=["file:///project"],
        timeout=100,
    )
    async with client:
        await (call_every_tool if guarded else SCENARIOS[name])(client, data)


if __name__ == "__main__":
    name = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if name not in SCENARIOS and not name.startswith("auth/"):
        sys.exit(f"This client has no scenario {name!r}")
    asyncio.run(main(sys.argv[1], name))
