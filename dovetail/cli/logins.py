"""What the verbs know of logins: which server a TARGET is, what is kept about it, and how a client
uses that.

Only `dovetail login` opens a browser. Every other verb uses a login that is there, renews it where
it can, and otherwise says which command makes one: a script must not wait for a page that nobody
sees.
"""

import argparse
import shlex
import time
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ConfigError, Unauthorized
from .output import bold, dim, print_line

if TYPE_CHECKING:
    from ..auth import OAuth, Store
    from ..auth.client.browser import Browser
    from ..config import ServerConfig

TARGET = "the URL of a server, or an mcp.json that names it"
MAX_SCOPES = 20
"""Scopes of a server's that a command is made of."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The target of a verb that is about a login, and asks no server."""
    parser.add_argument("target", metavar="TARGET", help=TARGET)
    parser.add_argument("--server", metavar="NAME", help="which server of the mcp.json")


def find_server_config(options: argparse.Namespace) -> "ServerConfig | None":
    """The server on the web that TARGET names; None for one that is started here."""
    from .. import config
    from .session import URL, check_choice, is_file

    text: str = options.target
    if URL.fullmatch(text):
        return config.ServerConfig(url=text)
    if not (is_file(text) and text.endswith(".json")):
        return None
    check_choice(text, options.server)
    found = config.expand(config.choose(config.read(text), options.server, text))
    return found if found.url is not None else None


def login_name(options: argparse.Namespace) -> str:
    """The name that its login is kept under."""
    from ..auth.urls import canonical_url

    found = find_server_config(options)
    if found is None or found.url is None or not (name := canonical_url(found.url)):
        raise ConfigError(f"a login is for {TARGET}; {options.target} is neither")
    return name


def saved_auth(options: argparse.Namespace) -> "OAuth | str | None":
    """What a verb gets in with: the login that is kept for its target, unless it was given
    something else."""
    found = find_server_config(options)
    given = {*dict(options.header), *(found.headers if found is not None else ())}
    if found is None or found.url is None or "authorization" in map(str.lower, given):
        return None
    if isinstance(found.auth, str) and found.auth != "oauth":
        return found.auth
    from ..auth.urls import is_confidential

    if not is_confidential(found.url):
        return None  # a login never goes there, and perhaps nobody wants one
    try:
        return make_oauth(found, False)
    except ConfigError:
        return None  # there is no place to keep a login, and so there is none


def make_oauth(found: "ServerConfig", browser: "Browser | Literal[False]", **more: Any) -> "OAuth":
    """A login as the configuration wants it, and as the command line says otherwise."""
    from msgspec.structs import asdict

    from ..auth import OAuth, default_store
    from ..config import AuthConfig

    settings = asdict(found.auth) if isinstance(found.auth, AuthConfig) else {}
    settings |= {name: value for name, value in more.items() if value}
    return OAuth(store=default_store(), browser=browser, **settings)


def explain_refusal(options: argparse.Namespace, refusal: Unauthorized) -> Unauthorized:
    """What to do about a refusal that a login may change; any other says that itself."""
    if not refusal.curable:
        return refusal
    words = [
        "dovetail",
        "login",
        options.target,
        *(["--server", options.server] if options.server else []),
    ]
    words += [word for scope in refusal.scopes[:MAX_SCOPES] for word in ("--scope", scope)]
    wants = (
        f"takes {' '.join(refusal.scopes[:MAX_SCOPES])} for this"
        if refusal.scopes
        else "wants a login, or a new one"
    )
    return Unauthorized(f"{options.target} {wants}: {shlex.join(words)}")


async def describe_login(name: str, store: "Store") -> dict[str, Any] | None:
    """What is kept of a login, without anything that is secret."""
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


def print_login(found: dict[str, Any], heading: str = "") -> None:
    """Print it."""
    print_line(heading, bold(found["server"]))
    if found["user"] is not None:
        print_line(dim("user     "), found["user"])
    print_line(dim("issuer   "), found["issuer"])
    print_line(dim("client   "), found["client"])
    print_line(dim("scopes   "), " ".join(found["scopes"]) or "none named")
    ends = found["expires"] or "not said"
    print_line(
        dim("expires  "),
        f"{ends}{' (it has)' * found['expired']}",
        ", and renews itself" * found["renews"],
    )
