"""The command or URL that a host gets for a server.

Hosts start commands without a shell, in another folder and often without the user's PATH. So every
path in an entry is absolute, and the interpreter has Dovetail and what the file imports:

    a script with inline metadata (PEP 723)    uv run --script FILE
    a file in a project, if there is uv        uv run --project FOLDER dovetail run FILE
    any other file                             PYTHON -m dovetail run FILE
"""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit

from ..config import ServerConfig
from ..errors import ConfigError
from .hosts import HostApp

_METADATA = re.compile(r"^# /// script[ \t]*$(?:\r?\n#.*$)*?\r?\n# ///[ \t]*$", re.MULTILINE)
_URL = re.compile(r"https?://\S+", re.IGNORECASE)
_FILE = re.compile(r"(?P<path>.*\.py)(?P<object>:[A-Za-z_][\w.]*(?:\(\))?)?")
_GENERIC = {"server", "main", "app", "__main__", "mcp_server", "src"}
_PACKAGE_RUNNERS = ("uvx", "npx", "pipx", "bunx", "docker")
"""Commands that fetch a published package."""
_LAUNCHERS = {*_PACKAGE_RUNNERS, "uv", "python", "python3", "node", "run", "tool"}


def parse_source(source: str, host: HostApp, *, python: str | None = None) -> ServerConfig:
    """Return the server that a FILE, a URL or a command names.

    Args:
        source: What the user wrote, such as `server.py`, `https://example.com/mcp`, `uvx weather`.
        host: The host. If it starts commands only, a URL becomes a command that forwards to it.
        python: The interpreter for files; by default, the one that runs this program.

    Raises:
        ConfigError: The file or the command does not exist.
    """
    python = python or sys.executable
    if _URL.fullmatch(source):
        if host.shape.url is not None:
            return ServerConfig(url=source)
        return ServerConfig(command=python, args=["-m", "dovetail", "gateway", source])
    if match := _FILE.fullmatch(source):
        return _file_command(Path(match["path"]), match["object"] or "", python)
    command, *args = shlex.split(source, posix=os.name != "nt") or [""]
    found = shutil.which(command)
    if found is None:
        raise ConfigError(
            f"There is no command {command!r}. Name a Python file, a URL, or a command in quotes, "
            'such as "uvx some-server".'
        )
    return ServerConfig(command=os.path.abspath(found), args=args)


def gateway_command(file: Path, *, python: str | None = None) -> ServerConfig:
    """Return the command that serves all servers of an `mcp.json` file as one.

    Args:
        file: The file.
        python: The interpreter; by default, the one that runs this program.
    """
    if not file.is_file():
        raise ConfigError(f"{file} does not exist")
    args = ["-m", "dovetail", "gateway", os.path.abspath(file)]
    return ServerConfig(command=python or sys.executable, args=args)


def default_name(source: str) -> str:
    """Return a name for the entry: that of the file, the package or the host of the URL."""
    if _URL.fullmatch(source):
        host = urlsplit(source).hostname or "server"
        labels = host.split(".")
        telling = [label for label in labels[:-1] if label not in ("mcp", "www", "api")]
        return _clean(telling[-1] if telling and not labels[-1].isdigit() else host)
    if match := _FILE.fullmatch(source):
        path = Path(match["path"]).absolute()
        return _clean(path.stem if path.stem not in _GENERIC else path.parent.name)
    words = [one for one in shlex.split(source, posix=os.name != "nt") if not one.startswith("-")]
    telling = [one for one in words if Path(one).stem.lower() not in _LAUNCHERS] or words
    package = re.split(r"[@=<>\[~!]", telling[0].lstrip("@"))[0] if telling else ""
    return _clean(package.rsplit("/", 1)[-1])


def _clean(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "server"


def _file_command(path: Path, suffix: str, python: str) -> ServerConfig:
    if not path.is_file():
        raise ConfigError(f"{path} does not exist")
    file = os.path.abspath(path)
    uv = shutil.which("uv")
    if _has_metadata(path):
        if uv is None:
            raise ConfigError(
                f"{path} names its packages in a `# /// script` block, which needs uv. Install uv."
            )
        if suffix:
            raise ConfigError(f"{path} is run as a script, so it cannot be followed by {suffix}")
        return ServerConfig(command=os.path.abspath(uv), args=["run", "--script", file])
    project = _find_project(Path(file).parent)
    if project is not None and uv is not None:
        run = ["run", "--project", str(project), "dovetail", "run", file + suffix]
        return ServerConfig(command=os.path.abspath(uv), args=run)
    return ServerConfig(command=python, args=["-m", "dovetail", "run", file + suffix])


def _has_metadata(path: Path) -> bool:
    """Whether a script names its packages in inline metadata (PEP 723)."""
    return _METADATA.search(path.read_text("utf-8", "replace")) is not None


def _find_project(folder: Path) -> Path | None:
    """Return the closest folder with a `pyproject.toml` that describes a project."""
    for one in (folder, *folder.parents):
        file = one / "pyproject.toml"
        if file.is_file():
            return (
                one
                if re.search(r"^\[project\]", file.read_text("utf-8", "replace"), re.M)
                else None
            )
    return None


def published_command(source: str) -> list[str]:
    """Return the command of a published package, as any machine can run it.

    Args:
        source: The command, such as `uvx weather`.

    Raises:
        ConfigError: It is not one. A link must not contain a path of this machine.
    """
    words = shlex.split(source, posix=os.name != "nt")
    if _FILE.fullmatch(source) or not words or words[0] not in _PACKAGE_RUNNERS:
        raise ConfigError(
            "A link would contain a path of this machine. Links exist for URLs and published "
            f"packages: {', '.join(_PACKAGE_RUNNERS)}."
        )
    return words
