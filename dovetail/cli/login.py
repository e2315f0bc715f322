"""`dovetail login TARGET`: log in to a server, once; every other verb then gets in."""

import argparse
import os
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from . import logins, session
from .output import bold, dim, print_error, print_json, print_line

if TYPE_CHECKING:
    from .. import Client

HELP = "Log in to a server that wants to know who you are."
SECRET = "DOVETAIL_CLIENT_SECRET"
"""The environment's way to say a secret, which other users cannot see in a list of processes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How this client is known, what it asks for, and where the login ends."""
    session.add_arguments(parser, logins.TARGET)
    parser.add_argument(
        "--client-id", metavar="ID", help="where this client was registered by hand"
    )
    parser.add_argument(
        "--client-secret", metavar="SECRET", help=f"with --client-id; or in ${SECRET}"
    )
    parser.add_argument(
        "--issuer", metavar="URL", help="with --client-id: the authorization server that gave it"
    )
    parser.add_argument(
        "--scope", metavar="SCOPE", action="append", default=[], help="ask for it too; repeatable"
    )
    parser.add_argument(
        "--force", action="store_true", help="log in anew, although there is a login"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address instead of opening it"
    )
    parser.add_argument(
        "--port", metavar="N", type=int, default=0, help="of this machine, where the login ends"
    )


def execute(options: argparse.Namespace) -> None:
    """Do it."""
    from ..auth import LoopbackBrowser
    from ..auth.urls import is_confidential

    name, found = logins.login_name(options), logins.find_server_config(options)
    assert found is not None
    if not is_confidential(name):
        raise ConfigError(
            f"{name}: a login goes over https only, or stays on this machine; use an https URL"
        )
    if isinstance(found.auth, str) and found.auth != "oauth":
        raise ConfigError(
            f"{options.target} gives a token for this server, so there is nothing to log in to"
        )
    options.scope = " ".join(options.scope).split()
    options.visited = False

    def tell(text: str) -> None:
        options.visited = True
        print_error(text, lines=True)

    browser = LoopbackBrowser(options.port, not options.no_browser, tell=tell)
    secret = options.client_secret or (os.environ.get(SECRET) if options.client_id else None)
    asked = {
        "client_id": options.client_id,
        "client_secret": secret,
        "issuer": options.issuer,
        "scopes": options.scope,
    }
    fresh = options.force or any(asked.values())  # what is there already was got otherwise
    options.auth = logins.make_oauth(found, browser, **asked, fresh=fresh)
    session.run_session(options, ask, show)


async def ask(client: "Client", options: argparse.Namespace) -> dict[str, Any] | None:
    """The client is in by now; what it got in with."""
    from ..auth import default_store

    found = await logins.describe_login(logins.login_name(options), default_store())
    if found is None:
        return None
    return found | {"refused": [scope for scope in options.scope if scope not in found["scopes"]]}


def show(answer: dict[str, Any] | None, options: argparse.Namespace) -> None:
    """Print what was granted."""
    if options.json:
        print_json(answer)
    elif answer is None:
        print_line(bold(logins.login_name(options)), " lets everybody in; no login was needed")
    else:
        logins.print_login(answer, "Logged in to " if options.visited else "Already logged in to ")
        if answer["refused"]:
            print_line(dim("refused  "), " ".join(answer["refused"]))
        if not options.visited:
            print_error("--force logs in anew")
