"""The detailed draft: a whole conversation in its words, each message both ways, and what else its
peers may send."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dovetail.connection.extension import Extensions
from dovetail.errors import InvalidParams
from dovetail.jsonrpc.messages import ErrorResponse, Notification, Request, Response, decode, encode
from dovetail.protocol.base import Implementation, ListChangedParams, ListParams, Params
from dovetail.protocol.content import ImageContent, TextContent
from dovetail.protocol.lifecycle import (
    CancelledParams,
    ClientCapabilities,
    InitializeParams,
    InitializeResult,
    ListCapability,
    ProgressParams,
    ResourcesCapability,
    ServerCapabilities,
    ShutdownResult,
)
from dovetail.protocol.methods import METHODS
from dovetail.protocol.prompts import ListPromptsResult, Prompt
from dovetail.protocol.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    Resource,
    ResourcesChangedParams,
    ResourceTemplate,
)
from dovetail.protocol.tools import CallToolParams, ListToolsResult, Tool, ToolResult
from dovetail.revisions import DRAFT_DIALECT, error_from_wire

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FLAGS = {
    "supportsToolDiscovery": True,
    "supportsResourceDiscovery": True,
    "supportsNotifications": True,
}
ASKED = ClientCapabilities.of({"supportsProgress": True, "supportsCancellation": True})
SERVER = Implementation(name="s", version="1")
OFFERED = ServerCapabilities(
    tools=ListCapability(list_changed=True), resources=ResourcesCapability(list_changed=True)
)
WEATHER = {"temperature": 31, "condition": "Dusty"}

CALLS: list[tuple[str, Any, str, Any]] = [
    # what the vocabulary says, and in what params; what the dialect says, and in what params
    (
        "initialize",
        InitializeParams(
            protocol_version="2025-06-18",
            capabilities=ASKED,
            client_info=Implementation(name="", version=""),
        ),
        "initialize",
        {"mcpVersion": "2025-06-18", "clientCapabilities": ASKED},
    ),
    ("notifications/initialized", Params(), "initialized", {}),
    ("tools/list", ListParams(), "tools/list", {}),
    ("resources/list", ListParams(), "resources/list", {}),
    (
        "tools/call",
        CallToolParams(name="weather", arguments=Raw(b'{"city":"Tucson"}')),
        "tools/invoke",
        {"name": "weather", "arguments": {"city": "Tucson"}},
    ),
    (
        "notifications/tools/list_changed",
        ListChangedParams(added=[Tool("tides", {}, description="High and low")], removed=["radar"]),
        "tools/changed",
        {"added": [{"name": "tides", "description": "High and low"}], "removed": ["radar"]},
    ),
    (
        "resources/changed",
        ResourcesChangedParams(updated=["notes", "drafts"]),
        "resources/changed",
        {"updated": ["notes", "drafts"]},
    ),
    ("notifications/cancelled", CancelledParams(request_id=10), "cancel", {"id": 10}),
    (
        "notifications/progress",
        ProgressParams(progress_token=10, progress=42, total=100, message="Looking"),
        "progress",
        {"id": 10, "percent": 42.0, "message": "Looking"},
    ),
    ("shutdown", Params(), "shutdown", {}),
    ("exit", Params(), "exit", {}),
]
RESULTS: list[tuple[str, Any, Any]] = [
    (
        "initialize",
        InitializeResult(protocol_version="2025-06-18", capabilities=OFFERED, server_info=SERVER),
        {"server": {"name": "s", "version": "1"}, "serverCapabilities": FLAGS},
    ),
    (
        "tools/list",
        ListToolsResult(tools=[Tool("weather", SCHEMA, description="For a city")]),
        [{"name": "weather", "inputSchema": SCHEMA, "description": "For a city"}],
    ),
    (
        "resources/list",
        ListResourcesResult(resources=[Resource("notes:1", "one")]),
        [{"uri": "notes:1", "name": "one"}],
    ),
    (
        "resources/templates/list",
        ListResourceTemplatesResult(resource_templates=[ResourceTemplate("notes:{id}", "any")]),
        [{"uriTemplate": "notes:{id}", "name": "any"}],
    ),
    ("prompts/list", ListPromptsResult(prompts=[Prompt("p")]), [{"name": "p"}]),
    (
        "tools/call",
        ToolResult(
            content=[TextContent('{"temperature":31,"condition":"Dusty"}')],
            structured_content=WEATHER,
        ),
        {"status": "success", "output": WEATHER},
    ),
    (
        "tools/call",
        ToolResult(content=[TextContent("plain")]),
        {"status": "success", "output": "plain"},
    ),
    (
        "tools/call",
        ToolResult(content=[TextContent("broke")], is_error=True),
        {"status": "error", "output": "broke"},
    ),
    (
        "tools/call",
        ToolResult(content=[TextContent("[1,2]")], structured_content={"result": [1, 2]}),
        {"status": "success", "output": [1, 2]},
    ),
    ("shutdown", ShutdownResult(), None),
]


def lower_params(name: str, params: Any) -> Any:
    return json.loads(encode(DRAFT_DIALECT.lower_params(METHODS[name], params)))


def lower_result(name: str, result: Any) -> Any:
    return json.loads(encode(DRAFT_DIALECT.lower_result(METHODS[name], result)))


def lift_params(name: str, value: Any) -> Any:
    return DRAFT_DIALECT.lift_params(METHODS[name], encode(value))


def lift_result(name: str, value: Any) -> Any:
    return DRAFT_DIALECT.lift_result(METHODS[name], encode(value))


# The conversation.


@pytest.mark.parametrize(
    ("name", "params", "wire_name", "wire"), CALLS, ids=[row[2] for row in CALLS]
)
def test_what_is_sent_is_spelled_as_the_dialect_spells_it(
    name: str, params: Any, wire_name: str, wire: Any
) -> None:
    assert DRAFT_DIALECT.wire_name(name) == wire_name
    assert lower_params(name, params) == wire


@pytest.mark.parametrize(
    ("name", "params", "wire_name", "wire"), CALLS, ids=[row[2] for row in CALLS]
)
def test_what_comes_is_understood_in_the_words_of_the_vocabulary(
    name: str, params: Any, wire_name: str, wire: Any
) -> None:
    message = {"jsonrpc": "2.0", "method": wire_name, "params": wire}
    if METHODS[name].result is not None:
        message["id"] = 1
    call = decode(encode(message))
    assert isinstance(call, Request | Notification)
    method = Extensions().find_method(call.method, DRAFT_DIALECT)
    assert method is METHODS[name]
    lifted = DRAFT_DIALECT.lift_params(method, call.params)
    if name == "notifications/tools/list_changed":
        params = ListChangedParams()  # the news are enough: whoever hears them asks for the list
    assert json.loads(encode(lifted)) == json.loads(encode(params))


@pytest.mark.parametrize(("name", "result", "wire"), RESULTS, ids=[row[0] for row in RESULTS])
def test_results_are_sent_in_the_shape_of_the_dialect(name: str, result: Any, wire: Any) -> None:
    assert lower_result(name, result) == wire
    reply = decode(encode(Response(1, DRAFT_DIALECT.lower_result(METHODS[name], result))))
    assert isinstance(reply, Response)
    assert json.loads(bytes(reply.result)) == wire


@pytest.mark.parametrize(("name", "result", "wire"), RESULTS, ids=[row[0] for row in RESULTS])
def test_results_are_read_from_the_shape_of_the_dialect(name: str, result: Any, wire: Any) -> None:
    lifted = lift_result(name, wire)
    if name == "initialize":
        assert lifted.capabilities | FLAGS == lifted.capabilities  # its own flags are kept
        lifted.capabilities = ServerCapabilities.of(
            {key: lifted.capabilities[key] for key in result.capabilities}
        )
    assert lifted == result


def test_wrong_arguments_are_an_error_of_the_application() -> None:
    refusal = InvalidParams("Missing required parameter 'city'")
    wire = (
        b'{"jsonrpc":"2.0","id":10,"error":{"code":4001,"message":"Missing required '
        b"parameter 'city'\"}}"
    )
    failure = decode(wire)
    assert isinstance(failure, ErrorResponse)
    assert failure.error.code == DRAFT_DIALECT.code(refusal)
    assert (
        type(error_from_wire("tools/call", failure.error.code, failure.error.message, None))
        is InvalidParams
    )


@pytest.mark.parametrize(
    "name", ["tools/list", "resources/list", "shutdown", "exit", "notifications/initialized"]
)
def test_params_may_be_left_out(name: str) -> None:
    wire = {"jsonrpc": "2.0", "method": DRAFT_DIALECT.wire_name(name)} | (
        {"id": 1} if METHODS[name].result else {}
    )
    call = decode(encode(wire))
    assert isinstance(call, Request | Notification)
    assert DRAFT_DIALECT.lift_params(METHODS[name], call.params) == METHODS[name].params()


# Beyond the page.


def test_a_change_of_tools_without_words_is_still_a_change() -> None:
    assert (
        DRAFT_DIALECT.lift_params(METHODS["notifications/tools/list_changed"], Raw())
        == ListChangedParams()
    )
    assert lower_params("notifications/tools/list_changed", ListChangedParams()) == {
        "added": [],
        "removed": [],
    }


def test_a_change_of_a_resource_that_names_none_is_understood() -> None:
    changed = METHODS["resources/changed"]
    for raw in (b"", b"{}", b'{"updated":[]}'):
        assert DRAFT_DIALECT.lift_params(changed, raw) == ResourcesChangedParams()
    assert lower_params("resources/changed", ResourcesChangedParams()) == {"updated": []}


@pytest.mark.parametrize(
    "name", ["notifications/cancelled", "notifications/progress", "initialize"]
)
def test_what_lacks_its_params_is_a_validation_error(name: str) -> None:
    for raw in (Raw(), b"null", b"{}", b"[]"):
        with pytest.raises(msgspec.ValidationError):
            DRAFT_DIALECT.lift_params(METHODS[name], raw)


def test_progress_is_a_share_of_a_hundred_where_the_total_is_known() -> None:
    def sent(**fields: Any) -> Any:
        return lower_params("notifications/progress", ProgressParams(progress_token="r", **fields))

    assert sent(progress=1, total=3) == {"id": "r", "percent": 33.33}
    assert sent(progress=7, message="m") == {"id": "r", "message": "m"}
    assert sent(progress=0, total=0) == {"id": "r"}
    assert (
        sent(progress=1e308, total=1e308)
        == sent(progress=10**400, total=3)
        == {"id": "r", "percent": 100.0}
    )
    assert sent(progress=10**400, total=10**400 * 4) == {"id": "r", "percent": 25.0}
    assert lift_params("notifications/progress", {"id": "r"}) == ProgressParams(
        progress_token="r", progress=0, total=100
    )


def test_a_server_without_tools_or_resources_says_so() -> None:
    result = InitializeResult(
        protocol_version="",
        capabilities=ServerCapabilities(),
        server_info=Implementation(name="s", version="1", title="S"),
    )
    assert lower_result("initialize", result) == {
        "server": {"name": "s", "version": "1"},
        "serverCapabilities": FLAGS
        | {
            "supportsToolDiscovery": False,
            "supportsResourceDiscovery": False,
            "supportsNotifications": False,
        },
    }
    lifted = lift_result("initialize", lower_result("initialize", result))
    assert (lifted.capabilities.tools, lifted.capabilities.resources) == (None, None)


@pytest.mark.parametrize(
    ("name", "key", "item"),
    [
        ("tools/list", "tools", {"name": "t", "inputSchema": {}}),
        ("resources/list", "resources", {"name": "r", "uri": "a:b"}),
        ("resources/templates/list", "resourceTemplates", {"name": "r", "uriTemplate": "a:{b}"}),
        ("prompts/list", "prompts", {"name": "p"}),
    ],
)
def test_a_list_in_the_official_shape_is_understood_too(name: str, key: str, item: Any) -> None:
    assert json.loads(encode(lift_result(name, {key: [item]}))) == {key: [item]}
    assert lift_result(name, {}) == lift_result(name, [])


def test_lists_are_lowered_to_what_the_first_revision_knows() -> None:
    page = ListToolsResult(
        tools=[Tool("t", {}, title="T", output_schema={"type": "object"})], next_cursor="x"
    )
    assert lower_result("tools/list", page) == [{"name": "t", "inputSchema": {}}]


@pytest.mark.parametrize("status", ["error", "cancelled", "failed", ""])
def test_any_status_but_success_is_a_failure(status: str) -> None:
    assert lift_result("tools/call", {"status": status, "output": "x"}).is_error is True


@pytest.mark.parametrize("output", [None, True, 0, 1.5, [1], {"a": 1}, "text", ""])
def test_any_output_comes_through_as_data(output: Any) -> None:
    wire = {"status": "success", "output": output}
    lifted = lift_result("tools/call", wire)
    assert lifted.data == output
    assert lower_result("tools/call", lifted) == wire


def test_structured_content_in_raw_form_is_the_output() -> None:
    result = ToolResult(content=[TextContent("3")], structured_content=Raw(b'{"result":3}'))
    assert lower_result("tools/call", result) == {"status": "success", "output": 3}


def test_content_that_is_no_text_goes_out_as_what_it_is() -> None:
    image = {"type": "image", "data": "", "mimeType": "image/png"}
    result = ToolResult(content=[ImageContent("", "image/png")])
    assert lower_result("tools/call", result) == {"status": "success", "output": [image]}
    assert lower_result("tools/call", ToolResult(content=[])) == {
        "status": "success",
        "output": None,
    }


def test_a_result_of_another_shape_is_a_validation_error() -> None:
    for name, wire in (
        ("tools/call", {"output": 1}),
        ("tools/list", "x"),
        ("tools/list", [1]),
        ("initialize", {}),
    ):
        with pytest.raises(msgspec.ValidationError):
            lift_result(name, wire)
