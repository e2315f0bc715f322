"""Tool parameters that are mirrored into HTTP headers.

A property that carries `"x-mcp-header": "Region"` travels twice: in the body, and as
`Mcp-Param-Region`, which a balancer can route by. Only a plain type can be mirrored, and only a
property that the root reaches by `properties` alone; anywhere else the keyword spoils the whole
tool. A server checks that when a tool is registered, a client when it is listed. How a value is
spelled in a header is the business of the HTTP transport.
https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#custom-headers-from-tool-parameters
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ..errors import SchemaError

KEYWORD = "x-mcp-header"

_TYPES = ("string", "integer", "boolean")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_SCHEMAS = (
    "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains",
    "additionalProperties", "propertyNames", "unevaluatedProperties", "allOf", "anyOf", "oneOf",
    "not", "if", "then", "else", "contentSchema",
)  # fmt: skip
"""The keywords that hold schemas, by name and as they are; what other keywords hold is data, and
none of our business."""


class HeaderParam(Struct, frozen=True):
    """One parameter of a tool that is repeated in a header."""

    name: str
    """The header's name after `Mcp-Param-`."""
    path: tuple[str, ...]
    """Where the value stands in the arguments."""
    type: str

    @property
    def header(self) -> bytes:
        """The whole name, as ASGI has it."""
        return b"mcp-param-" + self.name.lower().encode()

    def value(self, arguments: Any) -> Any:
        """The parameter's value in a call; None where there is none."""
        for step in self.path:
            if not isinstance(arguments, Mapping):
                return None
            arguments = arguments.get(step)
        return arguments


def find_header_params(schema: Any) -> tuple[HeaderParam, ...]:
    """The mirrored parameters of an input schema; SchemaError where one breaks the rules."""
    mirrors: dict[str, HeaderParam] = {}
    todo: list[tuple[Any, tuple[str, ...], bool]] = [(schema, (), True)]
    for (
        node,
        path,
        straight,
    ) in todo:  # which grows on the way; a schema from elsewhere may be deeper than Python's stack
        if isinstance(node, list):
            todo += [(item, path, False) for item in node]
        if not isinstance(node, dict):
            continue
        if KEYWORD in node:
            mirror = _header_param(node, path, straight)
            earlier = mirrors.setdefault(mirror.name.lower(), mirror)
            if earlier is not mirror:
                both = f"{_display(earlier.path)} and {_display(path)}"
                raise SchemaError(f"{both} cannot both be mirrored into the header {mirror.name!r}")
        for key in _MAPS:
            if isinstance(inner := node.get(key), dict):
                step, ahead = ((), straight) if key == "properties" else ((key,), False)
                todo += [(value, (*path, *step, name), ahead) for name, value in inner.items()]
        todo += [(node[key], (*path, key), False) for key in _SCHEMAS if key in node]
    return tuple(mirrors.values())


def _header_param(node: dict[str, Any], path: tuple[str, ...], straight: bool) -> HeaderParam:
    name, type_ = node[KEYWORD], node.get("type")
    if not path or not straight:
        why = (
            "only a property of an object can be, and no $ref, list or alternative may lie "
            "on the way to it"
        )
    elif not isinstance(name, str) or not _TOKEN.fullmatch(name):
        why = "the name of a header is made of letters, digits and any of !#$%&'*+-.^_`|~"
    elif type_ not in _TYPES:
        why = "its type must be string, integer or boolean" + (
            f", not {type_!s:.100}" if type_ else ""
        )
    else:
        return HeaderParam(name, path, type_)
    raise SchemaError(
        f"{_display(path)} cannot be mirrored into the header {str(name)[:100]!r}: {why}"
    )


def _display(path: tuple[str, ...]) -> str:
    """Where a property is; a schema from elsewhere may call it anything."""
    return repr(".".join(path)[:100] or "inputSchema")
