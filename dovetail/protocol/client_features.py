"""Requests from a server to its client: roots, elicitation and sampling.

Roots are the directories that a client exposes to servers. Elicitation asks the user for input, and
sampling asks the model.

https://modelcontextprotocol.io/specification/2026-07-28/client
"""

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import field

from .base import Meta, Params, Result, Wire
from .content import Role, SamplingContent, TextContent, ToolResultContent, ToolUseContent
from .tools import Tool


class Root(Wire):
    """A directory or file that the client exposes to servers.

    Attributes:
        uri: A `file://` URI.
        name: The name shown to people.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    uri: str
    name: str | None = None
    meta: Meta | None = field(name="_meta", default=None)


class ListRootsResult(Result, kw_only=True):
    """All current roots.

    Attributes:
        roots: The roots that the client exposes.
    """

    roots: list[Root]


class ElicitParams(Params, kw_only=True):
    """A request for the user to fill in a form or visit a URL.

    Attributes:
        message: The question for the user.
        mode: `form` or `url`; None means `form`.
        requested_schema: The JSON Schema of the form.
        url: The page to visit.
        elicitation_id: The id of the visit, which `notifications/elicitation/complete` repeats.
        task: The task settings in revision 2025-11-25, in wire form.
    """

    message: str
    mode: str | None = None
    requested_schema: dict[str, Any] | None = None
    url: str | None = None
    elicitation_id: str | None = None
    task: Any = None

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the form."""
        return self.requested_schema


class ElicitResult(Result, kw_only=True):
    """The user's decision.

    Attributes:
        action: `accept`, `decline` or `cancel`.
        content: The values in the form, if the user accepted it.
    """

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class ElicitationCompleteParams(Params, kw_only=True):
    """A notification that the user has finished visiting a URL.

    Attributes:
        elicitation_id: The id from the elicitation request.
    """

    elicitation_id: str


class ModelHint(Wire):
    """A part of a model's name.

    Attributes:
        name: The part of the name, such as `sonnet`.
    """

    name: str | None = None


class ModelPreferences(Wire):
    """Priorities for choosing a model.

    Attributes:
        hints: Names or parts of names, in order of preference.
        cost_priority: The importance of a low price, from 0 to 1.
        speed_priority: The importance of speed, from 0 to 1.
        intelligence_priority: The importance of capability, from 0 to 1.
    """

    hints: list[ModelHint] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


class SamplingMessage(Wire):
    """One message in the conversation that the model continues.

    Attributes:
        role: `user` or `assistant`.
        content: One content block, or a list of content blocks.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    role: Role
    content: SamplingContent | list[SamplingContent]
    meta: Meta | None = field(name="_meta", default=None)

    @property
    def blocks(self) -> list[SamplingContent]:
        """The content as a list."""
        return self.content if isinstance(self.content, list) else [self.content]

    @property
    def text(self) -> str:
        """The text of all blocks, joined by newlines."""
        return "\n".join(block.text for block in self.blocks if isinstance(block, TextContent))


class ToolChoice(Wire):
    """Whether the model may, must or must not use tools.

    Attributes:
        mode: `auto`, `required` or `none`.
    """

    mode: str | None = None


class CreateMessageParams(Params, kw_only=True):
    """A request for the client's model to write the next message.

    Attributes:
        messages: The conversation so far.
        max_tokens: The maximum length of the answer, in tokens.
        model_preferences: The priorities for choosing a model.
        system_prompt: The system prompt, which the client may change.
        include_context: `none`, `thisServer` or `allServers`.
        temperature: The randomness of the answer.
        stop_sequences: The strings that end the answer.
        metadata: Additional parameters for the model's provider.
        tools: The tools that the model may use.
        tool_choice: Whether the model may, must or must not use the tools.
        task: The task settings in revision 2025-11-25, in wire form.
    """

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
    """The model's answer.

    Attributes:
        role: Always `assistant` in practice.
        content: One content block, or a list of content blocks.
        model: The name of the model that answered.
        stop_reason: Why the answer ended, such as `endTurn` or `maxTokens`.
    """

    role: Role
    content: SamplingContent | list[SamplingContent]
    model: str
    stop_reason: str | None = None


def find_tool_mismatch(messages: Iterable[SamplingMessage]) -> str | None:
    """Return the first error in the tool uses and results of a conversation, or None.

    https://modelcontextprotocol.io/specification/2026-07-28/client/sampling#message-content-constraints
    """
    waiting: list[str] = []
    for number, message in enumerate(messages, 1):
        blocks = message.blocks
        uses = [block.id for block in blocks if isinstance(block, ToolUseContent)]
        results = [block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)]
        where = f"message {number}"
        if not blocks:
            return f"{where} is empty"
        if uses and message.role != "assistant":
            return f"{where} uses a tool, which only the assistant may do"
        if results and message.role != "user":
            return f"{where} has a tool result, which only the user may send"
        if results and len(results) < len(blocks):
            return (
                f"{where} mixes tool results with other content; move the other content to a "
                "separate message that follows them"
            )
        if missing := [id for id in waiting if id not in results]:
            return (
                f"{where} must contain the results of the tools used before it; missing: "
                f"{', '.join(missing)}"
            )
        if unknown := [id for id in results if id not in waiting]:
            return (
                f"{where} has a result for {', '.join(unknown)}, but the message before it "
                "has no such tool use"
            )
        if len(set(uses)) < len(uses) or len(set(results)) < len(results):
            return f"{where} has a duplicate tool use id"
        waiting = uses
    return (
        f"the last message uses a tool ({', '.join(waiting)}), so a message with its result "
        "must follow"
        if waiting
        else None
    )
