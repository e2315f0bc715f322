"""2026-07-28: no handshake and no session.

Each request contains its version and capabilities, and each result contains its type. A server asks
its client questions by replying `input_required`. Change notifications arrive on one stream. The
results of lists and reads contain cache hints. Tasks moved from the core to an extension.

https://modelcontextprotocol.io/specification/2026-07-28/changelog
"""

from ..errors import InternalError, InvalidParams, NotFound
from ..protocol.base import CacheHints, Result
from ..protocol.client_features import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    ListRootsResult,
)
from ..protocol.content import ToolResultContent
from ..protocol.lifecycle import (
    ClientCapabilities,
    InputRequiredResult,
    RootsCapability,
    ServerCapabilities,
)
from ..protocol.prompts import GetPromptParams
from ..protocol.resources import ReadResourceParams
from ..protocol.tasks import CreateTaskResult
from ..protocol.tools import CallToolParams, Tool, ToolResult
from . import v2025_11_25
from .revision import evolve

COMPLETE = {"result_type": "complete"}

REVISION = evolve(
    v2025_11_25.REVISION,
    "2026-07-28",
    stateless=True,
    set_level=False,
    result_type="complete",
    methods=("server/discover", "subscriptions/listen", "notifications/subscriptions/acknowledged"),
    without=(
        "initialize", "notifications/initialized", "ping", "logging/setLevel",
        "resources/subscribe", "resources/unsubscribe",
        "sampling/createMessage", "elicitation/create", "roots/list",
        "notifications/roots/list_changed", "notifications/elicitation/complete",
        "tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "notifications/tasks/status",
    ),
    kinds=(Tool, ToolResult, ToolResultContent),
    adds={
        Result: ("result_type",),
        CacheHints: ("result_type", "ttl_ms", "cache_scope"),
        ToolResult: ("result_type",),
        CallToolParams: ("input_responses", "request_state"),
        ReadResourceParams: ("input_responses", "request_state"),
        GetPromptParams: ("input_responses", "request_state"),
    },
    drops={
        CallToolParams: ("task",),
        Tool: ("execution",),
        ElicitParams: ("elicitation_id", "task", "meta"),
        CreateMessageParams: ("task", "meta"),
        CreateMessageResult: ("result_type",),
        ElicitResult: ("result_type", "meta"),
        ListRootsResult: ("result_type", "meta"),
        ClientCapabilities: ("tasks",),
        RootsCapability: ("list_changed",),
        ServerCapabilities: ("tasks",),
    },
    stamp={
        Result: COMPLETE,
        CacheHints: COMPLETE | {"ttl_ms": 0, "cache_scope": "private"},
        InputRequiredResult: {"result_type": "input_required"},
        CreateTaskResult: {"result_type": "task"},
        # Answers to a server's questions travel inside a request, where results have no type.
        CreateMessageResult: {}, ElicitResult: {}, ListRootsResult: {},
    },
    codes={NotFound: -32602},
    retired={-32002: InvalidParams.code, -32042: InternalError.code},
)  # fmt: skip
