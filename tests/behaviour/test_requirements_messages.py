"""Requirements on messages, `_meta` and schemas, each shown on the wire."""

import asyncio
import re
from functools import reduce
from typing import Any

import pytest

from dovetail import Context, Server, TextContent, ToolResult, errors
from dovetail.errors import CannotAsk, ProtocolError, SchemaError, ToolError
from dovetail.protocol import base
from dovetail.protocol.base import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROTOCOL_VERSION,
    SERVER_INFO,
    SUBSCRIPTION_ID,
)
from dovetail.testing import Tape, bare, pair
from tests.behaviour import everything
from tests.behaviour.conftest import Talk
from tests.behaviour.handmade import complete, handmade, notification, reply

META = {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}}
KEY = re.compile(
    r"([A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?)*/)?[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?"
)


async def busy(talk: Talk) -> Tape:
    """A conversation with a bit of everything in it."""
    async with talk(on_log=lambda entry: None) as client:
        await client.list_tools()
        await client.call_tool("steps", {"count": 3}, on_progress=lambda update: None)
        await client.call_tool("talk")
        await client.read_resource("doc://text")
        with pytest.raises(ProtocolError):
            await client.get_prompt("nothing")
        with pytest.raises(ToolError):
            await client.call_tool("fail", {"kind": "plain"})
    return talk.tape


@pytest.mark.requirement("request-id-type", "request-id-unique", "request-id-in-flight")
async def test_each_request_has_an_id_of_its_own(in_memory: Talk) -> None:
    ids = [
        message["id"] for message in (await busy(in_memory)).messages("client") if "id" in message
    ]
    assert len(ids) > 5
    assert all(type(id) is int for id in ids)
    assert len(set(ids)) == len(ids)


@pytest.mark.requirement("response-id", "response-one-outcome", "notification-no-id")
async def test_each_request_has_one_reply_with_one_outcome_and_notifications_have_no_id(
    in_memory: Talk,
) -> None:
    tape = await busy(in_memory)
    asked = sorted(message["id"] for message in tape.messages("client") if "id" in message)
    replies = [message for message in tape.messages("server") if "method" not in message]
    assert sorted(message["id"] for message in replies) == asked
    assert all(("result" in message) != ("error" in message) for message in replies)
    told = [
        message for message in tape.messages() if "method" in message and "result" not in message
    ]
    assert all(
        "id" not in message for message in told if message["method"].startswith("notifications/")
    )


@pytest.mark.requirement("response-id")
@pytest.mark.parametrize("id", [0, -1, 2**53, "", "1", "a b\n", "\u00e9"])
async def test_an_id_comes_back_as_it_was(id: Any) -> None:
    async with bare(everything.build()) as peer:
        peer.send(
            {"jsonrpc": "2.0", "id": id, "method": "server/discover", "params": {"_meta": META}}
        )
        back = (await peer.receive())["id"]
        assert (back, type(back)) == (id, type(id))


@pytest.mark.requirement("error-codes-reserved", "error-codes-own")
def test_of_the_reserved_codes_only_the_defined_ones_are_ours() -> None:
    classes = [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, ProtocolError)
    ]
    codes = {one.__name__: one.code for one in classes}
    reserved = {name: code for name, code in codes.items() if -32099 <= code <= -32000}
    retired = {"UrlRequired": -32042}  # sent in the one revision that has it
    assert (
        reserved
        == {"HeaderMismatch": -32020, "MissingCapability": -32021, "UnsupportedVersion": -32022}
        | retired
    )
    own = {"BackendAway", "ConsentDenied", "Forbidden", "Overloaded", "TooLarge"}
    assert all(
        code in (-32700, -32600, -32601, -32602, -32603)
        for name, code in codes.items()
        if name not in {*reserved, *own}
    )
    assert not any(-32768 <= codes[name] <= -32000 for name in own)


@pytest.mark.requirement("error-codes-retired")
@pytest.mark.parametrize(
    ("code", "sent"), [(-32002, -32602), (-32042, -32603), (-32001, -32001), (7, 7)]
)
async def test_a_handler_cannot_send_a_retired_code(code: int, sent: int) -> None:
    server = Server("old-fashioned")

    @server.tool
    async def refuse() -> None:
        raise ProtocolError(code, "no", {"elicitations": []})

    async with bare(server) as peer:
        assert (await peer.ask("tools/call", {"name": "refuse", "_meta": META}))["error"][
            "code"
        ] == sent
        await peer.greet("2025-11-25")
        assert (await peer.ask("tools/call", {"name": "refuse"}, id=2))["error"]["code"] == code


