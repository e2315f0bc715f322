"""What the client verbs share: their options, the target they name, and one conversation from
beginning to end.

A verb is two functions: `ask(client, options)` talks to the server and gives an answer,
`show(answer, options)` prints it. In between the progress bar is wiped. The server is stopped
whatever happens, Ctrl-C included.
"""

import argparse
import os
import re
import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ConfigError, DovetailError, Unauthorized
from . import answers, logins
from .status_line import StatusLine

if TYPE_CHECKING:
    from .. import Client

T = TypeVar("T")
FILE_SUFFIXES = (".py", ".js", ".mjs", ".ts", ".json")
"""What a TARGET ends with that is no command."""
URL = re.compile(r"[a-z][a-z0-9+.-]*://\S*", re.IGNORECASE)


TARGET = 'a script, an mcp.json, a URL, or a command: "uvx some-server"'


def add_arguments(parser: argparse.ArgumentParser, target: str = TARGET) -> None:
    """The target and the options of every client verb."""
    parser.add_argument("target", metavar="TARGET", help=target)
    parser.add_argument("--server", metavar="NAME", help="which server of the mcp.json")
    parser.add_argument(
        "--revision",
        metavar="R",
        help="a revision of the protocol by its date, handshake or stateless",
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=_seconds, help="how long an answer may take"
    )
    parser.add_argument(
        "--env",
        metavar="KEY=VALUE",
        type=_variable,
        action="append",
        default=[],
        help="for the server; repeatable",
    )
    parser.add_argument("--cwd", metavar="DIR", help="where the server is started")
    parser.add_argument(
        "--header",
        metavar="'NAME: VALUE'",
        type=_header,
        action="append",
        default=[],
        help="for a URL; repeatable",
    )


def run_session(
    options: argparse.Namespace,
    ask: "Callable[[Client, argparse.Namespace], Awaitable[T]]",
    show: Callable[[T, argparse.Namespace], None],
) -> None:
    """Open a conversation, ask, show the answer, close."""
    import asyncio

    asyncio.run(_run_session(options, ask, show))


async def _run_session(options: argparse.Namespace, ask: Any, show: Any) -> None:
    aside = StatusLine(options)
    _redirect_logs(aside, options.verbose)
    client = _make_client(options, aside)
    try:
        await client.connect()
        answer = await ask(client, options)
        aside.clear()
        show(answer, options)
    except Unauthorized as refusal:
        raise logins.explain_refusal(options, refusal) from None
    finally:
        aside.clear()
        await client.close()


def _make_client(options: argparse.Namespace, aside: StatusLine) -> "Client":
    from .. import Client

    try:
        return Client(
            _target(options),
            server=options.server,
            revision=options.revision,
            timeout=options.timeout,
            env=dict(options.env),
            cwd=options.cwd,
            headers=dict(options.header),
            auth=options.auth if hasattr(options, "auth") else logins.saved_auth(options),
            on_elicit=answers.make_on_elicit(options, aside)
            if hasattr(options, "defaults")
            else None,  # as some verbs are asked
            on_progress=aside.on_progress,
            on_log=aside.on_log if options.verbose else None,
            on_stderr=aside.on_stderr,
        )
    except (
        DovetailError
    ) as error:  # nothing was started yet: it is the command line that makes no sense
        raise ConfigError(str(error)) from error


def _target(options: argparse.Namespace) -> str | list[str]:
    text: str = options.target
    url, file = URL.fullmatch(text) is not None, is_file(text)
    if file and text.endswith(".json"):
        check_choice(text, options.server)
    elif options.server is not None:
        raise ConfigError(f"--server chooses from an mcp.json, but the target is {text}")
    if options.header and not url and not text.endswith(".json"):
        raise ConfigError(f"--header is for a URL, but the target is {text}")
    if file:
        return os.path.abspath(text) if options.cwd else text
    if url:
        return text
    return [os.path.abspath(text)] if os.path.isfile(text) else _split_command(text)


def is_file(text: str) -> bool:
    """Whether a target is a file. "node server.js" is a command although it ends like one; "no such
    file.py" may be taken for one."""
    return (
        URL.fullmatch(text) is None
        and text.endswith(FILE_SUFFIXES)
        and (os.path.exists(text) or " " not in text)
    )


def check_choice(path: str, chosen: str | None) -> None:
    """Where a choice is missing, say so in the words of the command line."""
    from .. import config

    names = sorted(config.read(path))
    if chosen is None and len(names) > 1:
        raise ConfigError(
            f"{path} names several servers; choose one with --server: {', '.join(names)}"
        )


def _split_command(command: str) -> list[str]:
    try:
        words = shlex.split(command, posix=os.name == "posix")
    except ValueError as error:
        raise ConfigError(f"the command {command!r} cannot be split into words: {error}") from None
    if not words:
        raise ConfigError("the target is empty")
    return words if os.name == "posix" else [word.strip('"') for word in words]


def _redirect_logs(aside: StatusLine, verbose: bool) -> None:
    """What the library logs is told aside, or not at all; nothing else may write to the
    terminal."""
    import logging

    class Diverted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if verbose:
                aside.print_from(record.name, self.format(record))

    logging.getLogger().addHandler(Diverted())


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return seconds


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return name, value


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not value.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not 'NAME: VALUE'")
    return name.strip(), value.strip()
