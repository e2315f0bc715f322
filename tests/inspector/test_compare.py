"""One request in all revisions: what each of them loses, and that none holds up another."""

import asyncio
import sys
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from dovetail import Annotations, Client, Icon, Server, TextContent, ToolAnnotations, ToolResult
from dovetail.errors import ConfigError
from dovetail.inspector.compare import (
    ComparedRequest,
    ComparedRevision,
    Comparison,
    add_differences,
    compare_revisions,
)
from dovetail.inspector.json_diff import compare_json

REVISIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


class Sum(Struct):
    total: int


def make_server(**options: Any) -> Server:
    server = Server("rich", **options)

    @server.tool(
        title="Add numbers",
        icons=[Icon("https://example.com/add.svg")],
        annotations=ToolAnnotations(title="Add", read_only_hint=True),
    )
    def add(a: int, b: int) -> Sum:
        """Add two numbers."""
        return Sum(a + b)

    @server.tool
    def full() -> ToolResult:
        annotations = Annotations(priority=0.5, last_modified="2025-01-01T00:00:00Z")
        return ToolResult(
            content=[TextContent("done", annotations)], structured_content={"done": True}
        )

    return server


async def run(
    target: Any, method: str, params: Any = None, revisions: Any = REVISIONS, seconds: float = 30
) -> Comparison:
    found: dict[str, ComparedRevision] = {}
    request = ComparedRequest(method, msgspec.Raw(msgspec.json.encode(params or {})), seconds)
    await compare_revisions(
        partial(Client, target), revisions, request, lambda one: found.update({one.revision: one})
    )
    return add_differences([found[name] for name in revisions], mask=True)


async def compare(method: str, params: Any = None) -> dict[str, ComparedRevision]:
    found = await run(make_server(), method, params)
    assert found.newest == REVISIONS[0]
    return {one.revision: one for one in found.revisions}


def lost(outcome: ComparedRevision) -> set[str]:
    return {one.path for one in outcome.differences if one.kind == "lost"}


ALWAYS = {"$.resultType", "$._meta"}
NEWEST_ONLY = ALWAYS | {"$.ttlMs", "$.cacheScope"}
ICONS = {"$.tools[add].icons"}
STRUCTURED = {"$.tools[add].title", "$.tools[add].outputSchema"}
ANNOTATIONS = {"$.tools[add].annotations"}


async def test_a_list_shows_what_each_revision_loses() -> None:
    found = await compare("tools/list")
    assert lost(found["2026-07-28"]) == set()
    assert lost(found["2025-11-25"]) == NEWEST_ONLY
    assert lost(found["2025-06-18"]) == NEWEST_ONLY | ICONS
    assert lost(found["2025-03-26"]) == NEWEST_ONLY | ICONS | STRUCTURED
    assert lost(found["2024-11-05"]) == NEWEST_ONLY | ICONS | STRUCTURED | ANNOTATIONS
    title = next(one for one in found["2024-11-05"].differences if one.path.endswith(".title"))
    assert (title.before, title.after) == ('"Add numbers"', None)


async def test_a_call_shows_what_each_revision_loses() -> None:
    found = await compare("tools/call", {"name": "full"})
    modified, structured = "$.content[0].annotations.lastModified", "$.structuredContent"
    assert lost(found["2025-11-25"]) == lost(found["2025-06-18"]) == ALWAYS
    for old in REVISIONS[3:]:
        assert lost(found[old]) == ALWAYS | {modified, structured}


@pytest.mark.parametrize("revision", REVISIONS)
async def test_each_revision_has_its_result_its_messages_and_its_time(revision: str) -> None:
    found = (await compare("tools/call", {"name": "add", "arguments": {"a": 2**60, "b": 1}}))[
        revision
    ]
    assert found.error is None and (found.ms or 0) > 0
    assert found.result is not None
    assert str(2**60 + 1) in found.result, "as it was sent"
    sent = [msgspec.json.decode(one.text) for one in found.messages if one.direction == "to_server"]
    opening = "server/discover" if revision == REVISIONS[0] else "initialize"
    methods = [one["method"] for one in sent]
    assert (methods[0], methods[-1]) == (opening, "tools/call")
    assert all(one.bytes == len(one.text.encode()) for one in found.messages)


async def test_an_error_is_shown_in_each_revision() -> None:
    found = await run(make_server(), "tools/call", {"name": "missing"})
    assert found.newest is None
    for one in found.revisions:
        assert one.result is None and one.error is not None
        assert (one.error.type, one.error.code) == ("InvalidParams", -32602)


async def test_a_revision_that_the_server_lacks_does_not_hide_the_others() -> None:
    found = await run(make_server(revisions=REVISIONS[1:3]), "tools/list")
    assert found.newest == "2025-11-25"
    assert [one.error and one.error.type for one in found.revisions] == [
        "NoCommonRevision", None, None, "NoCommonRevision", "NoCommonRevision"
    ]  # fmt: skip


async def test_a_revision_without_a_client_does_not_hide_the_others() -> None:
    server, found = make_server(), dict[str, ComparedRevision]()

    def make_client(**options: Any) -> Client:
        if options["revision"] == REVISIONS[1]:
            raise ConfigError("there is no such server")
        return Client(server, **options)

    await compare_revisions(
        make_client,
        REVISIONS,
        ComparedRequest("tools/list"),
        lambda one: found.update({one.revision: one}),
    )
    failed = found.pop(REVISIONS[1])
    assert failed.error is not None and failed.error.message == "there is no such server"
    assert [one.status for one in found.values()] == ["done"] * 4


async def test_revisions_run_at_the_same_time() -> None:
    server, together = Server("s"), asyncio.Barrier(len(REVISIONS))

    @server.tool
    async def meet() -> str:
        await together.wait()
        return "met"

    found = await run(server, "tools/call", {"name": "meet"})
    assert all(one.result is not None for one in found.revisions)


async def test_a_server_that_hangs_costs_only_the_time_it_is_given() -> None:
    silent = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    found = await run(silent, "tools/list", revisions=REVISIONS[:2], seconds=0.5)
    errors = [one.error for one in found.revisions]
    assert all(error is not None and error.type == "TimedOut" for error in errors)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("1", "1", []),
        ("1", "1.0", []),
        ("1", "true", ["changed $"]),
        ("{}", "[]", ["changed $"]),
        ('{"a": 1}', '{"b": 1}', ["lost $.a", "added $.b"]),
        ('{"a": {"b": [1, 2]}}', '{"a": {"b": [1, 3, 4]}}', ["changed $.a.b[1]", "added $.a.b[2]"]),
        ('{"x y": null}', "{}", ['lost $["x y"]']),
        (
            '[{"name": "a"}, {"name": "b", "t": 1}]',
            '[{"name": "b"}]',
            ["lost $[a]", "lost $[b].t"],
        ),
        ('[{"uri": "u:1"}]', '[{"uri": "u:2"}]', ["lost $[u:1]", "added $[u:2]"]),
        ('[{"name": "a"}, {"name": "a"}]', '[{"name": "a"}, 1]', ["changed $[1]"]),
        ("[]", '[{"name": "a"}]', ["added $[a]"]),
        ("123456789012345678901", "123456789012345678902", ["changed $"]),
    ],
)
def test_the_differences_between_two_values(before: str, after: str, expected: list[str]) -> None:
    assert [f"{one.kind} {one.path}" for one in compare_json(before, after)] == expected


def test_the_number_of_differences_is_bounded() -> None:
    before, after = msgspec.json.encode([0] * 5000), msgspec.json.encode([1] * 5000)
    assert len(compare_json(before.decode(), after.decode())) == 1000
