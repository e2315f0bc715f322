"""The command on a pseudo-terminal."""

import os
import subprocess
import termios
import threading
import tty

from tests.cli.conftest import SECONDS, command, environment


def on_screen(
    *words: str, stdout: bool = False, stderr: bool = False, columns: int = 80, **variables: str
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, with a terminal of that width behind the streams that are said."""
    written: dict[str, bytearray] = {}
    threads, ends = [], {}
    for name, terminal in (("stdout", stdout), ("stderr", stderr)):
        ours, theirs = os.openpty() if terminal else os.pipe()
        if terminal:
            tty.setraw(theirs)
            termios.tcsetwinsize(theirs, (24, columns))
        written[name] = bytearray()
        ends[name] = theirs
        threads.append(threading.Thread(target=_drain, args=(ours, written[name])))
        threads[-1].start()
    process = subprocess.Popen(command(*words), stdin=subprocess.DEVNULL, env=environment(TERM="xterm") | variables, **ends)
    for end in ends.values():
        os.close(end)
    code = process.wait(SECONDS)
    for thread in threads:
        thread.join()
    return code, written["stdout"].decode(), written["stderr"].decode()


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
