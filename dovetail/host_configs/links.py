"""Links that add a server to a host with one click, and buttons for a README.

A link contains a URL or a published package, never a path of this machine, and no values of
environment variables or headers. Pages such as READMEs show only links to web sites, so the button
goes to the host's own page that opens the link.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from ..errors import ConfigError
from ..masking import mask_arguments, mask_url
from .hosts import HostApp

_PATH = re.compile(
    r"(?:.*=)?(?:git\+)?"
    r"(?:[~/\\$].*|\.{1,2}(?:[/\\].*)?|[A-Za-z]:[/\\].*|file:.*"
    r"|(?!\w+(?:\+\w+)?://).*\.(?:py|whl|zip|tar\.gz))"
)
"""A word of a command that is a path, alone or after `--option=`."""
_DOCKER_VALUES = re.compile(r"(?:-e|--env=?)\w+=.*|--env-file(?:=.*)?", re.DOTALL)
_DOCKER_FOLDERS = re.compile(r"-v.*|--(?:volume|mount)(?:=.*)?")


class InstallLink(NamedTuple):
    """A link that opens the host, and the line for a README that shows it as a button."""

    url: str
    button: str


class _LinkForm(NamedTuple):
    """How a host's links look: what precedes the query, in the link and on the web, and the query
    for a name and an entry."""

    scheme: str
    web: str
    query: Callable[[str, dict[str, Any]], str]
    web_query: Callable[[str, dict[str, Any]], str] | None = None


def make_link(
    host: HostApp, name: str, *, url: str | None = None, command: list[str] | None = None
) -> InstallLink:
    """Return the link that adds a server to a host.

    Args:
        host: The host.
        name: The name of the server.
        url: The URL of the server, or None if there is a command.
        command: The command that starts a published package, such as `["uvx", "weather"]`.

    Raises:
        ConfigError: The host has no links, or this one would contain a path or a secret.
    """
    form = _FORMS.get(host.id)
    if form is None:
        known = ", ".join(_FORMS)
        raise ConfigError(f"{host.title} has no install links. Hosts with links: {known}.")
    words = command or [""]
    _refuse_private(url, words)
    entry = {"url": url} if url is not None else {"command": words[0], "args": words[1:]}
    web = form.web + (form.web_query or form.query)(name, entry)
    return InstallLink(form.scheme + form.query(name, entry), f"[Add to {host.title}]({web})")


def _refuse_private(url: str | None, words: list[str]) -> None:
    """Refuse a link that would contain a path of this machine, or a secret."""
    if url is not None and mask_url(url) != url:
        raise ConfigError(
            "A link must not contain a secret, but the URL has one: a user, a password or a key. "
            "Leave it out, and let the server ask for a login or the host for a header."
        )
    if private := next((one for one in words if _PATH.fullmatch(one)), None):
        raise ConfigError(f"A link would contain a path of this machine: {private}")
    options = _docker_options(words)
    if any(_DOCKER_FOLDERS.fullmatch(one) for one in options):
        raise ConfigError("A link would contain folders of this machine: -v, --volume or --mount")
    has_values = any(_DOCKER_VALUES.fullmatch(one) for one in options)
    if has_values or mask_arguments(words) != words:
        raise ConfigError(
            "A link must not contain values of variables or other secrets. Name the variable only "
            "(`docker run -e KEY`), and let each user set its value."
        )


def _docker_options(words: list[str]) -> list[str]:
    """Return the options of `docker run`, those with a value of their own as one word."""
    if words[0] != "docker":
        return []
    joined = [
        f"{one}{other}" if one in ("-e", "--env") else one
        for one, other in zip(words, [*words[1:], ""], strict=True)
    ]
    return [one for one in joined if one.startswith("-")]


def _compact(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _base64_query(name: str, entry: dict[str, Any]) -> str:
    config = b64encode(_compact(entry).encode()).decode()
    return urlencode({"name": name, "config": config}, quote_via=quote)


def _with_type(entry: dict[str, Any]) -> dict[str, Any]:
    return {"type": "http" if "url" in entry else "stdio", **entry}


def _vscode_query(name: str, entry: dict[str, Any]) -> str:
    return quote(_compact({"name": name, **_with_type(entry)}), safe="")


def _vscode_web_query(name: str, entry: dict[str, Any]) -> str:
    return urlencode({"name": name, "config": _compact(_with_type(entry))}, quote_via=quote)


def _goose_query(name: str, entry: dict[str, Any]) -> str:
    if "url" in entry:
        fields = [("url", entry["url"]), ("type", "streamable_http")]
    else:
        fields = [("cmd", entry["command"]), *(("arg", one) for one in entry["args"])]
    return urlencode([*fields, ("id", name), ("name", name)], quote_via=quote)


_FORMS = {
    "cursor": _LinkForm(
        "cursor://anysphere.cursor-deeplink/mcp/install?",
        "https://cursor.com/en/install-mcp?",
        _base64_query,
    ),
    "vscode": _LinkForm(
        "vscode:mcp/install?",
        "https://vscode.dev/redirect/mcp/install?",
        _vscode_query,
        _vscode_web_query,
    ),
    "goose": _LinkForm(
        "goose://extension?", "https://block.github.io/goose/extension?", _goose_query
    ),
    "lm-studio": _LinkForm(
        "lmstudio://add_mcp?", "https://lmstudio.ai/install-mcp?", _base64_query
    ),
}
LINK_HOSTS = tuple(_FORMS)
"""The ids of the hosts that have links."""
