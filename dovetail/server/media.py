"""Helpers that create content from bytes or from a file: Image, Audio and File."""

import os
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..protocol.content import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
)
from ..text import with_article

if TYPE_CHECKING:
    from pathlib import Path


class Media:
    """Bytes with their MIME type. A file is read when the content is created.

    Args:
        data: The bytes, or a file path.
        mime_type: The MIME type (default: derived from the file name, or the default of the class).
        path: The file to read instead of `data`.
        annotations: The audience and importance of the content.

    Raises:
        ConfigError: Both or neither of `data` and `path` are set, or one has the wrong type.
    """

    default_mime_type = "application/octet-stream"

    def __init__(
        self,
        data: "bytes | str | Path | None" = None,
        mime_type: str | None = None,
        *,
        path: "str | Path | None" = None,
        annotations: Annotations | None = None,
    ) -> None:
        if path is None and (isinstance(data, str) or hasattr(data, "__fspath__")):
            data, path = None, data
        self._check_types(data, mime_type, path)
        assert not isinstance(data, str)
        self._data = None if data is None else bytes(data)
        self.path: Path | None = None
        if path is not None:
            import pathlib

            from .files import mime_of

            self.path = pathlib.Path(path)
            mime_type = mime_type or mime_of(self.path)
        self.mime_type = mime_type or self.default_mime_type
        self.annotations = annotations

    def _check_types(self, data: Any, mime_type: Any, path: Any) -> None:
        name = type(self).__name__
        if (data is None) == (path is None):
            raise ConfigError(f"{name} requires either data= or path=")
        expected = {
            "data": (data, (bytes, bytearray, memoryview), "bytes"),
            "path": (path, (str, os.PathLike), "a file path"),
            "mime_type": (mime_type, (str,), "a string"),
        }
        for argument, (value, types, words) in expected.items():
            if value is not None and not isinstance(value, types):
                raise ConfigError(
                    f"{name}({argument}=…) must be {words}, not "
                    f"{with_article(type(value).__name__)}"
                )

    @property
    def data(self) -> bytes:
        """The bytes; if there is a file, they are read from it."""
        if self.path is not None:
            return self.path.read_bytes()
        return self._data or b""

    def base64(self) -> str:
        """Return the bytes in Base64, as sent on the wire."""
        from base64 import b64encode

        return b64encode(self.data).decode()

    def content(self) -> Any:
        """Create the content block."""
        raise NotImplementedError


class Image(Media):
    """A picture: `Image("plot.png")` or `Image(data=b"…", mime_type="image/png")`.

    Args:
        data: The bytes, or a file path.
        mime_type: The MIME type (default: derived from the file name, or "image/png").
        path: The file to read instead of `data`.
        annotations: The audience and importance of the picture.

    Raises:
        ConfigError: Both or neither of `data` and `path` are set, or one has the wrong type.
    """

    default_mime_type = "image/png"

    def content(self) -> ImageContent:
        """Create the content block."""
        return ImageContent(self.base64(), self.mime_type, self.annotations)


class Audio(Media):
    """A sound: `Audio("voice.mp3")` or `Audio(data=b"…", mime_type="audio/wav")`.

    Args:
        data: The bytes, or a file path.
        mime_type: The MIME type (default: derived from the file name, or "audio/wav").
        path: The file to read instead of `data`.
        annotations: The audience and importance of the sound.

    Raises:
        ConfigError: Both or neither of `data` and `path` are set, or one has the wrong type.
    """

    default_mime_type = "audio/wav"

    def content(self) -> AudioContent:
        """Create the content block."""
        return AudioContent(self.base64(), self.mime_type, self.annotations)


class File(Media):
    """A file with its contents, which are sent as text if they are UTF-8, otherwise as bytes.

    Args:
        data: The bytes, or a file path.
        mime_type: The MIME type (default: derived from the file name, or
            "application/octet-stream").
        path: The file to read instead of `data`.
        uri: The URI of the file (default: its `file://` URI, or "attachment:file").
        annotations: The audience and importance of the file.

    Raises:
        ConfigError: Both or neither of `data` and `path` are set, or one has the wrong type.
    """

    def __init__(
        self,
        data: "bytes | str | Path | None" = None,
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
        """Create the contents of a resource."""
        from .files import contents_of

        return contents_of(self.data, self.uri, self.mime_type)

    def content(self) -> EmbeddedResource:
        """Create the content block, which is an embedded resource."""
        return EmbeddedResource(self.contents(), self.annotations)
