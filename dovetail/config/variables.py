"""Variables in a configuration. They are replaced when a server is used, according to the rules of
the host.

    ${NAME}, ${NAME:-default}, ${env:NAME}    environment variables, in every file
    ${workspaceFolder}, ${workspaceFolderBasename}, ${userHome}, ${pathSeparator}, ${/}
    ${input:id}                               VS Code asks the user; Dovetail uses the
                                              environment variable INPUT_ID, or the default
    ${file:path}                              Windsurf: the contents of a file
    $NAME                                     Gemini CLI: an environment variable; elsewhere,
                                              plain text, such as part of a password
    ${{ secrets.NAME }}                       Continue: the environment, or its `.env` files
    {env:NAME}, {file:path}                   OpenCode

If a variable is not set or a `${word:…}` is unknown, an error names it. Such text is never sent
unchanged or replaced by an empty string.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ..errors import ConfigError
from .hosts import DEFAULT_HOST, HostFormat

if TYPE_CHECKING:
    from .servers import ServerConfig

MAX_VALUE_BYTES = 1024 * 1024
"""The maximum size of a file with variables, or of a file whose contents are a value."""
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*(?::-(.*))?", re.DOTALL)
_WORD = re.compile(r"([A-Za-z_][\w.-]*):(.*)", re.DOTALL)
_SECRET = re.compile(r"\s*(?:secrets|inputs)\.(?:.*/)?([A-Za-z_][\w-]*)\s*")
_LINE = re.compile(
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_][\w.-]*)\s*=[ \t]*"""
    r"""(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'|(?P<bare>(?!["'])(?:(?!\s\#).)*))"""
    r"""\s*(?:\#.*)?"""
)
_ESCAPES = {r"\n": "\n", r"\r": "\r", r"\t": "\t", r"\"": '"', r"\\": "\\", r"\$": "$"}


