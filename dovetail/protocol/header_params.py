"""Tool parameters that are repeated in HTTP headers.

A property with `"x-mcp-header": "Region"` is sent twice: in the body, and as `Mcp-Param-Region`, so
that a load balancer can use it for routing. Only a property of a plain type qualifies, and only if
it is reachable from the root through `properties` alone. Anywhere else, the keyword makes the whole
tool invalid. A server checks this rule when a tool is registered, and a client checks it when the
tool is listed. The HTTP transport decides how a value is written in a header.

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
"""The keywords that hold one schema or a list of schemas. The values of other keywords are data and
are not searched."""


class HeaderParam(Struct, frozen=True):
    """A tool parameter that is repeated in a header."""

    name: str
    """The header's name after `Mcp-Param-`."""
    path: tuple[str, ...]
    """The path to the value in the arguments."""
    type: str

    @property
    def header(self) -> bytes:
        """The full header name in lower case, as in ASGI."""
        return b"mcp-param-" + self.name.lower().encode()

    def value(self, arguments: Any) -> Any:
        """Return the parameter's value in a call, or None."""
        for step in self.path:
            if not isinstance(arguments, Mapping):
                return None
            arguments = arguments.get(step)
        return arguments


def find_header_params(schema: Any) -> tuple[HeaderParam, ...]:
    """Return the header parameters in an input schema. Raises SchemaError if one of them breaks the
    rules."""
    params: dict[str, HeaderParam] = {}
    todo: list[tuple[Any, tuple[str, ...], bool]] = [(schema, (), True)]
    # The list grows during the loop, because recursion could overflow on a hostile schema.
    for node, path, straight in todo:
        if isinstance(node, list):
            todo += [(item, path, False) for item in node]
        if not isinstance(node, dict):
            continue
        if KEYWORD in node:
            param = _header_param(node, path, straight)
            earlier = params.setdefault(param.name.lower(), param)
            if earlier is not param:
                both = f"{_display(earlier.path)} and {_display(path)}"
                raise SchemaError(f"{both} cannot use the same header {param.name!r}")
        for key in _MAPS:
            if isinstance(inner := node.get(key), dict):
                step, ahead = ((), straight) if key == "properties" else ((key,), False)
                todo += [(value, (*path, *step, name), ahead) for name, value in inner.items()]
        todo += [(node[key], (*path, key), False) for key in _SCHEMAS if key in node]
    return tuple(params.values())


def _header_param(node: dict[str, Any], path: tuple[str, ...], straight: bool) -> HeaderParam:
    name, type_ = node[KEYWORD], node.get("type")
    if not path or not straight:
        why = "it must be reachable through properties alone, without $ref, arrays or alternatives"
    elif not isinstance(name, str) or not _TOKEN.fullmatch(name):
        why = "a header name consists of letters, digits and any of !#$%&'*+-.^_`|~"
    elif type_ not in _TYPES:
        why = "its type must be string, integer or boolean" + (
            f", not {type_!s:.100}" if type_ else ""
        )
    else:
        return HeaderParam(name, path, type_)
    raise SchemaError(f"{_display(path)} cannot be sent in the header {str(name)[:100]!r}: {why}")


def _display(path: tuple[str, ...]) -> str:
    """Return a path for an error message, shortened because schemas from other programs may contain
    names of any length."""
    return repr(".".join(path)[:100] or "inputSchema")
