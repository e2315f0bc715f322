"""Tools: what a model can call.
https://modelcontextprotocol.io/specification/2026-07-28/server/tools"""

from typing import Any

import msgspec
from msgspec import Raw, field

from .base import CacheHints, Icon, Meta, Open, Params, Result, Wire
from .content import Content


class ToolAnnotations(Open):
    """Hints on what a tool does. From a server that is not trusted they are claims, nothing
    more."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Wire):
    """How a tool may be run; the core tasks of one revision."""

    task_support: str | None = None


class Tool(Wire):
    """A tool as it is listed."""

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
    """One page of tools."""

    tools: list[Tool]
    next_cursor: str | None = None


class CallToolParams(Params, kw_only=True):
    """Calls a tool. The arguments stay raw until the tool's own signature decodes them."""

    name: str
    arguments: Raw = Raw()
    task: Any = None
    input_responses: dict[str, Raw] | None = None
    request_state: str | None = None


class ToolResult(Result, kw_only=True):
    """What a tool gave: content for the model, and the same as data where the revision has it."""

    content: list[Content]
    structured_content: Any = None
    is_error: bool | None = None

    @property
    def data(self) -> Any:
        """The structured content, unwrapped where the tool returned something that is no object;
        else the one text."""
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
