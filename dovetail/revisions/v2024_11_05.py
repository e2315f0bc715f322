"""2024-11-05, the first revision. Everything that later revisions added is absent in this revision.

https://modelcontextprotocol.io/specification/2024-11-05
"""

from ..errors import NotFound
from ..protocol.base import CacheHints, Implementation, ListChangedParams, Result
from ..protocol.client_features import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
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
    ProgressParams,
    SamplingCapability,
    ServerCapabilities,
)
from ..protocol.prompts import GetPromptParams, Prompt, PromptArgument
from ..protocol.resources import ReadResourceParams, Resource, ResourceTemplate
from ..protocol.tools import CallToolParams, Tool, ToolResult
from ..protocol.utilities import CompleteParams, PromptReference
from . import content_fallback
from .revision import Revision

REVISION = Revision(
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
