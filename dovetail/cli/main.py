"""The `dovetail` command: its verbs, its exit codes, and how it reports failure.

    0    success
    1    the server, the tool or the connection failed
    2    the command line is wrong
    130  Ctrl-C
    141  the program that reads the output closed it

A failure is reported in one line on stderr, `dovetail: error: …`. With `--json`, it is also printed
as a document on stdout. There are two exceptions: the result of a failed tool may have several
lines, and if the server crashed, the last lines of its stderr follow, each after a vertical bar.
The module of a verb is imported when the verb is used, and large modules when it needs them.
"""

import os
import re
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from .. import __version__
from ..errors import (
    ConfigError,
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    ProtocolError,
    ToolError,
    UrlRequired,
)
from ..text import closest_name
from .compat import split_program_arguments
from .output import AlreadyPrinted, one_line, prepare_streams, print_error, print_json

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 0, 1, 2, 130, 141


class Verb(NamedTuple):
    """A command. Its functions are named as `module:function`, and loaded when it is used."""

    group: str
    usage: str
    help: str
    arguments_function: str
    execute_function: str
    examples: tuple[str, ...]

    def add_arguments(self, parser: ArgumentParser) -> None:
        _load(self.arguments_function)(parser)

    def execute(self, options: Namespace) -> None:
        _load(self.execute_function)(options)


def _load(place: str) -> Callable[..., None]:
    module, _, name = place.partition(":")
    function: Callable[..., None] = getattr(import_module(f".{module}", __package__), name)
    return function


