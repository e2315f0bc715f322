"""The "detailed draft", a dialect that some early servers and clients speak. The dialect's
`initialize` request contains `mcpVersion`, and the answer contains `serverCapabilities`. The
dialect has the first revision's tools and resources, with other names and shapes. Lists are bare
arrays. A tool call is `tools/invoke` and returns `{status, output}`. Progress notifications contain
the request id and a percentage. Resource changes are sent without a subscription. A session ends
with `shutdown` and `exit`. Each row below is one method as this dialect spells it.
"""

from typing import Any

import msgspec

from ..errors import InvalidParams, NotFound
from ..jsonrpc.messages import encode
from ..protocol.base import Implementation, ListChangedParams, Wire, camel, open_hook
from ..protocol.content import TextContent
from ..protocol.lifecycle import (
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
from ..protocol.prompts import ListPromptsResult, Prompt
from ..protocol.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    Resource,
    ResourceTemplate,
)
from ..protocol.tools import ListToolsResult, Tool, ToolResult
from . import v2024_11_05
from .revision import BAD_ARGUMENTS, Dialect, evolve

NAME = "detailed-draft"
VERSION = "2025-06-18"
"""The version that this dialect reports. The official revision of that date is a different
revision."""


class _Greeting(Wire):
    mcp_version: str
    client_capabilities: dict[str, Any] | None = None


class _Welcome(Wire):
    server: Implementation
    server_capabilities: dict[str, Any]


class _Cancel(Wire):
    id: int | str


class _Progress(Wire, kw_only=True):
    id: int | str
    percent: float | None = None
    message: str | None = None


class _Outcome(Wire):
    status: str
    output: Any = None


_UNKNOWN = (
    "resources/subscribe",
    "resources/unsubscribe",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/prompts/list_changed",
    "logging/setLevel",
    "notifications/message",
    "sampling/createMessage",
    "roots/list",
    "notifications/roots/list_changed",
)
"""The methods in the first revision that this dialect does not have: subscriptions, log messages,
sampling, roots, and most change notifications."""


def _as(value: Any, type_: Any) -> Any:
    return msgspec.convert(value, type_, dec_hook=open_hook)


def _greeted(value: Any) -> InitializeParams:
    greeting = _as(value, _Greeting)
    capabilities = ClientCapabilities.of(greeting.client_capabilities or {})
    return InitializeParams(
        protocol_version=greeting.mcp_version,
        capabilities=capabilities,
        client_info=Implementation(name="", version=""),
    )


def _greet(params: InitializeParams) -> Any:
    flags = {"supportsProgress": True, "supportsCancellation": True}
    return {"mcpVersion": params.protocol_version, "clientCapabilities": flags}


def _welcome(result: InitializeResult) -> Any:
    offered = result.capabilities
    return {
        "server": {"name": result.server_info.name, "version": result.server_info.version},
        "serverCapabilities": {
            "supportsToolDiscovery": offered.tools is not None,
            "supportsResourceDiscovery": offered.resources is not None,
            "supportsNotifications": _notifies(offered.tools) or _notifies(offered.resources),
        },
    }


def _notifies(part: dict[str, Any] | None) -> bool:
    return bool(part and (part.get("listChanged") or part.get("subscribe")))


def _welcomed(value: Any) -> InitializeResult:
    welcome = _as(value, _Welcome)
    flags = welcome.server_capabilities
    capabilities = ServerCapabilities.of(flags)
    notifies = bool(flags.get("supportsNotifications")) or None
    if flags.get("supportsToolDiscovery"):
        capabilities.tools = ListCapability(list_changed=notifies)
    if flags.get("supportsResourceDiscovery"):
        capabilities.resources = ResourcesCapability(list_changed=notifies)
    return InitializeResult(
        protocol_version=VERSION, capabilities=capabilities, server_info=welcome.server
    )


