"""examples/files.py and its client examples/watch_files.py."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, NotFound, ToolError

from .conftest import EXAMPLES, ROOT, SECONDS, environment

SERVER = EXAMPLES / "files.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files, beside a secret that a link in it leads to."""
    folder = tmp_path / "served"
    (folder / "notes").mkdir(parents=True)
    (folder / "welcome.md").write_text("# Welcome\nKeys are at the desk.\n")
    (folder / "notes" / "a b.txt").write_text("The keys, again.\n")
    (folder / ".hidden").write_text("keys\n")
    (tmp_path / "secret.txt").write_text("keys of the safe\n")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "out").symlink_to(tmp_path)
    return folder


def connect(folder: Path, **options: Any) -> Client:
    return Client(SERVER, env={"FILES_FOLDER": str(folder)}, **options)


async def test_the_files_of_the_folder_are_resources(folder: Path) -> None:
    async with connect(folder) as client:
        (listing,) = await client.read_resource("files://")
        assert listing.text is not None
        assert {"files://notes/a%20b.txt", "files://welcome.md"} <= set(listing.text.split())
        (contents,) = await client.read_resource("files://notes/a%20b.txt")
        assert contents.text == "The keys, again.\n"


@pytest.mark.parametrize("name", ["../secret.txt", "link.txt", "out/secret.txt", ".hidden"])
async def test_no_uri_leads_out_of_the_folder(folder: Path, name: str) -> None:
    async with connect(folder) as client:
        with pytest.raises(NotFound):
            await client.read_resource(f"files://{name}")


async def test_the_search_finds_lines_and_names_resources_that_can_be_read(folder: Path) -> None:
    async with connect(folder) as client:
        found = (await client.call_tool("search", {"text": "KEYS"})).data
        assert found == [
            {"uri": "files://welcome.md", "line": 2, "text": "Keys are at the desk."},
            {"uri": "files://notes/a%20b.txt", "line": 1, "text": "The keys, again."},
        ]
        for match in found:
            await client.read_resource(match["uri"])
        assert len((await client.call_tool("search", {"text": "keys", "limit": 1})).data) == 1


@pytest.mark.parametrize("outside", ["..", "out", "/"])
async def test_the_search_stays_in_the_folder(folder: Path, outside: str) -> None:
    async with connect(folder) as client:
        with pytest.raises(ToolError, match="outside the served folder"):
            await client.call_tool("search", {"text": "keys", "folder": outside})


@pytest.mark.parametrize("revision", ["stateless", "handshake"])
async def test_the_search_stays_in_the_roots_of_the_client(folder: Path, revision: str) -> None:
    async with connect(folder, roots=[folder / "notes"], revision=revision) as client:
        found = await client.call_tool("search", {"text": "keys", "folder": "notes"})
        assert [match["uri"] for match in found.data] == ["files://notes/a%20b.txt"]
        with pytest.raises(ToolError, match="outside the client's roots"):
            await client.call_tool("search", {"text": "keys"})


@pytest.fixture
def watching(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """examples/watch_files.py, after it has said that it watches the folder."""
    with subprocess.Popen(
        [sys.executable, EXAMPLES / "watch_files.py", folder],
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        watchdog = threading.Timer(SECONDS, process.kill)
        watchdog.start()
        assert process.stdout is not None
        assert process.stdout.readline() == f"Watching {folder}\n"
        yield process
        process.terminate()
        watchdog.cancel()


def test_a_client_is_notified_of_changed_new_and_removed_files(
    folder: Path, watching: "subprocess.Popen[str]"
) -> None:
    put(folder / "welcome.md", "# Welcome, all of you\n")
    wait_for(watching, "files://welcome.md: # Welcome, all of you\n")
    put(folder / "new.md", "# New\n")
    wait_for(watching, "files://new.md: # New\n")
    (folder / "welcome.md").unlink()
    wait_for(watching, "files://welcome.md: (removed)\n")


def put(path: Path, text: str) -> None:
    """Write a file at once, so that nobody sees it empty."""
    complete = path.parents[1] / "complete"
    complete.write_text(text)
    complete.replace(path)


def wait_for(process: "subprocess.Popen[str]", expected: str) -> None:
    assert process.stdout is not None
    lines: list[str] = []
    while expected not in lines:
        lines.append(process.stdout.readline())
        assert lines[-1], lines  # the watchdog has ended the program
