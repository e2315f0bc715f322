"""The oracle of tests/spec.py notices what it should, and nothing else: each message here has one
thing wrong with it."""

from typing import Any

import pytest

from tests.spec import REVISIONS, check_tape, flaws, needs_spec, problems

pytestmark = needs_spec
V1, V2, V3, V4, V5 = REVISIONS
META = {
    "io.modelcontextprotocol/protocolVersion": V5,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": method,
        **({} if params is None else {"params": params}),
        **more,
    }


def result(value: Any, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": value, **more}


def failure(code: int, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "error": {"code": code, "message": "m", **more}}


def asked(revision: str, message: Any) -> list[str]:
    return problems(revision, message, direction="client")


def answered(revision: str, method: str, value: Any) -> list[str]:
    return problems(revision, result(value), direction="server", method=method)


@pytest.mark.parametrize("revision", [V1, V2, V3, V4])
def test_right_messages_have_no_problems(revision: str) -> None:
    assert asked(revision, request("tools/list")) == []
    assert (
        asked(
            revision,
            request(
                "tools/call", {"name": "x", "arguments": {"any": [{"thing": 1}]}, "_meta": {"a": 1}}
            ),
        )
        == []
    )
    assert asked(revision, b'{"jsonrpc":"2.0","method":"notifications/initialized"}') == []
    assert answered(revision, "ping", {}) == []
    assert (
        answered(
            revision,
            "tools/call",
            {"content": [{"type": "text", "text": "", "annotations": {"x-own": 1}}]},
        )
        == []
    )


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        (V1, request("tools/lists")),
        (
            V1,
            request(
                "elicitation/create",
                {"message": "", "requestedSchema": {"type": "object", "properties": {}}},
            ),
        ),
        (V1, request("roots/list")),  # the server asks that
        (V1, request("notifications/initialized")),  # with an id it is no notification
        (V1, {"jsonrpc": "2.0", "method": "ping"}),  # without one no request
        (V1, request("ping", extra=1)),
        (V1, request("ping") | {"jsonrpc": "1.0"}),
        (V1, request("ping") | {"id": None}),
        (V1, request("ping", {"surprise": 1})),
        (V1, request("tools/call", {})),
        (V1, request("tools/call", {"name": "x", "task": {}})),
        (V1, request("resources/read", {"uri": "not a uri"})),
        (V4, request("tools/call", {"name": "x", "requestState": "s"})),
        (V5, request("ping", {"_meta": META})),
        (V5, request("tools/list", {})),
        (V5, request("tools/list")),
        (V5, request("tools/call", {"name": "x", "task": {}, "_meta": META})),
        (
            V5,
            request(
                "tools/list",
                {"_meta": META | {"io.modelcontextprotocol/clientCapabilities": {"tasks": {}}}},
            ),
        ),
    ],
)
def test_a_wrong_call_is_noticed(revision: str, message: Any) -> None:
    assert len(asked(revision, message)) >= 1


INFO = {"name": "", "version": ""}
TEXT = {"type": "text", "text": ""}


@pytest.mark.parametrize(
    ("revision", "method", "value", "where"),
    [
        (V1, "ping", {"pong": 1}, "pong"),
        (V1, "ping", None, "null"),
        (V1, "tools/call", {}, "content"),
        (V1, "tools/call", {"content": [], "structuredContent": {}}, "structuredContent"),
        (V1, "tools/call", {"content": [{**TEXT, "_meta": {}}]}, "content[0]._meta"),
        (
            V1,
            "tools/call",
            {"content": [{**TEXT, "annotations": {"lastModified": ""}}]},
            "another revision",
        ),
        (V1, "tools/call", {"content": [{"type": "audio", "data": "", "mimeType": ""}]}, "content"),
        (
            V2,
            "tools/call",
            {"content": [{"type": "resource_link", "uri": "a:b", "name": ""}]},
            "content",
        ),
        (
            V1,
            "tools/list",
            {"tools": [{"name": "", "inputSchema": {"type": "object"}, "title": ""}]},
            "tools[0].title",
        ),
        (
            V3,
            "tools/list",
            {"tools": [{"name": "", "inputSchema": {"type": "object"}, "icons": []}]},
            "tools[0].icons",
        ),
        (V4, "tools/list", {"tools": [], "ttlMs": 0}, "ttlMs"),
        (
            V4,
            "tools/list",
            {"tools": [{"name": "", "inputSchema": {"type": "array"}}]},
            "inputSchema",
        ),
        (V4, "tools/call", {"content": [], "resultType": "complete"}, "resultType"),
        (V4, "tools/call", {"content": [], "resultType": "input_required"}, "no such answer"),
        (V5, "tools/call", {"content": []}, "resultType"),
        # the schema alone takes it for a question
        (V5, "tools/call", {"resultType": "complete"}, "content"),
        (V5, "tools/call", {"resultType": "input_required", "content": []}, "content"),
        (V5, "tools/list", {"resultType": "input_required"}, "no such answer"),
        (V5, "tools/list", {"tools": [], "resultType": "complete"}, "ttlMs"),
        (V5, "initialize", {}, "no such answer"),
        (
            V3,
            "initialize",
            {"protocolVersion": "", "capabilities": {"tasks": {}}, "serverInfo": INFO},
            "tasks",
        ),
        (V3, "elicitation/create", {"action": "accept", "content": {"a": {}}}, "content"),
    ],
)
def test_a_wrong_result_is_noticed(revision: str, method: str, value: Any, where: str) -> None:
    found = answered(revision, method, value)
    assert found
    assert any(where in problem for problem in found)


