"""The conversations that the founding documents show, replayed message by message.

Each transcript is a table: what the client says, and what the server must answer (every field shown
must be there; fields not shown may). `...` stands for anything. Where a document shows the server
speaking first, the same is done the other way round, with a bare server and our client.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail import Client, Context, NotFound, Server, ToolError
from dovetail.protocol.client_features import CreateMessageResult
from dovetail.testing import Bare, bare
from dovetail.transports import memory

Step = tuple[dict[str, Any], Any]


def covers(shown: Any, seen: Any) -> bool:
    """Whether all that the document shows is there."""
    if shown is ...:
        return True
    if isinstance(shown, dict):
        return isinstance(seen, dict) and all(
            key in seen and covers(value, seen[key]) for key, value in shown.items()
        )
    if isinstance(shown, list):
        return isinstance(seen, list) and len(shown) == len(seen) and all(map(covers, shown, seen))
    return bool(shown == seen)


def build() -> Server:
    """A server that can answer what the documents ask."""
    server = Server(
        "example-server", version="1.0.0", instructions="Knows the weather, issues and documents."
    )

    @server.tool
    async def get_weather(city: str) -> dict[str, Any]:
        """Retrieve weather for a city"""
        return {"temperature": 89, "condition": "Sunny", "city": city}

    @server.tool
    async def create_issue(repo: str, title: str, body: str = "") -> dict[str, Any]:
        """Create an issue."""
        return {"id": 123, "number": 456, "url": f"https://example.com/{repo}/456"}

    @server.tool(name="long-running-task")
    async def long_running(duration: int, ctx: Context) -> str:
        ctx.progress(duration // 3, duration, "one third")
        await asyncio.Event().wait()
        return "never"

    @server.resource("file:///project/README.md", name="README.md", mime_type="text/markdown")
    def readme() -> str:
        return "# My Project"

    @server.resource("file:///{path}", name="File System")
    def files(path: str) -> str:
        raise NotFound(f"no file {path}")

    @server.prompt
    def summarize(text: str, language: str = "English") -> str:
        """Summarize the given text."""
        return f"Please summarize in {language}: {text}"

    files.complete("path", ["/home/user/documents/"])
    summarize.complete("language", ["python", "pytorch", "pyside"])
    return server


def request(id: Any, method: str, params: Any = None) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return message if params is None else {**message, "params": params}


def reply(id: Any, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def greeting(id: Any, version: str) -> Step:
    capabilities = {"roots": {"listChanged": True}, "sampling": {}}
    info = {"name": "example-client", "version": "1.0.0"}
    params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info}
    offered = {
        "logging": {},
        "prompts": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "tools": {"listChanged": True},
    }
    answer = {
        "protocolVersion": version,
        "capabilities": offered,
        "serverInfo": {"name": "example-server", "version": "1.0.0"},
        "instructions": ...,
    }
    return request(id, "initialize", params), reply(id, answer)


READY: Step = ({"jsonrpc": "2.0", "method": "notifications/initialized"}, None)
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = {"name": "create_issue", "arguments": {"repo": "acme/widgets", "title": "Checkout fails"}}
ISSUE = '{"id":123,"number":456,"url":"https://example.com/acme/widgets/456"}'
README = {"uri": "file:///project/README.md", "mimeType": "text/markdown", "text": "# My Project"}
PROMPT = {"name": "summarize", "arguments": {"text": "the fox"}}
FILLED = {
    "role": "user",
    "content": {"type": "text", "text": "Please summarize in English: the fox"},
}
COMPLETE = {
    "ref": {"type": "ref/prompt", "name": "summarize"},
    "argument": {"name": "language", "value": "py"},
}
COMPLETED = {
    "completion": {"values": ["python", "pytorch", "pyside"], "total": 3, "hasMore": False}
}
TEMPLATE = {"uriTemplate": "file:///{path}", "name": "File System"}


def official(version: str) -> list[Step]:
    """What the specification's own pages show, in any revision with a handshake."""
    return [
        greeting(1, version),
        READY,
        (request(2, "ping"), reply(2, {})),
        (
            request(3, "tools/list"),
            reply(3, {"tools": [{"name": "get_weather", "inputSchema": WEATHER}, ..., ...]}),
        ),
        (
            request("call", "tools/call", CALL),
            reply("call", {"content": [{"type": "text", "text": ISSUE}]}),
        ),
        (
            request(4, "tools/call", {"name": "invalid_tool_name", "arguments": {}}),
            {
                "jsonrpc": "2.0",
                "id": 4,
                "error": {"code": -32602, "message": "Unknown tool: invalid_tool_name"},
            },
        ),
        (
            request(5, "resources/list"),
            reply(5, {"resources": [{"uri": README["uri"], "name": "README.md"}]}),
        ),
        (request(6, "resources/read", {"uri": README["uri"]}), reply(6, {"contents": [README]})),
        (
            request(7, "resources/read", {"uri": "file:///nonexistent.txt"}),
            {
                "jsonrpc": "2.0",
                "id": 7,
                "error": {"code": -32002, "data": {"uri": "file:///nonexistent.txt"}},
            },
        ),
        (request(8, "resources/templates/list"), reply(8, {"resourceTemplates": [TEMPLATE]})),
        (request(9, "resources/subscribe", {"uri": README["uri"]}), reply(9, {})),
        (
            request(10, "prompts/list"),
            reply(10, {"prompts": [{"name": "summarize", "arguments": [..., ...]}]}),
        ),
        (request(11, "prompts/get", PROMPT), reply(11, {"messages": [FILLED]})),
        (request(12, "completion/complete", COMPLETE), reply(12, COMPLETED)),
        (request(13, "logging/setLevel", {"level": "info"}), reply(13, {})),
    ]