class Variables(Struct, frozen=True, kw_only=True):
    """The values of the variables in a file, except for those from the environment."""

    host: HostFormat = DEFAULT_HOST
    inputs: Mapping[str, Mapping[str, Any]] = {}
    """The `inputs` of VS Code, by id."""
    path: Path | None = None
    """The configuration file, if there is one."""

    @property
    def folder(self) -> Path:
        """The project folder: the folder that contains the host's folder or, if there is none, the
        file.

        If the file applies to all projects of a user, it is the current directory.
        """
        if self.path is None:
            return Path.cwd()
        parents = self.path.absolute().parents
        for parent in parents:
            if parent.name in (".vscode", ".cursor"):
                home = Path(os.path.expanduser("~"))
                return Path.cwd() if parent.parent == home else parent.parent
        return Path.cwd() if parents[0].name == "User" else parents[0]

    def locate(self, name: str) -> Path:
        """Return the path of a file that the configuration names."""
        if "\0" in name:
            raise ConfigError("a file path contains a null character")
        return self.folder / os.path.expanduser(name)

    def fill(self, text: str, environment: Mapping[str, str]) -> str:
        """Return a text with its variables replaced by their values."""

        def replace(match: re.Match[str]) -> str:
            kind = match.lastgroup or ""
            return getters[kind](match[0], match[kind], environment)

        getters: dict[str, Callable[[str, str, Mapping[str, str]], str]] = {
            "body": self._braces,
            "secret": self._secret,
            "reference": self._reference,
            "name": lambda whole, name, environment: _look_up(name, environment, whole),
        }
        return self.host.pattern.sub(replace, text)

    def fill_all(self, value: Any, environment: Mapping[str, str] | None = None) -> Any:
        """Return a value with the variables in all its texts replaced.

        Raises:
            ConfigError: A variable is not set.
        """
        values = os.environ if environment is None else environment
        if isinstance(value, str):
            return self.fill(value, values)
        if isinstance(value, list):
            return [self.fill_all(item, values) for item in value]
        if isinstance(value, dict):
            return {key: self.fill_all(item, values) for key, item in value.items()}
        return value

    def find(self, server: "ServerConfig", *more: Any) -> list[str]:
        """Return the variables that a server uses, as they are spelled in its entry, and those in
        more values of the entry."""
        found = dict.fromkeys(match[0] for match in self._matches(server, *more))
        return [*found, *(f"${{{name}}}" for name in server.env_vars if name not in found)]

    def find_inputs(self, server: "ServerConfig", *more: Any) -> dict[str, Mapping[str, Any]]:
        """Return the `inputs` that a server uses, by id."""
        used = [_split_word(match) for match in self._matches(server, *more)]
        return {id: one for id, one in self.inputs.items() if ("input", id) in used}

    def find_files(
        self, server: "ServerConfig", environment: Mapping[str, str], *more: Any
    ) -> list[Path]:
        """Return the files that supply the values of a server's variables."""
        files = [
            self.locate(rest)
            for word, rest in map(_split_word, self._matches(server, *more))
            if word == "file"
        ]
        if any(match.lastgroup == "secret" for match in self._matches(server, *more)):
            files += self._secret_files()
        if server.env_file is not None:
            files.append(self.locate(self.fill(server.env_file, environment)))
        return files

    def _matches(self, server: "ServerConfig", *more: Any) -> Iterator[re.Match[str]]:
        for text in _strings([msgspec.to_builtins(server), *more]):
            yield from self.host.pattern.finditer(text)

    def _braces(self, whole: str, body: str, environment: Mapping[str, str]) -> str:
        """Return the value of `${body}`, or the text unchanged if it is not a variable."""
        body = body.lstrip()  # Goose allows spaces around a name
        if found := _NAME.fullmatch(body):
            name, fallback = found.groups()
            if name in (known := self._predefined()):
                return known[name]
            return _look_up(name, environment, f"${{{name}}}", fallback)
        if body == "/":
            return os.sep
        if body.startswith("{"):
            raise ConfigError(
                "${{…}} is a variable only in Continue files. For an environment variable, "
                "write ${NAME}."
            )
        if (found := _WORD.fullmatch(body)) is None:
            return whole
        word, rest = found.groups()
        if word not in self.host.words:
            raise ConfigError(
                f"${{{word}:…}} is not a variable in this file. For an environment variable, write "
                "${NAME} or ${env:NAME}."
            )
        if word == "input":
            return self._input(rest, environment)
        if word == "file":
            return self._read(rest)
        name, colon, fallback = rest.partition(":-")
        name = name.strip()
        return _look_up(name, environment, f"${{env:{name}}}", fallback if colon else None)

    def _secret(self, whole: str, body: str, environment: Mapping[str, str]) -> str:
        """Return the value of `${{ secrets.NAME }}`."""
        if (found := _SECRET.fullmatch(body)) is None:
            raise ConfigError(f"{whole} is not a variable. Write ${{{{ secrets.NAME }}}}.")
        return _look_up(found[1], {**self._read_secrets(), **environment}, whole)

    def _reference(self, whole: str, body: str, environment: Mapping[str, str]) -> str:
        """Return the value of `{env:NAME}` or `{file:path}`."""
        word, _, rest = body.partition(":")
        return self._read(rest) if word == "file" else _look_up(rest, environment, whole)

    def _predefined(self) -> dict[str, str]:
        folder = self.folder
        return {
            "workspaceFolder": str(folder),
            "workspaceFolderBasename": folder.name,
            "userHome": os.path.expanduser("~"),
            "pathSeparator": os.sep,
        }

    def _input(self, id: str, environment: Mapping[str, str]) -> str:
        if id not in self.inputs:
            raise ConfigError(f'${{input:{id}}} is not defined in "inputs"')
        variable = "INPUT_" + re.sub(r"[^A-Za-z0-9]", "_", id).upper()
        default = self.inputs[id].get("default")
        if variable not in environment and not isinstance(default, str):
            raise ConfigError(
                f"VS Code asks the user for ${{input:{id}}}. Set the environment variable "
                f"{variable} to its value."
            )
        return environment.get(variable, str(default))

    def _read(self, name: str) -> str:
        return read_small_file(self.locate(name)).removesuffix("\n").removesuffix("\r")

    def _read_secrets(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for file in self._secret_files():
            found = {**parse_env_file(file), **found}
        return found

    def _secret_files(self) -> list[Path]:
        """Return Continue's `.env` files, which are next to the file and in its parent folders, up
        to the project or home folder that contains the `.continue` folder."""
        if self.path is None:
            return []
        parents = self.path.absolute().parents
        above = [number for number, one in enumerate(parents) if one.name == ".continue"]
        folders = parents[: above[0] + 2 if above else 1]
        return [file for folder in folders if (file := folder / ".env").is_file()]


def expand(
    server: "ServerConfig",
    environment: Mapping[str, str] | None = None,
    variables: Variables | None = None,
) -> "ServerConfig":
    """Return the server with every variable replaced, and with the variables from its `envFile` in
    `env`."""
    values = os.environ if environment is None else environment
    rules = variables or Variables()
    filled = msgspec.convert(rules.fill_all(msgspec.to_builtins(server), values), type(server))
    if filled.env_file is not None or filled.env_vars:
        passed = {name: values[name] for name in filled.env_vars if name in values}
        more = parse_env_file(rules.locate(filled.env_file)) if filled.env_file else {}
        filled.env = {**passed, **more, **filled.env}
        filled.env_file, filled.env_vars = None, []
    return filled


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _split_word(match: re.Match[str]) -> tuple[str, str]:
    """Split `${word:rest}` or `{word:rest}`; the word is empty if there is none."""
    body = match[match.lastgroup or 0].lstrip()
    word, colon, rest = body.partition(":")
    return (word, rest) if colon else ("", body)


def _look_up(
    name: str, environment: Mapping[str, str], written: str, fallback: str | None = None
) -> str:
    found = environment.get(name, fallback)
    if found is None:
        raise ConfigError(f"{written} is not set in the environment")
    return found


def parse_env_file(path: Path) -> dict[str, str]:
    """Read a file with `NAME=value` lines. Values may be in quotes; `#` starts a comment."""
    found: dict[str, str] = {}
    for number, line in enumerate(read_small_file(path).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigError(f"{path}: line {number} is not in the form NAME=value")
        value = match["single"] if match["single"] is not None else match["bare"]
        if match["double"] is not None:
            value = re.sub(r"\\.", lambda one: _ESCAPES.get(one[0], one[0]), match["double"])
        found[match["name"]] = (value or "").strip() if match["bare"] is not None else value
    return found


def read_small_file(path: Path) -> str:
    """Return the text of a file of at most `MAX_VALUE_BYTES`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_VALUE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_VALUE_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_VALUE_BYTES // 2**20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
