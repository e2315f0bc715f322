"""The options that several verbs share, and the meaning of TARGET.

A TARGET is a URL, a script (`server.py`), an object in Python code (`server.py:orders`,
`shop.servers:orders`), an `mcp.json` file, or a command with its arguments in one string:
`"uvx some-server"`.
"""

import os
import re
import shlex
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..python_target.parse import parse_python_target

if TYPE_CHECKING:
    from ..config import ServerConfig

URL = re.compile(r"[a-z][a-z0-9+.-]*://\S*", re.IGNORECASE)
CONFIG_SUFFIXES = (".json", ".jsonc", ".toml", ".yaml", ".yml")
FILE_SUFFIXES = (".js", ".mjs", ".ts", *CONFIG_SUFFIXES)
"""A TARGET that has one of these suffixes or names Python code is not a command."""
ANY_TARGET = (
    "a script (server.py), an object in Python code (server.py:orders, shop.servers:orders), an "
    'mcp.json file, a URL, or a command such as "uvx some-server"'
)
LOGIN_TARGET = "the URL of a server, or an mcp.json file that names it"


def add_target_options(parser: ArgumentParser, help: str = LOGIN_TARGET) -> None:
    """Add TARGET and `--server`."""
    parser.add_argument("target", metavar="TARGET", help=help)
    parser.add_argument(
        "--server", metavar="NAME", help="the server to use, if the mcp.json file has several"
    )


def add_client_options(parser: ArgumentParser, target: str = ANY_TARGET) -> None:
    """Add TARGET and the options for all verbs that use a server."""
    add_connect_options(parser, target)
    parser.add_argument(
        "--revision",
        metavar="REVISION",
        help="protocol revision to use: a date, 'handshake' or 'stateless' (default: the newest "
        "that the server supports)",
    )
    add_timeout_option(parser)


def add_timeout_option(parser: ArgumentParser) -> None:
    """Add `--timeout`."""
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=parse_seconds,
        help="how long to wait for a response (default: 60)",
    )


def add_connect_options(parser: ArgumentParser, target: str = ANY_TARGET) -> None:
    """Add TARGET and the options that say how to start or reach it."""
    add_target_options(parser, target)
    parser.add_argument(
        "--env",
        metavar="KEY=VALUE",
        type=_parse_variable,
        action="append",
        default=[],
        help="set an environment variable for the server; repeatable",
    )
    parser.add_argument("--cwd", metavar="DIR", help="start the server in this directory")
    parser.add_argument(
        "--header",
        metavar="'NAME: VALUE'",
        type=parse_header,
        action="append",
        default=[],
        help="send an HTTP header with each request to a URL; repeatable",
    )


def integer(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return a function for `type=` that parses integers within bounds."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not an integer") from None
        if maximum is not None and not minimum <= number <= maximum:
            raise ArgumentTypeError(f"must be between {minimum} and {maximum}")
        if number < minimum:
            raise ArgumentTypeError(f"must be at least {minimum}")
        return number

    return parse


def parse_target(options: Namespace) -> str | list[str]:
    """Check the options that depend on TARGET, and return TARGET in the form that `Client`
    accepts."""
    text: str = options.target
    is_url, is_file = URL.fullmatch(text) is not None, _is_file(text)
    if options.server is not None and not (is_file and text.endswith(CONFIG_SUFFIXES)):
        raise ConfigError(f"--server applies only to an mcp.json file, but the target is {text}")
    if options.header and not is_url and not text.endswith(CONFIG_SUFFIXES):
        raise ConfigError(f"--header applies only to a URL, but the target is {text}")
    if is_file:
        return _absolute(text) if options.cwd else text
    if is_url:
        return text
    return [os.path.abspath(text)] if os.path.isfile(text) else _split_command(text)


def find_server_config(options: Namespace) -> "ServerConfig | None":
    """Return the remote server that TARGET names; None if the server is started locally."""
    from .. import config

    text: str = options.target
    if URL.fullmatch(text):
        return config.ServerConfig(url=text)
    if not (_is_file(text) and text.endswith(CONFIG_SUFFIXES)):
        return None
    chosen = config.resolve(config.read(text), options.server, text, option="--server")
    return chosen.config if chosen.config.url is not None else None


def _is_file(text: str) -> bool:
    """Return whether a target names a file or an object in Python code. "node server.js" is a
    command although it ends with a file suffix, but "my server.py" is a file if it exists."""
    python = parse_python_target(text)
    path = text if python is None else python.source
    return (
        URL.fullmatch(text) is None
        and (python is not None or text.endswith(FILE_SUFFIXES))
        and (os.path.exists(path) or " " not in path)
    )


def _absolute(text: str) -> str:
    python = parse_python_target(text)
    return os.path.abspath(text) if python is None else str(python.absolute())


def _split_command(command: str) -> list[str]:
    try:
        words = shlex.split(command, posix=os.name == "posix")
    except ValueError as error:
        raise ConfigError(f"The command {command!r} cannot be split into words: {error}") from None
    if not words:
        raise ConfigError("The target is empty")
    return words if os.name == "posix" else [word.strip('"') for word in words]


def parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number") from None
    if not seconds > 0:
        raise ArgumentTypeError("must be greater than 0")
    return seconds


def _parse_variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentTypeError(f"{text!r} is not in the form KEY=VALUE")
    return name, value


def parse_header(text: str) -> tuple[str, str]:
    """Parse `NAME: VALUE`."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not value.strip():
        raise ArgumentTypeError(f"{text!r} is not in the form 'NAME: VALUE'")
    return name.strip(), value.strip()
