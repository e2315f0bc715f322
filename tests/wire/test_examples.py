"""Each example of the specification is understood, and said again without loss.

The examples are those of the newest revision, one folder per type. Where our vocabulary has that
type, an example is decoded into it, encoded again and compared. Whole messages go through the codec
first, as they would on a connection.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.connection.extension import Extensions
from dovetail.jsonrpc.messages import (
    ErrorResponse,
    Notification,
    Request,
    Response,
    decode as decode_message,
    encode,
)
from dovetail.protocol import (
    base,
    client_features,
    content,
    lifecycle,
    prompts,
    resources,
    tools,
    utilities,
)
from dovetail.protocol.methods import METHODS
from dovetail.revisions import OFFICIAL, decode, error_from_wire
from tests.spec import EXAMPLES, definitions, flaws, needs_spec

NEWEST = OFFICIAL[-1]
TYPES: dict[str, Any] = {
    "AudioContent": content.AudioContent,
    "BlobResourceContents": content.ResourceContents,
    "CallToolRequestParams": tools.CallToolParams,
    "CallToolResult": tools.ToolResult,
    "CancelledNotificationParams": lifecycle.CancelledParams,
    "ClientCapabilities": lifecycle.ClientCapabilities,
    "CompleteRequestParams": utilities.CompleteParams,
    "CompleteResult": utilities.CompleteResult,
    "CreateMessageRequestParams": client_features.CreateMessageParams,
    "CreateMessageResult": client_features.CreateMessageResult,
    "DiscoverResult": lifecycle.DiscoverResult,
    "ElicitRequestFormParams": client_features.ElicitParams,
    "ElicitRequestURLParams": client_features.ElicitParams,
    "ElicitResult": client_features.ElicitResult,
    "EmbeddedResource": content.EmbeddedResource,
    "GetPromptRequestParams": prompts.GetPromptParams,
    "GetPromptResult": prompts.GetPromptResult,
    "ImageContent": content.ImageContent,
    "InputRequiredResult": lifecycle.InputRequiredResult,
    "ListPromptsResult": prompts.ListPromptsResult,
    "ListResourceTemplatesResult": resources.ListResourceTemplatesResult,
    "ListResourcesResult": resources.ListResourcesResult,
    "ListRootsResult": client_features.ListRootsResult,
    "ListToolsResult": tools.ListToolsResult,
    "LoggingMessageNotificationParams": utilities.LogParams,
    "ModelPreferences": client_features.ModelPreferences,
    "PaginatedRequestParams": base.ListParams,
    "ProgressNotificationParams": lifecycle.ProgressParams,
    "ReadResourceResult": resources.ReadResourceResult,
    "Resource": resources.Resource,
    "ResourceLink": content.ResourceLink,
    "ResourceUpdatedNotificationParams": resources.UriParams,
    "Root": client_features.Root,
    "SamplingMessage": client_features.SamplingMessage,
    "ServerCapabilities": lifecycle.ServerCapabilities,
    "SubscriptionsListenResult": utilities.ListenResult,
    "TextContent": content.TextContent,
    "TextResourceContents": content.ResourceContents,
    "Tool": tools.Tool,
    "ToolResultContent": content.ToolResultContent,
    "ToolUseContent": content.ToolUseContent,
}
EMBEDDED = {"CreateMessageRequest", "ElicitRequest", "ListRootsRequest"}
"""Requests that are no messages of their own in this revision, but parts of a result."""
PLAIN = {
    "InputRequests", "InputResponses", "BooleanSchema", "NumberSchema", "StringSchema",
    "TitledMultiSelectEnumSchema", "TitledSingleSelectEnumSchema", "UntitledMultiSelectEnumSchema",
    "UntitledSingleSelectEnumSchema",
}  # fmt: skip
"""What stays JSON in our hands: forms, and questions and answers by key."""
FLAWED = {"list-roots-request.json", "read-resource-result-response.json"}
"""Examples that break the schema they illustrate: an id too many, a hint too few."""

FILES = sorted(EXAMPLES.glob("*/*.json"))
each_file = pytest.mark.parametrize(
    "path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}"
)
pytestmark = needs_spec


def answered_method(name: str) -> str:
    """The method whose answer a `…ResultResponse` is."""
    request = definitions(NEWEST.name)[name.removesuffix("ResultResponse") + "Request"]
    return str(request["properties"]["method"]["const"])


@each_file
def test_an_example_is_said_again_without_loss(path: Path) -> None:
    name, wire = path.parent.name, path.read_bytes()
    value = json.loads(wire)
    if kind := TYPES.get(name):
        said = json.loads(encode(decode(wire, kind)))
        assert without_default(said) == without_default(value)
    elif name in EMBEDDED:
        params = encode(value.get("params", {}))
        assert json.loads(encode(decode(params, METHODS[value["method"]].params))) == json.loads(
            params
        )
    elif name not in PLAIN:
        assert without_default(said_again(name, value)) == without_default(value)


def without_default(value: dict[str, Any]) -> dict[str, Any]:
    """The value without `"isError": false`: the schema says that leaving it out means the same.
    We always send it."""
    inner = {
        key: without_default(item) if key == "result" and isinstance(item, dict) else item
        for key, item in value.items()
    }
    return {key: item for key, item in inner.items() if (key, item) != ("isError", False)}


def said_again(name: str, value: Any) -> Any:
    """A whole message, or the error of one, through codec and vocabulary and back."""
    whole = value if "jsonrpc" in value else {"jsonrpc": "2.0", "id": 1, "error": value}
    message = decode_message(encode(whole))
    if isinstance(message, ErrorResponse):
        raised = error_from_wire(
            "ping", message.error.code, message.error.message, message.error.data
        )
        assert getattr(raised, "code", None) == message.error.code
    elif isinstance(message, Response):
        method = METHODS[answered_method(name)]
        message.result = NEWEST.lift_result(method, message.result)
    else:
        assert isinstance(message, Request | Notification)
        known = Extensions().find_method(message.method, NEWEST)
        assert known is not None
        message.params = NEWEST.lift_params(known, message.params)
    again = json.loads(encode(message))
    return again if whole is value else again["error"]


@each_file
def test_an_example_is_right_by_the_schema_it_illustrates(path: Path) -> None:
    assert bool(flaws(NEWEST.name, path.parent.name, json.loads(path.read_bytes()))) == (
        path.name in FLAWED
    )


def test_no_type_with_examples_is_forgotten() -> None:
    folders = {path.parent.name for path in FILES}
    assert folders >= TYPES.keys() | EMBEDDED | PLAIN
    rest = folders - TYPES.keys() - EMBEDDED - PLAIN
    assert all(
        name.endswith(("Request", "Notification", "ResultResponse", "Error")) for name in rest
    )
