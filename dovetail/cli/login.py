"""`dovetail login`, `logout` and `whoami`: log in once, and all other verbs use that login."""

import argparse
import os
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, Unauthorized
from .logins import describe_login, login_name, make_oauth, print_login
from .options import (
    LOGIN_TARGET,
    add_client_options,
    add_target_options,
    find_server_config,
    integer,
)
from .output import bold, dim, print_error, print_json, print_line
from .session import run_session

if TYPE_CHECKING:
    from .. import Client
    from ..auth import OAuth

LOGIN_HELP = "Log in to a server"
LOGIN_EXAMPLES = "dovetail login https://example.com/mcp --scope notes:write"
LOGOUT_HELP = "Log out of a server and revoke its tokens"
WHOAMI_HELP = "Show the saved login for a server"
SECRET = "DOVETAIL_CLIENT_SECRET"
"""The environment variable for the client secret, which a list of processes does not show."""


def add_login_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_options(parser, LOGIN_TARGET)
    parser.add_argument(
        "--client-id", metavar="ID", help="the id of this client, if you registered it by hand"
    )
    parser.add_argument(
        "--client-secret",
        metavar="SECRET",
        help=f"the secret that belongs to --client-id (default: ${SECRET})",
    )
    parser.add_argument(
        "--issuer", metavar="URL", help="the authorization server that issued --client-id"
    )
    parser.add_argument(
        "--scope",
        metavar="SCOPE",
        action="append",
        default=[],
        help="request this scope as well; repeatable",
    )
    parser.add_argument(
        "--force", action="store_true", help="log in again even if there is a saved login"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the URL instead of opening a browser"
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=integer(0, 65535),
        default=0,
        help="local port that the browser returns to (default: 28479, or a free port)",
    )


def add_login_target(parser: argparse.ArgumentParser) -> None:
    add_target_options(parser, LOGIN_TARGET)


def log_in(options: argparse.Namespace) -> None:
    from ..auth import LoopbackBrowser
    from ..auth.urls import is_confidential

    name, found = login_name(options), find_server_config(options)
    assert found is not None
    if not is_confidential(name):
        raise ConfigError(f"{name}: logging in requires an https URL, unless it is on localhost")
    if isinstance(found.auth, str) and found.auth != "oauth":
        raise ConfigError(
            f"{options.target} already has a token for this server, so you need not log in"
        )
    options.scope = " ".join(options.scope).split()
    options.browser_used = False

    def notify_user(text: str) -> None:
        options.browser_used = True
        print_error(text, lines=True)

    browser = LoopbackBrowser(options.port, not options.no_browser, tell=notify_user)
    secret = options.client_secret or (os.environ.get(SECRET) if options.client_id else None)
    settings = {
        "client_id": options.client_id,
        "client_secret": secret,
        "issuer": options.issuer,
        "scopes": options.scope,
    }
    fresh = options.force or any(settings.values())  # the saved login was made without these
    options.auth = make_oauth(found, browser, **settings, fresh=fresh)
    run_session(options, _ask, _show)


async def _ask(client: "Client", options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the login that the client was admitted with; it is connected by now."""
    from ..auth import default_store

    login = await describe_login(login_name(options), default_store())
    if login is None:
        return None
    return login | {"refused": [scope for scope in options.scope if scope not in login["scopes"]]}


def _show(login: dict[str, Any] | None, options: argparse.Namespace) -> None:
    if options.json:
        print_json(login)
    elif login is None:
        print_line(bold(login_name(options)), " is open to everyone. You need not log in.")
    else:
        print_login(login, "Logged in to " if options.browser_used else "Already logged in to ")
        if login["refused"]:
            print_line(dim("refused  "), " ".join(login["refused"]))
        if not options.browser_used:
            print_error("Use --force to log in again")


def log_out(options: argparse.Namespace) -> None:
    """Forget a login, and have the authorization server revoke its tokens if it can."""
    import asyncio

    name, found = login_name(options), find_server_config(options)
    assert found is not None
    existed, revoked = asyncio.run(_forget(name, make_oauth(found, False)))
    if options.json:
        print_json({"server": name, "forgotten": existed, "revoked": revoked})
    else:
        print_line(
            "Logged out of " if existed else "You were not logged in to ",
            bold(name),
            ". Its tokens were revoked." if revoked else ".",
        )


async def _forget(name: str, login: "OAuth") -> tuple[bool, bool]:
    """Return whether there was a login, and whether its tokens were revoked."""
    from .. import Client
    from ..auth import default_store

    existed = await default_store().load(name) is not None
    return existed, await Client(name, auth=login).log_out()


def show_login(options: argparse.Namespace) -> None:
    """Print the saved login. The server is not contacted, and tokens are never shown."""
    import asyncio

    from ..auth import default_store

    name = login_name(options)
    login = asyncio.run(describe_login(name, default_store()))
    if login is None:
        raise Unauthorized(f"You are not logged in to {name}. Run: dovetail login {name}")
    print_json(login) if options.json else print_login(login)
