"""The index of tools: which tools a query finds, and in which order."""

from typing import Any

import pytest

from dovetail.errors import InvalidParams
from dovetail.gateway.search import (
    MAX_FOUND,
    CallArguments,
    FindArguments,
    ToolIndex,
    read_arguments,
)
from dovetail.protocol.tools import Tool


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
