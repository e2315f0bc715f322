"""Run servers that were written for FastMCP or the official SDK, with only the import changed.

    from dovetail.compat import FastMCP, MCPServer, Context, Image, ToolError

This thin layer over `Server` and `Context` uses the names, the parameter order and the value syntax
(`TextContent(type="text", text=…)`) of those libraries. If Dovetail lacks a feature or implements
it differently, its option raises ConfigError and its method raises AttributeError. The message says
what to use instead. No option that affects the behaviour of a server is silently ignored. See
docs/guides/moving.md for a list of the differences.
"""

from typing import Any

from ..errors import ToolError
from ..protocol.utilities import (
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceReference as ResourceTemplateReference,
)
from .context import CompatContext as Context, CompatSession as ServerSession
from .instead import ELSEWHERE
from .server import FastMCP, MCPServer
from .values import (
    AcceptedElicitation,
    Annotations,
    AssistantMessage,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    CancelledElicitation,
    CompatAudio as Audio,
    CompatImage as Image,
    Completion,
    CurrentContext,
    DeclinedElicitation,
    EmbeddedResource,
    Icon,
    ImageContent,
    Message,
    ModelPreferences,
    PromptMessage,
    ResourceError,
    ResourceLink,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
    ToolResult,
    UserMessage,
)

__all__ = [
    "AcceptedElicitation", "Annotations", "AssistantMessage", "Audio", "AudioContent",
    "BlobResourceContents", "CallToolResult", "CancelledElicitation", "Completion",
    "CompletionArgument", "CompletionContext", "Context", "CurrentContext", "DeclinedElicitation",
    "EmbeddedResource", "FastMCP", "Icon", "Image", "ImageContent", "MCPServer", "Message",
    "ModelPreferences", "PromptMessage", "PromptReference", "ResourceError", "ResourceLink",
    "ResourceTemplateReference", "SamplingMessage", "ServerSession", "TextContent",
    "TextResourceContents", "ToolAnnotations", "ToolError", "ToolResult", "UserMessage",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ELSEWHERE:
        raise ImportError(f"{name} is not in dovetail.compat: {ELSEWHERE[name]}")
    raise AttributeError(f"module 'dovetail.compat' has no attribute {name!r}")
