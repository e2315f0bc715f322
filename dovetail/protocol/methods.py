"""One row for each method of any revision. The revision says which of them it has.

Everything that the layers above need to know about a method is a field of its row. Extensions add
rows of the same kind.
"""

from typing import Any, Literal

from msgspec import Struct

from .base import EmptyResult, ListChangedParams, ListParams, Params, Result
from .client_features import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitationCompleteParams,
    ElicitParams,
    ElicitResult,
    ListRootsResult,
)
from .lifecycle import (
    CancelledParams,
    DiscoverResult,
    InitializeParams,
    InitializeResult,
    ProgressParams,
    ShutdownResult,
)
from .prompts import GetPromptParams, GetPromptResult, ListPromptsResult
from .resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceParams,
    ReadResourceResult,
    UriParams,
)
from .tasks import (
    CoreTaskResult,
    DetailedTask,
    ListTasksResult,
    TaskChangedParams,
    TaskParams,
    TaskStatusParams,
    UpdateTaskParams,
)
from .tools import CallToolParams, ListToolsResult, ToolResult
from .utilities import (
    CompleteParams,
    CompleteResult,
    ListenParams,
    ListenResult,
    LogParams,
    SetLevelParams,
)

Side = Literal["client", "server", "both"]


class Method(Struct, frozen=True, eq=False):
    """A method of the protocol or of an extension.

    Attributes:
        name: Name on the wire, such as `tools/call`.
        sender: Who sends it: `client`, `server` or `both`.
        params: Type of its params.
        result: Type of its result. None for a notification.
        capability: What the answering side must declare, as a path into its capabilities.
        cacheable: Whether its results carry cache hints (stateless era).
        asks: Whether its handlers may ask the client.
        named: The params attribute that the HTTP header `Mcp-Name` repeats.
        outdated_by: The notifications that make a cached result stale.
    """

    name: str
    sender: Side
    params: type[Params]
    result: type[Result] | None = None
    capability: str = ""
    cacheable: bool = False
    asks: bool = False
    named: str = ""
    outdated_by: tuple[str, ...] = ()


def _request(
    name: str, sender: Side, params: Any, result: Any, capability: str = "", **facts: Any
) -> Method:
    return Method(name, sender, params, result, capability, **facts)


def _list(name: str, result: Any, kind: str) -> Method:
    return Method(
        name, "client", ListParams, result, kind, cacheable=True, outdated_by=_changes(kind)
    )


def _changes(*kinds: str) -> tuple[str, ...]:
    return tuple(f"notifications/{kind}/list_changed" for kind in kinds)


def _notification(name: str, sender: Side, params: Any, capability: str = "") -> Method:
    return Method(name, sender, params, None, capability)


_ROWS = [
    _request("initialize", "client", InitializeParams, InitializeResult),
    _request("server/discover", "client", Params, DiscoverResult, cacheable=True),
    _request("ping", "both", Params, EmptyResult),
    _list("tools/list", ListToolsResult, "tools"),
    _request("tools/call", "client", CallToolParams, ToolResult, "tools", asks=True, named="name"),
    _list("resources/list", ListResourcesResult, "resources"),
    _list("resources/templates/list", ListResourceTemplatesResult, "resources"),
    _request(
        "resources/read",
        "client",
        ReadResourceParams,
        ReadResourceResult,
        "resources",
        cacheable=True,
        asks=True,
        named="uri",
    ),
    _request("resources/subscribe", "client", UriParams, EmptyResult, "resources.subscribe"),
    _request("resources/unsubscribe", "client", UriParams, EmptyResult, "resources.subscribe"),
    _list("prompts/list", ListPromptsResult, "prompts"),
    _request(
        "prompts/get",
        "client",
        GetPromptParams,
        GetPromptResult,
        "prompts",
        asks=True,
        named="name",
    ),
    _request(
        "completion/complete",
        "client",
        CompleteParams,
        CompleteResult,
        "completions",
        outdated_by=_changes("resources", "prompts"),
    ),
    _request("logging/setLevel", "client", SetLevelParams, EmptyResult, "logging"),
    _request("subscriptions/listen", "client", ListenParams, ListenResult),
    _request(
        "sampling/createMessage", "server", CreateMessageParams, CreateMessageResult, "sampling"
    ),
    _request("elicitation/create", "server", ElicitParams, ElicitResult, "elicitation"),
    _request("roots/list", "server", Params, ListRootsResult, "roots"),
    # tasks/result returns the result of the request that started the task. On a server that is
    # always a tool's result.
    _request("tasks/get", "both", TaskParams, CoreTaskResult, "tasks"),
    _request("tasks/result", "both", TaskParams, ToolResult, "tasks", asks=True),
    _request("tasks/list", "both", ListParams, ListTasksResult, "tasks.list"),
    _request("tasks/cancel", "both", TaskParams, CoreTaskResult, "tasks.cancel"),
    _request("shutdown", "client", Params, ShutdownResult),
    _notification("notifications/initialized", "client", Params),
    _notification("notifications/cancelled", "both", CancelledParams),
    _notification("notifications/progress", "both", ProgressParams),
    _notification("notifications/message", "server", LogParams, "logging"),
    _notification(
        "notifications/tools/list_changed", "server", ListChangedParams, "tools.listChanged"
    ),
    _notification(
        "notifications/resources/list_changed", "server", ListChangedParams, "resources.listChanged"
    ),
    _notification(
        "notifications/prompts/list_changed", "server", ListChangedParams, "prompts.listChanged"
    ),
    _notification("notifications/resources/updated", "server", UriParams, "resources.subscribe"),
    _notification("notifications/subscriptions/acknowledged", "server", ListenParams),
    _notification("notifications/elicitation/complete", "server", ElicitationCompleteParams),
    _notification("notifications/tasks/status", "both", TaskStatusParams),
    _notification("notifications/roots/list_changed", "client", Params, "roots.listChanged"),
    _notification("exit", "client", Params),
]

METHODS: dict[str, Method] = {row.name: row for row in _ROWS}
"""All methods by name."""

TASKS_EXTENSION_METHODS = (
    _request("tasks/get", "client", TaskParams, DetailedTask, named="task_id"),
    _request("tasks/update", "client", UpdateTaskParams, EmptyResult, named="task_id"),
    _request("tasks/cancel", "client", TaskParams, EmptyResult, named="task_id"),
    _notification("notifications/tasks", "server", TaskChangedParams),
)
"""The methods of the tasks extension.
https://modelcontextprotocol.io/seps/2663-tasks-extension"""
