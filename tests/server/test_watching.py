"""Files that are watched: who is told of what, and that nobody looks where nobody listens."""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail import Limits, Server
from dovetail.errors import ConfigError
from dovetail.server.files import Directory, FileWatcher, directory_states, file_states
from dovetail.testing import pair

FAST = Limits(watch_interval=0.005)
REVISIONS = ["2025-11-25", "2026-07-28"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "a b.txt").write_text("one")
    (tmp_path / "in" / "deep.md").write_text("one")
    return tmp_path


def looking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dovetail-watch"]


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    yield
    for thread in looking():
        thread.join(5)
    assert looking() == []


class Heard:
    """A subscriber."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self.put = self._queue.put

    async def until(self, *wanted: str) -> None:
        """Wait for these, in any order, perhaps more than once: a change may be seen half done."""
        missing = {*wanted}
        while missing:
            missing.discard(await self._queue.get())


def exchange(path: Path, text: str) -> None:
    """What an editor does: a new file takes the place of the old one, all at once."""
    new = path.with_name(".new")
    new.write_text(text)
    new.replace(path)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_watched_file_that_changes_is_told_of(folder: Path, revision: str) -> None:
    path = folder / "a b.txt"
    server = Server("files", limits=FAST)
    server.add_file(path, uri="files://it", watch=True)
    heard = Heard()
    async with (
        pair(server, revision=revision) as client,
        await client.subscribe("files://it", heard.put),
    ):
        path.write_text("longer")
        await heard.until("files://it")
        exchange(path, "another")
        await heard.until("files://it")
        assert (await client.read_resource("files://it"))[0].text == "another"
        path.unlink()
        await heard.until("files://it")
        path.write_text("back")
        await heard.until("files://it")


async def test_a_file_that_is_not_watched_is_not_told_of(folder: Path) -> None:
    server = Server("files", limits=FAST)
    server.add_file(folder / "a b.txt", uri="files://it")
    async with pair(server) as client:
        await client.ping()
        assert looking() == []


@pytest.mark.parametrize("revision", REVISIONS)
async def test_files_in_a_watched_directory_are_told_of_each_and_the_listing_when_names_change(
    folder: Path, revision: str
) -> None:
    server = Server("files", limits=FAST)
    server.add_directory(folder, uri="docs://", watch=True)
    heard = Heard()
    async with (
        pair(server, revision=revision) as client,
        await client.subscribe("docs://", heard.put),
    ):
        (folder / "in" / "deep.md").write_text("longer")
        await heard.until("docs://in/deep.md")
        (folder / "new.txt").write_text("new")
        await heard.until("docs://new.txt", "docs://")
        (folder / "a b.txt").unlink()
        await heard.until("docs://a%20b.txt", "docs://")


def test_a_change_of_contents_alone_leaves_the_listing_alone(folder: Path) -> None:
    told: list[str] = []
    watch = FileWatcher(told.append, FAST)
    watch.add("docs", directory_states(Directory(folder), "docs://"))
    (folder / "a b.txt").write_text("longer")
    assert watch._find_changes() == ["docs://a%20b.txt"]
    assert watch._find_changes() == []


@pytest.mark.parametrize("how", ["size", "time", "file"])
def test_size_time_and_identity_each_tell_a_change(folder: Path, how: str) -> None:
    path = folder / "a b.txt"
    os.utime(path, ns=(1, 1))
    watch = FileWatcher(lambda uri: None, FAST)
    watch.add("it", file_states(path, "files://it"))
    if how == "size":
        path.write_text("longer")
        os.utime(path, ns=(1, 1))
    elif how == "time":
        os.utime(path, ns=(2, 2))
    else:
        (folder / "new").write_text("two")
        os.utime(folder / "new", ns=(1, 1))
        (folder / "new").replace(path)
    assert watch._find_changes() == ["files://it"]


async def test_nobody_looks_before_the_first_listener_nor_after_the_last(folder: Path) -> None:
    server = Server("files", limits=FAST)
    server.add_file(folder / "a b.txt", watch=True)
    server.add_directory(folder / "in", uri="docs://", watch=True)
    assert looking() == []
    async with pair(server):
        async with pair(server) as client:
            await client.ping()
            [thread] = looking()
        assert looking() == [thread]
        assert thread.daemon
    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()
    async with pair(server) as client:
        await client.ping()
        [another] = looking()
    assert another is not thread


async def test_a_file_may_be_watched_from_the_middle_of_a_conversation_until_it_is_removed(
    folder: Path,
) -> None:
    server = Server("files", limits=FAST)
    heard = Heard()
    async with pair(server) as client:
        server.add_file(folder / "a b.txt", uri="files://it", watch=True)
        async with await client.subscribe("files://it", heard.put):
            (folder / "a b.txt").write_text("longer")
            await heard.until("files://it")
            server.remove_resource("files://it")
            assert server._file_watcher._seen == {}


def test_what_can_be_watched_is_bounded(folder: Path) -> None:
    server = Server("files", limits=Limits(watched=3))
    server.add_directory(folder, uri="docs://", watch=True)  # two files and the listing
    with pytest.raises(ConfigError, match=r"the limit of 3 files \(Limits\.watched\)"):
        server.add_file(folder / "a b.txt", uri="files://it", watch=True)


def test_a_directory_that_grows_beyond_the_bound_is_watched_as_far_as_it_goes(folder: Path) -> None:
    watch = FileWatcher(lambda uri: None, Limits(watched=3))
    watch.add("docs", directory_states(Directory(folder), "docs://"))
    for number in range(10):
        (folder / f"z{number}").write_text("")
    assert watch._find_changes() == ["docs://"]
    assert len(watch._seen["docs"][1]) == 3


def test_what_cannot_be_looked_at_does_not_end_the_looking(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = False

    def source() -> Iterator[tuple[str, Any]]:
        if broken:
            raise RuntimeError("a broken disk")
        yield "files://it", 1

    watch = FileWatcher(lambda uri: None, FAST)
    watch.add("broken", source)
    watch.add("it", file_states(folder / "a b.txt", "files://well"))
    broken = True
    (folder / "a b.txt").write_text("longer")
    assert watch._find_changes() == ["files://well"]
    assert "Cannot watch broken" in caplog.text
