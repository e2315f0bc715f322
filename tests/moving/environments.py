"""Virtual environments, source distributions, and the commands that run in them. Everything is
below `.moving`, which git ignores."""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .wire import ServerFailed, describe

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".moving"
CORE = ("msgspec", "jsonschema-rs", "uvicorn<0.55", "httptools", "aiohttp")
"""What Dovetail needs itself, with HTTP."""
INSTALL_SECONDS = 600
BUILD_TOOLS = ("hatchling", "uv-dynamic-versioning", "hatch-fancy-pypi-readme")


def run(*command: str | Path, timeout: float = INSTALL_SECONDS) -> str:
    """Run a command and return its output.

    Raises:
        RuntimeError: It failed or took too long.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{words[0]} took more than {timeout} s") from None
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[:4])}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


@cache
def uv() -> Path:
    """Install uv, whose environments share their files, and return its path."""
    path = FOLDER / "tools" / "bin" / "uv"
    if not path.exists():
        run(sys.executable, "-m", "venv", FOLDER / "tools")
        run(FOLDER / "tools" / "bin" / "pip", "install", "--quiet", "uv", *BUILD_TOOLS)
    return path


def make_environment(name: str, requirements: Sequence[str]) -> Path:
    """Install requirements and what Dovetail needs; return the interpreter.

    Args:
        name: The name of the environment.
        requirements: What to install.
    """
    folder = FOLDER / "environments" / name
    python, done = folder / "bin" / "python", folder / ".done"
    wanted = "\n".join((*requirements, *CORE))
    if not done.exists() or done.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        run(uv(), "venv", "--quiet", "--python", sys.executable, folder)
        run(uv(), "pip", "install", "--quiet", "--python", python, *requirements, *CORE)
        done.write_text(wanted)
    return python


def unpack_sdist(requirement: str) -> Path:
    """Download and unpack a source distribution; return its folder.

    Args:
        requirement: The distribution and its version.
    """
    folder = FOLDER / "sdists" / requirement.replace("==", "-")
    if not folder.exists():
        uv()
        pip = FOLDER / "tools" / "bin" / "pip"
        options = ("--quiet", "--no-binary", ":all:", "--no-deps", "--no-build-isolation")
        run(pip, "download", *options, "--dest", folder.parent, requirement)
        with tarfile.open(folder.parent / f"{folder.name}.tar.gz") as archive:
            archive.extractall(folder.parent, filter="data")
    return folder


@cache
def package_path() -> Path:
    """Return a folder with nothing but Dovetail, for PYTHONPATH."""
    folder = FOLDER / "path"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "dovetail"
    if not link.exists():
        link.symlink_to(ROOT / "dovetail")
    return folder


@cache
def isolation() -> tuple[str, ...]:
    """Return a prefix that takes the network away from a command; empty if that is not possible."""
    prefix = ("unshare", "-n", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")
    try:
        run(*prefix, "true")
    except (RuntimeError, OSError):
        return ()
    return prefix


def start(
    command: Sequence[str | Path],
    environment: dict[str, str],
    home: str,
    *,
    path: Sequence[Path] = (),
    calls: bool = False,
    timeout: float = 30,
) -> dict[str, Any]:
    """Start a server in an empty folder, and describe it.

    Args:
        command: The interpreter and its arguments.
        environment: Variables for the server.
        home: The name of the folder, which is also the home of the user.
        path: Folders for PYTHONPATH.
        calls: Whether to call tools too.
        timeout: The seconds to wait for each answer.

    Raises:
        ServerFailed: It ended or did not answer.
    """
    folder = FOLDER / "homes" / home
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    variables = {
        "PATH": f"{Path(command[0]).parent}:/usr/bin:/bin",
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONHASHSEED": "0",
        **environment,
    }
    words = [*isolation(), *map(str, command)]
    return describe(words, variables, folder, calls=calls, timeout=timeout)


__all__ = ["ServerFailed", "make_environment", "package_path", "run", "start", "unpack_sdist"]
