"""Print content: text unchanged, links by name, and images, audio and blobs as a summary.

With `--output DIR`, the summarized content is also saved to that directory. Dovetail chooses the
file names, so a server cannot control where a file is written.
"""

import binascii
from argparse import ArgumentParser
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DovetailError
from .output import format_size

if TYPE_CHECKING:
    from ..protocol.content import Content, ResourceContents


def add_content_options(parser: ArgumentParser) -> None:
    """Add the options for verbs that show content and let a server ask the user questions."""
    parser.add_argument(
        "--yes",
        action="store_true",
        help="answer yes to yes-or-no questions, and use the defaults for all others",
    )
    parser.add_argument(
        "--defaults",
        action="store_true",
        help="use the defaults to answer the server's questions, instead of asking you",
    )
    parser.add_argument(
        "--output", metavar="DIR", type=Path, help="save images, audio and blobs to this directory"
    )


def content_text(block: "Content", output: Path | None) -> str:
    """Return the text to print for a content block."""
    from ..protocol import content

    match block:
        case content.TextContent():
            return block.text
        case content.ImageContent() | content.AudioContent():
            return _summarize(block.type, block.mime_type, block.data, output)
        case content.ResourceLink():
            return f"[{block.name}: {block.uri}]"
        case content.EmbeddedResource():
            return resource_text(block.resource, output)
        case content.OtherContent():
            return f"[{block.type}: use --json to see it]"


def resource_text(contents: "ResourceContents", output: Path | None) -> str:
    if contents.blob is None:
        return contents.text or ""
    mime_type = contents.mime_type or "application/octet-stream"
    return _summarize("blob", mime_type, contents.blob, output)


def to_wire(block: "Content") -> Any:
    """Return a block in wire form, even if its type is unknown."""
    from ..protocol.content import OtherContent

    return block.value if isinstance(block, OtherContent) else block


def _summarize(kind: str, mime_type: str, encoded: str, output: Path | None) -> str:
    try:
        data = binascii.a2b_base64(encoded)
    except ValueError:
        return f"[{mime_type}, invalid base64]"
    saved = f", saved as {_save(kind, mime_type, data, output)}" if output is not None else ""
    return f"[{mime_type}, {format_size(len(data))}{saved}]"


def _save(kind: str, mime_type: str, data: bytes, folder: Path) -> Path:
    from mimetypes import guess_extension

    extension = guess_extension(mime_type) or ".bin"
    paths = (folder / f"{kind}-{number}{extension}" for number in count(1))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = next(path for path in paths if not path.exists())
        with path.open("xb") as file:  # never overwrite a file
            file.write(data)
    except OSError as error:
        raise DovetailError(f"Cannot save to {folder}: {error.strerror}") from None
    return path
