"""What a tool returned, as content for the model and as data for programs.

The value is encoded once: the structured content is those bytes, and the text is the same bytes as
text. What is no object is wrapped as `{"result": …}`, in the value and in its schema. Content (and
the helpers Image, Audio, File) passes through; a list may mix it with anything else.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec
from msgspec import Raw

from ..errors import InvalidOutput, SchemaError
from ..protocol.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    OtherContent,
    ResourceLink,
    TextContent,
)
from ..protocol.tools import ToolResult
from ..schema import Shape, TypeMismatch, Unencodable
from .arguments import EMPTY
from .media import Media

if TYPE_CHECKING:
    from ..schema.validation import Validator

CONTENT = (
    TextContent,
    ImageContent,
    AudioContent,
    ResourceLink,
    EmbeddedResource,
    OtherContent,
    Media,
)
UNSAID = (EMPTY, Any, None, type(None), list, tuple, list[Any])
"""Return annotations that say nothing of the result, or leave open whether there is content in
it."""
Finish = Callable[[Any], ToolResult]


def finisher(name: str, returns: Any) -> tuple[Finish, dict[str, Any] | None]:
    """For a return annotation: what turns a value into a result, and the output schema, if there is
    one."""
    if returns in UNSAID or _is_content(returns):
        return finish_any, None
    try:
        shape = Shape(returns)
        schema = shape.output_schema
    except SchemaError:
        # A return type that no schema can describe is no reason to refuse the tool: its results
        # just go unannounced.
        return finish_any, None
    if describes_object(schema):
        return _finish(name, shape, b"", b""), schema
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    wrapped = {
        "type": "object",
        "properties": {"result": inner},
        "required": ["result"],
        **definitions,
    }
    return _finish(name, shape, b'{"result":', b"}"), wrapped


def _finish(name: str, shape: Shape, before: bytes, after: bytes) -> Finish:
    """What leaves must be what was announced, so it is decoded again as the type; pydantic has seen
    to that already, and a plain value of the very type needs no look."""
    encode = shape.encode
    exact = shape.annotation if shape.annotation in (int, str, bool) else None
    check = None if shape.native is Raw else shape.decode

    def finish(value: Any) -> ToolResult:
        if _speaks_for_itself(value):
            result = finish_any(value)
            if not result.is_error:
                _conforms(name, shape, result, bool(before))
            return result
        try:
            data = encode(value)
        except Unencodable as error:
            return finish(_mended(value, error))
        if check is not None and type(value) is not exact:
            try:
                check(data)
            except TypeMismatch as problem:
                raise InvalidOutput(
                    f"{name} returned what breaks its own output schema: {problem}"
                ) from None
        text = value if type(value) is str else data.decode()
        return ToolResult(
            content=[TextContent(text)], structured_content=Raw(before + data + after)
        )

    return finish


def _conforms(name: str, shape: Shape, result: ToolResult, wrapped: bool) -> None:
    given = result.structured_content
    try:
        shape.convert(given["result"] if wrapped else given)
    except (TypeMismatch, TypeError, KeyError) as problem:
        raise InvalidOutput(
            f"{name} returned what breaks its own output schema: {problem}", result
        ) from None


def conforming(name: str, finish: Finish, validator: "Validator") -> Finish:
    """`finish`, with the results held against a schema that was given: nothing else may be sent."""

    def checked(value: Any) -> ToolResult:
        result = finish(value)
        given = result.structured_content
        problems = (
            []
            if result.is_error
            else validator.problems(plain(given) if type(given) is Raw else given)
        )
        if problems:
            raise InvalidOutput(
                f"{name} returned what breaks its own output schema: {'; '.join(problems)}", result
            )
        return result

    return checked


def finish_bare(value: Any) -> ToolResult:
    """A result for a schema that describes something else than an object: nothing is wrapped."""
    if _speaks_for_itself(value):
        return finish_any(value)
    data = ANY.encode(value)
    return ToolResult(
        content=[TextContent(value if type(value) is str else data.decode())],
        structured_content=Raw(data),
    )


def finish_any(value: Any) -> ToolResult:
    """A result without a schema to keep to."""
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult(content=[])
    if isinstance(value, CONTENT):
        return ToolResult(content=[_block(value)])
    if _speaks_for_itself(value):
        return ToolResult(content=[_block(item) for item in value])
    try:
        data = ANY.encode(value)
    except Unencodable as error:
        return finish_any(_mended(value, error))
    structured = data if data[:1] == b"{" else b'{"result":' + data + b"}"
    return ToolResult(
        content=[TextContent(value if type(value) is str else data.decode())],
        structured_content=Raw(structured),
    )


def failed(text: str) -> ToolResult:
    """The result that tells the model what went wrong."""
    return ToolResult(content=[TextContent(text)], is_error=True)


def _mended(value: Any, error: Unencodable) -> Any:
    """A value whose only fault is a lone surrogate, without it."""
    if not isinstance(error.__cause__, UnicodeEncodeError):
        raise error
    from ..connection.outgoing import valid  # loads logging, so not before it is needed

    return valid(value)


def _speaks_for_itself(value: Any) -> bool:
    """Whether the value is content, or a result, or a list with content in it. Asked for each
    result, so the answer is remembered by type (0.1 µs against 0.9 µs)."""
    kind = type(value)
    if kind is list or kind is tuple:
        return any(isinstance(item, CONTENT) for item in value)
    known = _kinds.get(kind)
    if known is None:
        if len(_kinds) > KINDS:
            _kinds.clear()  # somebody makes types as he goes
        known = _kinds[kind] = issubclass(kind, (*CONTENT, ToolResult))
    return known


KINDS = 1000
_kinds: dict[type, bool] = {}


def _block(item: Any) -> Any:
    if isinstance(item, Media):
        return item.content()
    if isinstance(item, CONTENT):
        return item
    return TextContent(item if isinstance(item, str) else ANY.encode(item).decode())


def _is_content(annotation: Any) -> bool:
    """Whether the annotation speaks of content or a full result, which have no output schema."""
    if isinstance(annotation, type):
        return issubclass(annotation, (*CONTENT, ToolResult))
    if get_origin(annotation) is None:
        return False
    return any(_is_content(arg) for arg in get_args(annotation))


def describes_object(schema: dict[str, Any]) -> bool:
    """Whether all that matches the schema is an object."""
    reference = schema.get("$ref", "")
    if reference.startswith("#/$defs/"):
        return describes_object(
            schema["$defs"][reference.removeprefix("#/$defs/")] | {"$defs": schema["$defs"]}
        )
    return schema.get("type") == "object"


ANY = Shape(Any)
plain = msgspec.json.Decoder().decode
