"""The command or URL that a host gets for a server.

Hosts start commands without a shell, in another folder and often without the user's PATH. So every
path in an entry is absolute, and the interpreter has Dovetail and what the file imports:

    a script with inline metadata (PEP 723)    uv run --script FILE
    a file in a project, if there is uv        uv run --project FOLDER dovetail run FILE
    any other file                             PYTHON -m dovetail run FILE

If this program itself was started by `uvx`, its interpreter is in uv's cache, which uv may clean at
any time. Then `uvx --from dovetail-mcp dovetail` takes the place of `PYTHON -m dovetail`.
"""

import os
import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from ..config import ServerConfig
from ..errors import DISTRIBUTION, ConfigError
from .hosts import HostApp

_METADATA = re.compile(r"^# /// script[ \t]*$(?:\r?\n#.*$)*?\r?\n# ///[ \t]*$", re.MULTILINE)
_URL = re.compile(r"https?://\S+", re.IGNORECASE)
_FILE = re.compile(r"(?P<path>.*\.py)(?P<object>:[A-Za-z_][\w.]*(?:\(\))?)?")
_GENERIC = {"server", "main", "app", "__main__", "mcp_server", "src"}
_PACKAGE_RUNNERS = ("uvx", "npx", "pipx", "bunx", "docker")
"""Commands that fetch a published package."""
_PROVIDERS = {
    "uv": "uv (https://docs.astral.sh/uv/)",
    "uvx": "uv, which contains it (https://docs.astral.sh/uv/)",
    "pipx": "pipx (https://pipx.pypa.io/)",
    "node": "Node.js (https://nodejs.org/)",
    "npx": "Node.js, which contains it (https://nodejs.org/)",
    "bunx": "Bun, which contains it (https://bun.sh/)",
    "docker": "Docker (https://docs.docker.com/)",
}
"""What to install for a command that is missing."""
_ADDRESS = re.compile(r"(?:(?P<local>localhost|127\.0\.0\.1)|[\w-]+(?:\.[\w-]+)+)(?::\d+)?/\S*")
"""A URL without its scheme."""
_LAUNCHERS = {*_PACKAGE_RUNNERS, "uv", "python", "python3", "node", "run", "tool"}
_UV_CACHE = re.compile(r"(?:archive|environments|builds)-v\d+")
"""The folders of uv's cache in which it creates environments."""


_EXTRAS = {"http": "aiohttp", "auth": "joserfc", "keychain": "keyring"}
"""The extras that a server or a gateway may need, and a module of each."""


def parse_source(
    source: str, host: HostApp, *, python: str | None = None, is_shared: bool = False
) -> ServerConfig:
    """Return the server that a FILE, a URL or a command names.

    Args:
        source: What the user wrote, such as `server.py`, `https://example.com/mcp`, `uvx weather`.
        host: The host. If it starts commands only, a URL becomes a command that forwards to it.
        python: The interpreter for files; by default, the one that runs this program.
        is_shared: Whether other machines will use the entry. Then a command that fetches a
            published package keeps its name, because its path differs between machines.

    Raises:
        ConfigError: The file or the command does not exist.
    """
    if _URL.fullmatch(source):
        if host.shape.url is not None:
            return ServerConfig(url=source)
        return _run_dovetail(["gateway", source], python)
    if match := _match_file(source):
        return _file_command(Path(match["path"]), match["object"] or "", python)
    command, *args = split_command(source) or [""]
    found = shutil.which(command)
    if found is None:
        raise ConfigError(_describe_missing(command))
    name = command if is_shared and command in _PACKAGE_RUNNERS else os.path.abspath(found)
    return ServerConfig(command=name, args=[_absolute(one) for one in args])


def _describe_missing(command: str) -> str:
    """Say that there is no such command, and what may help."""
    if provider := _PROVIDERS.get(command):
        return f"{command} is not installed, or it is not on your PATH. Install {provider}."
    if address := _ADDRESS.fullmatch(command):
        scheme = "http" if address["local"] else "https"
        return f"There is no command {command!r}. Did you mean {scheme}://{command}?"
    return (
        f"There is no command {command!r}. Name a Python file, a URL, or a command in quotes, such "
        'as "uvx some-server".'
    )


