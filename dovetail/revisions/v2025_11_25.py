"""2025-11-25: icons, URL elicitation, tools in sampling, and experimental tasks. The last handshake
revision.

https://modelcontextprotocol.io/specification/2025-11-25/changelog
"""

from ..protocol.base import Implementation
from ..protocol.client_features import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    SamplingMessage,
)
from ..protocol.content import ResourceLink, ToolResultContent, ToolUseContent
from ..protocol.lifecycle import (
    ClientCapabilities,
    ElicitationCapability,
    SamplingCapability,
    ServerCapabilities,
)
from ..protocol.prompts import Prompt
from ..protocol.resources import Resource, ResourceTemplate
from ..protocol.tools import CallToolParams, Tool
from . import content_fallback, v2025_06_18
from .revision import evolve

REVISION = evolve(
    v2025_06_18.REVISION,
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
