"""Dovetail: the Model Context Protocol for Python.

    from dovetail import Server, Context, Client

Nothing is loaded before it is used: each name below is imported from its home when first asked for.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .client.client import Client
    from .errors import CannotAsk, DovetailError, NotFound, ProtocolError, ToolError
    from .limits import Limits
    from .ports import Channel, HttpRequest, HttpResponse
    from .protocol.base import Icon
    from .protocol.content import (
        Annotations,
        AudioContent,
        BlobResourceContents,
        EmbeddedResource,
        ImageContent,
        ResourceLink,
        TextContent,
        TextResourceContents,
    )
    from .protocol.prompts import Message
    from .protocol.roots import Root
    from .protocol.tools import ToolAnnotations, ToolResult
    from .server.context import Context
    from .server.guards.redaction import redact_secrets
    from .server.media import Audio, File, Image
    from .server.server import Server
    from .shapes.header import Header

_HOMES = {
    "Annotations": "protocol.content",
    "Audio": "server.media",
    "AudioContent": "protocol.content",
    "BlobResourceContents": "protocol.content",
    "CannotAsk": "errors",
    "Channel": "ports",
    "Client": "client.client",
    "Context": "server.context",
    "DovetailError": "errors",
    "EmbeddedResource": "protocol.content",
    "File": "server.media",
    "Header": "shapes.header",
    "HttpRequest": "ports",
    "HttpResponse": "ports",
    "Icon": "protocol.base",
    "Image": "server.media",
    "ImageContent": "protocol.content",
    "Limits": "limits",
    "Message": "protocol.prompts",
    "NotFound": "errors",
    "ProtocolError": "errors",
    "ResourceLink": "protocol.content",
    "Root": "protocol.roots",
    "Server": "server.server",
    "TextContent": "protocol.content",
    "TextResourceContents": "protocol.content",
    "ToolAnnotations": "protocol.tools",
    "ToolError": "errors",
    "ToolResult": "protocol.tools",
    "redact_secrets": "server.guards.redaction",
}

__all__ = [
    "Annotations", "Audio", "AudioContent", "BlobResourceContents", "CannotAsk", "Channel", "Client", "Context",
    "DovetailError", "EmbeddedResource", "File", "Header", "HttpRequest", "HttpResponse", "Icon", "Image", "ImageContent",
    "Limits", "Message", "NotFound", "ProtocolError", "ResourceLink", "Root", "Server", "TextContent",
    "TextResourceContents", "ToolAnnotations", "ToolError", "ToolResult", "redact_secrets",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
