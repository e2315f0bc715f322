"""Run a verb that connects to a server: open a connection, do the work, print the answer and close
the connection.

Each of these verbs consists of two functions: `ask(client, options)` talks to the server and
returns an answer, and `show(answer, options)` prints it. The progress bar is cleared between the
two calls. The server is always stopped, even after Ctrl-C.

If the server asks a question, the user answers at the terminal: questions are printed to stderr,
and answers are read from stdin. Without a terminal, or with `--yes`, the user is not asked: the
question is declined or answered with the form's defaults, and a line on stderr says so. A page is
never opened without asking the user.

Only `dovetail login` opens a browser. Every other verb uses a saved login, refreshes its tokens if
possible, and otherwise says which command to run. A script must not wait for a page that nobody
sees.
"""

import shlex
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..errors import ConfigError, ConsentDenied, DovetailError, Unauthorized
from .options import URL, find_server_config, parse_target
from .output import StatusLine, one_line, print_error

if TYPE_CHECKING:
    from .. import Client
    from ..auth import OAuth
    from ..auth.client.browser import Browser
    from ..client.call_hook import CallRequest, OnCall
    from ..client.callbacks import ElicitRequest
    from ..client.targets import ConnectOptions
    from ..config import ServerConfig
    from ..protocol.client_features import ElicitResult

T = TypeVar("T")
MAX_SCOPES = 20
"""The maximum number of scopes in the suggested command."""
SUBJECTS = {"call": "tool", "read": "resource", "prompt": "prompt"}
"""The kind of object that each verb requests, as messages name it."""


def run_session(
    ask: "Callable[[Client, Namespace], Awaitable[T]]",
    show: Callable[[T, Namespace], None],
    options: Namespace,
) -> None:
    """Connect, ask, show the answer, and close."""
    import asyncio

    asyncio.run(_run_session(ask, show, options))


async def _run_session(ask: Any, show: Any, options: Namespace) -> None:
    status = options.status = StatusLine(options)
    _redirect_logs(status, options.verbose)
    client = _make_client(options, status)
    try:
        is_url = URL.fullmatch(options.target) is not None
        status.show(f"{'Connecting to' if is_url else 'Starting'} {options.target} ...")
        await client.connect()
        status.clear()
        answer = await ask(client, options)
        status.clear()
        show(answer, options)
    except Unauthorized as refusal:
        raise _explain_refusal(options, refusal) from None
    finally:
        status.clear()
        await client.close()


def make_client(options: Namespace, **more: Any) -> "Client":
    """Return a client for the target and the options of the command line.

    Args:
        options: The command line.
        **more: Further options of `Client`, which take precedence.
    """
    from .. import Client

    given: dict[str, Any] = {
        "server": options.server,
        "revision": options.revision,
        "timeout": options.timeout,
        "env": dict(options.env),
        "cwd": options.cwd,
        "headers": dict(options.header),
        **more,
    }
    try:
        if "auth" not in given:
            given["auth"] = options.auth if hasattr(options, "auth") else _saved_auth(options)
        return Client(parse_target(options), **given)
    except DovetailError as error:  # nothing was started yet, so the command line is wrong
        raise ConfigError(str(error)) from error


def _make_client(options: Namespace, status: StatusLine) -> "Client":
    can_be_asked = hasattr(options, "defaults")
    return make_client(
        options,
        on_elicit=_make_on_elicit(options, status) if can_be_asked else None,
        on_call=_make_on_call(options, status),
        on_progress=status.on_progress,
        on_log=status.on_log if options.verbose else None,
        on_stderr=status.on_stderr,
    )


def _make_on_call(options: Namespace, status: StatusLine) -> "OnCall | None":
    """Return a hook that shows each call at the terminal, with `--confirm`."""
    if not getattr(options, "confirm", False):
        return None
    from msgspec.structs import replace

    from ..terminal.consent_dialog import has_terminal, terminal_confirm

    if not has_terminal():
        raise ConfigError("--confirm requires a terminal")
    confirm = terminal_confirm()

    async def on_call(request: "CallRequest") -> "CallRequest":
        # Show the target as the user typed it, not what it was resolved to.
        request = replace(request, target=options.server or options.target)
        with status.paused():
            approved: CallRequest | None = await confirm(request)
        if approved is None:
            raise ConsentDenied("You refused the call. Nothing was sent.")
        return approved

    return on_call


def _redirect_logs(status: StatusLine, verbose: bool) -> None:
    """Print the library's logs through the status line, or discard them. Nothing else may write to
    the terminal."""
    import logging

    class LogHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if verbose:
                status.print_from(record.name, self.format(record))

    logging.getLogger().addHandler(LogHandler())


