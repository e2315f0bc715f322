"""Locks of the operating system on files, which are released when the process ends, even if it
crashes."""

import os
import sys

if sys.platform == "win32":
    import msvcrt

    def try_lock(descriptor: int) -> bool:
        """Lock an open file until it is closed. Return False if another descriptor has locked it.

        Args:
            descriptor: The descriptor of the file.
        """
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def try_lock(descriptor: int) -> bool:
        """Lock an open file until it is closed. Return False if another descriptor has locked it.

        Args:
            descriptor: The descriptor of the file.

        Raises:
            OSError: The file system has no locks.
        """
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
