"""`Annotated[str, Header("Region")]`: copy a tool parameter into an HTTP header.

The annotation only adds a keyword to the schema. `protocol.header_params` checks the schema of the
whole
tool: the keyword must be next to a plain type, and clients must ignore a tool that has it anywhere
else. So `flatten_header_params` writes an optional parameter as its plain type.
"""

from typing import Any

from msgspec import Struct

from .json_schema import Defs, Schema, resolve_ref

KEYWORD = "x-mcp-header"


class Header(Struct, frozen=True):
    """Copy a tool parameter into the HTTP header `Mcp-Param-{name}`, so that load balancers can see
    it.

    Never use a header parameter for secrets.

    Attributes:
        name: The part of the header's name after `Mcp-Param-`.
    """

    name: str

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Schema:
        """Add the keyword to a schema that pydantic generates."""
        return {**handler(core), KEYWORD: self.name}


def flatten_header_params(schema: Schema) -> Schema:
    """Return the schema with each header parameter, at any depth of `properties`, as a plain type.

    Null, aliases and a default of null are removed: omitting the property has the same meaning, and
    the decoder still accepts null.
    """
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