def _make_on_elicit(
    options: Namespace, status: StatusLine
) -> "Callable[[ElicitRequest], Awaitable[ElicitResult]]":
    from msgspec.structs import replace

    from ..terminal.elicit import terminal_elicit
    from ..terminal.form_dialog import answer_unattended

    ask = terminal_elicit()
    unattended = options.defaults or options.yes
    attended = sys.stdin and sys.stdin.isatty() and sys.stderr.isatty() and not unattended

    async def elicit(request: "ElicitRequest") -> "ElicitResult":
        # Show the target as the user typed it, not what it was resolved to.
        request = replace(request, target=options.server or options.target)
        with status.paused():
            if attended:
                return await ask(request)
            answer = answer_unattended(request, unattended, options.yes)
            _report_unattended(request, answer, unattended, options.yes)
            return answer

    return elicit


def _report_unattended(
    request: "ElicitRequest", answer: "ElicitResult", defaults: bool, yes: bool
) -> None:
    from ..terminal.form_dialog import form_fields, is_yes_or_no

    fields = form_fields(request.schema)
    if answer.action == "accept" and yes and (not fields or is_yes_or_no(fields)):
        outcome = "answered yes"
    elif answer.action == "accept":
        outcome = "answered with the defaults"
    elif request.mode == "url":
        outcome = "declined: opening a page requires a terminal"
    elif defaults:
        outcome = "declined: some required fields have no default"
    else:
        outcome = "declined: no terminal; use --yes to answer with the defaults"
    print_error(f"{one_line(request.asked_by)} asks: {one_line(request.message)} ({outcome})")


# saved logins


def _saved_auth(options: Namespace) -> "OAuth | str | None":
    """Return the `auth=` argument for a verb: the saved login, unless a header or a token was
    given."""
    found = find_server_config(options)
    headers = {*dict(options.header), *(found.headers if found is not None else ())}
    if found is None or found.url is None or "authorization" in map(str.lower, headers):
        return None
    if isinstance(found.auth, str) and found.auth != "oauth":
        return found.auth
    if getattr(found.auth, "is_for_program", False):
        return None  # the client reads the credentials from the file
    from ..auth.urls import is_confidential

    if not is_confidential(found.url):
        return None  # credentials are never sent there, and the server may not need any
    try:
        return make_oauth(found, False)
    except ConfigError:
        return None  # logins cannot be stored on this machine, so there is none


def connect_options(
    options: Namespace, on_stderr: "Callable[[str], None] | None" = None
) -> "ConnectOptions":
    """Return how to start or reach TARGET, for the verbs that do without a `Client`."""
    from ..client.targets import ConnectOptions
    from ..limits import DEFAULT

    return ConnectOptions(
        limits=DEFAULT,
        server=options.server,
        env=dict(options.env),
        cwd=options.cwd,
        on_stderr=on_stderr,
        headers=dict(options.header),
        verify=True,
        proxy=None,
        long_polling=False,
        auth=_saved_auth(options),
    )


@contextmanager
def explained_refusals(options: Namespace) -> Iterator[None]:
    """If logging in can fix an error, add the command to run."""
    try:
        yield
    except Unauthorized as refusal:
        raise _explain_refusal(options, refusal) from None


def make_oauth(
    config: "ServerConfig", browser: "Browser | Literal[False]", **overrides: Any
) -> "OAuth":
    """Return an OAuth object with the settings from the configuration, overridden by the command
    line."""
    from ..auth import OAuth, default_store
    from ..config import AuthConfig

    settings = config.auth.options if isinstance(config.auth, AuthConfig) else {}
    settings |= {name: value for name, value in overrides.items() if value}
    return OAuth(store=default_store(), browser=browser, **settings)


def _explain_refusal(options: Namespace, refusal: Unauthorized) -> Unauthorized:
    """Add the option or the command that can fix an error. Return other errors unchanged."""
    if refusal.key_header:
        return Unauthorized(
            f"{options.target} requires an API key, not a login. "
            f"Pass --header {shlex.quote(refusal.key_header + ': …')}"
        )
    if not refusal.curable:
        return refusal
    scopes = refusal.scopes[:MAX_SCOPES]
    command = ["dovetail", "login", options.target]
    if options.server:
        command += ["--server", options.server]
    command += [word for scope in scopes for word in ("--scope", scope)]
    if scopes:
        subject = SUBJECTS.get(options.verb, "request")
        problem = f"This {subject} needs the scope{'s'[: len(scopes) - 1]} {' '.join(scopes)}."
    else:
        problem = f"{options.target} requires you to log in."
    return Unauthorized(f"{problem} Run: {shlex.join(command)}")
