"""The command on a pseudo-terminal."""

import os
import subprocess
import termios
import threading
import tty

from tests.cli.conftest import SECONDS, command, environment


def on_screen(*words: str, screen: str = "stderr", columns: int = 80, **variables: str) -> tuple[int, str, str]:
    """Exit code, what the terminal got and what the other stream did; `screen` says which stream is the terminal.

    With "both" there is one terminal for the two of them, as there is for a user.
    """
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    termios.tcsetwinsize(theirs, (24, columns))
    written = bytearray()
    reader = threading.Thread(target=_drain, args=(ours, written))
    reader.start()
    process = subprocess.Popen(
        command(*words),
        stdin=subprocess.DEVNULL,
        stdout=theirs if screen in ("stdout", "both") else subprocess.PIPE,
        stderr=theirs if screen in ("stderr", "both") else subprocess.PIPE,
        env=environment(TERM="xterm") | variables,
    )
    os.close(theirs)
    out, err = process.communicate(timeout=SECONDS)
    reader.join()
    return process.returncode, written.decode(), (out or err or b"").decode()


def _drain(end: int, into: bytearray) -> None:
    with os.fdopen(end, "rb", buffering=0) as stream:
        while True:
            try:
                chunk = stream.read(65536)
            except OSError:  # Linux's way to say that the terminal was closed
                return
            if not chunk:
                return
            into += chunk
