"""A Python type as a JSON schema, a decoder and an encoder.

A `Shape` is compiled once: a server compiles what its functions take and return, a client what it
expects. One walk over the type writes its schema and finds out on the way who can decode it:

- msgspec, as the type stands: nearly always, and then nothing of this folder lies between the bytes
  and the value;
- msgspec with stand-ins, where a union is ambiguous to it (`Circle | Square`, `date | str`) or a
  note is not its own (`annotated_types`);
- pydantic, as soon as any part of the type is of pydantic. The user's module has imported it or
  nobody does; the same goes for `annotated_types` and attrs.

What does not fit raises `Mismatch`, worded from the schema, since a model often reads it.

`shape` is the front; `walk` goes over a type, and `records` knows the classes with fields that it
meets; `schema` has the pieces of a schema and puts them together; `codec` is msgspec with what it
lacks; `header` is a note of our own. `pydantic_types` and `words` (what is wrong with a value) are
loaded when a type or a problem asks for them.
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