SERVE, USE, HOSTS, LOG_IN = "serve", "use a server", "add to a host", "log in"
CONSENT, SHELL = "consent", "shell"
VERBS: dict[str, Verb] = {
    "run": Verb(
        SERVE, "FILE[:OBJECT]", "Run the server in a Python file, or serve an HTTP API",
        "run:add_run_arguments", "run:run_server",
        (
            "dovetail run server.py",
            "dovetail run server.py --http --port 8000",
            "dovetail run server.py --http --backend redis://redis.example/0",
            "dovetail run shop.py:orders",
            "dovetail run shop.servers:make_server --http --hosts mcp.example.com",
            "dovetail run --openapi petstore.json --base-url https://pets.example.com/v1",
            "dovetail run --openapi https://pets.example.com/api.json --credential key=PETS_KEY",
            "dovetail run --compat mcp-server-git -- --repository .",
        ),
    ),
    "gateway": Verb(
        SERVE, "FILE", "Serve all servers of an mcp.json file as one",
        "gateway:add_gateway_arguments", "gateway:run_gateway",
        (
            "dovetail gateway mcp.json --check",
            "dovetail gateway mcp.json",
            "dovetail gateway mcp.json --http --port 8000 --policy policy.toml --watch",
        ),
    ),
    "worker": Verb(
        SERVE, "FILE[:OBJECT]", "Run the tasks of the server in a Python file",
        "worker:add_worker_arguments", "worker:run_worker",
        (
            "dovetail worker server.py --backend redis://redis.example/0",
            "dovetail worker server.py --tasks 32 --health 8001",
        ),
    ),
    "backend": Verb(
        SERVE, "check [URL]", "Check the Redis that the processes of a server share",
        "backend:add_backend_arguments", "backend:check_backend",
        (
            "dovetail backend check redis://localhost",
            "dovetail backend check rediss://redis.example:6379/0 --name shop",
        ),
    ),
    "inspect": Verb(
        USE, "TARGET", "Show a server's tools, resources, prompts and skills",
        "inspect:add_inspect_arguments", "inspect:inspect_server",
        (
            "dovetail inspect server.py",
            "dovetail inspect server.py --web",
            "dovetail inspect night.mcplog --web",
            'dovetail inspect "uvx some-server" --json',
        ),
    ),
    "dev": Verb(
        SERVE, "TARGET", "Run a server, show it on a page, and restart it when its files change",
        "dev:add_dev_arguments", "dev:develop",
        (
            "dovetail dev server.py",
            "dovetail dev server.py --watch prompts",
            'dovetail dev "node server.js" --watch src',
        ),
    ),
    "check": Verb(
        USE, "TARGET", "Report problems in what a server offers",
        "check:add_check_arguments", "check:run_check",
        (
            "dovetail check server.py",
            'dovetail check "uvx some-server" --strict',
            "dovetail check https://example.com/mcp --json",
        ),
    ),
    "call": Verb(
        USE, "TARGET TOOL [key=value ...]", "Call a tool and print its result",
        "call:add_call_arguments",
        "call:run_call",
        (
            "dovetail call server.py forecast city=Oslo days=3",
            "dovetail call server.py add note.title=Milk note.tags=food note.tags=shop",
            "dovetail call https://example.com/mcp search --args '{\"words\": [\"a\", \"b\"]}'",
            'dovetail call "uvx some-server" upload file=@photo.png',
            "dovetail call server.py pay amount=5 --confirm",
        ),
    ),
    "read": Verb(
        USE, "TARGET URI", "Print the contents of a resource",
        "read:add_read_arguments",
        "read:run_read",
        ("dovetail read server.py config://app",),
    ),
    "prompt": Verb(
        USE, "TARGET NAME [key=value ...]", "Fill in a prompt and print its messages",
        "prompt:add_prompt_arguments",
        "prompt:run_prompt",
        ("dovetail prompt server.py review code=@main.py language=python",),
    ),
    "ping": Verb(
        USE, "TARGET", "Check that a server responds",
        "ping:add_ping_arguments", "ping:run_ping",
        ("dovetail ping https://example.com/mcp --count 5",),
    ),
    "record": Verb(
        USE, "TARGET [-o FILE]", "Pass on and record what a host and a server say",
        "record:add_record_arguments", "record:record",
        (
            "dovetail record server.py -o /tmp/night.mcplog",
            'dovetail record "uvx some-server"',
            "dovetail record https://example.com/mcp -o night.mcplog",
        ),
    ),
    "replay": Verb(
        USE, "FILE TARGET", "Send a recording to a server again, and show what differs",
        "replay:add_replay_arguments", "replay:run_replay",
        (
            "dovetail replay night.mcplog server.py",
            "dovetail replay night.mcplog https://example.com/mcp --strict --json",
        ),
    ),
    "init": Verb(
        SERVE, "NAME", "Create a project with a server, a test and a README",
        "init:add_init_arguments", "init:init",
        ("dovetail init weather",),
    ),
    "move": Verb(
        SERVE, "FILE ...", "Rewrite the imports of FastMCP and the official SDK to dovetail.compat",
        "move:add_move_arguments", "move:move",
        ("dovetail move server.py --dry-run", "dovetail move src/*.py"),
    ),
    "install": Verb(
        HOSTS, "HOST SERVER", "Add a server to a host, such as Claude Desktop or Cursor",
        "install:add_install_arguments", "install:install",
        (
            "dovetail install claude-desktop server.py",
            "dovetail install cursor https://example.com/mcp",
            'dovetail install vscode "uvx some-server" --env API_KEY --scope project',
            "dovetail install claude-code --gateway mcp.json",
            'dovetail install cursor "uvx some-server" --link',
        ),
    ),
    "uninstall": Verb(
        HOSTS, "HOST NAME", "Remove a server that `install` added",
        "uninstall:add_uninstall_arguments", "uninstall:uninstall",
        ("dovetail uninstall claude-desktop weather",),
    ),
    "hosts": Verb(
        HOSTS, "", "Show the hosts on this machine, their servers, and what is broken",
        "hosts:add_hosts_arguments", "hosts:hosts",
        ("dovetail hosts", "dovetail hosts --export mcp.json"),
    ),
    "login": Verb(
        LOG_IN, "TARGET", "Log in to a server", "login:add_login_arguments", "login:log_in",
        ("dovetail login https://example.com/mcp --scope notes:write",),
    ),
    "logout": Verb(
        LOG_IN, "TARGET", "Log out of a server and revoke its tokens",
        "options:add_target_options", "login:log_out",
        ("dovetail logout https://example.com/mcp",),
    ),
    "whoami": Verb(
        LOG_IN, "TARGET", "Show the saved login for a server",
        "options:add_target_options", "login:show_login",
        ("dovetail whoami https://example.com/mcp",),
    ),
    "consent": Verb(
        CONSENT, "ACTION [SERVER [TOOL]]", "Show, approve or revoke what servers may do",
        "consent:add_consent_arguments", "consent:manage_consent",
        (
            "dovetail consent list",
            "dovetail consent diff weather",
            "dovetail consent approve weather forecast",
            "dovetail consent revoke weather",
        ),
    ),
    "completion": Verb(
        SHELL, "SHELL", "Print a script that completes commands and options in your shell",
        "completion:add_completion_arguments", "completion:print_completion",
        ('eval "$(dovetail completion bash)"', "dovetail completion fish | source"),
    ),
}  # fmt: skip


_PASSWORD = re.compile(r"(://[^\s:@/]*:)[^\s]*@")


