"""Compile a Python type into a JSON schema, a decoder and an encoder, and validate values against
JSON schemas.

A `Shape` is compiled once: a server compiles the parameter and return types of its functions, and a
client compiles the types that it expects. One walk over the type builds its schema and determines
which library decodes it:

- msgspec alone, in nearly all cases. In these cases, decoding runs no code in this folder.
- msgspec with stand-ins, if a union is ambiguous to it (`Circle | Square`, `date | str`) or an
  annotation comes from another library (`annotated_types`).
- pydantic, if any part of the type is a pydantic type. Pydantic, `annotated_types` and attrs are
  never imported unless the user's module has imported them.

A value that does not fit its type raises `TypeMismatch`. The error message uses the words of the
schema, because a model often reads it.

`shape` is the entry point; `walk` walks over a type; `json_schema` builds schemas; `codec` extends
msgspec; `header` defines our annotation for HTTP headers. `explain` is imported on demand.
`validation` checks values against any JSON schema.
"""

from .codec import Unencodable, decoder, describe_value, encode
from .header import Header, flatten_header_params
from .json_schema import Schema, default_schema, inline_definitions, merge_definitions
from .shape import Shape, TypeMismatch
from .walk import from_default

__all__ = [
    "Header",
    "Schema",
    "Shape",
    "TypeMismatch",
    "Unencodable",
    "decoder",
    "default_schema",
    "describe_value",
    "encode",
    "flatten_header_params",
    "from_default",
    "inline_definitions",
    "merge_definitions",
]
