"""Tools: functions that a model can call.

https://modelcontextprotocol.io/specification/2026-07-28/server/tools
"""

from typing import Any

import msgspec
from msgspec import Raw, field

from .base import CacheHints, Icon, Meta, Open, Params, Result, Wire
from .content import Content

MAX_NAME_CHARS = 63
"""The maximum length of a tool or prompt name in the merged list of several servers, because the
APIs of models accept 64 characters."""
RECOMMENDED_NAME_CHARS = 48
"""The length above which a name is likely to become too long, because hosts add prefixes."""


class ToolAnnotations(Open):
    """Hints about what a tool does. If you do not trust the server, treat the hints as mere claims.

    Attributes:
        title: The name shown to people instead of `name`.
        read_only_hint: Whether the tool changes nothing.
        destructive_hint: Whether the tool may delete or overwrite data.
        idempotent_hint: Whether calling the tool twice has the same effect as calling it once.
        open_world_hint: Whether the tool reaches systems outside the server.
    """

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Wire):
    """The task settings of a tool in revision 2025-11-25.

    Attributes:
        task_support: `forbidden`, `optional` or `required`.
    """

    task_support: str | None = None


class Tool(Wire):
    """A tool, as it appears in a list.

    Attributes:
        name: The name that clients use to call the tool.
        input_schema: The JSON Schema of the arguments.
        title: The name shown to people instead of `name`.
        description: A description for the model or the user, in one or two sentences.
        output_schema: The JSON Schema of the structured content.
        annotations: Hints about what the tool does.
        icons: The pictures that a user interface may show.
        execution: Whether the tool may run as a task (2025-11-25).
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    name: str
    input_schema: dict[str, Any]
    title: str | None = None
    description: str | None = None
    output_schema: dict[str, Any] | None = None
    annotations: ToolAnnotations | None = None
    icons: list[Icon] | None = None
    execution: ToolExecution | None = None
    meta: Meta | None = field(name="_meta", default=None)

    @property
    def is_repeatable(self) -> bool:
        """Whether the server marks the tool as safe to call twice: as idempotent or read-only."""
        hints = self.annotations
        return hints is not None and bool(hints.idempotent_hint or hints.read_only_hint)


class ListToolsResult(CacheHints, kw_only=True):
    """One page of tools.

    Attributes:
        tools: The tools on this page.
        next_cursor: The `cursor` for the next page, or None on the last page.
    """

    tools: list[Tool]
    next_cursor: str | None = None


class CallToolParams(Params, kw_only=True):
    """A request to call a tool. The arguments stay raw until they are decoded for the tool's
    signature.

    Attributes:
        name: The name of the tool.
        arguments: The arguments as raw JSON.
        task: The task settings in revision 2025-11-25, in wire form.
        input_responses: The answers to the previous round's questions, under the same keys
            (stateless era).
        request_state: The state sent with the previous round's questions, unchanged (stateless
            era).
    """

    name: str
    arguments: Raw = Raw()
    task: Any = None
    input_responses: dict[str, Raw] | None = None
    request_state: str | None = None

    @property
    def has_object(self) -> bool:
        """Whether the arguments are an object. Null and absent arguments count as an empty
        object."""
        return bytes(memoryview(self.arguments)[:1]) in (b"{", b"n", b"")


class ToolResult(Result, kw_only=True):
    """The result of a tool call: content for the model, and the same result as data.

    Attributes:
        content: The content blocks for the model.
        structured_content: The result as data, if the revision supports structured content.
        is_error: Whether the tool failed, in which case the content describes the error. This field
            is sent even if it is False.
    """

    content: list[Content]
    structured_content: Any = None
    # Not `= False`: that would be left out, as every default is.
    is_error: bool = field(default_factory=bool)

    @property
    def data(self) -> Any:
        """The structured content, or the text if there is none.

        A value that is not an object is sent as `{"result": value}`, and this property unwraps it.
        """
        value = self.structured_content
        if type(value) is Raw:
            value = msgspec.json.decode(value)
        if value is not None:
            return (
                value["result"] if isinstance(value, dict) and value.keys() == {"result"} else value
            )
        return (
            self.text
            if self.content and all(block.type == "text" for block in self.content)
            else None
        )

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if block.type == "text")  # type: ignore[union-attr]
