"""The table of methods, with one row for each method in any revision. Each revision lists the
methods that it has.

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
    ResourcesChangedParams,
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
        name: The name on the wire, such as `tools/call`.
        sender: The sending side, which is `client`, `server` or `both`.
        params: The type of the params.
        result: The type of the result, or None for a notification.
        capability: The path of the capability that the answering side must declare.
        cacheable: Whether results have cache hints (stateless era).
        asks: Whether handlers may ask the client questions.
        named: The params attribute that is repeated in the HTTP header `Mcp-Name`.
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


def _list(name: str, result: Any, kind: str) -> Method:
    return Method(
        name, "client", ListParams, result, kind, cacheable=True, outdated_by=_changes(kind)
    )


def _changes(*kinds: str) -> tuple[str, ...]:
    return tuple(f"notifications/{kind}/list_changed" for kind in kinds)


_ROWS = [
    Method("initialize", "client", InitializeParams, InitializeResult),
    Method(
        "server/discover",
        "client",
        Params,
        DiscoverResult,
        cacheable=True,
        outdated_by=_changes("tools", "resources", "prompts"),
    ),
    Method("ping", "both", Params, EmptyResult),
    _list("tools/list", ListToolsResult, "tools"),
    Method("tools/call", "client", CallToolParams, ToolResult, "tools", asks=True, named="name"),
    _list("resources/list", ListResourcesResult, "resources"),
    _list("resources/templates/list", ListResourceTemplatesResult, "resources"),
    Method(
        "resources/read",
        "client",
        ReadResourceParams,
        ReadResourceResult,
        "resources",
        cacheable=True,
        asks=True,
        named="uri",
    ),
    Method("resources/subscribe", "client", UriParams, EmptyResult, "resources.subscribe"),
    Method("resources/unsubscribe", "client", UriParams, EmptyResult, "resources.subscribe"),
    _list("prompts/list", ListPromptsResult, "prompts"),
    Method(
        "prompts/get",
        "client",
        GetPromptParams,
        GetPromptResult,
        "prompts",
        asks=True,
        named="name",
    ),
    Method(
        "completion/complete",
        "client",
        CompleteParams,
        CompleteResult,
        "completions",
        outdated_by=_changes("resources", "prompts"),
    ),
    Method("logging/setLevel", "client", SetLevelParams, EmptyResult, "logging"),
    Method("subscriptions/listen", "client", ListenParams, ListenResult),
    Method(
        "sampling/createMessage", "server", CreateMessageParams, CreateMessageResult, "sampling"
    ),
    Method("elicitation/create", "server", ElicitParams, ElicitResult, "elicitation"),
    Method("roots/list", "server", Params, ListRootsResult, "roots"),
    # tasks/result returns the result of the request that started the task. On a server, that is
    # always a tool's result.
    Method("tasks/get", "both", TaskParams, CoreTaskResult, "tasks"),
    Method("tasks/result", "both", TaskParams, ToolResult, "tasks", asks=True),
    Method("tasks/list", "both", ListParams, ListTasksResult, "tasks.list"),
    Method("tasks/cancel", "both", TaskParams, CoreTaskResult, "tasks.cancel"),
    Method("shutdown", "client", Params, ShutdownResult),
    Method("notifications/initialized", "client", Params),
    Method("notifications/cancelled", "both", CancelledParams),
    Method("notifications/progress", "both", ProgressParams),
    Method("notifications/message", "server", LogParams, capability="logging"),
    Method(
        "notifications/tools/list_changed",
        "server",
        ListChangedParams,
        capability="tools.listChanged",
    ),
    Method(
        "notifications/resources/list_changed",
        "server",
        ListChangedParams,
        capability="resources.listChanged",
    ),
    Method(
        "notifications/prompts/list_changed",
        "server",
        ListChangedParams,
        capability="prompts.listChanged",
    ),
    Method(
        "notifications/resources/updated", "server", UriParams, capability="resources.subscribe"
    ),
    # Updates and list changes in one notification, which only the draft dialect has.
    Method("resources/changed", "server", ResourcesChangedParams),
    Method("notifications/subscriptions/acknowledged", "server", ListenParams),
    Method("notifications/elicitation/complete", "server", ElicitationCompleteParams),
    Method("notifications/tasks/status", "both", TaskStatusParams),
    Method("notifications/roots/list_changed", "client", Params, capability="roots.listChanged"),
    Method("exit", "client", Params),
]

METHODS: dict[str, Method] = {row.name: row for row in _ROWS}
"""All methods, keyed by name."""

TASKS_EXTENSION_METHODS = (
    Method("tasks/get", "client", TaskParams, DetailedTask, named="task_id"),
    Method("tasks/update", "client", UpdateTaskParams, EmptyResult, named="task_id"),
    Method("tasks/cancel", "client", TaskParams, EmptyResult, named="task_id"),
    Method("notifications/tasks", "server", TaskChangedParams),
)
"""The methods in the tasks extension. https://modelcontextprotocol.io/seps/2663-tasks-extension"""
