"""Requests to the client's model, and its replies.

`make_request` accepts many kinds of input: a string, messages, pictures, dicts in wire form,
previous replies (`Sampled`), and functions as tools. It checks the request as far as possible,
because a client would only reply that the request is invalid. When the request is sent,
`connection/input_requests.py` checks that each tool use has a result.

A list is a conversation, and a list inside it is one message with several blocks. A message without
a role comes from the user, so the usual loop is `[question, reply, [ToolResultContent(use.id, …)
for use in reply.tool_uses]]`.
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
    """The model's reply.

    Attributes:
        result: The result as the client sent it.
    """

    result: CreateMessageResult

    def __repr__(self) -> str:
        return f"<Sampled from {self.model}: {self.text[:60]!r}>"

    @property
    def text(self) -> str:
        """The text of all blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    @property
    def content(self) -> list[SamplingContent]:
        """The blocks, as a list even if the client sent only one block."""
        content = self.result.content
        return content if isinstance(content, list) else [content]

    @property
    def tool_uses(self) -> list[ToolUseContent]:
        """The tool calls that the model requests."""
        return [block for block in self.content if isinstance(block, ToolUseContent)]

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.result.model

    @property
    def role(self) -> Role:
        """The role of the message, normally "assistant"."""
        return self.result.role

    @property
    def stop_reason(self) -> str | None:
        """Why the model stopped: "endTurn", "stopSequence", "maxTokens", "toolUse", or another
        reason from the client."""
        return self.result.stop_reason


Block: TypeAlias = str | SamplingContent | Media | Mapping[str, Any]
"""A value that becomes a message block."""
Turn: TypeAlias = Block | SamplingMessage | Message | CreateMessageResult | Sampled
"""A value that becomes a message."""
Conversation: TypeAlias = Turn | Sequence[Turn | Sequence[Block]]
"""A message, or a list of messages. A list inside the list is one message with several blocks."""


def make_request(
    messages: Conversation,
    context_type: type,
    *,
    model_preferences: Preferences | None = None,
    stop_sequences: Iterable[str] | None = None,
    tools: Iterable[Tool | Mapping[str, Any] | Callable[..., Any]] | None = None,
    tool_choice: ToolChoice | Mapping[str, Any] | str | None = None,
    **fields: Any,
) -> CreateMessageParams:
    """Create the request for the next message; raise ConfigError if it is not valid. The options
    are the same as for `Context.sample`. Parameters of the type `context_type` are omitted from the
    schemas of functions."""
    items = messages if isinstance(messages, list | tuple) else [messages]
    stops = [stop_sequences] if isinstance(stop_sequences, str) else list(stop_sequences or ())
    offered = [_tool(tool, context_type) for tool in tools or ()]
    choice = _tool_choice(tool_choice)
    request = CreateMessageParams(
        messages=[_message(item) for item in items],
        model_preferences=None if model_preferences is None else _preferences(model_preferences),
        stop_sequences=stops or None,
        tools=offered or None,
        tool_choice=choice,
        **fields,
    )
    names = [tool.name for tool in offered]
    _require(request.messages, "Sampling requires at least one message")
    _require(
        type(request.max_tokens) is int and request.max_tokens >= 1,
        f"max_tokens must be at least 1, not {request.max_tokens!r}",
    )
    _require(
        request.include_context in (None, *_CONTEXTS),
        f"include_context must be one of {_CONTEXTS}, not {request.include_context!r}",
    )
    _require(
        len(set(names)) == len(names), f"Two tools have the same name: {', '.join(sorted(names))}"
    )
    _require(offered or choice is None or choice.mode == "none", "tool_choice needs tools")
    return request


# --------------------------------------------------------------------------------------------------
# parts of the request


def _require(condition: Any, message: str) -> None:
    if not condition:
        raise ConfigError(message)


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
        _require(
            role in ("user", "assistant"),
            f"The role of a message must be user or assistant, not {role!r}",
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
        value = _convert(value, _ANY_BLOCK, "A message block")
    if isinstance(value, _BLOCKS):
        return value
    kind = getattr(value, "type", type(value).__name__)
    raise ConfigError(
        "A message to a model can contain only text, images, audio, tool uses and tool results, "
        f"not {kind}"
    )


def _preferences(source: Preferences) -> ModelPreferences:
    """Read model preferences from a model name, several names in order, a `ModelPreferences`
    object, or a dict with Python or wire field names."""
    if isinstance(source, ModelPreferences):
        preferences = source
    else:
        mapping = (
            source
            if isinstance(source, Mapping)
            else {"hints": [source] if isinstance(source, str) else source}
        )
        fields = {camel(key): value for key, value in mapping.items()}
        unknown = fields.keys() - set(ModelPreferences.__struct_encode_fields__)
        _require(not unknown, f"model_preferences has no field {', '.join(sorted(unknown))}")
        hints = [_hint(hint) for hint in fields.pop("hints", None) or ()]
        preferences = _convert(fields, ModelPreferences, "A model preference")
        preferences.hints = hints or None
    for name in _PRIORITIES:
        priority = getattr(preferences, name)
        _require(
            priority is None or 0 <= priority <= 1,
            f"{name} must be between 0 and 1, not {priority!r}",
        )
    return preferences


def _hint(source: Any) -> ModelHint:
    if isinstance(source, ModelHint):
        return source
    if isinstance(source, str):
        return ModelHint(source)
    return _convert(source, ModelHint, "A model hint")


def _tool(source: Any, context_type: type) -> Tool:
    if isinstance(source, Tool):
        return source
    if isinstance(source, Mapping):
        return _convert(source, Tool, "A tool")
    _require(
        callable(source),
        f"A tool must be a Tool, a dict or a function, not {type(source).__name__}",
    )
    from .tools import compile_tool

    return compile_tool(source, context_type, {}).definition


def _tool_choice(source: ToolChoice | Mapping[str, Any] | str | None) -> ToolChoice | None:
    if source is None:
        return None
    if isinstance(source, ToolChoice):
        source = source.mode
    mode = source.get("mode") if isinstance(source, Mapping) else source
    _require(mode in _MODES, f"tool_choice must be one of {_MODES}, not {mode!r}")
    return ToolChoice(mode)


def _convert(value: Mapping[str, Any], to: type[T], what: str) -> T:
    try:
        return msgspec.convert(value, to, dec_hook=open_hook)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{what} does not match the protocol: {error}") from None
