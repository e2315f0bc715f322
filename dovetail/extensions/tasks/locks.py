"""How processes know of each other whether they live: each holds a lock on a file of its own. The
system lets go of it when the process ends, whichever way."""

import os


def locked(path: str, *, create: bool = True) -> int | None:
    """A file with a lock that ends with the process; None where another one has it."""
    try:
        file = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    except FileNotFoundError:
        return None
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_nlink == 0:  # whoever had it before us has removed it
                os.close(file)
                return locked(path, create=create)
    except OSError:
        os.close(file)
        return None
    return file


def release(file: int, path: str) -> None:
    """Remove a file that is locked, and let go of the lock."""
    try:
        os.unlink(path)
    except OSError:
        pass  # Windows removes nothing that is open
    os.close(file)
