"""2025-06-18: structured output, elicitation, resource links, titles, and `_meta` on most types,
but no batching.

https://modelcontextprotocol.io/specification/2025-06-18/changelog
"""

from ..protocol.base import Implementation
from ..protocol.client_features import ElicitParams, Root
from ..protocol.content import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from ..protocol.lifecycle import ClientCapabilities, ServerCapabilities
from ..protocol.prompts import Prompt, PromptArgument
from ..protocol.resources import Resource, ResourceTemplate
from ..protocol.tools import Tool, ToolResult
from ..protocol.utilities import CompleteParams, PromptReference
from . import content_fallback, v2025_03_26
from .revision import evolve

REVISION = evolve(
    v2025_03_26.REVISION,
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
