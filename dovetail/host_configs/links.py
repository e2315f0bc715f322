"""Links that add a server to a host with one click, and buttons for a README.

A link holds a URL or a published package, never a path of this machine, and no values of
environment variables or headers. Pages such as READMEs show only links to web sites, so the button
goes to the host's own page that opens the link.
"""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from ..errors import ConfigError
from .hosts import HostApp


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
        ConfigError: The host has no links.
    """
    form = _FORMS.get(host.id)
    if form is None:
        known = ", ".join(_FORMS)
        raise ConfigError(f"{host.title} has no install links. Hosts with links: {known}.")
    words = command or [""]
    entry = {"url": url} if url is not None else {"command": words[0], "args": words[1:]}
    web = form.web + (form.web_query or form.query)(name, entry)
    return InstallLink(form.scheme + form.query(name, entry), f"[Add to {host.title}]({web})")


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
