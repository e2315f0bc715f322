"""Requirements on tools, resources, prompts, completion, logging, lists and caches."""

import asyncio
from base64 import b64decode
from typing import Any

import pytest
from msgspec import Struct

from dovetail import (
    Audio,
    BlobResourceContents,
    EmbeddedResource,
    File,
    Image,
    Message,
    Server,
    TextContent,
    TextResourceContents,
    ToolError,
    ToolResult,
)
from dovetail.errors import ConfigError, InvalidRequest
from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from dovetail.protocol.utilities import CompleteResult, Completion
from dovetail.testing import bare
from tests.behaviour import everything
from tests.behaviour.conftest import Talk
from tests.behaviour.handmade import complete, handmade, reply

META = {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}}
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
LIES: dict[str, Any] = {
    "another type": {"x": "one"},
    "a field missing": {},
    "nothing": None,
    "no object": [1],
    "content alone": TextContent("one"),
    "its own result": ToolResult(content=[TextContent("one")], structured_content={"x": "one"}),
    "a result without data": ToolResult(content=[TextContent("one")]),
}


class Point(Struct):
    x: int


# tools


@pytest.mark.requirement("tools-output-conforms")
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("how", ["announced by type", "given"])
async def test_a_tool_that_breaks_its_own_schema_has_failed(
    in_memory: Talk, lie: str, how: str
) -> None:
    server = Server("liar")

    async def inferred() -> Point:
        return LIES[lie]  # type: ignore[no-any-return]

    async def given() -> Any:
        return LIES[lie]

    if how == "given":
        server.add_tool(given, name="lie", output_schema=SCHEMA)
    else:
        server.add_tool(inferred, name="lie")
    async with in_memory(server) as client:
        with pytest.raises(
            ToolError, match="lie returned a value that does not match its output schema"
        ) as caught:
            await client.call_tool("lie")
        assert caught.value.result.structured_content is None


@pytest.mark.requirement("tools-output-conforms")
@pytest.mark.parametrize(
    ("returns", "value"),
    [
        (int, "one"),
        (str, 1),
        (bool, 1),
        (float, float("nan")),
        (list[int], ["one"]),
        (dict[str, int], {"x": "y"}),
    ],
)
async def test_a_plain_value_of_another_type_has_failed_too(returns: Any, value: Any) -> None:
    server = Server("liar")

    async def lie() -> Any:
        return value

    lie.__annotations__["return"] = returns
    server.add_tool(lie)
    async with bare(server) as peer:
        result = (await peer.ask("tools/call", {"name": "lie", "_meta": META}))["result"]
        assert result["isError"]
        assert "structuredContent" not in result


@pytest.mark.requirement(
    "tools-output-conforms", "tools-structured-text", "tools-structured-content"
)
@pytest.mark.parametrize(
    ("schema", "value", "structured", "text"),
    [
        (SCHEMA, {"x": 1}, {"x": 1}, '{"x":1}'),
        (SCHEMA, Point(1), {"x": 1}, '{"x":1}'),
        ({"type": "array", "items": {"type": "integer"}}, [1, 2], [1, 2], "[1,2]"),
        ({"type": "string"}, "word", "word", "word"),
        ({"type": ["integer", "null"]}, None, None, "null"),
        ({"type": "object", "required": ["result"]}, 5, {"result": 5}, "5"),
    ],
)
async def test_what_keeps_to_its_schema_arrives_as_data_and_as_text(
    in_memory: Talk, schema: dict[str, Any], value: Any, structured: Any, text: str
) -> None:
    server = Server("honest")

    @server.tool(output_schema=schema)
    async def honest() -> Any:
        return value

    async with in_memory(server) as client:
        result = await client.call_tool("honest")
    assert result.text == text
    told = in_memory.stateless or (
        isinstance(structured, dict) and in_memory.at_least("2025-06-18")
    )
    assert result.structured_content == (structured if told else None)


@pytest.mark.requirement("tool-names")
def test_a_name_is_taken_once_and_its_case_counts() -> None:
    server = Server("names")
    for name in ("getUser", "getuser", "admin.tools.list", "DATA_EXPORT_v2", "x" * 128):
        server.add_tool(lambda: 1, name=name)
    with pytest.raises(ConfigError, match="already"):
        server.add_tool(lambda: 1, name="getUser")


@pytest.mark.requirement("tools-list-same", "tools-list-order")
async def test_a_list_is_the_same_for_everybody_and_at_any_time() -> None:
    server = everything.build()
    async with bare(server) as one, bare(server) as other:
        first = await one.ask("tools/list", {"_meta": META})
        await one.ask("tools/call", {"name": "add", "arguments": {"a": 1}, "_meta": META})
        await other.greet("2024-11-05")
        assert await one.ask("tools/list", {"_meta": META}) == first
        assert await other.ask("tools/list", {"_meta": META}) == first


