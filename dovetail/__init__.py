"""Dovetail: the Model Context Protocol for Python.

    from dovetail import Server, Context, Client

Imports are lazy: each name below is imported from its module on first access.
"""

from typing import TYPE_CHECKING

from .lazy import lazy

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .client.caching import SharedCache
    from .client.call_hook import CallRequest
    from .client.callbacks import ElicitRequest, LogEntry, RootsRequest, SampleRequest
    from .client.client import Client
    from .client.samplers import Model, anthropic_sampler, choose_model, openai_sampler
    from .client.task_handle import TaskHandle, TaskUpdate
    from .connection.extension import Extension
    from .errors import CannotAsk, DovetailError, NotFound, ProtocolError, ToolError
    from .extensions.skill_reader import Skill
    from .extensions.skills import SkillEntry
    from .extensions.telemetry import telemetry
    from .gateway.consent.request import ConsentRequest
    from .gateway.consent.store import ConsentGrant
    from .gateway.gateway import Gateway
    from .gateway.host import Host
    from .gateway.upstreams import HostEvent
    from .limits import Limits
    from .ports import Channel, HttpRequest, HttpResponse, Tap
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
    from .server.audit import AuditRecord, audit
    from .server.caching import Cache
    from .server.context import Context
    from .server.media import Audio, File, Image
    from .server.rates import Rate, Rates
    from .server.redaction import redact_secrets
    from .server.server import Server
    from .server.tools import CallNext, RegisteredTool
    from .terminal.consent_dialog import terminal_confirm
    from .terminal.elicit import terminal_elicit

_NAMES = {
    "client.caching": "SharedCache",
    "client.call_hook": "CallRequest",
    "client.callbacks": "ElicitRequest LogEntry RootsRequest SampleRequest",
    "client.client": "Client",
    "client.samplers": "Model anthropic_sampler choose_model openai_sampler",
    "client.task_handle": "TaskHandle TaskUpdate",
    "connection.extension": "Extension",
    "errors": "CannotAsk DovetailError NotFound ProtocolError ToolError",
    "extensions.skill_reader": "Skill",
    "extensions.skills": "SkillEntry",
    "extensions.telemetry": "telemetry",
    "gateway.consent.request": "ConsentRequest",
    "gateway.consent.store": "ConsentGrant",
    "gateway.gateway": "Gateway",
    "gateway.host": "Host",
    "gateway.upstreams": "HostEvent",
    "limits": "Limits",
    "ports": "Channel HttpRequest HttpResponse Tap",
    "protocol.base": "Icon",
    "protocol.client_features": "Root",
    "protocol.content": """
        Annotations AudioContent BlobResourceContents EmbeddedResource ImageContent ResourceLink
        TextContent TextResourceContents
    """,
    "protocol.lifecycle": "InputRequired",
    "protocol.prompts": "Message",
    "protocol.tools": "ToolAnnotations ToolResult",
    "schema.header": "Header",
    "server.caching": "Cache",
    "server.context": "Context",
    "server.audit": "AuditRecord audit",
    "server.rates": "Rate Rates",
    "server.redaction": "redact_secrets",
    "server.media": "Audio File Image",
    "server.server": "Server",
    "server.tools": "CallNext RegisteredTool",
    "terminal.consent_dialog": "terminal_confirm",
    "terminal.elicit": "terminal_elicit",
}

__all__ = [
    "Annotations", "Audio", "AudioContent", "AuditRecord", "BlobResourceContents", "Cache",
    "CallNext", "CallRequest", "CannotAsk", "Channel", "Client", "ConsentGrant",
    "ConsentRequest", "Context", "DovetailError", "ElicitRequest", "EmbeddedResource",
    "Extension", "File", "Gateway", "Header", "Host", "HostEvent", "HttpRequest",
    "HttpResponse", "Icon", "Image", "ImageContent", "InputRequired", "Limits", "LogEntry",
    "Message", "Model", "NotFound", "ProtocolError", "Rate", "Rates", "RegisteredTool",
    "ResourceLink", "Root", "RootsRequest", "SampleRequest", "Server", "SharedCache", "Skill",
    "SkillEntry", "Tap", "TaskHandle", "TaskUpdate", "TextContent", "TextResourceContents",
    "ToolAnnotations", "ToolError", "ToolResult", "anthropic_sampler", "audit", "choose_model",
    "openai_sampler", "redact_secrets", "telemetry", "terminal_confirm", "terminal_elicit",
]  # fmt: skip

__getattr__, __dir__ = lazy(globals(), _NAMES)
