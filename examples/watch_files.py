"""A client that watches a folder: it prints each file that changes, and its first line.

    python examples/watch_files.py docs

The client starts examples/files.py, gives it the folder as its root, and subscribes to the whole
folder. Change a file in the folder to see a line. Press Ctrl-C to stop.
"""

import asyncio
import sys
from pathlib import Path

from dovetail import Client, NotFound

SERVER = Path(__file__).with_name("files.py")


async def watch(folder: Path) -> None:
    changes: asyncio.Queue[str] = asyncio.Queue()
    env = {"FILES_FOLDER": str(folder)}
    async with (
        Client(SERVER, env=env, roots=[folder]) as client,
        await client.subscribe("files://", changes.put),
    ):
        print(f"Watching {folder}", flush=True)
        while True:
            uri = await changes.get()
            print(f"{uri}: {await describe(client, uri)}", flush=True)


async def describe(client: Client, uri: str) -> str:
    """Return the first line of a file. A notification names the resource; it has no contents."""
    try:
        contents = await client.read_resource(uri)
    except NotFound:
        return "(removed)"
    text = contents[0].text
    return text.partition("\n")[0] if text is not None else "(not text)"


if __name__ == "__main__":
    try:
        asyncio.run(watch(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    except KeyboardInterrupt:
        pass
