"""Relaying over every transport and in every revision: nothing that was sent is lost.

The messages in these tests have unknown fields, so they are not checked against the schemas.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from dovetail import Client
from dovetail.testing import Tape
from tests.behaviour.conftest import MATRIX, REVISIONS, Talk
from tests.behaviour.raw_service import (
    BIG,
    DRAFT,
    NEW,
    PREFIX,
    TOOLS,
    RawEcho,
    relayed,
    split,
)  # fmt: skip

ALL = [*REVISIONS, DRAFT]
FOREIGN_META = {
    "com.example/n": BIG,
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "progressToken": 7,
    PREFIX + "protocolVersion": "1999-01-01",
    PREFIX + "clientInfo": {"name": "mallory", "version": "0"},
    PREFIX + "clientCapabilities": {"roots": {}},
    PREFIX + "logLevel": "debug",
    PREFIX + "subscriptionId": 3,
}


@pytest.fixture(params=MATRIX, ids="-".join)
def talk(request: pytest.FixtureRequest) -> Talk:
    """Every transport, every revision."""
    return Talk(*request.param)


@asynccontextmanager
async def open_echo(talk: Talk) -> AsyncIterator[Client]:
    """A client of the echo, over the transport and in the revision of `talk`."""
    opened: AbstractAsyncContextManager[Client] = talk(RawEcho())
    if talk.transport == "stdio":
        command = [sys.executable, "-m", "tests.behaviour.raw_service"]
        opened = Client(command, cwd=Path(__file__).parents[2], revision=talk.revision)
    async with opened as client:
        yield client
        talk.tape = Tape()  # do not check what was sent


async def test_unknown_fields_and_any_number_pass_in_both_directions(talk: Talk) -> None:
    async with open_echo(talk) as client:
        for method, params in (
            ("tools/call", {"name": Raw(b'"echo"'), "arguments": NEW}),
            ("resources/read", {"uri": Raw(b'"doc://a"')}),
            ("prompts/get", {"name": Raw(b'"p"'), "arguments": Raw(b'{"a":"b"}')}),
            ("tools/list", {}),
        ):
            result = split(await client.relay(method, {**params, "x-param": NEW}))
            received = split(result["x-received"])
            assert {name: bytes(received[name]) for name in received if name != "_meta"} == {
                name: bytes(value) for name, value in {**params, "x-param": NEW}.items()
            }
            assert bytes(result["x-new"]) == bytes(NEW)


async def test_raw_params_may_be_bytes_or_a_mapping_of_any_values(talk: Talk) -> None:
    as_bytes = Raw(b'{"name": "echo", "arguments": {"n": 9007199254740993}}')
    as_mapping = {"name": "echo", "arguments": {"n": BIG}}
    async with open_echo(talk) as client:
        for params in (as_bytes, as_mapping):
            received = split(split(await client.relay("tools/call", params))["x-received"])
            assert msgspec.json.decode(received["arguments"]) == {"n": BIG}
            assert msgspec.json.decode(received["name"]) == "echo"


async def test_items_of_lists_and_content_keep_their_unknown_fields(talk: Talk) -> None:
    async with open_echo(talk) as client:
        (tool,) = msgspec.json.decode(split(await client.relay("tools/list"))["tools"], type=list)
        called = msgspec.json.decode(await client.relay("tools/call", {"name": "echo"}))
        prompt = msgspec.json.decode(await client.relay("prompts/get", {"name": "p"}))
        read = msgspec.json.decode(await client.relay("resources/read", {"uri": "doc://a"}))
    assert ("title" in tool, "icons" in tool, "execution" in tool) == (
        talk.at_least("2025-06-18"),
        talk.at_least("2025-11-25"),
        talk.revision == "2025-11-25",
    )
    expected = msgspec.json.decode(NEW)
    assert tool["x-new"] == expected
    assert tool["inputSchema"]["x-max"] == expected
    assert called["content"] == [{"type": "text", "text": "done", "x-new": expected}]
    assert prompt["messages"][0]["content"]["x-new"] == expected
    assert prompt["messages"][0]["x-new"] == expected
    assert read["contents"] == [{"uri": "doc://a", "text": "a", "x-new": expected}]
    assert ("structuredContent" in called) is talk.at_least("2025-06-18")


async def test_the_clients_own_meta_replaces_that_of_another_client(talk: Talk) -> None:
    async with open_echo(talk) as client:
        params = {"name": "echo", "_meta": FOREIGN_META}
        meta = split(split(await client.relay("tools/call", params))["x-received"])["_meta"]
    told = msgspec.json.decode(meta)
    assert told.pop("com.example/n") == BIG
    assert told.pop("traceparent") == FOREIGN_META["traceparent"]
    if talk.stateless:
        assert told[PREFIX + "protocolVersion"] == talk.revision
        assert told[PREFIX + "clientInfo"]["name"] == "dovetail"
        assert "roots" not in told[PREFIX + "clientCapabilities"]
    described = ("protocolVersion", "clientInfo", "clientCapabilities")
    assert set(told) == ({PREFIX + name for name in described} if talk.stateless else set())


async def test_progress_arrives_for_the_relayed_request(talk: Talk) -> None:
    heard: list[float] = []
    params = {"name": "echo", "_meta": {"progressToken": 7}}
    async with open_echo(talk) as client:
        result = await client.relay(
            "tools/call", params, on_progress=lambda update: heard.append(update.progress)
        )
    told = msgspec.json.decode(split(split(result)["x-received"])["_meta"])
    assert told["progressToken"] != 7
    assert heard == [1]


async def test_the_result_is_signed_by_the_server_that_sends_it(talk: Talk) -> None:
    async with open_echo(talk) as client:
        result = split(await client.relay("tools/call", {"name": "echo"}))
    if talk.stateless:
        assert bytes(result["resultType"]) == b'"complete"'
        assert msgspec.json.decode(result["_meta"])[PREFIX + "serverInfo"]["name"] == "echo"
    else:
        assert "resultType" not in result
        assert "_meta" not in result


@pytest.mark.parametrize("upstream", ALL)
@pytest.mark.parametrize("caller", ALL)
async def test_unknown_fields_pass_two_hops(upstream: str, caller: str) -> None:
    echo = RawEcho()
    async with relayed(echo, upstream, caller) as client:
        params = {"name": "echo", "arguments": NEW, "x-param": NEW}
        result = split(await client.relay("tools/call", params))
        listed = split(await client.relay("tools/list", {"x-param": NEW}))
    for received in map(split, echo.received):
        assert bytes(received["x-param"]) == bytes(NEW)
    assert bytes(split(echo.received[0])["arguments"]) == bytes(NEW)
    if DRAFT not in (upstream, caller):  # that dialect converts results
        assert bytes(result["x-new"]) == bytes(NEW)
        (tool,) = msgspec.json.decode(listed["tools"], type=list[dict[str, Raw]])
        (sent,) = msgspec.json.decode(TOOLS, type=list[dict[str, Raw]])
        assert bytes(tool["x-new"]) == bytes(NEW)
        assert bytes(tool["inputSchema"]) == bytes(sent["inputSchema"])
