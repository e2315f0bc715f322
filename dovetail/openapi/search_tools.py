"""Three tools for a large API: `search` finds operations, `describe` shows one, `call` calls it.

A model that has to read hundreds of tools before it can do anything does it badly. So a server
offers these three instead if an API has more than `MAX_LISTED` operations.
"""

from collections.abc import Mapping
from typing import Any, Final

from ..errors import SchemaError, ToolError
from ..protocol.tools import Tool, ToolResult
from ..text import closest_name, one_line, quote
from ..tool_index import DEFAULT_FOUND, MAX_FOUND, ToolIndex
from .api import HttpApi

MAX_LISTED: Final = 40
"""The number of operations above which they are not listed as tools."""
MAX_SUMMARY_CHARS: Final = 200
_NAME: Final = {"type": "string", "description": "The name of an operation, from `search`."}

SCHEMAS: Final[Mapping[str, dict[str, Any]]] = {
    "search": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Keywords, such as `create invoice`."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_FOUND,
                "default": DEFAULT_FOUND,
                "description": "How many operations to return at most.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    "describe": {
        "type": "object",
        "properties": {"name": _NAME},
        "required": ["name"],
        "additionalProperties": False,
    },
    "call": {
        "type": "object",
        "properties": {
            "name": _NAME,
            "arguments": {
                "type": "object",
                "description": "The arguments, according to the input schema from `describe`.",
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    },
}


class SearchTools:
    """The functions of the three tools.

    Args:
        api: The API.
    """

    def __init__(self, api: HttpApi) -> None:
        self._api = api
        self._index = ToolIndex(
            {
                name: Tool(
                    name=name,
                    input_schema={},
                    title=one.title,
                    description=" ".join([one.description, one.method, one.path, *one.tags]),
                )
                for name, one in api.operations.items()
            }
        )

    async def search(self, query: str, limit: int = DEFAULT_FOUND) -> dict[str, Any]:
        """Find operations by keywords."""
        found = [self._api.operations[name] for name in self._index.search(query, limit)]
        return {
            "operations": [
                {
                    "name": one.name,
                    "request": f"{one.method} {one.path}",
                    "summary": one_line(one.title or one.description, MAX_SUMMARY_CHARS),
                }
                for one in found
            ]
        }

    async def describe(self, name: str) -> dict[str, Any]:
        """Describe an operation."""
        one = self._api.operations[self._known(name)]
        try:
            schema = self._api.input_schema(name)
        except SchemaError as error:
            raise ToolError(f"{name} cannot be called: {error}") from None
        return {
            "name": one.name,
            "request": f"{one.method} {one.path}",
            "description": one.description,
            "input_schema": schema,
        }

    async def call(self, name: str, arguments: dict[str, Any] | None = None) -> ToolResult:
        """Check arguments and call an operation."""
        arguments = arguments or {}
        try:
            problems = self._api.problems(self._known(name), arguments)
        except SchemaError as error:
            raise ToolError(f"{name} cannot be called: {error}") from None
        if problems:
            raise ToolError(f"The arguments of {name} are not valid: {'; '.join(problems)}")
        return await self._api.call(name, arguments)

    def _known(self, name: str) -> str:
        if name not in self._api.operations:
            close = closest_name(name, self._api.operations)
            hint = f"Did you mean {quote(close)}?" if close else "Use `search` to find its name."
            raise ToolError(f"There is no operation {quote(name)}. {hint}")
        return name
