"""`dovetail login`, `logout` and `whoami`: log in once, and all other verbs use that login
(`session.py`)."""

import os
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, Unauthorized
from .options import LOGIN_TARGET, add_client_options, find_server_config, integer
from .output import bold, dim, print_error, print_json, print_line
from .session import make_oauth, run_session

if TYPE_CHECKING:
    from .. import Client
    from ..auth import OAuth
    from ..config import ServerConfig
    from ..inspector.login import LoginTarget

SECRET = "DOVETAIL_CLIENT_SECRET"
"""The environment variable for the client secret. Unlike an option, it is not in process lists."""


def add_login_arguments(parser: ArgumentParser) -> None:
    add_client_options(parser, LOGIN_TARGET)
    parser.add_argument(
        "--client-id", metavar="ID", help="the client ID, if you registered the client manually"
    )
    parser.add_argument(
        "--client-secret",
        metavar="SECRET",
        help=f"the client secret for --client-id (default: ${SECRET})",
    )
    parser.add_argument(
        "--issuer", metavar="URL", help="the authorization server that issued --client-id"
    )
    parser.add_argument(
        "--scope",
        metavar="SCOPE",
        action="append",
        default=[],
        help="an additional scope to request; repeatable",
    )
    parser.add_argument(
        "--force", action="store_true", help="log in again, even if a login is saved"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the URL instead of opening a browser"
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=integer(0, 65535),
        default=0,
        help="local port for the browser redirect (default: 28479, or a free port)",
    )


def log_in(options: Namespace) -> None:
    from ..auth import LoopbackBrowser

    name, config = _find_login_target(options)
    _check_can_log_in(options, name, config)
    scopes = " ".join(options.scope).split()
    browser_used = False

    def notify_user(text: str) -> None:
        nonlocal browser_used
        browser_used = True
        options.status.clear()
        print_error(text, lines=True)

    async def ask(client: "Client", options: Namespace) -> dict[str, Any] | None:
        login = await _describe_login(name)  # the login that the server accepted
        if login is None:
            return None
        return login | {"refused": [scope for scope in scopes if scope not in login["scopes"]]}

    def show(login: dict[str, Any] | None, options: Namespace) -> None:
        if options.json:
            print_json(login)
        elif login is None:
            print_line(bold(name), " does not require you to log in.")
        else:
            _print_login(login, "Logged in to " if browser_used else "Already logged in to ")
            if login["refused"]:
                print_line(dim("refused  "), " ".join(login["refused"]))
            if not browser_used:
                print_error("Use --force to log in again")

    browser = LoopbackBrowser(options.port, not options.no_browser, tell=notify_user)
    secret = options.client_secret or (os.environ.get(SECRET) if options.client_id else None)
    settings = {
        "client_id": options.client_id,
        "client_secret": secret,
        "issuer": options.issuer,
        "scopes": scopes,
    }
    fresh = options.force or any(settings.values())  # the saved login was made without these
    options.auth = make_oauth(config, browser, **settings, fresh=fresh)
    run_session(ask, show, options)


def _check_can_log_in(options: Namespace, name: str, config: "ServerConfig") -> None:
    from ..auth.urls import is_confidential

    if not is_confidential(name):
        raise ConfigError(
            f"{name}: logging in requires an https URL, unless the server is on localhost"
        )
    is_token = isinstance(config.auth, str) and config.auth != "oauth"
    if is_token or getattr(config.auth, "is_for_program", False):
        has = "a token" if is_token else "client credentials"
        raise ConfigError(
            f"{options.target} already has {has} for this server, so you do not need to log in"
        )


def find_inspector_login(options: Namespace) -> "LoginTarget | str":
    """Return how the inspector logs in to the target, or why it cannot."""
    from ..inspector.login import NO_LOGIN, LoginTarget

    if find_server_config(options) is None:
        return NO_LOGIN
    try:
        name, config = _find_login_target(options)
        _check_can_log_in(options, name, config)
    except ConfigError as problem:
        return str(problem)
    if "authorization" in map(str.lower, {*dict(options.header), *config.headers}):
        return "You configured an Authorization header for this server, which replaces a login."
    return LoginTarget(
        make_credentials=lambda browser: make_oauth(config, browser, fresh=True),
        describe=lambda: _describe_login(name),
    )


def log_out(options: Namespace) -> None:
    """Delete a saved login, and ask the authorization server to revoke its tokens."""
    import asyncio

    name, config = _find_login_target(options)
    existed, revoked = asyncio.run(_forget(name, make_oauth(config, False)))
    if options.json:
        print_json({"server": name, "forgotten": existed, "revoked": revoked})
    else:
        print_line(
            "Logged out of " if existed else "You were not logged in to ",
            bold(name),
            ". Its tokens were revoked." if revoked else ".",
        )


async def _forget(name: str, login: "OAuth") -> tuple[bool, bool]:
    """Return whether a login was saved, and whether its tokens were revoked."""
    from .. import Client
    from ..auth import default_store

    existed = await default_store().load(name) is not None
    return existed, await Client(name, auth=login).log_out()


def show_login(options: Namespace) -> None:
    """Print the saved login. The server is not contacted, and tokens are never shown."""
    import asyncio

    name, _ = _find_login_target(options)
    login = asyncio.run(_describe_login(name))
    if login is None:
        raise Unauthorized(f"You are not logged in to {name}. Run: dovetail login {name}")
    print_json(login) if options.json else _print_login(login)


def _find_login_target(options: Namespace) -> "tuple[str, ServerConfig]":
    """Return the URL under which the login is saved, and the server configuration."""
    from ..auth.urls import login_key

    config = find_server_config(options)
    if config is None or config.url is None or not (name := login_key(config.url)):
        raise ConfigError(f"{options.target} is not a login target; use {LOGIN_TARGET}")
    return name, config


async def _describe_login(name: str) -> dict[str, Any] | None:
    """Return the details of a saved login, without its secrets; None if there is no login."""
    from ..auth import default_store
    from ..auth.client.store import read_record

    tokens = read_record(await default_store().load(name)).tokens
    if tokens is None:
        return None
    return {
        "server": name,
        "user": tokens.user,
        "issuer": tokens.issuer,
        "client": tokens.registration.client_id,
        "scopes": list(tokens.granted_scopes or tokens.requested_scopes),
        "expires": None
        if tokens.expires_at is None
        else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(tokens.expires_at)),
        "expired": tokens.is_expired(time.time()),
        "renews": tokens.refresh_token is not None,
    }


def _print_login(login: dict[str, Any], heading: str = "") -> None:
    print_line(heading, bold(login["server"]))
    if login["user"] is not None:
        print_line(dim("user     "), login["user"])
    print_line(dim("issuer   "), login["issuer"])
    print_line(dim("client   "), login["client"])
    print_line(dim("scopes   "), " ".join(login["scopes"]) or "none")
    print_line(
        dim("expires  "),
        login["expires"] or "unknown",
        " (expired)" * login["expired"],
        ", renewed automatically" * login["renews"],
    )
