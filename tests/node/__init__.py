"""What the tests need from npm, in the versions of `package.json`; installed into `.node/` once.

`python -m tests.node` installs it ahead of the tests, if there is an npm.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".node"
MODULES = CACHE / "node_modules"
NODE = MODULES / "node/bin/node"
INSTALL_SECONDS = 300


class Trouble(Exception):
    """Why something could not be run; the text says what to do."""


def install() -> None:
    """Install the packages and their Node, unless they are there. Processes take turns."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        _install()


def _install() -> None:
    wanted = (HERE / "package.json").read_bytes()
    stamp = CACHE / "installed.json"
    if stamp.is_file() and stamp.read_bytes() == wanted:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise Trouble("npm is needed to install what the tests need of Node; it comes with Node")
    print("Installing from npm", flush=True)
    (CACHE / "package.json").write_bytes(wanted)
    options = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    ended(
        subprocess.Popen([npm, "install", *options], cwd=CACHE, start_new_session=True),
        INSTALL_SECONDS,
        "npm install",
    )
    if not NODE.is_file():
        raise Trouble(f"npm install did not bring {NODE}")
    stamp.write_bytes(wanted)


def ended(process: "subprocess.Popen[bytes]", seconds: float, what: str) -> None:
    """Wait for a process that leads a group of its own; where it takes too long, the group ends
    with it."""
    try:
        process.wait(seconds)
    except BaseException as problem:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(problem, subprocess.TimeoutExpired):
            raise Trouble(f"{what} took longer than {seconds} s") from None
        raise
