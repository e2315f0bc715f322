"""A digest of all that a server's entry in a file makes a program do.

Consent is bound to this digest: if it changes, the user is asked again. The digest covers the entry
as the file contains it, with variables such as `${VAR}` in place of their values, so that a new
token in the environment is not a change. It also covers what else decides about the server:

- the defaults of the file, which the entry's settings build on
- for a command, the folder in which it runs
- the `inputs` of VS Code that the entry uses, because they contain default values
- the contents of the files that supply values (`envFile`, `${file:…}`, `.env` of Continue), because
  they are usually part of the same project, and can be changed together with the entry
"""

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ConfigError
from .servers import Servers
from .variables import read_small_file


def entry_digest(servers: Servers, name: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the digest of a server's entry, as `sha256:…`.

    Args:
        servers: The servers in the file.
        name: The name of the server.
        environment: The environment variables (default: those of this process).

    Raises:
        ConfigError: The entry's `cwd` or `envFile` uses a variable that is not set.
    """
    server, variables = servers[name], servers.variables
    hidden = servers.settings[name].tools.hidden_values
    values = os.environ if environment is None else environment
    covered = {
        "entry": servers.written[name],
        "defaults": servers.options.defaults,
        "inputs": variables.find_inputs(server, *hidden),
        "files": {
            str(file): _content(file) for file in variables.find_files(server, values, *hidden)
        },
    }
    if server.command is not None:
        covered["folder"] = str(Path(variables.fill(server.cwd or ".", values)).resolve())
    encoded = msgspec.json.encode(_plain(covered), order="sorted", enc_hook=str)
    return f"sha256:{sha256(encoded).hexdigest()}"


def _content(path: Path) -> str | None:
    """Return the text of a file; None if it cannot be read, which is an error when it is used."""
    try:
        return read_small_file(path)
    except ConfigError:
        return None


def _plain(value: Any) -> Any:
    """Return a decoded value of any format as JSON objects and arrays."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
