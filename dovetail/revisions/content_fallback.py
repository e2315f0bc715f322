"""Replace content that a revision does not support with the closest supported kind, losing as
little as possible."""

from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from ..jsonrpc.messages import encode
from ..protocol.client_features import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    SamplingMessage,
)
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
from ..protocol.tools import Tool


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


def one_block_each(params: CreateMessageParams) -> CreateMessageParams:
    """Split messages with several blocks into messages with one block each."""
    if not any(isinstance(message.content, list) for message in params.messages):
        return params
    split = [
        SamplingMessage(message.role, block)
        for message in params.messages
        for block in (message.content if isinstance(message.content, list) else [message.content])
    ]
    return replace(params, messages=split)


def one_block(result: CreateMessageResult) -> CreateMessageResult:
    """Reduce a result with several blocks to one block, which holds all the text or is the first
    block."""
    blocks = result.content
    if not isinstance(blocks, list):
        return result
    texts = [block.text for block in blocks if isinstance(block, TextContent)]
    return replace(
        result, content=TextContent("\n".join(texts)) if texts or not blocks else blocks[0]
    )


def audio_as_text(message: Any) -> Any:
    """Replace audio with text that mentions it, because sampling did not support audio."""
    sound = message.content
    if not isinstance(sound, AudioContent):
        return message
    return replace(
        message, content=TextContent(f"[{sound.mime_type or 'audio'}]", sound.annotations)
    )


def one_block_without_audio(result: CreateMessageResult) -> CreateMessageResult:
    silenced: CreateMessageResult = audio_as_text(one_block(result))
    return silenced


def object_schemas(tool: Tool) -> Tool:
    """Drop output schemas that do not describe objects."""
    if tool.output_schema is None or tool.output_schema.get("type") == "object":
        return tool
    return replace(tool, output_schema=None)


def object_content(result: Any) -> Any:
    """Drop structured content that is not an object. The text still contains its value."""
    structured = result.structured_content
    raw = isinstance(structured, Raw) and bytes(structured)[:1] != b"{"
    if structured is None or not (raw or isinstance(structured, (list, str, int, float))):
        return result
    return replace(result, structured_content=None)


def untitled_form(params: ElicitParams) -> ElicitParams:
    """Rewrite a form so that it has no lists of choices, no titles for choices except `enumNames`,
    and no defaults except for booleans."""
    schema = params.requested_schema
    if schema is None or not isinstance(properties := schema.get("properties"), dict):
        return params
    fields = {
        name: _untitled_field(field) if isinstance(field, dict) else field
        for name, field in properties.items()
    }
    old = {key: value for key, value in schema.items() if key != "$schema"} | {"properties": fields}
    return params if old == schema else replace(params, requested_schema=old)


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
