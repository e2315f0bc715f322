"""Find, read and write configuration files."""

from codecs import BOM_UTF8
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ConfigError
from .servers import ServerConfig, Servers, parse

FILE_NAMES = ("mcp.json", ".mcp.json")
SUFFIXES = (".json", ".jsonc", ".toml", ".yaml", ".yml")
"""The suffixes of files that list servers."""
REPLACED_FIELDS = ("command", "args", "env", "cwd", "url", "headers", "auth")
"""The fields that `write` removes from a server's entry if the new configuration does not set
them."""
MAX_FILE_BYTES = 16 * 1024 * 1024


def find(start: Path | None = None) -> Path | None:
    """Return the nearest configuration file in this directory or a parent directory."""
    first = (start or Path.cwd()).resolve()
    for folder in (first, *first.parents):
        for name in FILE_NAMES:
            if (folder / name).is_file():
                return folder / name
    return None


def read(path: str | Path) -> Servers:
    """Read the servers in a file, by name. The file name determines the format."""
    text = _read_text(path)
    decode = {".toml": _decode_toml, ".yaml": _decode_yaml, ".yml": _decode_yaml}
    value = decode.get(Path(path).suffix.lower(), _decode_json)(text, path)
    return parse(value, str(path), Path(path))


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the contents of a TOML file.

    Raises:
        ConfigError: The file cannot be read, or is not valid.
    """
    decoded: dict[str, Any] = _decode_toml(_read_text(path), path)
    return decoded


def _read_text(path: str | Path) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_FILE_BYTES // 2**20} MiB")
    try:
        return data.removeprefix(BOM_UTF8).decode()  # some editors write one
    except UnicodeDecodeError as error:
        kind = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML"}.get(
            Path(path).suffix.lower(), "JSON"
        )
        raise ConfigError(f"{path} is not valid {kind}: it is not UTF-8 text") from error


def _decode_json(text: str, path: str | Path) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        pass  # the scanner accepts comments, and knows the line of an error
    from ..jsonc import JsoncError, scan

    try:
        return scan(text).value
    except JsoncError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None


def _decode_toml(text: str, path: str | Path) -> Any:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is not valid TOML: it is nested too deeply") from None


def _decode_yaml(text: str, path: str | Path) -> Any:
    from ..yaml_loader import YamlError, load_yaml

    try:
        return load_yaml(text)
    except YamlError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None


def write(path: str | Path, servers: Mapping[str, ServerConfig]) -> None:
    """Write the servers to a file and keep its other contents. The file is replaced atomically."""
    target = Path(path).resolve()  # keeps a symbolic link
    content = _decode_plain_json(target) if target.exists() else {}
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path} is not a JSON object. Move or delete the file to create a new one."
        )
    before = content.get("mcpServers")
    entries = before if isinstance(before, dict) else {}
    content["mcpServers"] = {
        name: _foreign_fields(entries.get(name)) | to_entry(server)
        for name, server in servers.items()
    }
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    temporary = target.with_name(target.name + ".new")
    try:
        temporary.touch(mode=0o600)  # it may contain secrets
        temporary.write_bytes(text + b"\n")
        if target.exists():
            temporary.chmod(target.stat().st_mode)
        temporary.replace(target)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def _decode_plain_json(path: Path) -> Any:
    """Decode a file that will be rewritten, and refuse it if it has comments, which would be
    lost."""
    text = _read_text(path)
    value = _decode_json(text, path)
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise ConfigError(
            f"{path} contains comments or trailing commas, which would be lost. Edit the "
            "file by hand."
        ) from None
    return value


def to_entry(server: ServerConfig) -> dict[str, Any]:
    """Return the entry for a server. Times are in milliseconds, as in most files.

    Args:
        server: The server.
    """
    entry: dict[str, Any] = msgspec.to_builtins(server)
    for name in ("timeout", "connectionTimeout"):
        if name in entry:
            entry[name] = round(entry[name] * 1000)
    return entry


def _foreign_fields(entry: Any) -> dict[str, Any]:
    """Return the fields in a server's entry that do not describe how to reach the server."""
    if not isinstance(entry, dict):
        return {}
    return {key: value for key, value in entry.items() if key not in REPLACED_FIELDS}
