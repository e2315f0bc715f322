"""Prompts: templates that a user picks and fills in. Arguments are strings on the wire and are
converted to the types of the function's parameters."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import InvalidParams
from ..protocol.base import Icon, Meta
from ..protocol.content import TextContent
from ..protocol.prompts import GetPromptResult, Message, Prompt, PromptArgument
from .completions import Completers
from .context import Context
from .media import Media
from .registry import parse_scopes
from .tools import ANY_SHAPE, CONTENT

if TYPE_CHECKING:
    from .signature import Signature


class RegisteredPrompt(Struct, frozen=True, eq=False):
    """A prompt in the registry."""

    listed: Prompt
    signature: "Signature"
    completers: Completers
    scopes: tuple[str, ...] = ()
    """The scopes that a token needs to get it."""


def compile_prompt(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: list[Icon] | None = None,
    meta: Meta | None = None,
    scopes: Sequence[str] | str = (),
) -> RegisteredPrompt:
    """Compile a function into a prompt; the options are those of `Server.prompt`."""
    from .signature import Signature

    signature = Signature.of(function, context_type=Context)
    name = name or getattr(function, "__name__", "") or type(function).__name__
    arguments = [
        PromptArgument(
            name=parameter.name, description=parameter.description, required=parameter.required
        )
        for parameter in signature.parameters
    ]
    prompt = Prompt(
        name=name,
        title=title,
        description=description if description is not None else signature.description,
        arguments=arguments or None,
        icons=icons,
        meta=meta,
    )
    completers = Completers(name, [parameter.name for parameter in signature.parameters])
    return RegisteredPrompt(prompt, signature, completers, parse_scopes(scopes, f"Prompt {name!r}"))


def bind_arguments(
    prompt: RegisteredPrompt, arguments: dict[str, str], context: Context
) -> tuple[Any, Any]:
    """Return the positional and keyword arguments for the function."""
    try:
        return prompt.signature.bind_values(arguments, context)
    except InvalidParams as error:
        raise InvalidParams(f"Prompt {prompt.listed.name!r}: {error}") from None


def make_prompt_result(prompt: RegisteredPrompt, value: Any) -> GetPromptResult:
    """Turn what a prompt function returned into messages."""
    if isinstance(value, GetPromptResult):
        return value
    items = value if isinstance(value, list | tuple) else [value]
    return GetPromptResult(
        messages=[_message(item) for item in items], description=prompt.listed.description
    )


def _message(item: Any) -> Message:
    if isinstance(item, Message):
        content: Any = item.content
        return Message(item.role, content.content()) if isinstance(content, Media) else item
    if isinstance(item, Media):
        return Message("user", item.content())
    if isinstance(item, CONTENT):
        return Message("user", item)
    return Message(
        "user", TextContent(item if isinstance(item, str) else ANY_SHAPE.encode(item).decode())
    )