DRAFT: list[Step] = [
    (
        request(
            1,
            "initialize",
            {
                "mcpVersion": "2025-06-18",
                "clientCapabilities": {"supportsProgress": True, "supportsCancellation": True},
            },
        ),
        reply(
            1,
            {
                "server": {"name": "example-server", "version": "1.0.0"},
                "serverCapabilities": {
                    "supportsToolDiscovery": True,
                    "supportsResourceDiscovery": True,
                    "supportsNotifications": True,
                },
            },
        ),
    ),
    ({"jsonrpc": "2.0", "method": "initialized", "params": {}}, None),
    (
        request(2, "tools/list"),
        reply(
            2,
            [
                {
                    "name": "get_weather",
                    "description": "Retrieve weather for a city",
                    "inputSchema": WEATHER,
                },
                ...,
                ...,
            ],
        ),
    ),
    (request(3, "resources/list"), reply(3, ...)),
    (
        request(10, "tools/invoke", {"name": "get_weather", "arguments": {"city": "Phoenix"}}),
        reply(10, {"status": "success", "output": {"temperature": 89, "condition": "Sunny"}}),
    ),
    (
        request(11, "tools/invoke", {"name": "get_weather", "arguments": {}}),
        {"jsonrpc": "2.0", "id": 11, "error": {"code": 4001, "message": "`city` is missing"}},
    ),
    (request(50, "shutdown"), {"jsonrpc": "2.0", "id": 50, "result": None}),
]

TRANSCRIPTS = {
    "000": official("2024-11-05"),
    "001": official("2025-03-26"),
    "002": official("2025-03-26"),
    "003": DRAFT,
    "004": official("2025-03-26") + [
        (
            request(20, "tools/call", {"name": "create_issue", "arguments": {"repo": 1}}),
            reply(20, {"isError": True, "content": [{"type": "text", "text": ...}]}),
        )
    ],
}  # fmt: skip


@pytest.mark.parametrize("seed", TRANSCRIPTS)
async def test_a_transcript_replays(seed: str) -> None:
    async with bare(build()) as peer:
        for message, expected in TRANSCRIPTS[seed]:
            peer.send(message)
            if expected is not None:
                answer = await peer.receive()
                assert covers(expected, answer), f"to {message}\n{answer}\nis not\n{expected}"


async def test_the_draft_dialect_reports_progress_and_is_cancelled_by_id() -> None:
    async with bare(build()) as peer:
        for message, expected in DRAFT[:2]:
            peer.send(message)
            if expected is not None:
                await peer.receive()
        peer.send(
            request(
                10, "tools/invoke", {"name": "long-running-task", "arguments": {"duration": 30}}
            )
        )
        progress = {
            "jsonrpc": "2.0",
            "method": "progress",
            "params": {"id": 10, "percent": 33.33, "message": "one third"},
        }
        assert await peer.receive() == progress
        peer.send({"jsonrpc": "2.0", "method": "cancel", "params": {"id": 10}})
        assert covers(reply(10, {"status": "cancelled"}), await peer.receive())
        peer.send({"jsonrpc": "2.0", "method": "cancel", "params": {"id": 10}})  # late: ignored
        assert (await peer.ask("shutdown", id=50))["result"] is None
        peer.send({"jsonrpc": "2.0", "method": "exit"})
        await peer.ended


