"""A host's file is replaced whole or not at all, and nothing about it changes but its text."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail.host_configs import files
from dovetail.host_configs.files import hold_lock, read_text, remove, replace

OLD, NEW = '{"old": 1}\n', '{"new": 1}\n'
posix = pytest.mark.skipif(os.name != "posix", reason="modes and links of POSIX")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(OLD)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    "data", [b"", b"\xef\xbb\xbf{}", b"a\r\nb\rc\n\n", "ü🎉".encode(), b"\x00"]
)
def test_every_byte_of_a_file_is_read_and_written(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(data)
    text = read_text(path)
    assert text is not None
    replace(path, text, text + "\r\nx")
    assert path.read_bytes() == data + b"\r\nx"


def test_a_file_that_is_not_there_is_created_with_its_folders_for_the_owner_only(
    tmp_path: Path,
) -> None:
    path = tmp_path / "one" / "two" / "config.json"
    assert read_text(path) is None
    replace(path, None, NEW)
    assert path.read_text() == NEW
    assert names(path.parent) == {"config.json"}  # no backup, no temporary file
    if os.name == "posix":
        assert mode(path) == 0o600
        assert mode(path.parent) == mode(path.parent.parent) == 0o700


@posix
@pytest.mark.parametrize("permissions", [0o600, 0o644, 0o664, 0o640])
def test_the_mode_of_a_file_is_kept_and_its_backup_is_private(file: Path, permissions: int) -> None:
    file.chmod(permissions)
    replace(file, OLD, NEW)
    assert mode(file) == permissions
    assert mode(file.with_name("config.json.dovetail-backup")) == 0o600


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs to give a file away")
def test_the_owner_of_a_file_is_kept(file: Path) -> None:
    os.chown(file, 12345, 23456)
    file.chmod(0o640)
    replace(file, OLD, NEW)
    assert (file.stat().st_uid, file.stat().st_gid, mode(file)) == (12345, 23456, 0o640)


def test_the_backup_is_the_file_before_the_first_change(file: Path) -> None:
    replace(file, OLD, NEW)
    replace(file, NEW, "third")
    assert file.read_text() == "third"
    assert file.with_name("config.json.dovetail-backup").read_text() == OLD
    assert names(file.parent) == {"config.json", "config.json.dovetail-backup"}


@posix
def test_a_symbolic_link_stays_and_its_target_is_replaced(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "links"
    folder.mkdir()
    link = folder / "mcp.json"
    link.symlink_to(file)
    replace(link, OLD, NEW)
    assert link.is_symlink() and file.read_text() == NEW
    assert (folder / "mcp.json.dovetail-backup").read_text() == OLD
    remove(link, NEW)
    assert link.is_symlink() and not file.exists()
    replace(link, None, NEW)  # a link to a file that is not there
    assert link.is_symlink() and file.read_text() == NEW


@posix
@pytest.mark.parametrize("kind", ["file", "folder", "missing"])
def test_a_link_that_leads_out_of_the_project_is_refused(
    file: Path, tmp_path: Path, kind: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    path = project / ".vscode" / "mcp.json"
    if kind == "folder":
        path.parent.symlink_to(tmp_path)
        path = path.with_name("config.json")
    else:
        path.parent.mkdir()
        path.symlink_to(file if kind == "file" else tmp_path / "missing.json")
    old = read_text(path)
    with pytest.raises(ConfigError, match="leads out of"):
        replace(path, old, NEW, inside=project)
    with pytest.raises(ConfigError, match="leads out of"):
        remove(path, old or "", inside=project)
    assert file.read_text() == OLD
    assert names(tmp_path) == {"config.json", "project"}


@posix
def test_a_link_inside_of_the_project_is_followed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "real").mkdir(parents=True)
    (project / "real" / "mcp.json").write_text(OLD)
    (project / ".vscode").symlink_to("real")
    (tmp_path / "link").symlink_to(project)  # the project itself may be reached by a link
    inside = tmp_path / "link"
    replace(inside / ".vscode" / "mcp.json", OLD, NEW, inside=inside)
    assert (project / "real" / "mcp.json").read_text() == NEW


def test_the_backup_of_a_projects_file_is_not_in_the_project(tmp_path: Path, state: Path) -> None:
    project = tmp_path / "project"
    for folder in (project, project / "inner"):
        folder.mkdir()
        (folder / "mcp.json").write_text(str(folder))
        replace(folder / "mcp.json", str(folder), NEW, inside=project)
        assert not list(folder.glob("*backup*"))
        backup = files.find_backup(folder / "mcp.json", project)
        assert backup.read_text() == str(folder)
    assert len(names(state / "backups")) == 2
    if os.name == "posix":
        assert mode(backup) == 0o600 and mode(backup.parent) == 0o700


@posix
@pytest.mark.parametrize("mask", [0o022, 0o027, 0o002])
def test_the_umask_decides_who_can_read_a_new_file_of_a_project(tmp_path: Path, mask: int) -> None:
    file = tmp_path / ".vscode" / "mcp.json"
    before = os.umask(mask)
    try:
        replace(file, None, NEW, inside=tmp_path)
    finally:
        os.umask(before)
    assert mode(file) == 0o666 & ~mask and mode(file.parent) == 0o777 & ~mask


def test_a_file_that_changed_since_it_was_read_is_kept(file: Path) -> None:
    file.write_text("theirs")
    with pytest.raises(ConfigError, match=r"config\.json was changed by another program"):
        replace(file, OLD, NEW)
    with pytest.raises(ConfigError, match="was changed by another program"):
        replace(file, None, NEW)
    with pytest.raises(ConfigError, match="was changed by another program"):
        remove(file, OLD)
    assert file.read_text() == "theirs"
    file.unlink()
    with pytest.raises(ConfigError, match="was changed by another program"):
        replace(file, OLD, NEW)
    assert names(file.parent) == set()


def test_a_file_that_is_read_only_is_kept(file: Path) -> None:
    file.chmod(0o444)
    with pytest.raises(ConfigError, match=r"config\.json is read-only\. Make it writable"):
        replace(file, OLD, NEW)
    with pytest.raises(ConfigError, match="is read-only"):
        remove(file, OLD)
    assert file.read_text() == OLD
    assert names(file.parent) == {"config.json"}


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Drop the rights of root, who may write everywhere."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@posix
def test_a_folder_that_is_read_only_is_explained() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "config.json"
        file.write_text(OLD)
        file.chmod(0o666)
        folder.chmod(0o555)
        with ordinary_user():
            with pytest.raises(ConfigError, match="its folder is read-only, or another program"):
                replace(file, OLD, NEW)
            with pytest.raises(ConfigError, match="its folder is read-only"):
                replace(folder / "new" / "config.json", None, NEW)
        assert file.read_text() == OLD and names(folder) == {"config.json"}
        folder.chmod(0o755)


@posix
def test_a_file_that_cannot_be_read_is_explained() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        file = folder / "config.json"
        file.write_text(OLD)
        file.chmod(0o000)
        with ordinary_user(), pytest.raises(ConfigError, match="cannot be read: Permission denied"):
            read_text(file)


def test_a_file_that_another_program_has_open_is_explained(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows refuses to replace such a file."""

    def refuse(source: str, target: Path) -> None:
        if Path(target) == file:
            raise PermissionError(13, "Access is denied")
        os.rename(source, target)

    monkeypatch.setattr(files, "WINDOWS_RETRY_SECONDS", 0)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ConfigError, match=r"has the file open\. Nothing was changed"):
        replace(file, OLD, NEW)
    assert file.read_text() == OLD
    assert names(file.parent) == {"config.json", "config.json.dovetail-backup"}


