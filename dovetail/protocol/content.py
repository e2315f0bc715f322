"""Content blocks: text, images, audio, links, embedded resources, and the tool blocks for sampling.

Images, audio and blobs are base64-encoded, as on the wire. An unknown kind of content is decoded as
`OtherContent`, with all of its fields.
"""

from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import field

from .base import Icon, Meta, Open, Wire

Role = Literal["user", "assistant"]


class Annotations(Open):
    """Hints about the audience and importance of content.

    Attributes:
        audience: Who should see the content: `user`, `assistant` or both.
        priority: The importance of the content, from 0 to 1.
        last_modified: When the content last changed, as an ISO 8601 timestamp.
    """

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None


class ResourceContents(Wire, kw_only=True):
    """The contents of a resource: text, or bytes in base64.

    Attributes:
        uri: The URI of the resource, or of a part of it.
        mime_type: The media type, such as `image/png`.
        text: The contents, if they are text.
        blob: The contents in base64, if they are bytes.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None
    meta: Meta | None = field(name="_meta", default=None)

    @property
    def data(self) -> bytes:
        """The contents as bytes, decoded from text or base64."""
        if self.blob is not None:
            from binascii import a2b_base64

            return a2b_base64(self.blob)
        return (self.text or "").encode()


class TextResourceContents(ResourceContents, kw_only=True):
    """The contents of a text resource.

    Attributes:
        text: The text.
    """

    text: str


class BlobResourceContents(ResourceContents, kw_only=True):
    """The contents of a binary resource.

    Attributes:
        blob: The bytes in base64.
    """

    blob: str


class TextContent(Wire, tag_field="type", tag="text"):
    """A block of text.

    Attributes:
        text: The text.
        annotations: Hints about the content's audience, priority and age.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    text: str
    annotations: Annotations | None = None
    meta: Meta | None = field(name="_meta", default=None)
    type: ClassVar[str] = "text"


class ImageContent(Wire, tag_field="type", tag="image"):
    """An image.

    Attributes:
        data: The image in base64.
        mime_type: The media type, such as `image/png`.
        annotations: Hints about the content's audience, priority and age.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: Meta | None = field(name="_meta", default=None)
    type: ClassVar[str] = "image"


class AudioContent(Wire, tag_field="type", tag="audio"):
    """An audio clip.

    Attributes:
        data: The audio in base64.
        mime_type: The media type, such as `audio/wav`.
        annotations: Hints about the content's audience, priority and age.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: Meta | None = field(name="_meta", default=None)
    type: ClassVar[str] = "audio"


class ResourceLink(Wire, tag_field="type", tag="resource_link"):
    """A link to a resource that the reader may fetch.

    Attributes:
        uri: The URI of the resource.
        name: The name of the resource.
        title: The name shown to people instead of `name`.
        description: A description for the model or the user, in one or two sentences.
        mime_type: The media type, such as `image/png`.
        size: The size in bytes, if known.
        icons: The pictures that a user interface may show.
        annotations: Hints about the content's audience, priority and age.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: Meta | None = field(name="_meta", default=None)
    type: ClassVar[str] = "resource_link"


class EmbeddedResource(Wire, tag_field="type", tag="resource"):
    """A resource together with its contents.

    Attributes:
        resource: The contents of the resource.
        annotations: Hints about the content's audience, priority and age.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    resource: ResourceContents
    annotations: Annotations | None = None
    meta: Meta | None = field(name="_meta", default=None)
    type: ClassVar[str] = "resource"


class OtherContent(Wire, tag_field="type", tag="dovetail/other"):
    """Content of a kind that this library does not know.

    Attributes:
        value: The whole block, in wire form.
    """

    value: dict[str, Any]

    @property
    def type(self) -> str:
        """The kind of content, as the peer named it."""
        return str(self.value.get("type"))


Content: TypeAlias = (
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | OtherContent
)


class ToolUseContent(Wire, tag_field="type", tag="tool_use"):
    """A model's request to use a tool.

    Attributes:
        id: The id of this tool use, which its result repeats.
        name: The name of the tool.
        input: The arguments for the tool.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    id: str
    name: str
    input: dict[str, Any]
    meta: Meta | None = field(name="_meta", default=None)
    type: ClassVar[str] = "tool_use"


class ToolResultContent(Wire, tag_field="type", tag="tool_result"):
    """The result of a tool that a model used.

    Attributes:
        tool_use_id: The `id` of the tool use.
        content: The content for the model.
        structured_content: The same result as data, if the tool returned data.
        is_error: Whether the tool failed.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    tool_use_id: str
    content: list[Content]
    structured_content: Any = None
    is_error: bool | None = None
    meta: Meta | None = field(name="_meta", default=None)
    type: ClassVar[str] = "tool_result"


SamplingContent: TypeAlias = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | OtherContent
)
KINDS = {"text", "image", "audio", "resource_link", "resource", "tool_use", "tool_result"}
"""The kinds of content that have their own type."""
