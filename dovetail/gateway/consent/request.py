"""What needs consent, as a person sees it before they decide.

Each question has a kind, which decides what the person sees and what an answer is bound to:

    kind           what is allowed                               an answer holds for
    start, reach   to start or to connect to a server            the entry digest
    call           to call a tool                                entry digest, tool and its pin
    pin            to use a tool, prompt or instructions that    the digest of the content
                   are new or changed
    share          to give a resource or prompt to the model,    entry digest and URI prefix
                   or a root to the server
    sampling       to use the model; then, to return its text    entry digest
    elicitation    to answer a question                          this question only

An entry digest covers all that the configuration says about a server, and a pin all that a model
sees of a tool.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ...config import Servers, entry_digest, merge_settings
from ...errors import ConfigError
from ...protocol.tools import Tool
from ...text import quote
from .policy import ConsentKind

BOUND_FIELDS = ("kind", "server", "digest", "name", "scope", "pin", "principal")
"""What an answer is bound to, and `on_consent` cannot change."""
_DETOUR = re.compile(r"(^|/)\.{1,2}(/|$)|%2e|%2f|%5c|\\", re.IGNORECASE)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_DOING: dict[ConsentKind, str] = {
    "start": "starting the server {server}",
    "reach": "connecting to the server {server}",
    "call": "calling the tool {name} of {server}",
    "pin": "using {name} of {server}, which is new or has changed",
    "share": "sharing {name} of {server}",
    "sampling": "letting {server} use the model",
    "elicitation": "answering a question from {server}",
}


class ConsentRequest(Struct, kw_only=True):
    """Something that needs consent, and everything that a person should see before they decide.

    Attributes:
        kind: What is asked: `start`, `reach`, `call`, `pin`, `share`, `sampling` or `elicitation`.
        server: The name of the server in the configuration.
        digest: The digest of the server's entry.
        entry: The entry as it is written in the configuration, with variables in place of their
            values.
        defaults: The settings that the file gives to all its servers.
        folder: The folder in which a command is started.
        variables: The variables of the entry whose values the server will get, as written.
        name: The name of the tool, the item (`tool:NAME`, `prompt:NAME`, `instructions`), the URI,
            or the page of an elicitation.
        scope: The URI prefix that an answer covers if it is remembered (`share_scope`), for a
            resource that is shared (default: only `name`).
        pin: The digest of the tool or item.
        tool: The tool.
        arguments: The arguments of a call, which may be changed.
        text: The text to decide about, which may be changed for sampling: the prompt, the model's
            answer, the question, or the new content of an item. For `share`, who gets it (default:
            the model).
        previous: What `text` follows: the approved content of an item, the prompt of the model's
            answer, or the digest of the entry that was allowed before.
        diff: What changed between `previous` and `text`.
        principal: Who is asked, behind a gateway; empty for the user of a host.
    """

    kind: ConsentKind
    server: str
    digest: str
    entry: Mapping[str, Any] | None = None
    defaults: Mapping[str, Any] = {}
    folder: str = ""
    variables: tuple[str, ...] = ()
    name: str = ""
    scope: str = ""
    pin: str = ""
    tool: Tool | None = None
    arguments: dict[str, Any] | None = None
    text: str = ""
    previous: str | None = None
    diff: str | None = None
    principal: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """Dovetail's settings of the server: those of its entry, on top of the file's defaults."""
        own = (self.entry or {}).get("dovetail")
        return merge_settings(own if isinstance(own, Mapping) else None, self.defaults)

    @property
    def doing(self) -> str:
        """What is asked, as part of a sentence: "calling the tool 'add' of 'calculator'"."""
        return _DOING[self.kind].format(server=quote(self.server), name=quote(self.name))


def describe_server(servers: Servers, name: str) -> ConsentRequest:
    """Return the request for consent to start or reach a server.

    The entry is shown as it is written. The fields that say what is started or reached have their
    usual names, because other applications name them differently.

    Args:
        servers: The servers in a configuration.
        name: The name of the server.
    """
    server, variables = servers[name], servers.variables
    hidden, is_variable = (
        servers.settings[name].tools.hidden_values,
        variables.host.pattern.fullmatch,
    )
    written = dict(servers.written[name])
    if "dovetail" in written:
        written["dovetail"] = mask_hidden(written["dovetail"], is_variable)
    usual = {
        field: getattr(server, field) for field in ("command", "args", "env", "url", "headers")
    }
    folder = ""
    if server.command is not None:
        folder = str(Path(variables.fill(server.cwd or ".", os.environ)).resolve())
    return ConsentRequest(
        kind="reach" if server.command is None else "start",
        server=name,
        digest=entry_digest(servers, name),
        entry={
            **written,
            **{field: value for field, value in usual.items() if value},
        },
        defaults=mask_hidden(servers.options.defaults, is_variable),
        folder=folder,
        variables=tuple(variables.find(server, *hidden)),
    )


def mask_hidden(settings: Any, is_variable: Callable[[str], Any]) -> Any:
    """Return the settings of a server without the values of hidden arguments (`tools.with`), unless
    a value is a variable, which is shown by name.

    Args:
        settings: The `dovetail` object of an entry, or the defaults of a file.
        is_variable: Returns whether a text is a variable.
    """
    tools = settings.get("tools") if isinstance(settings, Mapping) else None
    changes = tools.get("with") if isinstance(tools, Mapping) else None
    if not isinstance(changes, Mapping) or tools is None:
        return settings

    def mask(change: Any) -> Any:
        if not isinstance(change, Mapping) or not isinstance(change.get("hide"), Mapping):
            return change
        hide = {
            name: value if isinstance(value, str) and is_variable(value) else "(hidden)"
            for name, value in change["hide"].items()
        }
        return {**change, "hide": hide}

    masked = {name: mask(change) for name, change in changes.items()}
    return {**settings, "tools": {**tools, "with": masked}}


def share_scope(uri: str) -> str:
    """Return what an answer about this resource covers if it is remembered: its folder for a
    `file:` URI, its origin for a web page, and all URIs with its scheme otherwise, because such a
    scheme is the server's own.

    Args:
        uri: The URI of the resource.
    """
    found = _SCHEME.match(uri)
    if found is None:
        return uri
    scheme, rest = found[1].lower(), uri[found.end() :]
    if scheme not in ("file", "http", "https"):
        return f"{scheme}:"
    path = re.split(r"[?#]", rest, maxsplit=1)[0]
    if not rest.startswith("//") or _DETOUR.search(path) or path.count("/") < 3:
        return uri
    if scheme == "file":
        folder = path[: path.rindex("/") + 1]
        return f"{scheme}:{folder}" if folder.count("/") > 3 else uri
    return f"{scheme}:{path[: path.index('/', 2) + 1].lower()}"


def name_shared(kind: Literal["prompt", "resource", "root"], name: str) -> tuple[str, str]:
    """Return the name in a question about sharing, and the URI prefix that an answer covers; empty
    if it covers only this. A resource is named by its URI, unless that could be taken for the name
    of a prompt or root.

    Args:
        kind: What is shared.
        name: The name of the prompt, or the URI.
    """
    found = _SCHEME.match(name)
    is_clear = found is not None and found[1].lower() not in ("prompt", "resource", "root")
    if kind == "resource" and is_clear:
        return name, share_scope(name)
    return f"{kind}:{name}", ""


def covers(scope: str, name: str) -> bool:
    """Return whether a grant for a URI or URI prefix covers a URI.

    Args:
        scope: What was granted.
        name: The URI.
    """
    if scope == name:
        return True
    found, is_prefix = _SCHEME.match(name), share_scope(f"{scope}x") == scope
    if found is None or not is_prefix or _DETOUR.search(name):
        return False
    return f"{found[0].lower()}{name[found.end() :]}".startswith(scope)


def bound_values(request: ConsentRequest) -> tuple[str, ...]:
    """Return what an answer to a request is bound to.

    Args:
        request: The request.
    """
    return tuple(getattr(request, name) for name in BOUND_FIELDS)


def check_changed(given: ConsentRequest, asked: ConsentRequest) -> ConsentRequest:
    """Return a request that `on_consent` changed: only its arguments and its text may differ.

    Args:
        given: The changed request.
        asked: The request as it was.

    Raises:
        ConfigError: Something else differs.
    """
    changed = [name for name in BOUND_FIELDS if getattr(given, name) != getattr(asked, name)]
    if changed:
        raise ConfigError(
            f"on_consent may change the arguments and the text of a request, not its {changed[0]}"
        )
    return replace(asked, arguments=given.arguments, text=given.text)
