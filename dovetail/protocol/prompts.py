"""Prompts: templates a user can pick.
https://modelcontextprotocol.io/specification/2026-07-28/server/prompts"""

from msgspec import Raw, field

from .base import CacheHints, Icon, Meta, Params, Result, Wire
from .content import Content, Role, TextContent


class PromptArgument(Wire):
    """One argument of a prompt; on the wire its value is a string."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Wire):
    """A prompt as it is listed."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: Meta | None = field(name="_meta", default=None)


class ListPromptsResult(CacheHints, kw_only=True):
    """One page of prompts."""

    prompts: list[Prompt]
    next_cursor: str | None = None


class GetPromptParams(Params, kw_only=True):
    """Fills in a prompt."""

    name: str
    arguments: dict[str, str] | None = None
    input_responses: dict[str, Raw] | None = None
    request_state: str | None = None


class Message(Wire):
    """One message of a prompt: a role and what it says. `Message("user", "hello")` makes the text
    content by itself."""

    role: Role
    content: Content

    def __post_init__(self) -> None:
        if isinstance(self.content, str):
            self.content = TextContent(self.content)


class GetPromptResult(Result, kw_only=True):
    """The prompt, filled in."""

    messages: list[Message]
    description: str | None = None
