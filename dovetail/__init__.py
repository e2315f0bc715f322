"""Dovetail: the Model Context Protocol for Python.

    from dovetail import Server, Context, Client

Nothing is loaded before it is used: each name below is imported from its home when first asked for.
"""

from typing import TYPE_CHECKING

from .lazy import lazy

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .client.caching import SharedCache
    from .client.callbacks import ElicitRequest, SampleRequest
    from .client.client import Client
    from .client.samplers import Model, anthropic_sampler, choose_model, openai_sampler
    from .client.task_handle import TaskHandle, TaskUpdate
    from .connection.extension import Extension
    from .errors import CannotAsk, DovetailError, NotFound, ProtocolError, ToolError
    from .extensions.skills.reader import Skill
    from .extensions.skills.wire import SkillEntry
    from .extensions.telemetry import telemetry
    from .limits import Limits
    from .ports import Channel, HttpRequest, HttpResponse
    from .protocol.base import Icon
    from .protocol.client_features import Root
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
    from .protocol.lifecycle import InputRequired
    from .protocol.prompts import Message
    from .protocol.tools import ToolAnnotations, ToolResult
    from .schema.header import Header
    from .server.caching import Cache
    from .server.context import Context
    from .server.guards.audit import AuditRecord, audit
    from .server.guards.rates import Rate, Rates
    from .server.guards.redaction import redact_secrets
    from .server.media import Audio, File, Image
    from .server.server import Server
    from .terminal.elicit import terminal_elicit

_HOMES = {
    "Annotations": "protocol.content",
    "Audio": "server.media",
    "AudioContent": "protocol.content",
    "AuditRecord": "server.guards.audit",
    "BlobResourceContents": "protocol.content",
    "Cache": "server.caching",
    "CannotAsk": "errors",
    "Channel": "ports",
    "Client": "client.client",
    "Context": "server.context",
    "DovetailError": "errors",
    "ElicitRequest": "client.callbacks",
    "EmbeddedResource": "protocol.content",
    "Extension": "connection.extension",
    "File": "server.media",
    "Header": "schema.header",
    "HttpRequest": "ports",
    "HttpResponse": "ports",
    "Icon": "protocol.base",
    "Image": "server.media",
    "ImageContent": "protocol.content",
    "InputRequired": "protocol.lifecycle",
    "Limits": "limits",
    "Message": "protocol.prompts",
    "Model": "client.samplers",
    "NotFound": "errors",
    "ProtocolError": "errors",
    "Rate": "server.guards.rates",
    "Rates": "server.guards.rates",
    "ResourceLink": "protocol.content",
    "Root": "protocol.client_features",
    "SampleRequest": "client.callbacks",
    "Server": "server.server",
    "SharedCache": "client.caching",
    "Skill": "extensions.skills.reader",
    "SkillEntry": "extensions.skills.wire",
    "TaskHandle": "client.task_handle",
    "TaskUpdate": "client.task_handle",
    "TextContent": "protocol.content",
    "TextResourceContents": "protocol.content",
    "ToolAnnotations": "protocol.tools",
    "ToolError": "errors",
    "ToolResult": "protocol.tools",
    "anthropic_sampler": "client.samplers",
    "audit": "server.guards.audit",
    "choose_model": "client.samplers",
    "openai_sampler": "client.samplers",
    "redact_secrets": "server.guards.redaction",
    "telemetry": "extensions.telemetry",
    "terminal_elicit": "terminal.elicit",
}

__all__ = [
    "Annotations", "Audio", "AudioContent", "AuditRecord", "BlobResourceContents", "Cache",
    "CannotAsk", "Channel", "Client", "Context", "DovetailError", "ElicitRequest",
    "EmbeddedResource", "Extension", "File", "Header", "HttpRequest", "HttpResponse", "Icon",
    "Image", "ImageContent", "InputRequired", "Limits", "Message", "Model", "NotFound",
    "ProtocolError", "Rate", "Rates", "ResourceLink", "Root", "SampleRequest", "Server",
    "SharedCache", "Skill", "SkillEntry", "TaskHandle", "TaskUpdate", "TextContent",
    "TextResourceContents", "ToolAnnotations", "ToolError", "ToolResult", "anthropic_sampler",
    "audit", "choose_model", "openai_sampler", "redact_secrets", "telemetry", "terminal_elicit",
]  # fmt: skip

__getattr__, __dir__ = lazy(globals(), _HOMES)
