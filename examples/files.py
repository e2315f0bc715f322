"""A folder as resources that clients can watch, and a tool that searches its files.

    dovetail inspect examples/files.py --env FILES_FOLDER=docs
    dovetail read examples/files.py files://glossary.md --env FILES_FOLDER=docs
    dovetail call examples/files.py search text=sampling --env FILES_FOLDER=docs

Clients are notified of changes to the files that they subscribe to; examples/watch_files.py is such
a client. No URI and no argument leads out of the folder. If the client lists roots, the tool also
stays within the roots.
"""

import asyncio
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from msgspec import Meta, Struct

from dovetail import CannotAsk, Context, Limits, Server, ToolError

FOLDER = Path(os.environ.get("FILES_FOLDER", ".")).resolve()
MAX_FILE_BYTES = 1024 * 1024

server = Server(
    "files",
    version="1.0.0",
    instructions=f"Serves the files in {FOLDER.name}.",
    limits=Limits(watched=10_000),
)
server.add_directory(FOLDER, uri="files://", watch=True)


class Match(Struct):
    uri: str
    line: int
    text: str


@server.tool(annotations={"readOnlyHint": True}, timeout=20)
async def search(
    text: str, ctx: Context, folder: str = ".", limit: Annotated[int, Meta(ge=1, le=200)] = 20
) -> list[Match]:
    """Find the lines that contain a text. Upper and lower case do not matter.

    Args:
        text: The text to find.
        folder: The folder to search, relative to the served folder.
        limit: The maximum number of lines to return.
    """
    start = await resolve(folder, ctx)
    return await asyncio.to_thread(lambda: list(islice(find_lines(text, start), limit)))


async def resolve(folder: str, ctx: Context) -> Path:
    """Return the real path of a folder, which must be served and within the client's roots."""
    path = (FOLDER / folder).resolve()  # follows links and `..`
    if not path.is_relative_to(FOLDER):
        raise ToolError(f"{folder} is outside the served folder")
    try:
        path = await ctx.resolve_in_roots(path)
    except CannotAsk:
        pass  # this client has no roots, so only the served folder counts
    if not path.is_dir():
        raise ToolError(f"There is no folder {folder}")
    return path


def find_lines(text: str, start: Path) -> Iterator[Match]:
    """Yield the lines that contain the text, in all files that the server serves."""
    for folder, subfolders, names in os.walk(start):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if name.startswith(".") or path.is_symlink() or not path.is_file():
                continue
            if path.stat().st_size <= MAX_FILE_BYTES:
                uri = f"files://{quote(path.relative_to(FOLDER).as_posix())}"
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                for number, line in enumerate(lines, 1):
                    if text.casefold() in line.casefold():
                        yield Match(uri, number, line.strip())


if __name__ == "__main__":
    server.run()