@pytest.mark.requirement("stateless-independent")
async def test_a_stateless_request_knows_nothing_of_what_came_before_it() -> None:
    server = everything.build()

    @server.tool
    async def seen(ctx: Context) -> dict[str, Any]:
        ctx.info("heard?")
        return {
            "name": ctx.client.name if ctx.client else None,
            "roots": ctx._call.caller.capabilities.roots is not None,
        }

    async with bare(server) as peer:
        await peer.greet("2025-11-25", {"roots": {}})
        await peer.ask("logging/setLevel", {"level": "debug"}, id=2)
        named = {
            **META,
            CLIENT_INFO: {"name": "named", "version": "0"},
            CLIENT_CAPABILITIES: {"roots": {}},
            LOG_LEVEL: "debug",
        }
        for id, meta, expected in ((3, named, ("named", True)), (4, META, (None, False))):
            peer.send(
                {
                    "jsonrpc": "2.0",
                    "id": id,
                    "method": "tools/call",
                    "params": {"name": "seen", "_meta": meta},
                }
            )
            if LOG_LEVEL in meta:
                assert (await peer.receive())["method"] == "notifications/message"
            result = (await peer.receive())["result"]["structuredContent"]
            assert (result["name"], result["roots"]) == expected
            assert peer.waiting() == 0


@pytest.mark.requirement("meta-key-format")
async def test_every_key_that_we_put_into_meta_is_a_valid_one(in_memory: Talk) -> None:
    assert (
        not KEY.fullmatch("-bad/name") and not KEY.fullmatch("a..b/c") and not KEY.fullmatch("1a/b")
    )
    found = [
        value
        for name, value in vars(base).items()
        if name.isupper() and name not in ("PREFIX", "NODEFAULT", "UNSET")
    ]
    declared = [key for value in found for key in ((value,) if isinstance(value, str) else value)]
    keys = {key for key, _ in _metas((await busy(in_memory)).messages())}
    assert keys or not in_memory.stateless
    assert [key for key in {*keys, *declared} if not KEY.fullmatch(key)] == []


def _metas(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, list):
        return [found for item in value for found in _metas(item)]
    if not isinstance(value, dict):
        return []
    own = list(value["_meta"].items()) if isinstance(value.get("_meta"), dict) else []
    return own + [found for item in value.values() for found in _metas(item)]


@pytest.mark.requirement("meta-no-assumptions")
@pytest.mark.parametrize("odd", [None, 5, "x", [1], {"name": 5}])
async def test_odd_values_in_the_meta_of_a_server_disturb_no_client(odd: Any) -> None:
    async with handmade() as (client, server):
        changes: list[str] = []
        client.on_change("tools", changes.append)
        listen = await server.receive()
        server.send(notification("notifications/tools/list_changed", _meta={SUBSCRIPTION_ID: odd}))
        server.send(
            notification(
                "notifications/progress",
                progressToken="x",
                progress=1,
                _meta={SUBSCRIPTION_ID: odd},
            )
        )
        calling = asyncio.create_task(client.call_tool("x"))
        asked = await server.receive()
        server.send(
            reply(asked, complete(content=[], _meta={SERVER_INFO: odd, "progressToken": odd}))
        )
        assert (await calling).content == []
        assert listen["method"] == "subscriptions/listen"
        assert changes == []


@pytest.mark.requirement("meta-trace-context")
async def test_trace_context_reaches_the_handler_as_it_was(in_memory: Talk) -> None:
    server, seen = Server("traced"), []

    @server.tool
    async def traced(ctx: Context) -> None:
        seen.append(ctx.meta)

    trace = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
        "tracestate": "a=b",
        "baggage": "k=v",
    }
    async with in_memory(server) as client:
        await client.call_tool("traced", meta=trace)
    assert trace.items() <= seen[0].items()


@pytest.mark.requirement("stateless-missing-capability")
async def test_a_capability_that_is_missing_is_named() -> None:
    server = Server("asks")

    @server.tool
    async def ask() -> None:
        raise CannotAsk("The client was not made to be asked", {"elicitation": {}})

    async with bare(server) as peer:
        error = (await peer.ask("tools/call", {"name": "ask", "_meta": META}))["error"]
        assert (error["code"], error["data"]) == (
            -32021,
            {"requiredCapabilities": {"elicitation": {}}},
        )


@pytest.mark.requirement("stateless-extensions")
async def test_an_extension_that_the_server_does_not_know_changes_nothing() -> None:
    async with bare(everything.build()) as peer:
        plain = await peer.ask("tools/list", {"_meta": META})
        told = {**META, CLIENT_CAPABILITIES: {"extensions": {"com.example/strange": {"deep": [1]}}}}
        assert await peer.ask("tools/list", {"_meta": told}) == plain


# schemas


def declared(schema: dict[str, Any]) -> Server:
    server = Server("schemas")

    @server.tool(schema=schema)
    async def echo(**arguments: Any) -> ToolResult:
        return ToolResult(content=[TextContent("taken")])

    return server


TUPLE = {
    "type": "object",
    "properties": {"x": {"type": "array", "prefixItems": [{"type": "integer"}]}},
}


@pytest.mark.requirement("schema-default-dialect", "schema-dialect", "tools-input-checked")
@pytest.mark.parametrize(
    ("dialect", "refused"), [(None, True), ("http://json-schema.org/draft-07/schema#", False)]
)
async def test_a_schema_is_read_in_its_dialect_and_by_default_in_the_newest(
    dialect: str | None, refused: bool
) -> None:
    schema = TUPLE if dialect is None else {"$schema": dialect, **TUPLE}
    async with pair(declared(schema)) as client:
        result = await client.call_tool("echo", {"x": ["no integer"]}, raise_on_error=False)
        assert bool(result.is_error) == refused, "prefixItems is a word of 2020-12"


