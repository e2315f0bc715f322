"""Values with the names and fields of the peers; what they make are values of Dovetail."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

from ..errors import NotFound
from ..protocol import client_features, content, prompts, tools, utilities
from ..protocol.base import Icon as WireIcon
from ..server.context import Accepted, Cancelled, Declined
from ..server.media import Audio, Image
from ..server.tools import make_any_result


class WireSpelling(type):
    """Makes values of a Dovetail type from the field names of the wire as well: `type=`,
    `mimeType=`, `_meta=`."""

    kind: type
    make: Callable[..., Any]

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        """Make a value."""
        fields.pop("type", None)
        return cls.make(*args, **{_to_snake_case(name): value for name, value in fields.items()})

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.kind)


def _to_snake_case(name: str) -> str:
    return "meta" if name == "_meta" else re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def _wire_spelling(name: str, kind: type, make: Callable[..., Any] | None = None) -> Any:
    return WireSpelling(
        name,
        (),
        {"kind": kind, "make": staticmethod(make or kind), "__doc__": (make or kind).__doc__},
    )


def _make_tool_result(
    content: Any = None, structured_content: Any = None, meta: Any = None
) -> tools.ToolResult:
    """A full result: content of any kind, or only data, which is sent as text too."""
    shown = make_any_result(structured_content if content is None else content)
    return tools.ToolResult(content=shown.content, structured_content=structured_content, meta=meta)


def _make_message(content: Any, role: Literal["user", "assistant"] = "user") -> prompts.Message:
    """A message of a prompt."""
    return prompts.Message(role, content)


Annotations = _wire_spelling("Annotations", content.Annotations)
AudioContent = _wire_spelling("AudioContent", content.AudioContent)
BlobResourceContents = _wire_spelling("BlobResourceContents", content.BlobResourceContents)
CallToolResult = _wire_spelling("CallToolResult", tools.ToolResult)
Completion = _wire_spelling("Completion", utilities.Completion)
EmbeddedResource = _wire_spelling("EmbeddedResource", content.EmbeddedResource)
Icon = _wire_spelling("Icon", WireIcon)
ImageContent = _wire_spelling("ImageContent", content.ImageContent)
ModelPreferences = _wire_spelling("ModelPreferences", client_features.ModelPreferences)
PromptMessage = _wire_spelling("PromptMessage", prompts.Message)
ResourceLink = _wire_spelling("ResourceLink", content.ResourceLink)
SamplingMessage = _wire_spelling("SamplingMessage", client_features.SamplingMessage)
TextContent = _wire_spelling("TextContent", content.TextContent)
TextResourceContents = _wire_spelling("TextResourceContents", content.TextResourceContents)
ToolAnnotations = _wire_spelling("ToolAnnotations", tools.ToolAnnotations)

ToolResult = _wire_spelling("ToolResult", tools.ToolResult, _make_tool_result)
Message = _wire_spelling("Message", prompts.Message, _make_message)
UserMessage = _wire_spelling("UserMessage", prompts.Message, partial(_make_message, role="user"))
AssistantMessage = _wire_spelling(
    "AssistantMessage", prompts.Message, partial(_make_message, role="assistant")
)


def CurrentContext() -> Any:
    """The default of a parameter of the type Context, which is always passed."""
    return None


class CompatImage(Image):
    """A picture: `Image(path="plot.png")` or `Image(data=…, format="png")`.

    Args:
        path: The file to read, when the result is sent.
        data: The bytes, instead of a path.
        format: The type of the picture, such as "png" (default: by the name of the file).
        **more: `annotations`, as in `dovetail.Image`.
    """

    def __init__(
        self, path: Any = None, data: bytes | None = None, format: str | None = None, **more: Any
    ) -> None:
        super().__init__(data, format and f"image/{format.lower()}", path=path, **more)


class CompatAudio(Audio):
    """A sound: `Audio(path="voice.mp3")` or `Audio(data=…, format="wav")`.

    Args:
        path: The file to read, when the result is sent.
        data: The bytes, instead of a path.
        format: The type of the sound, such as "wav" (default: by the name of the file).
        **more: `annotations`, as in `dovetail.Audio`.
    """

    def __init__(
        self, path: Any = None, data: bytes | None = None, format: str | None = None, **more: Any
    ) -> None:
        super().__init__(data, format and f"audio/{format.lower()}", path=path, **more)


AcceptedElicitation = Accepted
DeclinedElicitation = Declined
CancelledElicitation = Cancelled


class ResourceError(NotFound):
    """A resource could not be read."""


class ReadPart(NamedTuple):
    """One of the contents of a resource: text or bytes."""

    content: str | bytes
    mime_type: str | None


class ReadParts(list[ReadPart]):
    """The contents of a resource."""

    @property
    def contents(self) -> "ReadParts":
        """This list, for code that expects a result with contents."""
        return self
