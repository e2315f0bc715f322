"""Ready-made `on_sample` callbacks, which forward a server's sampling request to a model's HTTP
API.

    on_sample = openai_sampler("http://127.0.0.1:11434/v1", models=["llama3.3", "qwen3"])
    on_sample = anthropic_sampler("https://api.anthropic.com", api_key=key, models=[…])
    Client(target, on_sample=on_sample)

Nearly every model is available through one of two APIs, OpenAI's or Anthropic's. A `ModelApi`
describes the endpoint, the header for the key, and the formats of requests and replies. The rest is
shared: `choose_model` picks the model, each content block is translated, and the reply is
translated back, with the protocol's stop reasons. Content that an API cannot represent, such as
audio for a text-only model, is refused before anything is sent. A server's `metadata` is not passed
on, because it would let the server set any API option at the user's expense.

The key is sent only to the API's own origin, over TLS or to this machine, and never appears in an
error.

**Choosing a model.** A server does not know which models are available; it can only state
preferences. Hints come first, in the server's order. A hint is a substring of a name, regardless of
case. The first hint that matches any model narrows the choice to the models it matches. Without a
matching hint, all models are considered. The priorities decide among the remaining models. They are
numbers from 0 to 1 that say how much a low price, speed and intelligence matter, and are weighed
against the traits of each model. The best model is chosen, or the one that is listed first if there
is a tie. The order of the list therefore expresses the client's preference, and the same request
always selects the same model.
https://modelcontextprotocol.io/specification/2026-07-28/client/sampling#model-preferences
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ..errors import ConfigError, ConnectFailed, ConnectionClosed, DovetailError, InvalidParams
from ..net import is_confidential
from ..protocol.client_features import (
    CreateMessageParams,
    CreateMessageResult,
    ModelPreferences,
    SamplingMessage,
)
from ..protocol.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    SamplingContent,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from .function_calling import (
    anthropic_image,
    anthropic_result,
    anthropic_tool,
    openai_call,
    openai_result,
    openai_tool,
)

Json = dict[str, Any]
DEFAULT_TIMEOUT_SECONDS = 120.0
OPENAI_AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}
"""The names of the audio formats that OpenAI's API accepts, by MIME type."""


class Model(Struct, frozen=True):
    """A model that a sampler can use. Each trait is a number from 0 to 1.

    Args:
        name: The model's name in the API.
        cost: How expensive it is; 1 is the most expensive (default: 0.5).
        speed: How fast it is (default: 0.5).
        intelligence: How capable it is (default: 0.5).
        aliases: Other names that a server's hint may match, such as the model family or another
            vendor's model that this one replaces.
    """

    name: str
    cost: float = 0.5
    speed: float = 0.5
    intelligence: float = 0.5
    aliases: tuple[str, ...] = ()


def choose_model(
    preferences: ModelPreferences | Mapping[str, Any] | None, models: Iterable[Model | str]
) -> str:
    """Return the name of the model that matches a server's preferences best.

    Args:
        preferences: The preferences of a `SampleRequest`; None for no preference.
        models: The models to choose from, as names or `Model` objects. If several match equally
            well, the first is chosen.

    Raises:
        ConfigError: There are no models, or the preferences are not valid.
    """
    candidates = as_models(models)
    parsed = _parse_preferences(preferences)
    for hint in parsed.hints or ():
        part = (hint.name or "").strip().lower()
        matching = [model for model in candidates if part and _matches(model, part)]
        if matching:
            candidates = matching
            break
    # In a tie, max returns the first.
    return max(candidates, key=lambda model: _score(model, parsed)).name


def as_models(models: Iterable[Model | str]) -> list[Model]:
    if isinstance(models, str | Model):
        models = [models]
    found = [model if isinstance(model, Model) else Model(model) for model in models]
    if not found:
        raise ConfigError("models= is empty: name at least one model")
    return found


def _matches(model: Model, part: str) -> bool:
    return any(part in name.lower() for name in (model.name, *model.aliases))


def _parse_preferences(
    preferences: ModelPreferences | Mapping[str, Any] | None,
) -> ModelPreferences:
    if isinstance(preferences, ModelPreferences):
        return preferences
    try:
        return msgspec.convert(dict(preferences or {}), ModelPreferences)
    except msgspec.ValidationError as problem:
        raise ConfigError(f"The model preferences are not valid: {problem}") from None


