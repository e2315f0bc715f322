"""Prompts: message templates that a user can choose.

https://modelcontextprotocol.io/specification/2026-07-28/server/prompts
"""

from typing import TYPE_CHECKING

from msgspec import Raw, field

from .base import CacheHints, Icon, Meta, Params, Result, Wire
from .content import Content, Role, TextContent

if TYPE_CHECKING:
    from ..server.media import Media


class PromptArgument(Wire):
    """One argument of a prompt. Argument values are strings on the wire.

    Attributes:
        name: The name of the argument.
        title: The name shown to people instead of `name`.
        description: A description for the model or the user, in one or two sentences.
        required: Whether the argument is required.
    """

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Wire):
    """A prompt, as it appears in a list.

    Attributes:
        name: The name that clients use to get the prompt.
        title: The name shown to people instead of `name`.
        description: A description for the model or the user, in one or two sentences.
        arguments: The arguments that the prompt accepts.
        icons: The pictures that a user interface may show.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: Meta | None = field(name="_meta", default=None)


class ListPromptsResult(CacheHints, kw_only=True):
    """One page of prompts.

    Attributes:
        prompts: The prompts on this page.
        next_cursor: The `cursor` for the next page, or None on the last page.
    """

    prompts: list[Prompt]
    next_cursor: str | None = None


class GetPromptParams(Params, kw_only=True):
    """A request to render a prompt.

    Attributes:
        name: The name of the prompt.
        arguments: The arguments, which are all strings.
        input_responses: The answers to the previous round's questions, under the same keys
            (stateless era).
        request_state: The state sent with the previous round's questions, unchanged (stateless
            era).
    """

    name: str
    arguments: dict[str, str] | None = None
    input_responses: dict[str, Raw] | None = None
    request_state: str | None = None


class Message(Wire):
    """One message in a prompt. `Message("user", "hello")` wraps the text in `TextContent`.

    Attributes:
        role: `user` or `assistant`.
        content: One content block. A string, `Image`, `Audio` or `File` is converted to a block.
    """

    role: Role
    content: Content

    if TYPE_CHECKING:

        def __init__(self, role: Role, content: "Content | str | Media") -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.content, str):
            self.content = TextContent(self.content)

    @property
    def text(self) -> str:
        """The text of the content, or an empty string if the content is not a text block."""
        return self.content.text if isinstance(self.content, TextContent) else ""


class GetPromptResult(Result, kw_only=True):
    """A rendered prompt.

    Attributes:
        messages: The messages for the model.
        description: The purpose of the prompt.
    """

    messages: list[Message]
    description: str | None = None
