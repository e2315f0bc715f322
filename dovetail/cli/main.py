"""The `dovetail` command: its verbs, its exit codes, and how it fails.

    0    done
    1    the server, the tool or the way there failed
    2    the command line makes no sense
    130  Ctrl-C
    141  whoever read our output went away

A failure is one line on stderr, `dovetail: error: …`; with `--json` it is a document on stdout as
well. Only a tool that fails may say more than one line, for these are its result. Nothing heavy is
imported before a verb runs.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from .. import __version__
from ..errors import ConfigError, DovetailError, ProtocolError, ToolError, UrlRequired
from . import call, inspect, login, logout, ping, prompt, read, run, whoami
from .output import one_line, prepare_streams, print_error, print_json

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 0, 1, 2, 130, 141


class Verb(Protocol):
    """What a verb's file offers."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its arguments."""

    def execute(self, options: argparse.Namespace) -> None:
        """Do it."""


VERBS: dict[str, Verb] = {
    "run": run,
    "inspect": inspect,
    "call": call,
    "read": read,
    "prompt": prompt,
    "ping": ping,
    "login": login,
    "logout": logout,
    "whoami": whoami,
}


class Parser(argparse.ArgumentParser):
    """A parser that fails in one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where help is."""
        print_error(f"dovetail: error: {one_line(message)} (see `{self.prog} --help`)")
        self.exit(EXIT_USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the result is the exit code."""
    prepare_streams()
    try:
        try:
            return _main(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it exits; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    try:
        VERBS[options.verb].execute(options)
    except BrokenPipeError:
        raise
    except Exception as error:
        if options.verbose:
            _print_traceback()
        if options.json and not isinstance(
            error, ToolError
        ):  # a tool's failure is a result, and shown as that
            print_json({"error": _document(error)})
        _print_failure(error)
        return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED
    return EXIT_OK


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="dovetail", description="Run, inspect and call servers of the Model Context Protocol."
    )
    parser.add_argument("--version", action="version", version=f"dovetail {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        made = verbs.add_parser(name, help=verb.HELP, description=verb.HELP)
        verb.add_arguments(made)
        made.add_argument(
            "--json", action="store_true", help="one JSON document on stdout, all else on stderr"
        )
        made.add_argument(
            "-v", "--verbose", action="store_true", help="logs, the server's stderr, tracebacks"
        )
    options, rest = parser.parse_known_args(arguments)
    # argparse takes `key=value` only up to the first option; what comes after it is left over.
    late = [word for word in rest if not word.startswith("-")] if hasattr(options, "pairs") else []
    if len(late) < len(rest):
        verbs.choices[options.verb].error(f"unrecognized arguments: {' '.join(rest)}")
    if late:
        options.pairs += late
    return options


def _print_failure(error: Exception) -> None:
    if isinstance(error, ToolError):
        print_error(f"dovetail: error: {error}", lines=True)
    elif isinstance(error, DovetailError):
        print_error(f"dovetail: error: {one_line(str(error) or type(error).__name__)}")
        for page in error.elicitations if isinstance(error, UrlRequired) else ():
            print_error(f"  visit first: {page.url}")
    else:
        print_error(
            f"dovetail: error: {type(error).__name__}: {one_line(str(error))} (--verbose "
            "shows where)"
        )


def _print_traceback() -> None:
    import traceback

    print_error(traceback.format_exc().rstrip(), lines=True)


def _document(error: Exception) -> dict[str, Any]:
    document: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, ProtocolError):
        document |= {"code": error.code, "data": error.data}
    return document