def test_open_objects_may_hold_what_nobody_declared() -> None:
    capabilities = {
        "x-own": 1,
        "extensions": {"a": {"b": 1}},
        "experimental": {"c": {"d": 1}},
        "tools": {"x-own": 1},
    }
    value = {
        "protocolVersion": "",
        "capabilities": capabilities,
        "serverInfo": INFO,
        "_meta": {"anything": [1]},
    }
    assert answered(V1, "initialize", value) == []


def test_json_schemas_and_data_of_users_are_not_looked_into() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "format": "email"}},
        "$defs": {"x": {}},
        "if": {},
    }
    tool = {"name": "", "inputSchema": schema, "outputSchema": schema}
    assert answered(V4, "tools/list", {"tools": [tool]}) == []
    assert (
        answered(
            V4, "tools/call", {"content": [], "structuredContent": {"anything": {"at": ["all"]}}}
        )
        == []
    )
    log = {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {"level": "info", "data": {"a": {"b": 1}}},
    }
    assert problems(V4, log, direction="server") == []


def test_numbers_and_nulls_that_the_published_schemas_forgot_are_allowed() -> None:
    assert answered(V4, "elicitation/create", {"action": "accept", "content": {"a": 1.5}}) == []
    assert flaws(V5, "ClientCapabilities", {"extensions": {"a": {"b": [1.5, None]}}}) == []
    assert flaws(V4, "ElicitResult", {"action": "accept", "content": {"a": None}}) != []


@pytest.mark.parametrize(
    ("revision", "null", "absent"),
    [(V1, True, False), (V3, True, False), (V4, False, True), (V5, False, True)],
)
def test_an_error_that_answers_nothing_has_the_id_of_its_revision(
    revision: str, null: bool, absent: bool
) -> None:
    assert (problems(revision, failure(-32700) | {"id": None}, direction="server") == []) == null
    assert (problems(revision, failure(-32700), direction="server") == []) == absent


def test_an_error_with_a_code_of_its_own_carries_what_belongs_to_it() -> None:
    bare = failure(-32022) | {"id": 1}
    assert problems(V4, bare, direction="server") == []
    assert problems(V5, bare, direction="server") != []
    assert (
        problems(
            V5,
            failure(-32022, data={"supported": [], "requested": ""}) | {"id": 1},
            direction="server",
        )
        == []
    )


@pytest.mark.parametrize(
    "broken",
    [failure(1, more=1), {"jsonrpc": "2.0", "error": {"code": "x", "message": ""}}, {"error": 1}],
)
def test_a_broken_error_is_noticed(broken: dict[str, Any]) -> None:
    assert problems(V4, broken | {"id": 1}, direction="server")


def test_a_batch_is_checked_item_by_item_where_there_are_batches() -> None:
    batch = [request("ping"), request("ping", {"surprise": 1})]
    assert len(problems(V2, batch, direction="client")) == 1
    assert problems(V1, batch, direction="client") == [f"{V1} has no batches"]


def test_a_result_needs_to_know_what_it_answers() -> None:
    with pytest.raises(ValueError, match="method="):
        problems(V1, result({}), direction="server")
    assert problems(V1, result({}), direction="server", method={1: "ping"}) == []
    assert (
        "nothing was asked" in problems(V1, result({}), direction="server", method={2: "ping"})[0]
    )


class Tape:
    def __init__(self, *entries: tuple[str, bytes]) -> None:
        self.entries = list(entries)


def test_a_tape_is_checked_in_both_directions() -> None:
    ping, pong = (
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
    )
    tape: Any = Tape(("client", ping), ("server", ping), ("server", pong), ("client", pong))
    check_tape(tape, V1)
    with pytest.raises(AssertionError, match="not as 2026-07-28 has it"):
        check_tape(tape, V5)
    unasked: Any = Tape(("client", ping), ("client", pong))
    with pytest.raises(AssertionError, match="nothing was asked"):
        check_tape(unasked, V1)
