"""Helpers that make content out of bytes or a file: Image, Audio, File."""

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..protocol.content import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    TextResourceContents,
)

if TYPE_CHECKING:
    from pathlib import Path


class Media:
    """Bytes, given or read from a path when they are needed, and their type."""

    kind = "application/octet-stream"

    def __init__(
        self,
        data: bytes | None = None,
        mime_type: str | None = None,
        *,
        path: "str | Path | None" = None,
        annotations: Annotations | None = None,
    ) -> None:
        if (data is None) == (path is None):
            raise ConfigError(f"{type(self).__name__} takes either data= or path=")
        self._data = data
        self.path = None if path is None else _path(path)
        self.mime_type = mime_type or (self.kind if self.path is None else _mime_of(self.path))
        self.annotations = annotations

    @property
    def data(self) -> bytes:
        """The bytes."""
        if self.path is not None:
            return self.path.read_bytes()
        return self._data or b""

    def base64(self) -> str:
        """The bytes as they travel."""
        return b64encode(self.data).decode()

    def content(self) -> Any:
        """What is sent."""
        raise NotImplementedError


def _path(given: "str | Path") -> "Path":
    from pathlib import Path

    return Path(given)


def _mime_of(path: "Path") -> str:
    from .files import mime_of

    return mime_of(path)


class Image(Media):
    """A picture: `Image(data=b"…", mime_type="image/png")` or `Image(path="plot.png")`."""

    kind = "image/png"

    def content(self) -> ImageContent:
        """The picture as content."""
        return ImageContent(self.base64(), self.mime_type, self.annotations)


class Audio(Media):
    """A sound: `Audio(data=b"…", mime_type="audio/wav")` or `Audio(path="voice.mp3")`."""

    kind = "audio/wav"

    def content(self) -> AudioContent:
        """The sound as content."""
        return AudioContent(self.base64(), self.mime_type, self.annotations)


class File(Media):
    """A file with its contents: text where it is text, else bytes."""

    def __init__(
        self,
        data: bytes | None = None,
        mime_type: str | None = None,
        *,
        path: "str | Path | None" = None,
        uri: str | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        super().__init__(data, mime_type, path=path, annotations=annotations)
        self.uri = uri or (
            self.path.resolve().as_uri() if self.path is not None else "attachment:file"
        )

    def contents(self) -> ResourceContents:
        """The file as contents of a resource."""
        data = self.data
        try:
            text = None if b"\0" in data else data.decode()
        except UnicodeDecodeError:
            text = None
        if text is None:
            return BlobResourceContents(
                uri=self.uri, blob=b64encode(data).decode(), mime_type=self.mime_type
            )
        return TextResourceContents(uri=self.uri, text=text, mime_type=self.mime_type)

    def content(self) -> EmbeddedResource:
        """The file as content."""
        return EmbeddedResource(self.contents(), self.annotations)
