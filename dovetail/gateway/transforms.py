"""`tools.with`: tools of a server that callers see differently.

The settings have the keys of `RegisteredTool.with_`, except `wrap`. They are applied to what a
server lists, and turn the arguments of a caller into those that the server gets. Everything that
decides about a tool uses what the server itself said: patterns and rules match its own name, and a
pin covers its own definition.

A tool that a change does not fit is left out. Otherwise, callers would see what should be hidden.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..config.settings import ToolChange
from ..errors import ConfigError, SchemaError
from ..protocol.header_params import HeaderParam, find_header_params
from ..protocol.raw import encode_raw, encode_typed, split_object
from ..protocol.tools import Tool
from ..server.transform import ArgumentChange, SchemaArguments
from .catalog import Catalog, Item
from .naming import LeftOut


class ChangedTool(Struct, frozen=True, eq=False):
    """A tool as callers see it."""

    item: Item
    """The tool with the server's own name."""
    arguments: SchemaArguments
    header_params: tuple[HeaderParam, ...]

    def to_tool(self, arguments: Raw) -> Raw:
        """Return the arguments for the server.

        Args:
            arguments: The arguments of the caller.

        Raises:
            InvalidParams: They do not fit.
        """
        return encode_raw(self.arguments.bind(arguments)[1])


class ToolChanges:
    """The changes to the tools of one server.

    Args:
        server: The name of the server in the file.
        changes: The changes by the server's own names of the tools.
        fill: Returns a hidden value with its variables filled in.
    """

    def __init__(
        self, server: str, changes: Mapping[str, ToolChange], fill: Callable[[Any], Any]
    ) -> None:
        self._server, self._changes, self._fill = server, changes, fill
        self._made: WeakKeyDictionary[Item, ChangedTool | str] = WeakKeyDictionary()
        """The changed tools, or why a change does not fit."""

    def __bool__(self) -> bool:
        return bool(self._changes)

    def __contains__(self, name: str) -> bool:
        return name in self._changes

    @property
    def names(self) -> dict[str, str]:
        """The new names of tools, by the server's own."""
        return {own: one.name for own, one in self._changes.items() if one.name is not None}

    def find(self, item: Item | None) -> ChangedTool | None:
        """Return a tool as callers see it; None if it stays as it is, or is left out.

        Args:
            item: The tool as its server sent it.
        """
        made = self._make(item)
        return None if isinstance(made, str) else made

    def problem(self, item: Item) -> str | None:
        """Return why a tool is left out, or None.

        Args:
            item: The tool as its server sent it.
        """
        made = self._make(item)
        return made if isinstance(made, str) else None

    def change_tool(self, tool: Tool) -> Tool:
        """Return a tool with the arguments that callers see, under the server's own name. It stays
        as it is if the change does not fit.

        Args:
            tool: The tool as its server lists it.
        """
        if tool.name not in self._changes:
            return tool
        changed = self.find(Item("tools", tool.name, split_object(encode_typed(tool))))
        if changed is None:
            return tool
        return replace(tool, input_schema=changed.arguments.schema)

    def left_out(self, catalog: Catalog) -> Iterator[LeftOut]:
        """Return the tools that are left out, and those that do not exist.

        Args:
            catalog: What the server lists.
        """
        for name in self._changes:
            item = catalog.tools.get(name)
            problem = "the server has no such tool" if item is None else self.problem(item)
            if problem is not None:
                yield LeftOut(self._server, "tools", name, f"tools.with: {problem}")

    def _make(self, item: Item | None) -> ChangedTool | str | None:
        if item is None or item.kind != "tools" or item.name not in self._changes:
            return None
        change = self._changes[item.name]
        if item not in self._made:
            try:
                self._made[item] = _change(item, change, self._fill(change.hide))
            except (ConfigError, SchemaError, msgspec.MsgspecError, RecursionError) as problem:
                self._made[item] = str(problem)
        return self._made[item]


def _change(item: Item, change: ToolChange, hide: Mapping[str, Any]) -> ChangedTool:
    schema = msgspec.json.decode(item.fields.get("inputSchema", b'{"type":"object"}'))
    shown = change.name or item.name
    original = SchemaArguments(item.name, schema, lambda values, _: ((), values))
    arguments = original.changed(
        shown, ArgumentChange(item.name, hide, change.rename, change.defaults)
    )
    texts = {"title": change.title, "description": change.description}
    fields = {key: encode_raw(text) for key, text in texts.items() if text is not None}
    fields["inputSchema"] = Raw(msgspec.json.encode(arguments.schema))
    changed = Item("tools", item.name, {**item.fields, **fields})
    return ChangedTool(changed, arguments, find_header_params(arguments.schema))