@pytest.mark.requirement("tools-input-checked")
async def test_a_tool_never_sees_input_that_is_wrong() -> None:
    server, seen = Server("strict"), []

    @server.tool
    async def strict(number: int) -> None:
        seen.append(number)

    async with bare(server) as peer:
        for arguments in (
            {},
            {"number": "x"},
            {"number": None},
            {"number": 1, "more": 2},
            [1],
            None,
            "x",
        ):
            reply = await peer.ask(
                "tools/call", {"name": "strict", "arguments": arguments, "_meta": META}
            )
            assert "error" in reply or reply["result"]["isError"]
    assert seen == []


# resources


@pytest.mark.requirement("resources-schemes", "resources-uris")
@pytest.mark.parametrize(
    "uri", ["nothing", "1x://a", "my scheme://a", "-x:a", "://a", "\u00e9://a", ""]
)
def test_a_scheme_that_is_none_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match="scheme"):
        Server("uris").resource(uri)(lambda: "x")


@pytest.mark.requirement("resources-binary")
@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000])
async def test_bytes_are_base64_as_everybody_knows_it(size: int) -> None:
    server, data = Server("bytes"), bytes(range(256)) * 4
    server.add_resource(lambda: data[:size], "x:bytes", name="bytes")
    async with bare(server) as peer:
        (content,) = (await peer.ask("resources/read", {"uri": "x:bytes", "_meta": META}))[
            "result"
        ]["contents"]
        assert b64decode(content["blob"], validate=True) == data[:size]


@pytest.mark.requirement("resources-not-found-empty")
@pytest.mark.parametrize("value", [[], None, "", b""])
async def test_a_resource_that_is_there_is_never_an_empty_answer(
    in_memory: Talk, value: Any
) -> None:
    server = Server("empty")
    server.add_resource(lambda: value, "x:empty", name="empty")
    async with in_memory(server) as client:
        assert len(await client.read_resource("x:empty")) == 1


@pytest.mark.requirement("resources-not-found")
async def test_what_is_not_there_is_refused_with_its_uri() -> None:
    async with bare(everything.build()) as peer:
        error = (await peer.ask("resources/read", {"uri": "doc://nothing", "_meta": META}))["error"]
        assert (error["code"], error["data"]) == (-32602, {"uri": "doc://nothing"})
        await peer.greet("2025-11-25")
        error = (await peer.ask("resources/read", {"uri": "doc://nothing"}))["error"]
        assert (error["code"], error["data"]) == (-32002, {"uri": "doc://nothing"})


# prompts


@pytest.mark.requirement("prompts-media", "prompts-embedded")
async def test_pictures_sounds_and_resources_in_prompts_are_whole(in_memory: Talk) -> None:
    server = Server("media")

    @server.prompt
    async def media() -> list[Any]:
        return [
            Image(data=b"\x89PNG", mime_type="image/png"),
            Message("assistant", Audio(data=b"RIFF", mime_type="audio/wav")),
            File(data=b"\x00", mime_type="application/octet-stream", uri="x:file"),
            EmbeddedResource(TextResourceContents(uri="x:text", text="t", mime_type="text/plain")),
            EmbeddedResource(
                BlobResourceContents(uri="x:blob", blob="AA==", mime_type="image/gif")
            ),
        ]

    async with in_memory(server) as client:
        await client.get_prompt("media")
    messages = in_memory.tape.messages("server")[-1]["result"]["messages"]
    assert [one["role"] for one in messages] == ["user", "assistant", "user", "user", "user"]
    picture, sound, *resources = [one["content"] for one in messages]
    assert (b64decode(picture["data"], validate=True), picture["mimeType"]) == (
        b"\x89PNG",
        "image/png",
    )
    if in_memory.at_least("2025-03-26"):
        assert (b64decode(sound["data"], validate=True), sound["mimeType"]) == (
            b"RIFF",
            "audio/wav",
        )
    for block in resources:
        assert block["type"] == "resource"
        assert block["resource"].keys() in (
            {"uri", "mimeType", "text"},
            {"uri", "mimeType", "blob"},
        )


# completion and logging


@pytest.mark.requirement("completion-limit")
@pytest.mark.parametrize("form", ["list", "completion", "result"])
async def test_no_form_of_completion_sends_more_than_a_hundred(in_memory: Talk, form: str) -> None:
    server, many = Server("many"), [f"v{number}" for number in range(250)]

    @server.prompt
    def prompt(which: str) -> str:
        return which

    @prompt.complete("which")
    def values(value: str) -> Any:
        found = Completion(values=many)
        return {"list": many, "completion": found, "result": CompleteResult(completion=found)}[form]

    async with in_memory(server) as client:
        completion = await client.complete(prompt="prompt", argument="which", value="")
    assert (len(completion.values), completion.total, completion.has_more) == (100, 250, True)


@pytest.mark.requirement("logging-level-invalid")
@pytest.mark.parametrize("level", ["loud", "", "INFO", 3, None])
async def test_a_level_that_is_none_is_refused(level: Any) -> None:
    async with bare(everything.build()) as peer:
        await peer.greet("2025-06-18")
        assert (await peer.ask("logging/setLevel", {"level": level}))["error"]["code"] == -32602


# lists and caches