async def test_the_draft_dialect_tells_which_tools_came_and_went() -> None:
    server = build()
    async with bare(server) as peer:
        for message, expected in DRAFT[:2]:
            peer.send(message)
            if expected is not None:
                await peer.receive()
        await peer.ask("tools/list")
        server.add_tool(lambda: 1, name="new_tool", description="A new feature")
        server.remove_tool("create_issue")
        params = {
            "added": [{"name": "new_tool", "description": "A new feature"}],
            "removed": ["create_issue"],
        }
        assert await peer.receive() == {
            "jsonrpc": "2.0",
            "method": "tools/changed",
            "params": params,
        }


async def test_progress_and_cancellation_as_the_documents_show_them() -> None:
    async with bare(build()) as peer:
        await peer.greet("2025-03-26")
        params = {
            "_meta": {"progressToken": "p-1"},
            "name": "long-running-task",
            "arguments": {"duration": 30},
        }
        peer.send(request("long-op-1", "tools/call", params))
        update = {"progressToken": "p-1", "progress": 10, "total": 30, "message": "one third"}
        assert await peer.receive() == {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": update,
        }
        note = {"requestId": "long-op-1", "reason": "The user pressed stop"}
        peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": note})
        assert (await peer.ask("ping"))["result"] == {}
        assert peer.waiting() == 0


# The other way round: our client, and a bare server that says what the documents show.


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[Client, Bare]]:
    ours, theirs = memory.pair()
    peer = Bare(theirs)
    client = Client(ours, revision="2025-03-26", **options)
    opening = asyncio.create_task(client.connect())
    asked = await peer.receive()
    offered = {
        "tools": {},
        "resources": {"subscribe": True},
        "prompts": {},
        "logging": {},
        "completions": {},
    }
    info = {"name": "my-server", "version": "1.0.0"}
    peer.send(
        reply(
            asked["id"],
            {"protocolVersion": "2025-03-26", "capabilities": offered, "serverInfo": info},
        )
    )
    await opening
    assert (await peer.receive())["method"] == "notifications/initialized"
    try:
        yield client, peer
    finally:
        await client.close()


async def test_a_server_asks_for_a_message_and_for_the_roots() -> None:
    def sample(asked: Any) -> CreateMessageResult | str:
        assert asked.messages[0].content.text == "What is 2 + 2?"
        assert asked.model_preferences.hints[0].name == "claude-3"
        return "4"

    async with served(on_sample=sample, roots=["file:///approved"]) as (_, peer):
        content = {"type": "text", "text": "What is 2 + 2?"}
        preferences = {"hints": [{"name": "claude-3"}], "intelligencePriority": 0.8}
        params = {
            "messages": [{"role": "user", "content": content}],
            "maxTokens": 10,
            "modelPreferences": preferences,
        }
        answer = (await peer.ask("sampling/createMessage", params, id="sample-1"))["result"]
        assert covers(
            {"role": "assistant", "content": {"type": "text", "text": "4"}, "model": ...}, answer
        )
        roots = (await peer.ask("roots/list", id="roots-1"))["result"]
        assert roots == {"roots": [{"uri": "file:///approved"}]}


async def test_completion_values_may_be_objects() -> None:
    async with served() as (client, peer):
        asking = asyncio.create_task(
            client.complete(resource="file://{path}", argument="path", value="/home")
        )
        asked = await peer.receive()
        values = [
            {"value": "/home/user/documents/", "description": "Documents folder"},
            "/home/user/downloads/",
        ]
        peer.send(
            reply(asked["id"], {"completion": {"values": values, "total": 2, "hasMore": False}})
        )
        assert (await asking).values == ["/home/user/documents/", "/home/user/downloads/"]


@pytest.mark.requirement("resources-not-found-old")
@pytest.mark.parametrize("code", [-32001, -32002])
async def test_a_missing_resource_is_not_found_whatever_its_code(code: int) -> None:
    async with served() as (client, peer):
        reading = asyncio.create_task(client.read_resource("file:///gone"))
        asked = await peer.receive()
        peer.send(
            {
                "jsonrpc": "2.0",
                "id": asked["id"],
                "error": {"code": code, "message": "Resource not found"},
            }
        )
        with pytest.raises(NotFound, match="Resource not found"):
            await reading


async def test_a_tool_that_failed_may_say_so_with_an_error() -> None:
    async with served() as (client, peer):
        calling = asyncio.create_task(client.call_tool("x"))
        asked = await peer.receive()
        peer.send(
            {
                "jsonrpc": "2.0",
                "id": asked["id"],
                "error": {"code": -32002, "message": "Tool execution failed"},
            }
        )
        with pytest.raises(ToolError, match="Tool execution failed"):
            await calling
