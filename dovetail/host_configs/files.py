"""Read and replace the configuration files of hosts.

A file is replaced whole or not at all: the new text is written to a temporary file next to it,
which then takes its place. If the program is killed before that, the file is as it was, and a
temporary file is left over, which nothing reads. The mode and the owner are kept. A symbolic link
stays, and its target is replaced. The first replacement keeps the old file as
`<file>.dovetail-backup`, which only its owner can read. That of a project's file is in the state
folder.

`hold_lock` lets one command at a time read, change and replace files, so that no change is lost.
"""

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from ..config.state_folder import state_folder
from ..errors import ConfigError
from ..file_lock import try_lock

MAX_FILE_BYTES = 16 * 1024 * 1024
BACKUP_SUFFIX = ".dovetail-backup"
LOCK_SECONDS = 10.0
"""How long to wait for another command that changes files."""
WINDOWS_RETRY_SECONDS = 2.0
"""How long to try to replace a file that another program has open, which Windows does not allow."""
_PAUSE_SECONDS = 0.05


def read_text(path: Path) -> str | None:
    """Return the text of a file, with its byte order mark and its line ends; None if there is no
    file.

    Args:
        path: The file, or a symbolic link to it.

    Raises:
        ConfigError: The file cannot be read, is larger than `MAX_FILE_BYTES`, or is not UTF-8.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path} is not a file")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_FILE_BYTES // 2**20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text. Save it as UTF-8, and try again.") from None


def replace(path: Path, old: str | None, new: str, *, inside: Path | None = None) -> None:
    """Replace the text of a file, or create the file. Hold the lock when you call this.

    Args:
        path: The file, or a symbolic link to it.
        old: Its text when it was read; None if there was no file.
        new: The new text.
        inside: A folder that a symbolic link must not lead out of.

    Raises:
        ConfigError: The file changed since it was read, cannot be replaced, or is outside of the
            folder. Nothing was changed.
    """
    target = _find_target(path, inside)
    _require_unchanged(path, old)
    with _explained(path):
        if old is None:
            _make_folders(target, is_private=inside is None)
            write_file(target, new.encode(), None, is_private=inside is None)
            return
        found = target.stat()
        _require_writable(path, target, found)
        backup = find_backup(path, inside)
        if not os.path.lexists(backup):
            backup.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(backup, old.encode(), None)
        write_file(target, new.encode(), found)


def remove(path: Path, old: str, *, inside: Path | None = None) -> None:
    """Delete a file. If the path is a symbolic link, its target is deleted. Hold the lock when you
    call this.

    Args:
        path: The file, or a symbolic link to it.
        old: Its text when it was read.
        inside: A folder that a symbolic link must not lead out of.

    Raises:
        ConfigError: The file changed since it was read, cannot be deleted, or is outside of the
            folder. Nothing was changed.
    """
    target = _find_target(path, inside)
    _require_unchanged(path, old)
    with _explained(path):
        _require_writable(path, target, target.stat())
        target.unlink()


def find_backup(path: Path, inside: Path | None = None) -> Path:
    """Return where the file is kept as it was before the first change: next to it, or in the state
    folder if the file belongs to a project, so that nobody commits it.

    Args:
        path: The file, or a symbolic link to it.
        inside: The folder of the project.
    """
    if inside is None:
        return path.with_name(path.name + BACKUP_SUFFIX)
    digest = sha256(os.fsencode(os.path.abspath(path))).hexdigest()
    return state_folder() / "backups" / f"{digest[:16]}-{path.name}{BACKUP_SUFFIX}"


def write_file(
    target: Path, data: bytes, like: os.stat_result | None, *, is_private: bool = True
) -> None:
    """Write a file whole or not at all.

    Args:
        target: The file, which is replaced if it exists.
        data: Its new contents.
        like: Whose mode and owner the file gets; None for a new file.
        is_private: Whether only its owner can read a new file. Otherwise the umask decides.
    """
    temporary = str(target.parent / f".dovetail-new-{token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(temporary, flags, 0o600 if is_private or like is not None else 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if like is not None:
                _copy_owner(temporary, like)
                os.chmod(temporary, stat.S_IMODE(like.st_mode))
            os.fsync(file.fileno())
        _move(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


@contextmanager
def hold_lock() -> Iterator[None]:
    """Wait until no other command changes files, and keep others waiting. The lock is a file in the
    state folder, which the system releases when the program ends. It cannot be held twice.

    Raises:
        ConfigError: Another command held the lock for `LOCK_SECONDS`, or the state folder cannot be
            written to.
    """
    path = state_folder() / "install.lock"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while not try_lock(number):
            if time.monotonic() > deadline:
                raise ConfigError(
                    "Another dovetail command is changing the files of hosts. Try again when it "
                    "has finished."
                )
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        os.close(number)


def _find_target(path: Path, inside: Path | None) -> Path:
    """Return the file that a path leads to, through symbolic links."""
    target = Path(os.path.realpath(path))
    if inside is not None and not target.is_relative_to(os.path.realpath(inside)):
        raise ConfigError(
            f"{path} is a symbolic link that leads out of {inside}, so it is not changed"
        )
    return target


def _require_unchanged(path: Path, old: str | None) -> None:
    if read_text(path) != old:
        raise ConfigError(
            f"{path} was changed by another program, so it was not written. Try again."
        )


def _require_writable(path: Path, target: Path, found: os.stat_result) -> None:
    """Refuse a file that is read-only. Its folder may still allow to replace it."""
    if not found.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise ConfigError(f"{path} is read-only. Make it writable, and try again.")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn an error of the system into one that says that nothing was changed."""
    try:
        yield
    except PermissionError:
        raise ConfigError(
            f"{path} cannot be written: its folder is read-only, or another program has the file "
            "open. Nothing was changed."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}. Nothing was changed."
        ) from None


def list_missing_folders(path: Path) -> list[Path]:
    """Return the folders that have to be created for a file, the innermost first.

    Args:
        path: The file, or a symbolic link to it.
    """
    missing, folder = [], Path(os.path.realpath(path)).parent
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    return missing


def _make_folders(path: Path, *, is_private: bool) -> None:
    """Create the folders of a file, for the owner only or as the umask says."""
    for each in reversed(list_missing_folders(path)):
        each.mkdir(mode=0o700 if is_private else 0o777, exist_ok=True)


def _copy_owner(temporary: str, like: os.stat_result) -> None:
    if sys.platform == "win32":
        return
    mine = os.stat(temporary)
    if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
        with suppress(PermissionError):  # only root may give a file to another user
            os.chown(temporary, like.st_uid, like.st_gid)


def _move(temporary: str, target: Path) -> None:
    deadline = time.monotonic() + (WINDOWS_RETRY_SECONDS if sys.platform == "win32" else 0)
    while True:
        try:
            return os.replace(temporary, target)
        except PermissionError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_SECONDS)


def _sync_folder(folder: Path) -> None:
    """Make the new name of a file survive a power failure. Some file systems cannot do that."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