@pytest.mark.requirement("pagination", "pagination-opaque", "pagination-page-size")
async def test_a_client_follows_pages_of_any_size_by_cursors_of_any_kind(revision: str) -> None:
    cursors = ["", "0", "null", " \n", "\u00e9\u2028", '{"page": 3}', "x" * 5000]
    sizes = [1, 0, 3, 0, 2, 5, 1, 1]
    async with handmade(revision) as (client, server):
        listing = asyncio.create_task(client.list_tools())
        for number, size in enumerate(sizes):
            asked = await server.receive()
            assert asked.get("params", {}).get("cursor") == (
                cursors[number - 1] if number else None
            )
            tools = [
                {"name": f"t{number}-{one}", "inputSchema": {"type": "object"}}
                for one in range(size)
            ]
            more = {"nextCursor": cursors[number]} if number < len(cursors) else {}
            server.send(reply(asked, complete(tools=tools, ttlMs=0, cacheScope="private", **more)))
        assert len(await listing) == sum(sizes)


CACHED = {
    "server/discover": {},
    "tools/list": {},
    "prompts/list": {},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "doc://text"},
}
UNCACHED = {
    "tools/call": {"name": "add", "arguments": {"a": 1}},
    "prompts/get": {"name": "greet", "arguments": {"name": "x"}},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "name", "value": ""},
    },
}


@pytest.mark.requirement(
    "cache-hints", "cache-hints-elsewhere", "cache-ttl", "result-type", "stateless-server-info"
)
@pytest.mark.parametrize("method", [*CACHED, *UNCACHED])
async def test_hints_for_caches_are_where_they_must_be_and_nowhere_else(method: str) -> None:
    async with bare(everything.build()) as peer:
        result = (await peer.ask(method, {**CACHED, **UNCACHED}[method] | {"_meta": META}))[
            "result"
        ]
        assert result["resultType"] == "complete"
        if method in CACHED:
            assert type(result["ttlMs"]) is int
            assert result["ttlMs"] >= 0
            assert result["cacheScope"] in ("public", "private")
        else:
            assert not {"ttlMs", "cacheScope"} & result.keys()
        if method != "server/discover":
            await peer.greet("2025-11-25")
            old = (await peer.ask(method, {**CACHED, **UNCACHED}[method]))["result"]
            assert not {"ttlMs", "cacheScope", "resultType"} & old.keys()


@pytest.mark.requirement("cache-scope-of-pages")
async def test_all_pages_of_a_list_have_one_scope() -> None:
    scopes, cursor = [], None
    async with bare(everything.build(page_size=3)) as peer:
        while True:
            page = (
                await peer.ask(
                    "tools/list", {"_meta": META} | ({"cursor": cursor} if cursor else {})
                )
            )["result"]
            scopes.append(page["cacheScope"])
            cursor = page.get("nextCursor")
            if cursor is None:
                break
    assert len(scopes) > 2
    assert len(set(scopes)) == 1


@pytest.mark.requirement("cache-ttl-odd", "result-type-absent")
@pytest.mark.parametrize(
    "hints",
    [{}, {"ttlMs": -5, "cacheScope": "private"}, {"ttlMs": 0}, {"cacheScope": "odd", "ttlMs": 1}],
)
@pytest.mark.parametrize("kind", [{}, {"resultType": "complete"}])
async def test_odd_hints_and_a_missing_type_change_nothing(
    hints: dict[str, Any], kind: dict[str, str]
) -> None:
    async with handmade() as (client, server):
        for _ in range(1 if hints.get("ttlMs", 0) > 0 else 2):  # nothing of it was kept
            reading = asyncio.create_task(client.read_resource("x:y"))
            server.send(
                reply(
                    await server.receive(),
                    {"contents": [{"uri": "x:y", "text": "t"}], **hints, **kind},
                )
            )
            assert [one.text for one in await reading] == ["t"]


@pytest.mark.requirement("result-type-unknown")
@pytest.mark.parametrize("kind", ["tasks", "partial", "", "COMPLETE"])
async def test_an_answer_of_another_type_is_invalid_for_every_method(kind: str) -> None:
    async with handmade() as (client, server):
        for ask in (
            client.list_tools(),
            client.call_tool("x"),
            client.read_resource("x:y"),
            client.get_prompt("x"),
        ):
            asking = asyncio.create_task(ask)
            asked = await server.receive()
            server.send(
                reply(
                    asked,
                    {
                        "resultType": kind,
                        "tools": [],
                        "content": [],
                        "contents": [],
                        "messages": [],
                    },
                )
            )
            with pytest.raises(InvalidRequest, match=r"unknown result type"):
                await asking


@pytest.mark.requirement("cache-key")
async def test_an_answer_is_never_served_for_another_request() -> None:
    async with handmade() as (client, server):
        for uri in ("x:a", "x:b", "x:a"):
            reading = asyncio.create_task(client.read_resource(uri))
            asked = await server.receive()
            assert asked["params"]["uri"] == uri
            server.send(
                reply(
                    asked,
                    complete(contents=[{"uri": uri, "text": uri}], ttlMs=0, cacheScope="public"),
                )
            )
            assert [one.text for one in await reading] == [uri]