def _listing(result: type, key: str, item: type) -> Dialect:
    def lift(value: Any) -> Any:
        items = value.get(camel(key), []) if isinstance(value, dict) else value
        return result(**{key: _as(items, list[item])})  # type: ignore[valid-type]

    return Dialect(
        lift_result=lift,
        lower_result=lambda page: [REVISION.lower(one) for one in getattr(page, key)],
    )


def _outcome(result: ToolResult) -> Any:
    # Results that are neither data nor text are sent as content blocks.
    output = result.data
    if output is None and result.structured_content is None:
        output = [REVISION.lower(block) for block in result.content] or None
    return {"status": "error" if result.is_error else "success", "output": output}


def _called(value: Any) -> ToolResult:
    outcome = _as(value, _Outcome)
    output = outcome.output
    text = output if isinstance(output, str) else encode(output).decode()
    structured = (
        output
        if isinstance(output, dict)
        else None
        if isinstance(output, str)
        else {"result": output}
    )
    return ToolResult(
        content=[TextContent(text)],
        structured_content=structured,
        is_error=outcome.status != "success",
    )


def _progress(params: ProgressParams) -> Any:
    done, total = params.progress, params.total
    # Clamp before multiplying: tools may report numbers of any size.
    share = None if not total else 1.0 if done >= total else 0.0 if done <= 0 else done / total
    percent = None if share is None else round(100 * share, 2)
    return _Progress(id=params.progress_token, percent=percent, message=params.message)


def _progressed(value: Any) -> ProgressParams:
    update = _as(value, _Progress)
    return ProgressParams(
        progress_token=update.id, progress=update.percent or 0, total=100, message=update.message
    )


def _tools_changed(params: ListChangedParams) -> Any:
    # Tools that were added in another process are dicts.
    tools = [_as(tool, Tool) if isinstance(tool, dict) else tool for tool in params.added or []]
    added = [{"name": tool.name, "description": tool.description or ""} for tool in tools]
    return {"added": added, "removed": params.removed or []}


REVISION = evolve(
    v2024_11_05.REVISION,
    NAME,
    version=VERSION,
    progress_by_id=True,
    tool_errors=False,
    paging=False,
    cancelled_result={"status": "cancelled", "output": None},
    pings=False,
    methods=("resources/changed", "shutdown", "exit"),
    without=_UNKNOWN,
    adds={ToolResult: ("structured_content",)},
    codes={InvalidParams: BAD_ARGUMENTS, NotFound: -32002},
    dialects={
        "initialize": Dialect(
            lift_params=_greeted,
            lower_params=_greet,
            lift_result=_welcomed,
            lower_result=_welcome,
        ),
        "notifications/initialized": Dialect(name="initialized", lower_params=lambda _: {}),
        "tools/list": _listing(ListToolsResult, "tools", Tool),
        "resources/list": _listing(ListResourcesResult, "resources", Resource),
        "resources/templates/list": _listing(
            ListResourceTemplatesResult, "resource_templates", ResourceTemplate
        ),
        "prompts/list": _listing(ListPromptsResult, "prompts", Prompt),
        "tools/call": Dialect(name="tools/invoke", lift_result=_called, lower_result=_outcome),
        "notifications/tools/list_changed": Dialect(
            name="tools/changed",
            lift_params=lambda _: ListChangedParams(),
            lower_params=_tools_changed,
        ),
        # The list is sent even if it is empty.
        "resources/changed": Dialect(lower_params=lambda params: {"updated": params.updated}),
        "notifications/cancelled": Dialect(
            name="cancel",
            lift_params=lambda value: CancelledParams(request_id=_as(value, _Cancel).id),
            lower_params=lambda params: {"id": params.request_id},
        ),
        "notifications/progress": Dialect(
            name="progress", lift_params=_progressed, lower_params=_progress
        ),
        "shutdown": Dialect(lift_result=lambda _: ShutdownResult(), lower_result=lambda _: None),
    },
)
