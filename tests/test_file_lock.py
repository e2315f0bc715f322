"""Only one descriptor can hold the lock of a file, until it is closed or its process ends."""

import os
import subprocess
import sys
from pathlib import Path

from dovetail.file_lock import try_lock

HOLDS = """
import os, sys
from dovetail.file_lock import try_lock
print(try_lock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)), flush=True)
sys.stdin.read()
"""


def test_a_lock_ends_with_its_descriptor(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert try_lock(first)
    assert not try_lock(second)
    os.close(first)
    assert try_lock(second)
    os.close(second)


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    command = [sys.executable, "-c", HOLDS, str(file)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "True\n"
        descriptor = os.open(file, os.O_RDWR)
        assert not try_lock(descriptor)
        program.kill()
    assert try_lock(descriptor)
    os.close(descriptor)
