"""What the tests need from npm: brought into `.node/` once, where `package.json` pins it."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".node"
MODULES = CACHE / "node_modules"
NODE = MODULES / "node/bin/node"
INSTALL_SECONDS = 300


class Trouble(Exception):
    """Why something could not be run; the text says what to do."""


def install() -> None:
    """Bring the packages and their Node, unless they are there."""
    wanted = (HERE / "package.json").read_bytes()
    stamp = CACHE / "installed.json"
    if stamp.is_file() and stamp.read_bytes() == wanted:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise Trouble("npm is needed to install what the tests need of Node; it comes with Node")
    print("Installing from npm", flush=True)
    CACHE.mkdir(exist_ok=True)
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
