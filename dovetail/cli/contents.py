"""Content blocks on the command line: text is printed, links are named, and pictures, sounds and
blobs are summed up.

With `--output DIR` what is summed up is saved there too, under names of our own making: what a
server calls a thing has no say in where it lands.
"""

import argparse
import binascii
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DovetailError
from .output import format_size

if TYPE_CHECKING:
    from ..protocol.content import Content, ResourceContents


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The option of every verb that shows content."""
    parser.add_argument(
        "--output", metavar="DIR", type=Path, help="save pictures, sounds and blobs there"
    )


def text_of(block: "Content", output: Path | None) -> str:
    """What is printed for a block."""
    from ..protocol import content

    match block:
        case content.TextContent():
            return block.text
        case content.ImageContent() | content.AudioContent():
            return _summary(block.type, block.mime_type, block.data, output)
        case content.ResourceLink():
            return f"[{block.name}: {block.uri}]"
        case content.EmbeddedResource():
            return text_of_resource(block.resource, output)
        case content.OtherContent():
            return f"[{block.type}, shown by --json]"


def text_of_resource(contents: "ResourceContents", output: Path | None) -> str:
    """What is printed for the contents of a resource."""
    if contents.blob is None:
        return contents.text or ""
    return _summary("blob", contents.mime_type or "application/octet-stream", contents.blob, output)


def wire(block: "Content") -> Any:
    """A block in wire form, of a kind that we know or not."""
    import msgspec

    from ..protocol.content import OtherContent

    return block.value if isinstance(block, OtherContent) else msgspec.to_builtins(block)


def _summary(kind: str, mime_type: str, encoded: str, output: Path | None) -> str:
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
        with path.open("xb") as file:  # never over something that is there
            file.write(data)
    except OSError as error:
        raise DovetailError(f"cannot save to {folder}: {error.strerror}") from None
    return path
