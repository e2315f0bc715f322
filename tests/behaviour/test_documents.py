"""What the founding documents ask for and no other test shows, over the transports and in the
revisions that it concerns. docs/requirements says where each requirement is shown."""

import asyncio
import logging
from pathlib import Path
from typing import Any, Literal

import pytest

from dovetail import Client, Context, Message, ProtocolError, Server, ToolError
from dovetail.errors import InternalError
from dovetail.limits import Limits
from dovetail.protocol.base import CLIENT_CAPABILITIES
from dovetail.protocol.content import Annotations
from dovetail.protocol.lifecycle import ProgressParams
from dovetail.protocol.tools import ToolAnnotations
from dovetail.testing import Bare, bare
from dovetail.transports import memory
from tests.behaviour.conftest import TRANSPORTS, Talk
from tests.behaviour.handmade import complete, handmade, notification, reply
from tests.behaviour.web import on_a_port

DRAFT = "detailed-draft"
MARKED = {"audience": ["user", "assistant"], "priority": 0.9, "custom_field": "value"}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_draft_dialect_works_over_every_transport(transport: str) -> None:
    talk = Talk(transport, DRAFT)
    updates: list[ProgressParams] = []
    async with talk() as client:
        assert client.revision == DRAFT
        assert client.server_info is not None
        assert client.server_info.name == "everything"
        assert "add" in [tool.name for tool in await client.list_tools()]
        assert "doc://text" in [resource.uri for resource in await client.list_resources()]
        assert (await client.call_tool("add", {"a": 2, "b": 3})).data == 5
        with pytest.raises(ProtocolError, match="`a` is missing") as caught:
            await client.call_tool("add", {})
        assert caught.value.code == 4001
        await client.call_tool("steps", {"count": 3}, on_progress=updates.append)
    assert updates[-1].progress == 100, "a percentage"
    if talk.tape.entries:
        assert {"tools/invoke", "initialized"} <= set(talk.tape.methods("client"))


@pytest.mark.parametrize("supported", [True, False, None])
async def test_in_the_draft_dialect_progress_is_sent_only_if_the_client_supports_it(
    supported: bool | None,
) -> None:
    server = Server("steps")

    @server.tool
    async def steps(ctx: Context) -> str:
        ctx.progress(1, 2)
        return "done"

    flags = {} if supported is None else {"supportsProgress": supported}
    async with bare(server) as peer:
        await peer.ask("initialize", {"mcpVersion": "2025-06-18", "clientCapabilities": flags})
        peer.send({"jsonrpc": "2.0", "method": "initialized", "params": {}})
        call = {"name": "steps", "arguments": {}}
        peer.send({"jsonrpc": "2.0", "id": 7, "method": "tools/invoke", "params": call})
        came = [await peer.receive() for _ in range(2 if supported else 1)]
        assert [message.get("method") for message in came] == ["progress"] * bool(supported) + [
            None
        ]
        assert peer.waiting() == 0


@pytest.mark.parametrize(
    "hostile",
    [
        "x'; drop table orders; --",
        "1 or 1=1",
        "$(rm -rf /)",
        "`id`; echo",
        "--file=/etc/passwd",
        "../../etc/passwd",
        "a\0b",
        "{{7*7}} ${jndi:ldap://x}",
    ],
)
async def test_text_that_looks_like_code_is_only_text_and_no_choice_takes_it(
    in_memory: Talk, hostile: str
) -> None:
    server, seen = Server("orders"), []

    @server.tool
    def orders(customer: str, sort: Literal["id", "day"] = "id") -> str:
        seen.append(sort)
        return customer

    async with in_memory(server) as client:
        assert (await client.call_tool("orders", {"customer": hostile})).text == hostile
        with pytest.raises(ToolError, match="`sort` must be one of"):
            await client.call_tool("orders", {"customer": "ada", "sort": hostile})
    assert seen == ["id"]


async def test_a_client_declares_experimental_capabilities(in_memory: Talk) -> None:
    declared = {"com.example/beta": {"level": 2}}
    async with in_memory(experimental=declared) as client:
        await client.list_tools()
    asked = in_memory.tape.messages("client")
    told = (
        asked[-1]["params"]["_meta"][CLIENT_CAPABILITIES]
        if in_memory.stateless
        else next(one for one in asked if one["method"] == "initialize")["params"]["capabilities"]
    )
    assert told["experimental"] == declared


async def test_annotations_reach_the_client_with_fields_of_their_own(in_memory: Talk) -> None:
    server = Server("marked")
    server.add_tool(lambda: 1, name="tool", annotations=ToolAnnotations.of(MARKED))
    server.add_resource(lambda: "x", "doc://marked", annotations=Annotations.of(MARKED))
    async with in_memory(server) as client:
        (tool,) = await client.list_tools()
        (resource,) = await client.list_resources()
    assert resource.annotations == MARKED
    assert tool.annotations == (MARKED if in_memory.at_least("2025-03-26") else None)


@pytest.mark.parametrize(
    "uri", ["file:///a.txt", "git://repository/a", "https://example.com/a", "x-own:thing"]
)
async def test_a_resource_may_have_any_scheme(in_memory: Talk, uri: str) -> None:
    server = Server("schemes")
    server.add_resource(lambda: "text", uri)
    async with in_memory(server) as client:
        assert [resource.uri for resource in await client.list_resources()] == [uri]
        (contents,) = await client.read_resource(uri)
    assert (contents.uri, contents.text) == (uri, "text")


