"""Replace content that a revision does not support with the closest supported kind, losing as
little as possible."""

from typing import Any

from msgspec import Raw

from ..jsonrpc.messages import encode
from ..protocol.client_features import SamplingMessage
from ..protocol.content import (
    AudioContent,
    BlobResourceContents,
    Content,
    EmbeddedResource,
    OtherContent,
    ResourceLink,
    SamplingContent,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from .lowering import FieldRule


def audio(sound: AudioContent) -> Content:
    """Turn audio into an embedded resource that keeps the bytes and their type."""
    resource = BlobResourceContents(
        uri="attachment:audio", blob=sound.data, mime_type=sound.mime_type
    )
    return EmbeddedResource(resource, sound.annotations)


def link(link: ResourceLink) -> Content:
    """Turn a link into text that names its target."""
    label = link.title or link.name
    about = f": {link.description}" if link.description else ""
    return TextContent(f"[{label}]({link.uri}){about}", link.annotations)


def tool_use(block: ToolUseContent) -> SamplingContent:
    """Turn a tool use into text."""
    return TextContent(f"[calls {block.name} with {encode(block.input).decode()}]")


def tool_result(block: ToolResultContent) -> SamplingContent:
    """Turn a tool result into its text."""
    return TextContent(
        "\n".join(part.text for part in block.content if isinstance(part, TextContent))
    )


def other_content(block: OtherContent) -> Any:
    """Send content of an unknown kind unchanged."""
    return block.value


def _one_block_each(messages: list[SamplingMessage]) -> list[SamplingMessage]:
    if not any(isinstance(message.content, list) for message in messages):
        return messages
    return [
        SamplingMessage(message.role, block)
        for message in messages
        for block in (message.content if isinstance(message.content, list) else [message.content])
    ]


def _one_block(blocks: Any) -> Any:
    if not isinstance(blocks, list):
        return blocks
    texts = [block.text for block in blocks if isinstance(block, TextContent)]
    return TextContent("\n".join(texts)) if texts or not blocks else blocks[0]


def _audio_as_text(sound: Any) -> Any:
    if not isinstance(sound, AudioContent):
        return sound
    return TextContent(f"[{sound.mime_type or 'audio'}]", sound.annotations)


def _object_schema(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    return schema if schema is None or schema.get("type") == "object" else None


def _object_value(structured: Any) -> Any:
    # Check the type first: most results are raw, and ruling out the other types with isinstance()
    # took 2 µs.
    if type(structured) is Raw:
        return structured if bytes(memoryview(structured)[:1]) == b"{" else None
    return None if isinstance(structured, (list, str, int, float)) else structured


def _untitled_schema(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    if schema is None or not isinstance(properties := schema.get("properties"), dict):
        return schema
    fields = {name: _untitled(field) for name, field in properties.items()}
    old = {key: value for key, value in schema.items() if key != "$schema"} | {"properties": fields}
    return schema if old == schema else old


def _untitled(field: Any) -> Any:
    try:
        return _untitled_field(field)
    except (AttributeError, KeyError, TypeError):
        return field  # the form of a relayed request may be invalid


def _untitled_field(field: dict[str, Any]) -> dict[str, Any]:
    keys = ("type", "title", "description") if "oneOf" in field or "items" in field else field
    old = {
        key: field[key]
        for key in keys
        if key in field and (key != "default" or field.get("type") == "boolean")
    }
    if options := field.get("oneOf"):
        return old | {
            "enum": [one["const"] for one in options],
            "enumNames": [one["title"] for one in options],
        }
    if items := field.get("items"):
        # The user types the choices as text; the server splits it.
        values = items.get("enum") or [one["const"] for one in items["anyOf"]]
        advice = f"Choose any of these, separated by commas: {', '.join(values)}"
        return old | {
            "type": "string",
            "description": f"{old.get('description', '')} {advice}".strip(),
        }
    return old


one_block_each = FieldRule("messages", _one_block_each)
"""Splits messages with several blocks into messages with one block each."""
one_block = FieldRule("content", _one_block)
"""Reduces a result with several blocks to one block, which holds all the text or is the first
block."""
audio_as_text = FieldRule("content", _audio_as_text)
"""Replaces audio with text that mentions it, because sampling did not support audio."""
one_block_without_audio = FieldRule("content", lambda blocks: _audio_as_text(_one_block(blocks)))
object_schemas = FieldRule("output_schema", _object_schema)
"""Drops output schemas that do not describe objects."""
object_content = FieldRule("structured_content", _object_value)
"""Drops structured content that is not an object. The text still contains its value."""
untitled_form = FieldRule("requested_schema", _untitled_schema)
"""Rewrites a form so that it has no lists of choices, no titles for choices except `enumNames`, and
no defaults except for booleans."""
