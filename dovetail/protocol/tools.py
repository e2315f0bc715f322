"""Tools: functions that a model can call.

https://modelcontextprotocol.io/specification/2026-07-28/server/tools
"""

from typing import Any

import msgspec
from msgspec import Raw, field

from .base import CacheHints, Icon, Meta, Open, Params, Result, Wire
from .content import Content


class ToolAnnotations(Open):
    """Hints on what a tool does.

    If you do not trust the server, treat them as mere claims.

    Attributes:
        title: Name for people, shown instead of `name`.
        read_only_hint: The tool changes nothing.
        destructive_hint: The tool may delete or overwrite data.
        idempotent_hint: Calling it twice has the same effect as calling it once.
        open_world_hint: The tool reaches systems outside the server.
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
        name: Name used to call it.
        input_schema: JSON Schema of its arguments.
        title: Name for people, shown instead of `name`.
        description: What it is, in a sentence or two, for the model or the user.
        output_schema: JSON Schema of its structured content.
        annotations: Hints on what it does.
        icons: Pictures that a user interface may show.
        execution: Whether it may run as a task (2025-11-25).
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


class ListToolsResult(CacheHints, kw_only=True):
    """One page of tools.

    Attributes:
        tools: The tools.
        next_cursor: Pass it as `cursor` to get the next page; None on the last page.
    """

    tools: list[Tool]
    next_cursor: str | None = None


class CallToolParams(Params, kw_only=True):
    """A request to call a tool. The arguments stay raw until they are decoded for the tool's
    signature.

    Attributes:
        name: Name of the tool.
        arguments: Arguments as raw JSON.
        task: Task settings of revision 2025-11-25, in wire form.
        input_responses: Answers to the questions of the previous round, by key (stateless era).
        request_state: The state that came with those questions, unchanged (stateless era).
    """

    name: str
    arguments: Raw = Raw()
    task: Any = None
    input_responses: dict[str, Raw] | None = None
    request_state: str | None = None

    @property
    def has_object(self) -> bool:
        """Whether the arguments are an object. Null and absent arguments count as an empty one."""
        return bytes(memoryview(self.arguments)[:1]) in (b"{", b"n", b"")


class ToolResult(Result, kw_only=True):
    """The result of a tool: content for the model, and the same result as data.

    Attributes:
        content: Content blocks for the model.
        structured_content: The result as data, if the revision has it.
        is_error: Whether the tool failed. The content then describes the error. It is sent even if
            it is False.
    """

    content: list[Content]
    structured_content: Any = None
    # Not `= False`: that would be left out, as every default is.
    is_error: bool = field(default_factory=bool)

    @property
    def data(self) -> Any:
        """The structured content, or the text if there is none.

        A value that is not an object is sent as `{"result": value}` and is unwrapped here.
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