def _score(model: Model, preferences: ModelPreferences) -> float:
    return (
        _clamp_priority(preferences.cost_priority) * (1 - model.cost)
        + _clamp_priority(preferences.speed_priority) * model.speed
        + _clamp_priority(preferences.intelligence_priority) * model.intelligence
    )


def _clamp_priority(priority: float | None) -> float:
    """Clamp a priority to the range from 0 to 1; return 0 if it is not a number."""
    return min(1.0, max(0.0, priority)) if priority is not None and priority == priority else 0.0


class ModelError(DovetailError):
    """A model's API failed or refused the request. `.status` is the HTTP status, if there was
    one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ModelApi(Struct, frozen=True, eq=False):
    """The endpoint and the message format of one kind of API."""

    path: Callable[[str], str]
    """Returns the path of the endpoint, given the path of the base URL."""
    headers: Callable[[str | None], dict[str, str]]
    body: Callable[[CreateMessageParams, str], Json]
    read: Callable[[bytes, str], CreateMessageResult]


class Sampler:
    """An `on_sample` callback that asks a model over HTTP."""

    tools = True
    """Declares `sampling.tools`, because the model can use tools."""

    def __init__(
        self,
        api: ModelApi,
        base_url: str,
        api_key: str | None,
        models: Iterable[Model | str],
        timeout: float,
    ) -> None:
        self._api, self._key, self._timeout = api, api_key, timeout
        self._url = _endpoint(base_url, api.path, api_key)
        self._models = as_models(models)

    def __repr__(self) -> str:
        return f"<Sampler of {', '.join(model.name for model in self._models)} at {self._url}>"

    async def __call__(self, request: CreateMessageParams) -> CreateMessageResult:
        """Ask the model that matches the request best."""
        from ..transports.http.client.fetch import post_json

        model = choose_model(request.model_preferences, self._models)
        body = msgspec.json.encode(self._api.body(request, model))
        try:
            status, reply = await post_json(
                self._url, self._api.headers(self._key), body, self._timeout
            )
        except (ConnectionClosed, ConnectFailed) as problem:
            raise ModelError(f"The model cannot be reached: {problem}") from None
        if status != 200:
            raise ModelError(f"{self._url} answered {status}: {self._error_text(reply)}", status)
        try:
            return self._api.read(reply, model)
        except (msgspec.MsgspecError, ValueError) as problem:
            raise ModelError(
                f"The answer from {self._url} is not valid: {problem}", status
            ) from None

    def _error_text(self, reply: bytes) -> str:
        """Return the API's error message as one line of bounded length. The key, which some APIs
        repeat, is removed."""
        try:
            text = str(msgspec.json.decode(reply)["error"]["message"])
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
            text = reply[:1000].decode(errors="replace")
        if self._key:
            text = text.replace(self._key, "…")
        return " ".join(text.split())[:300] or "no details"


def openai_sampler(
    base_url: str,
    api_key: str | None = None,
    *,
    models: Iterable[Model | str],
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    max_tokens: str = "max_tokens",
) -> Sampler:
    """Return an `on_sample` callback that uses an API like OpenAI's (`…/v1/chat/completions`).

    Args:
        base_url: The URL of the API, such as `http://127.0.0.1:11434/v1`.
        api_key: The API key. It is sent only over https or to this machine.
        models: The models to choose from; see `choose_model`.
        timeout: Seconds to wait for the answer (default: 120).
        max_tokens: The API's name for the token limit. OpenAI's newest models need
            `"max_completion_tokens"`.
    """

    api = ModelApi(_openai_path, _bearer, partial(_openai_body, max_tokens), _openai_read)
    return Sampler(api, base_url, api_key, models, timeout)


def anthropic_sampler(
    base_url: str,
    api_key: str | None = None,
    *,
    models: Iterable[Model | str],
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
) -> Sampler:
    """Return an `on_sample` callback that uses an API like Anthropic's (`…/v1/messages`).

    Args:
        base_url: The URL of the API, such as `https://api.anthropic.com`.
        api_key: The API key. It is sent only over https or to this machine.
        models: The models to choose from; see `choose_model`.
        timeout: Seconds to wait for the answer (default: 120).
    """
    return Sampler(ANTHROPIC, base_url, api_key, models, timeout)


# shared


def _endpoint(base_url: str, path: Callable[[str], str], key: str | None) -> str:
    try:
        parts = urlsplit(base_url)
        host = parts.hostname or ""
    except ValueError as problem:
        raise ConfigError(f"base_url={base_url!r} is not a URL: {problem}") from None
    if (
        parts.scheme not in ("http", "https")
        or not host
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise ConfigError(
            "base_url= must look like https://host/v1, without a password or a query; pass "
            "the key as api_key="
        )
    if key is not None and not is_confidential(base_url):
        raise ConfigError(
            f"base_url={base_url!r}: an API key is sent only over https or to localhost"
        )
    return f"{parts.scheme}://{parts.netloc}{path(parts.path.rstrip('/'))}"


def _unsupported(block: Any, where: str) -> InvalidParams:
    return InvalidParams(
        f"This model's API does not support {block.type} content in {where}", parameter="messages"
    )


def _without_none(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _result(blocks: list[Any], model: str, stopped: str | None) -> CreateMessageResult:
    content = (blocks[0] if len(blocks) == 1 else blocks) if blocks else TextContent("")
    return CreateMessageResult(role="assistant", content=content, model=model, stop_reason=stopped)


def _check_result(result: ToolResultContent, *kinds: type) -> None:
    """Refuse a tool result with content of other kinds than text and these."""
    for block in result.content:
        is_text = isinstance(block, TextContent | ResourceLink) or (
            isinstance(block, EmbeddedResource) and block.resource.text is not None
        )
        if not is_text and not isinstance(block, kinds):
            raise _unsupported(block, "a tool result")


# OpenAI's API: https://platform.openai.com/docs/api-reference/chat

OPENAI_STOPS = {
    "stop": "endTurn",
    "length": "maxTokens",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
}


class _OpenAiFunction(Struct):
    name: str
    arguments: str = ""


class _OpenAiToolCall(Struct):
    id: str
    function: _OpenAiFunction


class _OpenAiMessage(Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_OpenAiToolCall] | None = None


class _OpenAiChoice(Struct):
    message: _OpenAiMessage
    finish_reason: str | None = None


class _OpenAiCompletion(Struct):
    choices: list[_OpenAiChoice]
    model: str | None = None


def _openai_path(base: str) -> str:
    return f"{base or '/v1'}/chat/completions"


def _bearer(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def _openai_body(max_tokens: str, request: CreateMessageParams, model: str) -> Json:
    system = [{"role": "system", "content": request.system_prompt}] if request.system_prompt else []
    tools = [openai_tool(tool) for tool in request.tools or ()]
    choice = request.tool_choice.mode if request.tool_choice and tools else None
    return _without_none(
        {
            "model": model,
            "messages": system
            + [sent for message in request.messages for sent in _openai_messages(message)],
            max_tokens: request.max_tokens,
            "temperature": request.temperature,
            "stop": request.stop_sequences or None,
            "tools": tools or None,
            "tool_choice": choice,
        }
    )


def _openai_messages(message: SamplingMessage) -> list[Json]:
    """Translate one message; tool results become separate messages."""
    sent: list[Json] = []
    rest: list[SamplingContent] = []
    for block in message.blocks:
        if isinstance(block, ToolResultContent):
            _check_result(block)
            sent.append(openai_result(block))
        else:
            rest.append(block)
    if rest and message.role == "assistant":
        sent.append(_openai_assistant_message(rest))
    elif rest:
        sent.append({"role": "user", "content": _openai_parts(rest)})
    return sent


def _openai_assistant_message(blocks: Sequence[SamplingContent]) -> Json:
    texts: list[str] = []
    calls: list[Json] = []
    for block in blocks:
        match block:
            case TextContent():
                texts.append(block.text)
            case ToolUseContent():
                arguments = msgspec.json.encode(block.input).decode()
                function = {"name": block.name, "arguments": arguments}
                calls.append({"id": block.id, "type": "function", "function": function})
            case _:
                raise _unsupported(block, "a model message")
    message: Json = {"role": "assistant", "content": "\n".join(texts) if texts else None}
    return {**message, "tool_calls": calls} if calls else message


def _openai_parts(blocks: Sequence[SamplingContent]) -> str | list[Json]:
    """Translate a user message. A message that is only text stays a plain string, because some of
    these APIs accept nothing else."""
    if len(blocks) == 1 and isinstance(blocks[0], TextContent):
        return blocks[0].text
    return [_openai_part(block) for block in blocks]


def _openai_part(block: SamplingContent) -> Json:
    match block:
        case TextContent():
            return {"type": "text", "text": block.text}
        case ImageContent():
            return {
                "type": "image_url",
                "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"},
            }
        case AudioContent() if block.mime_type in OPENAI_AUDIO_FORMATS:
            return {
                "type": "input_audio",
                "input_audio": {
                    "data": block.data,
                    "format": OPENAI_AUDIO_FORMATS[block.mime_type],
                },
            }
        case AudioContent():
            formats = ", ".join(sorted(set(OPENAI_AUDIO_FORMATS.values())))
            raise InvalidParams(
                f"This model's API accepts {formats} audio, not {block.mime_type}",
                parameter="messages",
            )
    raise _unsupported(block, "a user message")


def _openai_read(reply: bytes, model: str) -> CreateMessageResult:
    completion = msgspec.json.decode(reply, type=_OpenAiCompletion)
    if not completion.choices:
        raise ValueError("it has no choices")
    choice = completion.choices[0]
    text = choice.message.content or choice.message.refusal
    blocks: list[Any] = [TextContent(text)] if text else []
    blocks += [
        openai_call(call.id, call.function.name, call.function.arguments)
        for call in choice.message.tool_calls or ()
    ]
    # Some APIs say "stop" although the model calls tools.
    stopped = "tool_calls" if choice.message.tool_calls else choice.finish_reason
    return _result(blocks, completion.model or model, OPENAI_STOPS.get(stopped or "", stopped))


# Anthropic's API: https://docs.anthropic.com/en/api/messages

ANTHROPIC_STOPS = {
    "end_turn": "endTurn",
    "stop_sequence": "stopSequence",
    "max_tokens": "maxTokens",
    "tool_use": "toolUse",
}
ANTHROPIC_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
ANTHROPIC_VERSION = "anthropic-version: 2023-06-01"


class _AnthropicBlock(Struct):
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: Json = {}


class _AnthropicReply(Struct):
    content: list[_AnthropicBlock]
    model: str | None = None
    stop_reason: str | None = None


def _anthropic_path(base: str) -> str:
    return f"{base.removesuffix('/v1')}/v1/messages"


def _x_api_key(key: str | None) -> dict[str, str]:
    name, _, value = ANTHROPIC_VERSION.partition(": ")
    return {name: value} if key is None else {name: value, "x-api-key": key}


def _anthropic_body(request: CreateMessageParams, model: str) -> Json:
    tools = [anthropic_tool(tool) for tool in request.tools or ()]
    choice = (
        ANTHROPIC_CHOICES.get(request.tool_choice.mode or "auto")
        if request.tool_choice and tools
        else None
    )
    return _without_none(
        {
            "model": model,
            "max_tokens": request.max_tokens,
            "messages": [
                {
                    "role": message.role,
                    "content": [_anthropic_block(block) for block in message.blocks],
                }
                for message in request.messages
            ],
            "system": request.system_prompt or None,
            "temperature": request.temperature,
            "stop_sequences": request.stop_sequences or None,
            "tools": tools or None,
            "tool_choice": choice and {"type": choice},
        }
    )


def _anthropic_block(block: SamplingContent) -> Json:
    match block:
        case TextContent():
            return {"type": "text", "text": block.text}
        case ImageContent():
            return anthropic_image(block)
        case ToolUseContent():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
        case ToolResultContent():
            _check_result(block, ImageContent)
            return anthropic_result(block)
    raise _unsupported(block, "a message")


def _anthropic_read(reply: bytes, model: str) -> CreateMessageResult:
    message = msgspec.json.decode(reply, type=_AnthropicReply)
    blocks: list[Any] = []
    for block in message.content:  # the model's thinking is not passed on
        if block.type == "text":
            blocks.append(TextContent(block.text))
        elif block.type == "tool_use":
            blocks.append(ToolUseContent(block.id, block.name, block.input))
    return _result(
        blocks,
        message.model or model,
        ANTHROPIC_STOPS.get(message.stop_reason or "", message.stop_reason),
    )


ANTHROPIC = ModelApi(_anthropic_path, _x_api_key, _anthropic_body, _anthropic_read)
