"""The official revisions, oldest first. The first lists everything that later ones added as absent;
each of the others reads like its changelog."""

from ..errors import InternalError, InvalidParams, NotFound
from ..protocol.base import CacheHints, Implementation, ListChangedParams, Result
from ..protocol.client_features import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    ListRootsResult,
    Root,
    SamplingMessage,
)
from ..protocol.content import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    ImageContent,
    OtherContent,
    ResourceContents,
    ResourceLink,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from ..protocol.lifecycle import (
    ClientCapabilities,
    ElicitationCapability,
    InputRequiredResult,
    ProgressParams,
    RootsCapability,
    SamplingCapability,
    ServerCapabilities,
)
from ..protocol.server_features import (
    CallToolParams,
    CompleteParams,
    GetPromptParams,
    Prompt,
    PromptArgument,
    PromptReference,
    ReadResourceParams,
    Resource,
    ResourceTemplate,
    Tool,
    ToolResult,
)
from ..protocol.tasks import CreateTaskResult
from . import content_fallback
from .revision import Revision, evolve

# 2024-11-05, the first revision. Everything that later revisions added is absent here.
# https://modelcontextprotocol.io/specification/2024-11-05

V2024_11_05 = Revision(
    name="2024-11-05",
    version="2024-11-05",
    methods=frozenset(
        (
            "initialize",
            "notifications/initialized",
            "ping",
            "notifications/cancelled",
            "notifications/progress",
            "tools/list",
            "tools/call",
            "notifications/tools/list_changed",
            "resources/list",
            "resources/templates/list",
            "resources/read",
            "resources/subscribe",
            "resources/unsubscribe",
            "notifications/resources/list_changed",
            "notifications/resources/updated",
            "prompts/list",
            "prompts/get",
            "notifications/prompts/list_changed",
            "completion/complete",
            "logging/setLevel",
            "notifications/message",
            "sampling/createMessage",
            "roots/list",
            "notifications/roots/list_changed",
        )
    ),
    absent={
        Result: ("result_type",),
        CacheHints: ("result_type", "ttl_ms", "cache_scope"),
        ListChangedParams: ("added", "removed"),
        Implementation: ("title", "description", "website_url", "icons"),
        ClientCapabilities: ("elicitation", "tasks", "extensions"),
        SamplingCapability: ("tools", "context"),
        ElicitationCapability: ("form", "url"),
        ServerCapabilities: ("completions", "tasks", "extensions"),
        Annotations: ("last_modified",),
        TextContent: ("meta",),
        ImageContent: ("meta",),
        AudioContent: ("meta",),
        EmbeddedResource: ("meta",),
        ResourceLink: ("icons",),
        ResourceContents: ("meta",),
        Tool: ("title", "annotations", "output_schema", "icons", "execution", "meta"),
        CallToolParams: ("task", "input_responses", "request_state"),
        ToolResult: ("result_type", "structured_content"),
        Resource: ("title", "icons", "meta"),
        ResourceTemplate: ("title", "icons", "meta"),
        ReadResourceParams: ("input_responses", "request_state"),
        Prompt: ("title", "icons", "meta"),
        PromptArgument: ("title",),
        GetPromptParams: ("input_responses", "request_state"),
        PromptReference: ("title",),
        CompleteParams: ("context",),
        ProgressParams: ("message",),
        CreateMessageParams: ("tools", "tool_choice", "task"),
        SamplingMessage: ("meta",),
        ElicitParams: ("mode", "url", "elicitation_id", "task"),
        Root: ("meta",),
    },
    instead={
        AudioContent: content_fallback.audio,
        ResourceLink: content_fallback.link,
        ToolUseContent: content_fallback.tool_use,
        ToolResultContent: content_fallback.tool_result,
        CreateMessageParams: content_fallback.one_block_each,
        CreateMessageResult: content_fallback.one_block_without_audio,
        SamplingMessage: content_fallback.audio_as_text,
        Tool: content_fallback.object_schemas,
        ToolResult: content_fallback.object_content,
        OtherContent: content_fallback.other_content,
    },
    codes={NotFound: -32002},
)

# 2025-03-26: batching, audio, tool annotations, the completions capability, messages in progress.
# https://modelcontextprotocol.io/specification/2025-03-26/changelog

V2025_03_26 = evolve(
    V2024_11_05,
    "2025-03-26",
    batching=True,
    kinds=(AudioContent, SamplingMessage),
    instead={CreateMessageResult: content_fallback.one_block},
    adds={
        Tool: ("annotations",),
        ServerCapabilities: ("completions",),
        ProgressParams: ("message",),
    },
)

# 2025-06-18: structured output, elicitation, resource links, titles, `_meta` on most types; no
# batching.
# https://modelcontextprotocol.io/specification/2025-06-18/changelog

V2025_06_18 = evolve(
    V2025_03_26,
    "2025-06-18",
    batching=False,
    methods=("elicitation/create",),
    kinds=(ResourceLink,),
    instead={ElicitParams: content_fallback.untitled_form},
    adds={
        ToolResult: ("structured_content",),
        Tool: ("title", "output_schema", "meta"),
        Resource: ("title", "meta"),
        ResourceTemplate: ("title", "meta"),
        Prompt: ("title", "meta"),
        PromptArgument: ("title",),
        PromptReference: ("title",),
        Implementation: ("title",),
        Annotations: ("last_modified",),
        TextContent: ("meta",),
        ImageContent: ("meta",),
        AudioContent: ("meta",),
        EmbeddedResource: ("meta",),
        ResourceContents: ("meta",),
        Root: ("meta",),
        CompleteParams: ("context",),
        # Its schema does not list this key, but leaves capabilities open. Extensions are negotiated
        # here too: https://modelcontextprotocol.io/seps/2133-extensions#negotiation
        ClientCapabilities: ("elicitation", "extensions"),
        ServerCapabilities: ("extensions",),
    },
)

# 2025-11-25: icons, URL elicitation, tools in sampling, experimental tasks. The last handshake
# revision.
# https://modelcontextprotocol.io/specification/2025-11-25/changelog

V2025_11_25 = evolve(
    V2025_06_18,
    "2025-11-25",
    unnamed_errors=True,
    methods=(
        "notifications/elicitation/complete",
        "tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "notifications/tasks/status",
    ),
    priming=True,
    sampling_parts=True,
    kinds=(ToolUseContent, CreateMessageParams, CreateMessageResult, ElicitParams),
    instead={ToolResultContent: content_fallback.object_content},
    adds={
        Implementation: ("description", "website_url", "icons"),
        Tool: ("icons", "execution"),
        Resource: ("icons",),
        ResourceTemplate: ("icons",),
        ResourceLink: ("icons",),
        Prompt: ("icons",),
        ElicitParams: ("mode", "url", "elicitation_id", "task"),
        ElicitationCapability: ("form", "url"),
        CreateMessageParams: ("tools", "tool_choice", "task"),
        SamplingMessage: ("meta",),
        SamplingCapability: ("tools", "context"),
        CallToolParams: ("task",),
        ClientCapabilities: ("tasks",),
        ServerCapabilities: ("tasks",),
    },
)  # fmt: skip

# 2026-07-28: no handshake and no session. Each request carries its version and capabilities, each
# result its type. A server asks by answering `input_required`. Notifications of changes arrive on
# one stream. Lists and reads carry cache hints. Tasks left the core.
# https://modelcontextprotocol.io/specification/2026-07-28/changelog

COMPLETE = {"result_type": "complete"}

V2026_07_28 = evolve(
    V2025_11_25,
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

OFFICIAL = (V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28)