@pytest.mark.requirement("schema-dialect")
def test_a_dialect_that_is_not_supported_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="draft-04"):
        declared({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"})


@pytest.mark.requirement(
    "schema-valid",
    "tools-input-schema",
    "schema-no-network",
    "schema-reference-refused",
    "schema-bounded",
)
@pytest.mark.parametrize(
    "broken",
    [
        {"x": {"type": "strange"}},
        {"x": {"$ref": "https://example.com/schema.json"}},
        {"x": {"$ref": "#/$defs/nothing"}},
        {"x": reduce(lambda inner, _: {"not": inner}, range(200), {})},
    ],
    ids=["invalid", "network", "nowhere", "deep"],
)
def test_a_schema_that_cannot_be_used_is_refused_before_it_is_announced(
    broken: dict[str, Any],
) -> None:
    with pytest.raises(SchemaError):
        declared({"type": "object", "properties": broken})
    server = Server("schemas")
    with pytest.raises(SchemaError):
        server.tool("x", output_schema={"type": "object", "properties": broken})(lambda: 1)


@pytest.mark.requirement("tools-input-schema")
@pytest.mark.parametrize("schema", [{"type": "array"}, {}, {"type": ["object", "null"]}])
def test_input_is_always_an_object(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="object"):
        declared(schema)


@pytest.mark.requirement("tools-input-schema")
async def test_a_tool_without_parameters_announces_an_object_too(in_memory: Talk) -> None:
    server = Server("bare")

    @server.tool
    async def now() -> str:
        return "now"

    async with in_memory(server) as client:
        (tool,) = await client.list_tools()
        assert tool.input_schema["type"] == "object"


WRONG_PARAMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "wrong type": ("tools/call", {"name": 3}, "name"),
    "missing": ("tools/call", {}, "name"),
    "missing inside": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name"}},
        "argument.value",
    ),
    "wrong inside a map": ("prompts/get", {"name": "greet", "arguments": {"name": 1}}, "arguments"),
    "unknown tool": ("tools/call", {"name": "nothing"}, "name"),
    "arguments": ("tools/call", {"name": "add", "arguments": 3}, "arguments"),
    "unknown prompt": ("prompts/get", {"name": "nothing"}, "name"),
    "argument of a prompt": ("prompts/get", {"name": "greet"}, "arguments"),
    "unknown reference": (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "nothing"},
            "argument": {"name": "name", "value": ""},
        },
        "ref",
    ),
    "unknown argument": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "?", "value": ""}},
        "argument.name",
    ),
    "cursor": ("tools/list", {"cursor": "!"}, "cursor"),
    "progress token": ("tools/list", {"_meta": {"progressToken": 1.5}}, "_meta.progressToken"),
}


@pytest.mark.parametrize("case", WRONG_PARAMS)
@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_the_data_of_invalid_params_names_the_parameter_and_the_problem(
    case: str, version: str
) -> None:
    method, params, parameter = WRONG_PARAMS[case]
    async with bare(everything.build()) as peer:
        if version == META[PROTOCOL_VERSION]:
            params = {**params, "_meta": {**META, **params.get("_meta", {})}}
        else:
            await peer.greet(version)
        error = (await peer.ask(method, params))["error"]
    assert error["code"] == -32602
    assert error["data"].keys() == {"parameter", "error"}
    assert error["data"]["parameter"] == parameter
    assert error["data"]["error"] in error["message"]


@pytest.mark.parametrize(
    ("meta", "parameter"),
    [
        ({PROTOCOL_VERSION: "2026-07-28"}, f"_meta.{CLIENT_CAPABILITIES}"),
        ({**META, LOG_LEVEL: "loud"}, f"_meta.{LOG_LEVEL}"),
        ({**META, CLIENT_INFO: 3}, "_meta"),
        ({}, f"_meta.{PROTOCOL_VERSION}"),
    ],
)
async def test_the_data_names_what_is_wrong_in_meta(meta: dict[str, Any], parameter: str) -> None:
    async with bare(everything.build()) as peer:
        error = (await peer.ask("tools/list", {"_meta": meta}))["error"]
    assert (error["code"], error["data"]["parameter"]) == (-32602, parameter)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_data_that_a_revision_defines_stays_as_it_defines_it(version: str) -> None:
    meta = {"_meta": META} if version == META[PROTOCOL_VERSION] else {}
    async with bare(everything.build()) as peer:
        if not meta:
            await peer.greet(version)
        missing = await peer.ask("resources/read", {"uri": "doc://nothing", **meta})
        other = await peer.ask("tools/list", {"_meta": {**META, PROTOCOL_VERSION: "1999-01-01"}})
    assert missing["error"]["data"] == {"uri": "doc://nothing"}
    assert other["error"]["data"].keys() == {"supported", "requested"}
