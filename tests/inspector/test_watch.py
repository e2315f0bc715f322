"""Which changes to files are noticed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.inspector.watch import Watch, read_folder, read_state


def replace(path: Path) -> None:
    """Save as editors do: write another file, and rename it."""
    other = path.with_suffix(".tmp")
    other.write_text(path.read_text())
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_text("longer text"),
        lambda path: os.utime(path, ns=(1, 1)),
        replace,
        lambda path: path.unlink(),
    ],
    ids=["write", "touch", "replace", "delete"],
)
def test_a_change_is_noticed_until_the_watch_begins_again(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    path = tmp_path / "server.py"
    path.write_text("text")
    watch = Watch([path])
    assert watch.changed() == []
    change(path)
    assert watch.changed() == [path]
    assert watch.changed() == [path]
    watch.begin()
    assert watch.changed() == []


def test_a_file_that_is_created_is_noticed(tmp_path: Path) -> None:
    watch = Watch([tmp_path / ".env"])
    (tmp_path / ".env").touch()
    assert watch.changed() == [tmp_path / ".env"]


def test_files_below_a_folder_are_noticed_and_those_of_tools_are_not(tmp_path: Path) -> None:
    watch = Watch(folders=[tmp_path])
    for name in ("a/b/c.txt", ".git/index", "__pycache__/x.pyc", "node_modules/x.js", ".venv/x.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.touch()
    assert watch.changed() == [tmp_path / "a/b/c.txt"]


def test_a_folder_that_is_deleted_has_no_files(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "x").touch()
    watch = Watch(folders=[folder])
    (folder / "x").unlink()
    folder.rmdir()
    assert watch.changed() == [folder / "x"]


def test_a_file_that_the_server_loaded_counts_from_when_it_was_loaded(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text("old")
    loaded = {str(path): read_state(str(path))}
    path.write_text("saved while the server started")
    watch = Watch([path])
    watch.set_loaded(loaded)
    assert watch.changed() == [path]


def test_the_number_of_files_is_limited(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).touch()
    assert len(read_folder(str(tmp_path), 5)) == 5
    assert len(read_folder(str(tmp_path), 50)) == 20


def test_a_link_to_a_folder_above_does_not_loop(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert str(tmp_path / "x") in read_folder(str(tmp_path))