async def test_progress_and_total_may_be_fractions(in_memory: Talk) -> None:
    server = Server("steps", limits=Limits(progress_interval=0))

    @server.tool
    async def steps(ctx: Context) -> None:
        for value in (0.25, 0.5, 1.5):
            ctx.progress(value, 1.5)

    heard: list[tuple[float, float | None]] = []
    async with in_memory(server) as client:
        await client.call_tool(
            "steps", on_progress=lambda update: heard.append((update.progress, update.total))
        )
    assert heard == [(0.25, 1.5), (0.5, 1.5), (1.5, 1.5)]


@pytest.mark.parametrize(
    "returned",
    [
        object(),
        ["first", object()],
        Message("system", "x"),
        [Message("user", "x"), Message("", "")],
    ],  # type: ignore[arg-type]
    ids=["an object", "an object in a list", "another role", "no role"],
)
async def test_a_prompt_that_returns_no_messages_is_an_internal_error(
    in_memory: Talk, returned: Any
) -> None:
    server = Server("prompts")

    @server.prompt
    def broken() -> Any:
        return returned

    async with in_memory(server) as client:
        with pytest.raises(InternalError) as caught:
            await client.get_prompt("broken")
        assert caught.value.code == -32603
        await client.ping()


async def test_a_prompt_that_breaks_is_an_internal_error(in_memory: Talk) -> None:
    server = Server("prompts")

    @server.prompt
    def broken() -> str:
        raise ValueError("out of ink")

    async with in_memory(server) as client:
        with pytest.raises(InternalError) as caught:
            await client.get_prompt("broken")
        assert caught.value.code == -32603


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_roots_that_cannot_be_listed_are_an_internal_error(
    revision: str, tmp_path: Path
) -> None:
    def fail(request: Any, answer: Any) -> Any:
        raise OSError("the disk is gone")

    async with handmade(revision, roots=[tmp_path], on_answer=fail) as (_, server):
        assert (await server.ask("roots/list"))["error"]["code"] == -32603
        assert (await server.ask("ping", id=2))["result"] == {}


@pytest.mark.parametrize("values", [[], ["python"]])
async def test_a_completion_may_lack_its_total_and_whether_there_are_more(
    revision: str, values: list[str]
) -> None:
    async with handmade(revision) as (client, server):
        asking = asyncio.create_task(client.complete(prompt="p", argument="a", value="py"))
        asked = await server.receive()
        server.send(reply(asked, complete(completion={"values": values})))
        completed = await asking
    assert (completed.values, completed.total, completed.has_more) == (values, None, None)


async def test_a_ping_without_an_answer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = memory.pair()
    server = Bare(theirs)
    limits = Limits(ping_interval=0.01, ping_timeout=0.05)
    client = Client(ours, revision="2025-03-26", limits=limits)
    lost = asyncio.Event()
    client.on_change("state", lambda state: lost.set() if state == "disconnected" else None)
    with caplog.at_level(logging.WARNING, "dovetail"):
        opening = asyncio.create_task(client.connect())
        asked = await server.receive()
        info = {"name": "deaf", "version": "0"}
        welcome = {"protocolVersion": "2025-03-26", "capabilities": {}, "serverInfo": info}
        server.send(reply(asked, welcome))
        await opening
        await lost.wait()
    await client.close()
    assert "no answer to a ping within 0.05 s" in caplog.text


async def test_a_greeting_that_cannot_be_served_is_refused_with_both_versions() -> None:
    async with bare(Server("new", revisions=["2026-07-28"])) as peer:
        error = (await peer.greet("2025-03-26"))["error"]
    assert error["data"] == {"supported": ["2026-07-28"], "requested": "2025-03-26"}


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-11-25"])
async def test_a_client_logs_why_an_answer_is_no_longer_wanted(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked, given_up = asyncio.Event(), asyncio.Event()

    async def think(request: Any) -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        return "never"

    content = {"type": "text", "text": "What is 2 + 2?"}
    question = {"messages": [{"role": "user", "content": content}], "maxTokens": 10}
    with caplog.at_level(logging.INFO, "dovetail"):
        async with handmade(revision, on_sample=think) as (_, server):
            message = {"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage"}
            server.send({**message, "params": question})
            await asked.wait()
            server.send(notification("notifications/cancelled", requestId=7, reason="too slow"))
            await given_up.wait()
    assert "too slow" in caplog.text


async def test_personal_data_can_be_kept_out_of_log_messages(in_memory: Talk) -> None:
    server = Server("private", redact=lambda text: text.replace("ada@example.com", "[email]"))

    @server.tool
    async def greet(ctx: Context) -> str:
        ctx.info({"to": "ada@example.com"})
        return "sent"

    heard: list[Any] = []
    async with in_memory(server, on_log=lambda entry: heard.append(entry.data)) as client:
        await client.call_tool("greet")
    assert heard == [{"to": "[email]"}]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
    ],
)
async def test_a_websocket_is_not_opened_for_a_page_of_another_origin(
    headers: dict[str, str], status: int
) -> None:
    async with on_a_port(Server("s").asgi(path="/mcp", websocket=True)) as address:
        reader, writer = await asyncio.open_connection(*address.split(":"))
        lines = {
            "Host": address,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Protocol": "mcp",
        } | headers
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"GET /ws HTTP/1.1\r\n{head}\r\n".encode())
        answer = await reader.readline()
        writer.close()
    assert answer.split()[1] == str(status).encode()
