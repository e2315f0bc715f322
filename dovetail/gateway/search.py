"""Tools for large catalogs: a caller searches for tools instead of listing all of them.

With `"search": true`, a gateway lists `find_tools`, `call_tool` and the tools that are always
listed. `find_tools` ranks all tools by their names, titles and descriptions (SQLite FTS5 with
BM25). `call_tool` calls any of them, through the same rules as a direct call.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Self

import msgspec

from ..config import FileSettings
from ..errors import InvalidParams
from ..protocol.content import TextContent
from ..protocol.raw import encode_raw
from ..protocol.tools import Tool, ToolResult
from ..server.registry import Snapshot
from ..tool_index import DEFAULT_FOUND, MAX_FOUND, ToolIndex
from .consent.pins import FIELDS

FIND, CALL = "find_tools", "call_tool"

SEARCH_TOOLS: Final[Mapping[str, Tool]] = {
    FIND: Tool(
        name=FIND,
        title="Find tools",
        description=(
            "Search for tools by keywords. Returns the name, the description and the input schema "
            f"of each tool that matches, the best match first. Call a tool with {CALL}."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "Keywords, such as `create calendar event`.",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_FOUND,
                    "default": DEFAULT_FOUND,
                    "description": "How many tools to return at most.",
                },
            },
            "required": ["query"],
        },
    ),
    CALL: Tool(
        name=CALL,
        title="Call a tool",
        description=f"Call a tool that {FIND} returned.",
        input_schema={
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": f"The name that {FIND} returned."},
                "arguments": {
                    "type": "object",
                    "description": "The arguments, according to the tool's input schema.",
                },
            },
            "required": ["name"],
        },
    ),
}
"""The tools with which callers search."""


class FindArguments(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of `find_tools`."""

    query: str
    limit: int = DEFAULT_FOUND


class CallArguments(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of `call_tool`."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class ListedTool(msgspec.Struct, frozen=True):
    """One of the search tools in a list."""

    raw: msgspec.Raw


class ToolSearch:
    """The search of one gateway.

    Args:
        always: Patterns of the tools that are listed anyway, by the names that callers see.
    """

    def __init__(self, always: Sequence[str]) -> None:
        self._always = tuple(always)
        self._own = {name: ListedTool(encode_raw(tool)) for name, tool in SEARCH_TOOLS.items()}

    @classmethod
    def of(cls, options: FileSettings) -> Self | None:
        """Return the search that the settings of a file describe, or None."""
        return cls(options.always) if options.search else None

    def listed(self, visible: Snapshot[Any]) -> Snapshot[Any]:
        """Return what is listed instead of all tools that a caller may see."""
        found: Snapshot[Any] | None = visible.cache.get(FIND)
        if found is None:
            kept = {
                name: item
                for name, item in visible.items.items()
                if any(fnmatchcase(name, pattern) for pattern in self._always)
            }
            found = visible.cache[FIND] = Snapshot({**self._own, **kept})
        return found

    def find(self, visible: Snapshot[Any], arguments: Any) -> ToolResult:
        """Answer `find_tools`.

        Args:
            visible: The tools that the caller may see.
            arguments: The raw arguments.

        Raises:
            InvalidParams: The arguments are not valid.
        """
        wanted = read_arguments(arguments, FindArguments, FIND)
        index: ToolIndex | None = visible.cache.get(CALL)
        if index is None:
            tools = {name: one.shown.definition for name, one in visible.items.items()}
            index = visible.cache[CALL] = ToolIndex(tools)
        names = index.search(wanted.query, wanted.limit)
        found = [_show(name, visible.items[name].shown.fields) for name in names]
        text = msgspec.json.encode({"tools": found}).decode()
        return ToolResult(content=[TextContent(text)], structured_content=msgspec.json.decode(text))


def _show(name: str, fields: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    """Return a tool as a model may see it: only the fields that its pin covers."""
    shown: dict[str, Any] = {key: fields[key] for key in FIELDS["tool"] if key in fields}
    return {**shown, "name": name}


def read_arguments(arguments: Any, kind: Any, tool: str) -> Any:
    """Return the arguments of one of the search tools.

    Args:
        arguments: The raw arguments.
        kind: Their type.
        tool: The name of the tool, for errors.

    Raises:
        InvalidParams: The arguments are not valid.
    """
    try:
        return msgspec.json.decode(arguments or b"{}", type=kind)
    except msgspec.MsgspecError as problem:
        raise InvalidParams(f"{tool}: {problem}", parameter="arguments") from None
