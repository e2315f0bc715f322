"""The command on a pseudo-terminal."""

import fcntl
import os
import re
import subprocess
import termios
import threading
import tty
from collections.abc import Sequence
from functools import partial

from tests.cli.conftest import SECONDS, command, environment

PROMPTS = (b"> ", b"] ", b"y or n: ", b"_KEY: ")
"""What the screen ends with when it is the person's turn."""


def on_screen(
    *words: str,
    screen: str = "stderr",
    columns: int = 80,
    typed: Sequence[str] | None = None,
    starting: bool = False,
    controlling: bool = False,
    **variables: str,
) -> tuple[int, str, str]:
    """Exit code, what the terminal got and what the other stream did; `screen` says which stream is
    the terminal.

    With "both" there is one terminal for the two of them, as there is for a user. With `typed` it
    is stdin too, and at each prompt the next of these is typed, unseen; without, stdin is empty.
    What says that the server is being started, and is wiped, is left out unless `starting`. With
    `controlling`, it is also the command's /dev/tty, as it is for a user.
    """
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    if typed is not None:
        modes = termios.tcgetattr(theirs)
        modes[3] |= termios.ICANON  # line by line, and Ctrl-D ends it
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
    termios.tcsetwinsize(theirs, (24, columns))
    written = bytearray()
    reader = threading.Thread(target=_drain, args=(ours, written, [*(typed or ())]))
    reader.start()
    process = subprocess.Popen(
        command(*words),
        stdin=subprocess.DEVNULL if typed is None else theirs,
        stdout=theirs if screen in ("stdout", "both") else subprocess.PIPE,
        stderr=theirs if screen in ("stderr", "both") else subprocess.PIPE,
        env=environment(TERM="xterm") | variables,
        start_new_session=controlling,
        preexec_fn=partial(fcntl.ioctl, theirs, termios.TIOCSCTTY, 0) if controlling else None,
    )
    os.close(theirs)
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    finally:
        reader.join()
    text = written.decode()
    if not starting:
        text = re.sub("\r(Starting|Connecting to) [^\r]*\r *\r", "", text, count=1)
    return process.returncode, text, (out or err or b"").decode()


def _drain(end: int, into: bytearray, typed: list[str]) -> None:
    with os.fdopen(end, "r+b", buffering=0) as stream:
        while True:
            try:
                chunk = stream.read(65536)
            except OSError:  # Linux's way to say that the terminal was closed
                return
            if not chunk:
                return
            into += chunk
            if typed and into.endswith(PROMPTS):
                stream.write(typed.pop(0).encode())