def test_what_is_not_a_text_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes("{}".encode("utf-16"))
    with pytest.raises(ConfigError, match=r"is not UTF-8 text\. Save it as UTF-8"):
        read_text(path)
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        replace(path, None, NEW)
    path.write_bytes(b"x" * (16 * 2**20 + 1))
    with pytest.raises(ConfigError, match="is larger than 16 MiB"):
        read_text(path)
    with pytest.raises(ConfigError, match="is not a file"):
        read_text(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_text(path / "inner.json")


@posix
def test_a_pipe_and_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="is not a file"):
        read_text(pipe)
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    with pytest.raises(ConfigError, match="cannot be read: Too many levels"):
        read_text(circle)


def test_a_folder_that_cannot_be_created_is_explained(file: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be"):
        replace(file / "folder" / "config.json", None, NEW)


STOPS_BEFORE_THE_RENAME = """
import os, sys, time
from pathlib import Path
from dovetail.host_configs.files import replace
rename = os.replace
def stop(source, target):
    if str(target) != sys.argv[1]:
        return rename(source, target)
    print("ready", flush=True)
    time.sleep(600)
os.replace = stop
replace(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
"""


@pytest.mark.parametrize("ending", ["kill", "terminate"])
def test_a_program_that_is_killed_before_the_rename_leaves_the_file_as_it_was(
    file: Path, ending: str
) -> None:
    command = [sys.executable, "-c", STOPS_BEFORE_THE_RENAME, str(file), OLD, NEW]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        getattr(program, ending)()
    assert file.read_text() == OLD
    (left,) = names(file.parent) - {"config.json", "config.json.dovetail-backup"}
    assert left.startswith(".dovetail-new-")
    replace(file, OLD, NEW)  # what is left over does no harm
    assert file.read_text() == NEW
    assert file.with_name("config.json.dovetail-backup").read_text() == OLD


@posix
def test_a_program_that_is_interrupted_removes_its_temporary_file(file: Path) -> None:
    command = [sys.executable, "-c", STOPS_BEFORE_THE_RENAME, str(file), OLD, NEW]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        program.communicate()
    assert file.read_text() == OLD
    assert names(file.parent) == {"config.json", "config.json.dovetail-backup"}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dovetail"


def test_the_lock_is_held_by_one_at_a_time(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOCK_SECONDS", 0)
    with hold_lock():
        with pytest.raises(ConfigError, match="Another dovetail command is changing the files"):
            with hold_lock():
                pass
    with hold_lock():
        assert names(state) == {"install.lock"}
    if os.name == "posix":
        assert mode(state) == 0o700 and mode(state / "install.lock") == 0o600


def test_the_lock_of_a_program_that_was_killed_is_free(state: Path) -> None:
    code = (
        "import time\nfrom dovetail.host_configs.files import hold_lock\n"
        "with hold_lock():\n    print('ready', flush=True)\n    time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline().strip() == b"ready"
        program.kill()
    with hold_lock():
        pass


def test_a_state_folder_that_cannot_be_created_is_explained(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(file))
    with pytest.raises(ConfigError, match=r"install\.lock cannot be written"), hold_lock():
        pass
