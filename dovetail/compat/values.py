"""Constructors for Dovetail values, with the names and fields of FastMCP and the official SDK."""

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
    """A constructor for a Dovetail type that also accepts wire field names: `type=`, `mimeType=`
    and `_meta=`."""

    kind: type
    make: Callable[..., Any]

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        """Create a value."""
        fields.pop("type", None)
        return cls.make(*args, **{_to_snake_case(name): value for name, value in fields.items()})

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.kind)


def _to_snake_case(name: str) -> str:
    return "meta" if name == "_meta" else re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def _wire_spelling(kind: type, make: Callable[..., Any] | None = None) -> Any:
    make = make or kind
    attributes = {"kind": kind, "make": staticmethod(make), "__doc__": make.__doc__}
    return WireSpelling(kind.__name__, (), attributes)


def _make_tool_result(
    content: Any = None, structured_content: Any = None, meta: Any = None
) -> tools.ToolResult:
    """Create a complete result: content of any type, or only data, which is also sent as text."""
    result = make_any_result(structured_content if content is None else content)
    return tools.ToolResult(
        content=result.content, structured_content=structured_content, meta=meta
    )


def _make_message(content: Any, role: Literal["user", "assistant"] = "user") -> prompts.Message:
    """Create a prompt message."""
    return prompts.Message(role, content)


Annotations = _wire_spelling(content.Annotations)
AudioContent = _wire_spelling(content.AudioContent)
BlobResourceContents = _wire_spelling(content.BlobResourceContents)
CallToolResult = _wire_spelling(tools.ToolResult)
Completion = _wire_spelling(utilities.Completion)
EmbeddedResource = _wire_spelling(content.EmbeddedResource)
Icon = _wire_spelling(WireIcon)
ImageContent = _wire_spelling(content.ImageContent)
ModelPreferences = _wire_spelling(client_features.ModelPreferences)
PromptMessage = _wire_spelling(prompts.Message)
ResourceLink = _wire_spelling(content.ResourceLink)
SamplingMessage = _wire_spelling(client_features.SamplingMessage)
TextContent = _wire_spelling(content.TextContent)
TextResourceContents = _wire_spelling(content.TextResourceContents)
ToolAnnotations = _wire_spelling(tools.ToolAnnotations)

ToolResult = _wire_spelling(tools.ToolResult, _make_tool_result)
Message = _wire_spelling(prompts.Message, _make_message)
UserMessage = _wire_spelling(prompts.Message, partial(_make_message, role="user"))
AssistantMessage = _wire_spelling(prompts.Message, partial(_make_message, role="assistant"))


def CurrentContext() -> Any:
    """The default value of a Context parameter. This default is never used, because the context is
    always passed."""
    return None


class CompatImage(Image):
    """An image: `Image(path="plot.png")` or `Image(data=…, format="png")`.

    Args:
        path: The file, which is read when the result is sent.
        data: The bytes, instead of a path.
        format: The image format, such as "png" (default: from the file name).
        **more: `annotations`, as in `dovetail.Image`.
    """

    def __init__(
        self, path: Any = None, data: bytes | None = None, format: str | None = None, **more: Any
    ) -> None:
        super().__init__(data, format and f"image/{format.lower()}", path=path, **more)


class CompatAudio(Audio):
    """An audio clip: `Audio(path="voice.mp3")` or `Audio(data=…, format="wav")`.

    Args:
        path: The file, which is read when the result is sent.
        data: The bytes, instead of a path.
        format: The audio format, such as "wav" (default: from the file name).
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
    """One item in the contents of a resource: text or bytes."""

    content: str | bytes
    mime_type: str | None


class ReadParts(list[ReadPart]):
    """The contents of a resource."""

    @property
    def contents(self) -> "ReadParts":
        """This list itself, for code that expects a result with a `contents` attribute."""
        return self
