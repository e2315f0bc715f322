"""What messages and results are made of: text, images, audio, links, whole resources, and the two
tool blocks of sampling.

The data of images, audio and blobs is base64, as on the wire. A kind that a peer invents arrives as
`OtherContent` with everything it carried.
"""

import binascii
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import field

from .base import Icon, Meta, Open, Wire

Role = Literal["user", "assistant"]


class Annotations(Open):
    """Hints on who content is for and how much it matters."""

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None


class ResourceContents(Wire, kw_only=True):
    """What a resource holds: text, or bytes in base64."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None
    meta: Meta | None = field(name="_meta", default=None)

    @property
    def data(self) -> bytes:
        """The contents as bytes, whichever way they travelled."""
        if self.blob is not None:
            return binascii.a2b_base64(self.blob)
        return (self.text or "").encode()


class TextResourceContents(ResourceContents, kw_only=True):
    """The contents of a resource that is text."""

    text: str


class BlobResourceContents(ResourceContents, kw_only=True):
    """The contents of a resource that is bytes, in base64."""

    blob: str


class TextContent(Wire, tag_field="type", tag="text"):
    """Text."""

    text: str
    annotations: Annotations | None = None
    meta: Meta | None = field(name="_meta", default=None)
    type: ClassVar[str] = "text"


class ImageContent(Wire, tag_field="type", tag="image"):
    """A picture, in base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: Meta | None = field(name="_meta", default=None)
    type: ClassVar[str] = "image"


class AudioContent(Wire, tag_field="type", tag="audio"):
    """A sound, in base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: Meta | None = field(name="_meta", default=None)
    type: ClassVar[str] = "audio"


class ResourceLink(Wire, tag_field="type", tag="resource_link"):
    """A resource that can be read, or not, as the reader likes."""

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
    """A resource together with its contents."""

    resource: ResourceContents
    annotations: Annotations | None = None
    meta: Meta | None = field(name="_meta", default=None)
    type: ClassVar[str] = "resource"


class OtherContent(Wire, tag_field="type", tag="dovetail/other"):
    """A kind of content that this library does not know; `value` is all of it, in wire form."""

    value: dict[str, Any]

    @property
    def type(self) -> str:
        """The kind's own name."""
        return str(self.value.get("type"))


Content: TypeAlias = (
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | OtherContent
)


class ToolUseContent(Wire, tag_field="type", tag="tool_use"):
    """A model wants to use a tool."""

    id: str
    name: str
    input: dict[str, Any]
    meta: Meta | None = field(name="_meta", default=None)
    type: ClassVar[str] = "tool_use"


class ToolResultContent(Wire, tag_field="type", tag="tool_result"):
    """What that tool gave."""

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
"""Every kind of content that has a type of its own."""
