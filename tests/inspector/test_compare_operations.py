"""The operations of the Compare panel: what runs, what the page is told, and what it learns."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import Context, Server
from dovetail.inspector.compare import ComparedRevision, add_differences
from dovetail.inspector.refusal import Refused
from tests.behaviour.web import on_a_port

from .inspecting import Inspecting, inspecting

REVISIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
TOKEN = "ghp_0123456789abcdefghij"
HANDSHAKE = """
import json, sys

for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        if params["protocolVersion"] == "2024-11-05":
            sys.exit("this server is too new")
        result = {
            "protocolVersion": SPOKEN or params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": []}
    elif "id" not in message:
        continue
    else:
        result = None
    reply = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
"""


def make_server(**options: Any) -> Server:
    server = Server("shop", **options)

    @server.tool(title="Log in")
    def log_in(password: str) -> dict[str, str]:
        """Log in."""
        return {"token": password, "text": f"use {TOKEN}"}

    @server.tool
    async def count(ctx: Context) -> str:
        """Ask how many."""
        schema = {"type": "object", "properties": {"count": {"type": "integer"}}}
        answer = await ctx.elicit("How many?", schema)
        return str(getattr(answer, "data", None))

    @server.tool
    async def hang() -> str:
        """Never end."""
        await asyncio.sleep(3600)
        return ""

    @server.resource("shop://hours")
    def hours() -> str:
        """Opening hours."""
        return "always"

    @server.prompt
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Greet {name}."

    return server


def raw_server(folder: Path, spoken: str | None = None) -> list[str]:
    """Return the command of a server of the handshake era, which may speak only one revision. It
    ends if somebody wants the oldest one."""
    path = folder / "raw.py"
    path.write_text(HANDSHAKE.replace("SPOKEN", repr(spoken)))
    return [sys.executable, str(path)]


async def compare(one: Inspecting, method: str, params: Any = None, **fields: Any) -> Any:
    """Compare, and wait for the end."""
    started = await one.do("compare", method=method, params=json.dumps(params or {}), **fields)
    await until(one, started["comparison"], "done")
    return await one.do("comparison")


async def until(one: Inspecting, number: int, status: str) -> dict[str, Any]:
    """Wait for a status of a comparison."""
    async with asyncio.timeout(30):
        while True:
            last = one.state.events.last
            for event in one.events("changed"):
                value = event["value"]
                is_it = event["what"] == "comparison" and value["comparison"] == number
                if is_it and value["status"] == status:
                    return dict(value)
            await one.state.events.wait_after(last, 30)


def paths(outcome: dict[str, Any], kind: str = "lost") -> set[str]:
    return {one["path"] for one in outcome.get("differences", []) if one["kind"] == kind}


async def test_one_call_in_all_revisions_shows_what_each_loses() -> None:
    async with inspecting(make_server()) as one:
        found = await compare(one, "tools/list")
        assert found["newest"] == REVISIONS[0]
        assert [outcome["revision"] for outcome in found["revisions"]] == REVISIONS
        assert "$.tools[log_in].title" not in paths(found["revisions"][2])
        assert "$.tools[log_in].title" in paths(found["revisions"][3])
        assert all(outcome["ms"] > 0 for outcome in found["revisions"])
        status = (await one.do("snapshot"))["comparison"]
        assert status["status"] == "done" and set(status["revisions"].values()) == {"done"}


@pytest.mark.parametrize(
    ("method", "params", "text"),
    [
        ("resources/read", {"uri": "shop://hours"}, "always"),
        ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}, "Greet Ada."),
        ("prompts/list", {}, "Greet somebody."),
        ("tools/call", {"name": "log_in", "arguments": {"password": 1}}, "isError"),
        ("completion/complete", {}, "error"),
    ],
)
async def test_any_method_can_be_compared(method: str, params: Any, text: str) -> None:
    async with inspecting(make_server()) as one:
        found = await compare(one, method, params, revisions=[REVISIONS[0], REVISIONS[2]])
        for outcome in found["revisions"]:
            assert text in json.dumps(outcome), outcome


async def test_outcomes_are_told_one_after_the_other() -> None:
    async with inspecting(make_server()) as one:
        await compare(one, "tools/list", revisions=REVISIONS[:2])
        told = [event["value"] for event in one.events("changed") if event["what"] == "comparison"]
        counts = [list(value["revisions"].values()).count("done") for value in told]
        assert counts == [0, 1, 2, 2]


async def test_over_http_each_revision_has_a_session_of_its_own() -> None:
    app = make_server().asgi(path="/mcp")
    async with on_a_port(app) as address, inspecting(f"http://{address}/mcp") as one:
        found = await compare(one, "tools/list")
        assert [outcome["status"] for outcome in found["revisions"]] == ["done"] * 5
        assert "$.tools[log_in].title" in paths(found["revisions"][4])
        for outcome in found["revisions"]:
            sent = [one for one in outcome["messages"] if one["direction"] == "to_server"]
            assert [len(one["http"]) for one in sent] == [1] * len(sent)
            headers = sent[-1]["http"][0]["request_headers"]
            assert ("mcp-method" in headers) is (outcome["revision"] == REVISIONS[0])


@pytest.mark.parametrize("show_secrets", [False, True])
async def test_http_heads_show_credentials_only_if_the_terminal_says_so(show_secrets: bool) -> None:
    app, headers = make_server().asgi(path="/mcp"), {"x-api-key": TOKEN}
    async with (
        on_a_port(app) as address,
        inspecting(f"http://{address}/mcp", headers=headers, show_secrets=show_secrets) as one,
    ):
        found = await compare(one, "tools/list", revisions=REVISIONS[:2])
        sent = [
            exchange["request_headers"]["x-api-key"]
            for outcome in found["revisions"]
            for message in outcome["messages"]
            for exchange in message.get("http", [])
        ]
        assert set(sent) == {TOKEN if show_secrets else "***"}


async def test_a_server_of_one_revision_leaves_one_result_and_the_selector_follows(
    tmp_path: Path,
) -> None:
    async with inspecting(raw_server(tmp_path, "2025-06-18")) as one:
        assert (await one.do("snapshot"))["revisions"] == REVISIONS, "not known yet"
        found = await compare(one, "tools/list", revisions=REVISIONS[:4])
        assert [outcome["status"] for outcome in found["revisions"]] == [
            "error", "error", "done", "error"
        ]  # fmt: skip
        assert found["newest"] == "2025-06-18"
        errors = {outcome["error"]["type"] for outcome in found["revisions"] if "error" in outcome}
        assert errors == {"NoCommonRevision"}


async def test_a_server_that_fails_in_one_revision_says_why_and_spares_the_others(
    tmp_path: Path,
) -> None:
    async with inspecting(raw_server(tmp_path)) as one:
        found = await compare(one, "tools/list")
        by_name = {outcome["revision"]: outcome for outcome in found["revisions"]}
        assert by_name["2025-11-25"]["result"] == '{"tools": []}'
        assert "error" in by_name["2024-11-05"]
        assert by_name["2024-11-05"]["stderr"] == "this server is too new"


async def test_a_comparison_in_all_revisions_shows_which_ones_the_server_uses() -> None:
    server = make_server(revisions=REVISIONS[1:3])
    async with inspecting(server) as one:
        assert (await one.do("snapshot"))["revisions"] == REVISIONS
        await compare(one, "tools/list")
        assert (await one.until("changed", what="revisions"))["value"] == REVISIONS[1:3]
        assert (await one.do("snapshot"))["revisions"] == REVISIONS[1:3]


async def test_a_server_that_lists_its_revisions_is_not_asked_again() -> None:
    async with inspecting(make_server(revisions=[*REVISIONS[:1], *REVISIONS[3:]])) as one:
        changed = await one.until("changed", what="revisions")
        assert changed["value"] == [*REVISIONS[:1], *REVISIONS[3:]]


async def test_the_revisions_of_another_server_are_found_when_they_are_needed(
    tmp_path: Path,
) -> None:
    async with inspecting(raw_server(tmp_path, "2025-06-18")) as one:
        await one.do("find_revisions")
        assert (await one.until("changed", what="revisions"))["value"] == ["2025-06-18"]


@pytest.mark.parametrize("show_secrets", [False, True])
async def test_credentials_are_masked_but_compared(show_secrets: bool) -> None:
    async with inspecting(make_server(), show_secrets=show_secrets) as one:
        params = {"name": "log_in", "arguments": {"password": "hunter2"}}
        found = await compare(one, "tools/call", params)
        text = json.dumps(found)
        assert ("hunter2" in text) is (TOKEN in text) is show_secrets
        calls = [await one.call("log_in", password=word) for word in ("hunter1", "hunter2")]
        before, after = (call["call"] for call in calls)
        found = await one.do("diff", before=before, after=after)
        shown = ('"hunter1"', '"hunter2"') if show_secrets else ('"***"', '"***"')
        changed = {one["path"]: one for one in found["revisions"][1]["differences"]}
        token = changed["$.structuredContent.token"]
        assert (token["before"], token["after"]) == shown
        assert ("hunter" in json.dumps(found)) is show_secrets
        alone = await one.do("diff", before=before)
        assert ("hunter" in json.dumps(alone)) is show_secrets
        assert [outcome["revision"] for outcome in alone["revisions"]] == ["before"]


async def test_questions_of_a_comparison_are_asked_on_the_page() -> None:
    async with inspecting(make_server()) as one:
        revisions = ["2026-07-28", "2025-11-25"]
        started = await one.do(
            "compare", method="tools/call", params='{"name": "count"}', revisions=revisions
        )
        async with asyncio.timeout(30):
            while len(one.state.questions.open) < len(revisions):
                await one.state.events.wait_after(one.state.events.last, 30)
        for question in list(one.state.questions.open):
            await one.do("answer", question=question, action="accept", content='{"count": 3}')
        await until(one, started["comparison"], "done")
        found = await one.do("comparison")
        texts = [json.loads(outcome["result"])["content"] for outcome in found["revisions"]]
        assert texts[0][0]["text"] == texts[1][0]["text"] == "{'count': 3}"


async def test_a_comparison_can_be_cancelled_and_another_replaces_it() -> None:
    async with inspecting(make_server()) as one:
        params = '{"name": "hang"}'
        first = await one.do("compare", method="tools/call", params=params)
        await one.do("cancel_compare")
        status = await until(one, first["comparison"], "cancelled")
        assert set(status["revisions"].values()) == {"cancelled"}
        await one.do("compare", method="tools/call", params=params)
        found = await compare(one, "tools/list")
        assert {outcome["status"] for outcome in found["revisions"]} == {"done"}
        assert not one.state.calls.records, "the session of the page is not used"


async def test_time_is_bounded() -> None:
    async with inspecting(make_server()) as one:
        found = await compare(one, "tools/call", {"name": "hang"}, timeout=0.5)
        assert {outcome["error"]["type"] for outcome in found["revisions"]} == {"TimedOut"}


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("compare", {"method": "tools/list", "revisions": ["1999-01-01"]}),
        ("compare", {"method": "tools/list", "revisions": []}),
        ("compare", {"method": ""}),
        ("compare", {"method": "tools/list", "timeout": 0}),
        ("compare", {"method": "tools/list", "timeout": 3600}),
        ("compare", {"method": "tools/list", "params": "[]"}),
        ("compare", {"method": "tools/list", "target": "other.py"}),
        ("comparison", {}),
        ("diff", {"before": "1"}),
    ],
)
async def test_what_is_refused(operation: str, fields: dict[str, Any]) -> None:
    async with inspecting(make_server()) as one:
        with pytest.raises(Refused):
            await one.do(operation, **fields)


@pytest.mark.parametrize("odd", ["[" * 3000 + "]" * 3000, '"\\ud800"'])
def test_values_that_cannot_be_read_differ_as_a_whole(odd: str) -> None:
    outcomes = [
        ComparedRevision("a", "done", result="[]"),
        ComparedRevision("b", "done", result=odd),
    ]
    found = add_differences(outcomes, mask=False)
    assert [(one.kind, one.path) for one in found.revisions[1].differences] == [("changed", "$")]