class Parser(ArgumentParser):
    """A parser that reports an error in one line, without the passwords in URLs."""

    def error(self, message: str) -> NoReturn:
        message = _PASSWORD.sub(r"\1***@", message)
        print_error(f"dovetail: error: {one_line(message)} (see `{self.prog} --help`)")
        self.exit(EXIT_USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    prepare_streams()
    try:
        try:
            return _main(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout again at exit; discard that output.
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
        if options.verbose and not isinstance(error, ToolError):  # the tool failed, not the client
            import traceback

            print_error(traceback.format_exc().rstrip(), lines=True)
        if options.json and not isinstance(error, ToolError | AlreadyPrinted):
            print_json({"error": _to_document(error)})
        _print_failure(error)
        return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED
    return EXIT_OK


def _parse(arguments: Sequence[str]) -> Namespace:
    parser = Parser(
        prog="dovetail",
        usage="dovetail COMMAND [OPTIONS]",
        description=_overview(),
        epilog="Run `dovetail COMMAND --help` for a command's options.",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"dovetail {__version__}",
        help="show the version and exit",
    )
    verbs = parser.add_subparsers(
        prog="dovetail", dest="verb", metavar="COMMAND", required=True, help=SUPPRESS
    )
    for name, verb in _needed_verbs(arguments).items():
        subparser = verbs.add_parser(
            name,
            usage=" ".join(filter(None, ("dovetail", name, verb.usage, "[OPTIONS]"))),
            description=f"{verb.help}.",
            epilog="\n  ".join(("examples:", *verb.examples)),
            formatter_class=RawDescriptionHelpFormatter,
        )
        verb.add_arguments(subparser)
        _add_common_options(subparser)
    if not arguments:
        parser.print_help()
        parser.exit(EXIT_OK)
    if not arguments[0].startswith("-") and arguments[0] not in VERBS:
        parser.error(f"unknown command {arguments[0]!r}; {_suggest_verb(arguments[0])}")
    arguments, program = split_program_arguments(arguments)
    options, rest = parser.parse_known_args(arguments)
    options.program_arguments = program
    _use_late_arguments(options, rest, verbs.choices[options.verb])
    options.known = {
        name: sorted(word for word in verb._option_string_actions if word.startswith("--"))
        for name, verb in verbs.choices.items()
    }
    return options


def _needed_verbs(arguments: Sequence[str]) -> dict[str, Verb]:
    """Return the verbs whose options matter, because the others would only take time."""
    name = next((word for word in arguments if not word.startswith("-")), None)
    if name is None:
        return {}
    if name == "completion" or name not in VERBS:  # a script or an error that lists them all
        return VERBS
    return {name: VERBS[name]}


def _use_late_arguments(options: Namespace, rest: list[str], verb: ArgumentParser) -> None:
    """Use what argparse left over: it accepts `key=value` and optional arguments only before the
    first option."""
    late = [word for word in rest if not word.startswith("-")]
    if len(late) == len(rest):
        positionals = verb._positionals._group_actions
        optional = [action.dest for action in positionals if action.nargs == "?"]
        for name in optional:
            if late and getattr(options, name) is None:
                setattr(options, name, late.pop(0))
        if late and hasattr(options, "pairs"):
            options.pairs += late
            late = []
        rest = late
    if rest:
        typos = (word for word in rest if word.startswith("--"))
        close = closest_name(next(typos, ""), verb._option_string_actions, cutoff=0.75)
        suggestion = f"; did you mean {close}?" if close else _suggest_quotes(options, rest)
        verb.error(f"unrecognized arguments: {' '.join(rest)}{suggestion}")


def _suggest_quotes(options: Namespace, rest: list[str]) -> str:
    """Suggest quotes for a command, unless it is a file or a URL."""
    if getattr(options, "compat", None) is not None:
        return "; put the program's own arguments after --"
    first = getattr(options, "source", None) or getattr(options, "target", None) or ""
    if not first or "." in first or "/" in first:
        return ""
    return f'; if this is a command, put it in quotes: "{first} {" ".join(rest)}"'


def _suggest_verb(word: str) -> str:
    if os.path.isfile(word):
        return f"did you mean `dovetail run {word}` or `dovetail inspect {word}`?"
    close = closest_name(word, VERBS)
    return f"did you mean {close}?" if close else f"the commands are {', '.join(VERBS)}"


def _overview() -> str:
    """List the verbs by group; argparse does not support groups of subcommands."""
    lines = ["Run, inspect and call Model Context Protocol (MCP) servers."]
    for group in (SERVE, USE, HOSTS, LOG_IN, CONSENT, SHELL):
        lines += ["", f"{group}:"]
        lines += [
            f"  {name:10}  {verb.help}" for name, verb in VERBS.items() if verb.group == group
        ]
    return "\n".join(lines)


def _add_common_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON document to stdout and everything else to stderr",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show logs, the server's stderr and tracebacks"
    )


def _print_failure(error: Exception) -> None:
    if isinstance(error, ToolError):
        print_error(f"dovetail: error: {error}", lines=True)
    elif isinstance(error, ConnectFailed | ConnectionClosed):
        problem, _, stderr = str(error).partition("\n")
        print_error(f"dovetail: error: {one_line(problem)}")
        for line in stderr.splitlines():
            print_error(f"  | {line}")
    elif isinstance(error, DovetailError):
        print_error(f"dovetail: error: {one_line(str(error) or type(error).__name__)}")
        for page in error.elicitations if isinstance(error, UrlRequired) else ():
            print_error(f"  Visit this page first: {page.url}")
        for note in getattr(error, "__notes__", ()):
            print_error(note, lines=True)
    else:
        print_error(
            f"dovetail: error: {type(error).__name__}: {one_line(str(error))} "
            "(use --verbose for a traceback)"
        )


def _to_document(error: Exception) -> dict[str, Any]:
    document: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if notes := getattr(error, "__notes__", ()):
        document["notes"] = list(notes)
    if isinstance(error, ProtocolError):
        document |= {"code": error.code, "data": error.data}
    return document
