"""What a server asks the client's model, and what comes back.

`create` makes the request of whatever is at hand: a string, messages, pictures, dicts in wire form,
the answer before (`Sampled`), functions for tools. It checks what can be checked here, since the
client would only say that the request is invalid; whether each use of a tool has its result is
checked of whatever is asked (`connection/input_requests.py`).

A list is a conversation, and a list inside it one message of several blocks. What has no role of
its own is the user's, so the usual loop reads `[question, answer, [ToolResultContent(use.id, …) for
use in answer.tool_uses]]`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from ..errors import ConfigError
from ..protocol.base import camel, open_hook
from ..protocol.client_features import (
    CreateMessageParams,
    CreateMessageResult,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    ToolChoice,
)
from ..protocol.content import (
    AudioContent,
    ImageContent,
    OtherContent,
    Role,
    SamplingContent,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from ..protocol.prompts import Message
from ..protocol.tools import Tool
from .media import Media

T = TypeVar("T")
Preferences: TypeAlias = ModelPreferences | Mapping[str, Any] | str | Sequence[str | ModelHint]
IncludeContext: TypeAlias = Literal["none", "thisServer", "allServers"]

_BLOCKS = (TextContent, ImageContent, AudioContent, ToolUseContent, ToolResultContent, OtherContent)
_ANY_BLOCK: Any = SamplingContent
_CONTEXTS = ("none", "thisServer", "allServers")
_MODES = ("auto", "required", "none")
_PRIORITIES = ("cost_priority", "speed_priority", "intelligence_priority")


class Sampled(Struct, frozen=True):
    """What the model said."""

    result: CreateMessageResult

    @property
    def text(self) -> str:
        """All text, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    @property
    def content(self) -> list[SamplingContent]:
        """All blocks, be they one or several on the wire."""
        content = self.result.content
        return content if isinstance(content, list) else [content]

    @property
    def tool_uses(self) -> list[ToolUseContent]:
        """The tools that the model wants to use."""
        return [block for block in self.content if isinstance(block, ToolUseContent)]

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.result.model

    @property
    def role(self) -> Role:
        """Who speaks: the assistant."""
        return self.result.role

    @property
    def stop_reason(self) -> str | None:
        """Why it stopped: `endTurn`, `stopSequence`, `maxTokens`, `toolUse`, or what the client
        says."""
        return self.result.stop_reason


Block: TypeAlias = str | SamplingContent | Media | Mapping[str, Any]
"""Something that becomes a block of a message."""
Turn: TypeAlias = Block | SamplingMessage | Message | CreateMessageResult | Sampled
"""Something that becomes a message."""
Conversation: TypeAlias = Turn | Sequence[Turn | Sequence[Block]]
"""A message, or a list of messages. A list in the list is one message of several blocks."""


def make_request(
    messages: Conversation,
    *,
    system_prompt: str | None = None,
    max_tokens: int = 1000,
    model_preferences: Preferences | None = None,
    temperature: float | None = None,
    stop_sequences: Iterable[str] | None = None,
    metadata: dict[str, Any] | None = None,
    include_context: IncludeContext | None = None,
    tools: Iterable[Tool | Mapping[str, Any] | Callable[..., Any]] | None = None,
    tool_choice: ToolChoice | Mapping[str, Any] | str | None = None,
) -> CreateMessageParams:
    """The request for the next message; ConfigError where it makes no sense."""
    conversation = [
        _message(item) for item in (messages if isinstance(messages, list | tuple) else [messages])
    ]
    listed = [_tool(tool) for tool in tools or ()]
    choice = _tool_choice(tool_choice)
    names = [tool.name for tool in listed]
    _demand(conversation, "Sampling needs at least one message")
    _demand(
        type(max_tokens) is int and max_tokens >= 1,
        f"max_tokens must be at least 1, not {max_tokens!r}",
    )
    _demand(
        include_context in (None, *_CONTEXTS),
        f"include_context is one of {_CONTEXTS}, not {include_context!r}",
    )
    _demand(
        len(set(names)) == len(names), f"Two tools have the same name: {', '.join(sorted(names))}"
    )
    _demand(
        listed or choice is None or choice.mode == "none",
        "tool_choice makes no sense without tools",
    )
    return CreateMessageParams(
        messages=conversation,
        max_tokens=max_tokens,
        model_preferences=None if model_preferences is None else _preferences(model_preferences),
        system_prompt=system_prompt,
        include_context=include_context,
        temperature=temperature,
        stop_sequences=[stop_sequences]
        if isinstance(stop_sequences, str)
        else list(stop_sequences or ()) or None,
        metadata=metadata,
        tools=listed or None,
        tool_choice=choice,
    )


