"""`Annotated[str, Header("Region")]`: a note that a parameter is mirrored into an HTTP header.

All it does is to put a keyword into the schema; whether that may stand there is checked on the
whole schema of the tool, by `protocol.mirrors`. There the keyword must stand beside a plain type,
and a client that finds it beside anything else has to leave out the tool. So `straight` writes an
optional parameter as what it is when it is given.
"""

from typing import Any

from msgspec import Struct

from .json_schema import Defs, Schema, resolve_ref

KEYWORD = "x-mcp-header"


class Header(Struct, frozen=True):
    """Mirrors a tool's parameter into the HTTP header `Mcp-Param-{name}`, for balancers to see.
    Never use it for secrets."""

    name: str

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Schema:
        """What pydantic asks a note of somebody else."""
        return {**handler(core), KEYWORD: self.name}


def flatten_header_params(schema: Schema) -> Schema:
    """The schema with each mirrored property, at any depth of `properties`, as a plain type:
    without null, alias or default of null. Absence says the same, and the decoder takes a null as
    ever."""
    defs: Defs = schema.get("$defs", {})

    def property_(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        inner = [option for option in node.get("anyOf", ()) if option != {"type": "null"}]
        if len(inner) == 1 and (KEYWORD in node or KEYWORD in inner[0]):
            rest = {
                key: value
                for key, value in node.items()
                if key != "anyOf" and (key, value) != ("default", None)
            }
            return property_({**inner[0], **rest})
        return object_(resolve_ref(node, defs) if KEYWORD in node else node)

    def object_(node: Schema) -> Schema:
        properties = node.get("properties")
        return (
            node | {"properties": {name: property_(each) for name, each in properties.items()}}
            if properties
            else node
        )

    return object_(schema)
