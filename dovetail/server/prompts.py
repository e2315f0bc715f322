"""Prompts: templates that a user picks and fills in. Arguments are strings on the wire; the
function gets its types."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import InvalidParams
from ..protocol.base import Icon, Meta
from ..protocol.content import TextContent
from ..protocol.prompts import GetPromptResult, Message, Prompt, PromptArgument
from .arguments import ArgumentError
from .completions import Completers
from .context import Context
from .media import Media
from .results import ANY, CONTENT
from .scopes import given

if TYPE_CHECKING:
    from .signature import Signature


class Entry(Struct, frozen=True, eq=False):
    """A prompt in the registry."""

    listed: Prompt
    signature: "Signature"
    completers: Completers
    scopes: tuple[str, ...] = ()
    """What a token must have to get it."""


def entry(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: list[Icon] | None = None,
    meta: Meta | None = None,
    scopes: Sequence[str] | str = (),
) -> Entry:
    """Compile a function into a prompt."""
    from .signature import Signature

    signature = Signature.of(function, context_type=Context)
    name = name or getattr(function, "__name__", "") or type(function).__name__
    arguments = [
        PromptArgument(name=one.name, description=one.description, required=one.required)
        for one in signature.parameters
    ]
    prompt = Prompt(
        name=name,
        title=title,
        description=description if description is not None else signature.description,
        arguments=arguments or None,
        icons=icons,
        meta=meta,
    )
    completers = Completers(name, (one.name for one in signature.parameters))
    return Entry(prompt, signature, completers, given(scopes, f"Prompt {name!r}"))


def bind(entry: Entry, arguments: dict[str, str], context: Context) -> tuple[Any, Any]:
    """The arguments for the function."""
    try:
        return entry.signature.bind_values(arguments, context)
    except ArgumentError as error:
        raise InvalidParams(f"Prompt {entry.listed.name!r}: {error}") from None


def result(entry: Entry, value: Any) -> GetPromptResult:
    """What a prompt function returned, as messages."""
    if isinstance(value, GetPromptResult):
        return value
    items = value if isinstance(value, list | tuple) else [value]
    return GetPromptResult(
        messages=[_message(item) for item in items], description=entry.listed.description
    )


def _message(item: Any) -> Message:
    if isinstance(item, Message):
        content: Any = item.content
        return Message(item.role, content.content()) if isinstance(content, Media) else item
    if isinstance(item, Media):
        return Message("user", item.content())
    if isinstance(item, CONTENT):
        return Message("user", item)  # type: ignore[arg-type]
    return Message(
        "user", TextContent(item if isinstance(item, str) else ANY.encode(item).decode())
    )
