"""Sampling: a server asks the client's model. https://modelcontextprotocol.io/specification/2026-07-28/client/sampling"""

from typing import Any

from msgspec import field

from .base import Meta, Params, Result, Wire
from .content import Role, SamplingContent
from .tools import Tool


class ModelHint(Wire):
    """Part of a model's name."""

    name: str | None = None


class ModelPreferences(Wire):
    """What matters in the choice of a model, each from 0 to 1."""

    hints: list[ModelHint] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


class SamplingMessage(Wire):
    """One message of the conversation to go on with."""

    role: Role
    content: SamplingContent | list[SamplingContent]
    meta: Meta | None = field(name="_meta", default=None)


class ToolChoice(Wire):
    """Whether the model may, must or must not use tools."""

    mode: str | None = None


class CreateMessageParams(Params, kw_only=True):
    """Asks the client's model for the next message."""

    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: str | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    task: dict[str, Any] | None = None


class CreateMessageResult(Result, kw_only=True):
    """What the model said."""

    role: Role
    content: SamplingContent | list[SamplingContent]
    model: str
    stop_reason: str | None = None
