"""Values, spelled as the peers spell them, and made as Dovetail makes them."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

from ..errors import NotFound
from ..protocol import client_features, content, prompts, tools, utilities
from ..protocol.base import Icon as WireIcon
from ..server import media
from ..server.results import finish_any


class Spelled(type):
    """A type of values of Dovetail, made with the names of the wire as well: `type=`, `mimeType=`,
    `_meta=`."""

    kind: type
    make: Callable[..., Any]

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        """The value itself."""
        fields.pop("type", None)
        return cls.make(*args, **{_snake(name): value for name, value in fields.items()})

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.kind)


def _snake(name: str) -> str:
    return "meta" if name == "_meta" else re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def _spelled(name: str, kind: type, make: Callable[..., Any] | None = None) -> Any:
    return Spelled(
        name,
        (),
        {"kind": kind, "make": staticmethod(make or kind), "__doc__": (make or kind).__doc__},
    )


def _full(
    content: Any = None, structured_content: Any = None, meta: Any = None
) -> tools.ToolResult:
    """A full result, as FastMCP makes it: content of any kind, or only data, which is shown as text
    too."""
    shown = finish_any(structured_content if content is None else content)
    return tools.ToolResult(content=shown.content, structured_content=structured_content, meta=meta)


def _message(content: Any, role: Literal["user", "assistant"] = "user") -> prompts.Message:
    """A message of a prompt."""
    return prompts.Message(role, content)


Annotations = _spelled("Annotations", content.Annotations)
AudioContent = _spelled("AudioContent", content.AudioContent)
BlobResourceContents = _spelled("BlobResourceContents", content.BlobResourceContents)
CallToolResult = _spelled("CallToolResult", tools.ToolResult)
Completion = _spelled("Completion", utilities.Completion)
EmbeddedResource = _spelled("EmbeddedResource", content.EmbeddedResource)
Icon = _spelled("Icon", WireIcon)
ImageContent = _spelled("ImageContent", content.ImageContent)
ModelPreferences = _spelled("ModelPreferences", client_features.ModelPreferences)
PromptMessage = _spelled("PromptMessage", prompts.Message)
ResourceLink = _spelled("ResourceLink", content.ResourceLink)
SamplingMessage = _spelled("SamplingMessage", client_features.SamplingMessage)
TextContent = _spelled("TextContent", content.TextContent)
TextResourceContents = _spelled("TextResourceContents", content.TextResourceContents)
ToolAnnotations = _spelled("ToolAnnotations", tools.ToolAnnotations)

ToolResult = _spelled("ToolResult", tools.ToolResult, _full)
Message = _spelled("Message", prompts.Message, _message)
UserMessage = _spelled("UserMessage", prompts.Message, partial(_message, role="user"))
AssistantMessage = _spelled(
    "AssistantMessage", prompts.Message, partial(_message, role="assistant")
)


def CurrentContext() -> Any:
    """A default for a parameter of the type Context, which is given whatever its default is."""
    return None


class Image(media.Image):
    """A picture: `Image(path="plot.png")` or `Image(data=…, format="png")`."""

    def __init__(
        self, path: Any = None, data: bytes | None = None, format: str | None = None, **more: Any
    ) -> None:
        super().__init__(data, format and f"image/{format.lower()}", path=path, **more)


class Audio(media.Audio):
    """A sound: `Audio(path="voice.mp3")` or `Audio(data=…, format="wav")`."""

    def __init__(
        self, path: Any = None, data: bytes | None = None, format: str | None = None, **more: Any
    ) -> None:
        super().__init__(data, format and f"audio/{format.lower()}", path=path, **more)


class Outcome(type):
    """Answers to a form, told apart by what the user did, for `isinstance` and `match`."""

    action: str

    def __instancecheck__(cls, value: object) -> bool:
        return getattr(value, "action", None) == cls.action


class AcceptedElicitation(metaclass=Outcome):
    """The user answered; `data` is the answer."""

    action = "accept"


class DeclinedElicitation(metaclass=Outcome):
    """The user refused."""

    action = "decline"


class CancelledElicitation(metaclass=Outcome):
    """The user went away."""

    action = "cancel"


class ResourceError(NotFound):
    """A resource could not be read."""


class Part(NamedTuple):
    """One of the contents of a resource: text or bytes."""

    content: str | bytes
    mime_type: str | None


class Parts(list[Part]):
    """The contents of a resource."""

    @property
    def contents(self) -> "Parts":
        """Themselves, where a result is expected that has them."""
        return self
