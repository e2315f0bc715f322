"""What a server may ask of its client: roots, elicitation and sampling.

Roots are the directories a client lets a server know of; elicitation asks the user; sampling asks
the model.

https://modelcontextprotocol.io/specification/2026-07-28/client
"""

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import field

from .base import Meta, Params, Result, Wire
from .content import Role, SamplingContent, ToolResultContent, ToolUseContent
from .tools import Tool


class Root(Wire):
    """A directory or file, as a `file://` URI."""

    uri: str
    name: str | None = None
    meta: Meta | None = field(name="_meta", default=None)


class ListRootsResult(Result, kw_only=True):
    """All roots there are now."""

    roots: list[Root]


class ElicitParams(Params, kw_only=True):
    """Asks for a form to be filled in, or for a URL to be visited."""

    message: str
    mode: str | None = None
    requested_schema: dict[str, Any] | None = None
    url: str | None = None
    elicitation_id: str | None = None
    task: Any = None

    @property
    def schema(self) -> dict[str, Any] | None:
        """What the form must look like."""
        return self.requested_schema


class ElicitResult(Result, kw_only=True):
    """What the user did, and the form's content if they accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class ElicitationCompleteParams(Params, kw_only=True):
    """What was to be done at a URL is done."""

    elicitation_id: str


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

    @property
    def blocks(self) -> list[SamplingContent]:
        """All of its content, be it one block or several on the wire."""
        return self.content if isinstance(self.content, list) else [self.content]


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
    task: Any = None


class CreateMessageResult(Result, kw_only=True):
    """What the model said."""

    role: Role
    content: SamplingContent | list[SamplingContent]
    model: str
    stop_reason: str | None = None


def unbalanced(messages: Iterable[SamplingMessage]) -> str | None:
    """What is wrong with the uses of tools and their results in a conversation, in one sentence;
    None if nothing is.
    https://modelcontextprotocol.io/specification/2026-07-28/client/sampling#message-content-constraints"""
    waiting: list[str] = []
    for number, message in enumerate(messages, 1):
        blocks = message.blocks
        uses = [block.id for block in blocks if isinstance(block, ToolUseContent)]
        results = [block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)]
        where = f"message {number}"
        if not blocks:
            return f"{where} is empty"
        if uses and message.role != "assistant":
            return f"{where} uses a tool, which only the assistant does"
        if results and message.role != "user":
            return f"{where} has the result of a tool, which only the user gives"
        if results and len(results) < len(blocks):
            return (
                f"{where} has something besides the results of tools; put it into a "
                "message of its own after them"
            )
        if missing := [one for one in waiting if one not in results]:
            return (
                f"{where} must hold the results of the tools used before it; "
                f"{', '.join(missing)} is missing"
            )
        if strange := [one for one in results if one not in waiting]:
            return (
                f"{where} has a result for {', '.join(strange)}, which the message before "
                "it did not use"
            )
        if len(set(uses)) < len(uses) or len(set(results)) < len(results):
            return f"{where} has the same tool use id twice"
        waiting = uses
    return (
        f"the last message uses a tool ({', '.join(waiting)}); its result must follow"
        if waiting
        else None
    )
