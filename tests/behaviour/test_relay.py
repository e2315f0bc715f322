"""A relay between two revisions: it answers as the server behind it would, and what it sends is
valid in the revision of its caller."""

from typing import Any

import msgspec
import pytest

from dovetail import Client, ProtocolError
from tests.behaviour import everything
from tests.behaviour.conftest import REVISIONS
from tests.behaviour.raw_service import BIG, DRAFT, PREFIX, relayed, split

ALL = [*REVISIONS, DRAFT]


@pytest.fixture(params=ALL)
def upstream(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=ALL)
def caller(request: pytest.FixtureRequest) -> str:
    return str(request.param)


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {}),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": BIG}}),
    ("tools/call", {"name": "point", "arguments": {"x": 1, "y": 2}}),
    ("tools/call", {"name": "content"}),
    ("tools/call", {"name": "full"}),
    ("tools/call", {"name": "fail", "arguments": {"kind": "tool"}}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "doc://bytes"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "greet", "title": "Greet"},
            "argument": {"name": "name", "value": "A"},
            "context": {"arguments": {}},
        },
    ),
]


async def test_a_raw_relay_answers_as_one_that_decodes(upstream: str, caller: str) -> None:
    server = everything.build()
    async with (
        relayed(server, upstream, caller) as raw,
        relayed(server, upstream, caller, raw=False) as typed,
    ):
        for method, params in REQUESTS:
            assert await outcome(raw, method, params) == await outcome(typed, method, params)


async def outcome(client: Client, method: str, params: dict[str, Any]) -> Any:
    """The result without its `_meta`, or the error."""
    try:
        result = msgspec.json.decode(await client.relay(method, params))
    except ProtocolError as error:  # a revision may lack the method
        return error.code, error.message
    return {name: value for name, value in result.items() if name != "_meta"}


async def test_what_belongs_to_one_connection_does_not_pass_the_relay(
    upstream: str, caller: str
) -> None:
    async with relayed(everything.build(), upstream, caller) as client:
        result = split(await client.relay("tools/call", {"name": "full"}))
        listed = split(await client.relay("tools/list"))
    meta = msgspec.json.decode(result.get("_meta", b"{}"))
    hints = {"resultType", "ttlMs", "cacheScope"}
    if caller == REVISIONS[-1]:
        assert meta[PREFIX + "serverInfo"]["name"] == "relay"
        assert bytes(result["resultType"]) == b'"complete"'
        assert hints <= set(listed)
    else:
        assert [name for name in meta if name.startswith(PREFIX)] == []
        assert hints.isdisjoint(result)
        assert hints.isdisjoint(listed)
    if DRAFT not in (upstream, caller):
        assert meta["example.com/b"] == 2


async def test_an_error_passes_with_its_code_and_data(upstream: str, caller: str) -> None:
    async with relayed(everything.build(), upstream, caller) as client:
        with pytest.raises(ProtocolError) as refused:
            await client.relay("tools/call", {"name": "fail", "arguments": {"kind": "protocol"}})
    assert (refused.value.code, refused.value.data) == (1234, {"open": "Monday"})