# --------------------------------------------------------------------------------------------------
# the pieces


def _demand(met: Any, otherwise: str) -> None:
    if not met:
        raise ConfigError(otherwise)


def _message(item: Any) -> SamplingMessage:
    if isinstance(item, Sampled):
        item = item.result
    if isinstance(item, SamplingMessage | Message | CreateMessageResult):
        return SamplingMessage(
            item.role,
            _content(item.content),
            item.meta if isinstance(item, SamplingMessage) else None,
        )
    if isinstance(item, Mapping) and "role" in item:
        role, content, meta = item["role"], item.get("content", []), item.get("_meta")
        _demand(
            role in ("user", "assistant"),
            f"A message is of the user or the assistant, not of {role!r}",
        )
        return SamplingMessage(role, _content(content), meta)
    return SamplingMessage("user", _content(item))


def _content(value: Any) -> SamplingContent | list[SamplingContent]:
    return [_block(item) for item in value] if isinstance(value, list | tuple) else _block(value)


def _block(value: Any) -> SamplingContent:
    if isinstance(value, str):
        return TextContent(value)
    if isinstance(value, Media):
        value = value.content()
    if isinstance(value, Mapping):
        value = _converted(value, _ANY_BLOCK, "A block of a message")
    if isinstance(value, _BLOCKS):
        return value
    given = getattr(value, "type", type(value).__name__)
    raise ConfigError(
        "A message to a model is made of text, images, audio, tool uses and tool results, "
        f"not of {given}"
    )


def _preferences(given: Preferences) -> ModelPreferences:
    """A name, or several in order, or all there is to say: as a value, or as a dict in the wire's
    words or ours."""
    if isinstance(given, ModelPreferences):
        preferences = given
    else:
        said = (
            given
            if isinstance(given, Mapping)
            else {"hints": [given] if isinstance(given, str) else given}
        )
        fields = {camel(key): value for key, value in said.items()}
        unknown = fields.keys() - set(ModelPreferences.__struct_encode_fields__)
        _demand(not unknown, f"Model preferences have no {', '.join(sorted(unknown))}")
        hints = [_hint(hint) for hint in fields.pop("hints", None) or ()]
        preferences = _converted(fields, ModelPreferences, "A model preference")
        preferences.hints = hints or None
    for name in _PRIORITIES:
        priority = getattr(preferences, name)
        _demand(
            priority is None or 0 <= priority <= 1, f"{name} must be from 0 to 1, not {priority!r}"
        )
    return preferences


def _hint(given: Any) -> ModelHint:
    if isinstance(given, ModelHint):
        return given
    return (
        ModelHint(given) if isinstance(given, str) else _converted(given, ModelHint, "A model hint")
    )


def _tool(given: Any) -> Tool:
    if isinstance(given, Tool):
        return given
    if isinstance(given, Mapping):
        return _converted(given, Tool, "A tool")
    _demand(callable(given), f"A tool is a Tool, a dict or a function, not {type(given).__name__}")
    from .tools import compile_tool

    return compile_tool(given).listed


def _tool_choice(given: ToolChoice | Mapping[str, Any] | str | None) -> ToolChoice | None:
    if given is None:
        return None
    mode = (
        given
        if isinstance(given, str)
        else given.mode
        if isinstance(given, ToolChoice)
        else given.get("mode")
    )
    _demand(mode in _MODES, f"tool_choice is one of {_MODES}, not {mode!r}")
    return ToolChoice(mode)


def _converted(value: Mapping[str, Any], to: type[T], what: str) -> T:
    try:
        return msgspec.convert(value, to, dec_hook=open_hook)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{what} is not as the protocol has it: {error}") from None
