"""The index of tools: which tools a query finds, and in which order."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client
from dovetail.errors import InvalidParams, ToolError
from dovetail.gateway.gateway import Gateway
from dovetail.gateway.search import (
    MAX_FOUND,
    CallArguments,
    FindArguments,
    ToolIndex,
    read_arguments,
)
from dovetail.protocol.tools import Tool
from dovetail.testing import pair
from tests.gateway.programs import PATIENT
from tests.gateway.serving import asking_server, recorded


def tool(description: str = "", title: str | None = None) -> Tool:
    return Tool(name="x", input_schema={}, description=description, title=title)


INDEX = ToolIndex(
    {
        "calendar__create_event": tool("Add an appointment."),
        "calendar__listEvents": tool("Show what is planned.", title="Agenda"),
        "mail__send": tool("Send a message to one or more people."),
        "notes__search": tool("Find notes that mention a calendar or an appointment."),
    }
)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("create event", "calendar__create_event"),
        ("createEvent", "calendar__create_event"),
        ("list events", "calendar__listEvents"),
        ("agenda", "calendar__listEvents"),
        ("sending messages", "mail__send"),
        ("MAIL", "mail__send"),
        ("calend", "calendar__create_event"),
    ],
)
def test_a_query_finds_the_tool_that_one_means(query: str, first: str) -> None:
    assert INDEX.search(query)[0] == first


def test_a_word_of_the_name_counts_more_than_one_of_the_description() -> None:
    found = INDEX.search("calendar")
    assert set(found[:2]) == {"calendar__create_event", "calendar__listEvents"}
    assert found[2] == "notes__search"


@pytest.mark.parametrize("query", ["", "   ", "!!!", '"', "zzz"])
def test_a_query_without_matches_finds_nothing(query: str) -> None:
    assert INDEX.search(query) == []


@pytest.mark.parametrize(
    "query",
    ['" OR name:*', "NEAR(a b)", "a AND", "send* -x ^y", "'; DROP TABLE tools; --", "(" * 99],
)
def test_the_syntax_of_the_index_cannot_be_used(query: str) -> None:
    INDEX.search(query)
    assert INDEX.search("send") == ["mail__send"]


def test_the_number_of_results_is_bounded() -> None:
    index = ToolIndex({f"server__tool_{number}": tool() for number in range(MAX_FOUND * 2)})
    assert len(index.search("tool", 10**9)) == MAX_FOUND
    assert len(index.search("tool", 0)) == 1
    assert len(index.search("tool", 3)) == 3


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (b"{}", FindArguments),
        (b'{"query": 1}', FindArguments),
        (b'{"query": "x", "limt": 2}', FindArguments),
        (b"[]", CallArguments),
        (b'{"arguments": {}}', CallArguments),
    ],
)
def test_arguments_that_are_not_valid_are_refused(arguments: bytes, kind: Any) -> None:
    with pytest.raises(InvalidParams, match="find_tools"):
        read_arguments(arguments, kind, "find_tools")


# in a gateway

SERVER = """
from dovetail import Server

server = Server("s")


@server.tool
def create_event(title: str) -> str:
    "Add an appointment to the calendar."
    return f"created {title}"


@server.tool
def wipe() -> str:
    "Delete the whole calendar."
    return "gone"


server.run()
"""


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_a_gateway_with_search_lists_few_tools_and_calls_all_that_are_allowed(
    tmp_path: Path, revision: str
) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    entry = {"command": sys.executable, "args": [str(tmp_path / "server.py")]}
    deny = {"tools": {"deny": ["wipe"]}}
    source = {
        "mcpServers": {"cal": {**entry, "dovetail": deny}, "other": entry},
        "dovetail": {"search": True, "always": ["other__w*"]},
    }
    async with pair(Gateway(source, limits=PATIENT), revision=revision) as client:
        assert [tool.name for tool in await client.list_tools()] == [
            "find_tools",
            "call_tool",
            "other__wipe",
        ]
        found = await client.call_tool("find_tools", {"query": "appointment"})
        assert [tool["name"] for tool in json.loads(found.text)["tools"]] == [
            "cal__create_event",
            "other__create_event",
        ]
        called = {"name": "cal__create_event", "arguments": {"title": "lunch"}}
        assert (await client.call_tool("call_tool", called)).text == "created lunch"
        with pytest.raises((InvalidParams, ToolError), match="Unknown tool: cal__wipe"):
            await client.call_tool("call_tool", {"name": "cal__wipe"})
        with pytest.raises((InvalidParams, ToolError), match="Unknown tool: call_tool"):
            await client.call_tool("call_tool", {"name": "call_tool"})


@pytest.mark.parametrize("caller", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("upstream", ["2025-11-25", "2026-07-28"])
async def test_a_tool_that_is_called_through_a_search_may_ask(upstream: str, caller: str) -> None:
    async with recorded(asking_server(upstream)) as (url, _):
        source = {"mcpServers": {"up": {"url": url}}, "dovetail": {"search": True}}
        gateway = Gateway(source, limits=PATIENT)
        async with Client(gateway, revision=caller, on_elicit=lambda _: {"value": 3}) as client:
            called = {"name": "up__order", "arguments": {"what": "cups"}}
            assert (await client.call_tool("call_tool", called)).text == "3 cups"