def _match_file(source: str) -> re.Match[str] | None:
    """Match a file, but not a command whose last argument is a file: `python server.py`."""
    match = _FILE.fullmatch(source)
    if match is None or os.path.isfile(match["path"]):
        return match
    try:
        first, *others = split_command(source)
    except ConfigError:
        return match
    return None if others and shutil.which(first) is not None else match


def split_command(source: str, system: str = sys.platform) -> list[str]:
    """Split a command into its words.

    Args:
        source: The command. Words with spaces are in quotes.
        system: As in `sys.platform`. On Windows, a backslash is an ordinary character.

    Raises:
        ConfigError: A quote is not closed.
    """
    lexer = shlex.shlex(source, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    if system == "win32":
        lexer.escape = ""
    try:
        return list(lexer)
    except ValueError:
        raise ConfigError(f"A quote is not closed in the command {source!r}") from None


def _absolute(word: str) -> str:
    """Return an argument, with its full path if it is a file such as `server.py` or `./config`."""
    is_path = bool(os.path.splitext(word)[1]) or os.path.basename(word) != word
    return os.path.abspath(word) if is_path and os.path.isfile(word) else word


def gateway_command(file: Path, *, python: str | None = None) -> ServerConfig:
    """Return the command that serves all servers of an `mcp.json` file as one.

    Args:
        file: The file.
        python: The interpreter; by default, the one that runs this program.
    """
    if not file.is_file():
        raise ConfigError(f"{file} does not exist")
    return _run_dovetail(["gateway", os.path.abspath(file)], python)


def _run_dovetail(args: list[str], python: str | None) -> ServerConfig:
    """Return the command that runs `dovetail` with some arguments."""
    runner = _find_uvx() if python is None and _is_in_uv_cache(sys.prefix) else None
    if runner is not None:
        return ServerConfig(
            command=runner[0], args=[*runner[1:], "--from", _requirement(), "dovetail", *args]
        )
    return ServerConfig(command=python or sys.executable, args=["-m", "dovetail", *args])


def _is_in_uv_cache(folder: str) -> bool:
    """Whether an environment is one that `uvx` created, which may be gone tomorrow."""
    return any(_UV_CACHE.fullmatch(part) for part in Path(folder).parts)


def _requirement() -> str:
    """Return the distribution with the extras that this environment has."""
    extras = [extra for extra, module in _EXTRAS.items() if find_spec(module) is not None]
    return f"{DISTRIBUTION}[{','.join(extras)}]" if extras else DISTRIBUTION


def _find_uvx() -> list[str] | None:
    """Return the command that runs a tool. uv tells its children where it is."""
    if (uvx := shutil.which("uvx")) is not None:
        return [os.path.abspath(uvx)]
    uv = shutil.which("uv") or os.environ.get("UV")
    return None if uv is None else [os.path.abspath(uv), "tool", "run"]


def default_name(source: str) -> str:
    """Return a name for the entry: that of the file, the package or the host of the URL."""
    if _URL.fullmatch(source):
        host = urlsplit(source).hostname or "server"
        labels = host.split(".")
        telling = [label for label in labels[:-1] if label not in ("mcp", "www", "api")]
        return _clean(telling[-1] if telling and not labels[-1].isdigit() else host)
    if match := _match_file(source):
        return _name_of_file(match["path"])
    words = [one for one in split_command(source) if not one.startswith("-")]
    telling = [one for one in words if Path(one).stem.lower() not in _LAUNCHERS] or words
    if telling and telling[0].endswith(".py"):
        return _name_of_file(telling[0])
    package = re.split(r"[@=<>\[~!]", telling[0].lstrip("@"))[0] if telling else ""
    return _clean(package.rsplit("/", 1)[-1])


def _name_of_file(file: str) -> str:
    path = Path(file).absolute()
    return _clean(path.stem if path.stem not in _GENERIC else path.parent.name)


def _clean(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "server"


def _file_command(path: Path, suffix: str, python: str | None) -> ServerConfig:
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
    return _run_dovetail(["run", file + suffix], python)


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
    words = split_command(source)
    if not words or words[0] not in _PACKAGE_RUNNERS:
        raise ConfigError(
            "A link would contain a path of this machine. Links exist for URLs and published "
            f"packages: {', '.join(_PACKAGE_RUNNERS)}."
        )
    return words
