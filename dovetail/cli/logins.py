"""Saved logins: how verbs use them, and how they are shown.

Only `dovetail login` opens a browser. Every other verb uses a saved login, refreshes its tokens if
it can, and otherwise says which command to run: a script must not wait for a page that nobody sees.
"""

import argparse
import shlex
import time
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ConfigError, Unauthorized
from .options import LOGIN_TARGET, find_server_config
from .output import bold, dim, print_line

if TYPE_CHECKING:
    from ..auth import OAuth, Store
    from ..auth.client.browser import Browser
    from ..config import ServerConfig

MAX_SCOPES = 20
"""How many of the scopes that a server asks for are put into the suggested command."""
SUBJECTS = {"call": "tool", "read": "resource", "prompt": "prompt"}
"""What a verb is about, for messages."""


def login_name(options: argparse.Namespace) -> str:
    """Return the name under which the login to TARGET is saved: the server's canonical URL."""
    from ..auth.urls import canonical_url

    found = find_server_config(options)
    if found is None or found.url is None or not (name := canonical_url(found.url)):
        raise ConfigError(f"{options.target} is not a login target; give {LOGIN_TARGET}")
    return name


def saved_auth(options: argparse.Namespace) -> "OAuth | str | None":
    """Return the `auth=` of a verb: the saved login, unless a header or a token was given."""
    found = find_server_config(options)
    headers = {*dict(options.header), *(found.headers if found is not None else ())}
    if found is None or found.url is None or "authorization" in map(str.lower, headers):
        return None
    if isinstance(found.auth, str) and found.auth != "oauth":
        return found.auth
    from ..auth.urls import is_confidential

    if not is_confidential(found.url):
        return None  # credentials are never sent there, and the server may not need any
    try:
        return make_oauth(found, False)
    except ConfigError:
        return None  # logins cannot be stored on this machine, so there is none


def make_oauth(
    config: "ServerConfig", browser: "Browser | Literal[False]", **overrides: Any
) -> "OAuth":
    """Return an OAuth with the settings of the configuration and the command line's overrides."""
    from msgspec.structs import asdict

    from ..auth import OAuth, default_store
    from ..config import AuthConfig

    settings = asdict(config.auth) if isinstance(config.auth, AuthConfig) else {}
    settings |= {name: value for name, value in overrides.items() if value}
    return OAuth(store=default_store(), browser=browser, **settings)


def explain_refusal(options: argparse.Namespace, refusal: Unauthorized) -> Unauthorized:
    """Add the command to run to a refusal that a login can fix; other refusals are complete."""
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


async def describe_login(name: str, store: "Store") -> dict[str, Any] | None:
    """Return what is saved of a login, without its secrets; None if there is no login."""
    from ..auth.client.store import read_record

    tokens = read_record(await store.load(name)).tokens
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


def print_login(login: dict[str, Any], heading: str = "") -> None:
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
