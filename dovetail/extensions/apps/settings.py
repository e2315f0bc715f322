"""What an app and its tools say of themselves, in `_meta.ui`: which origins a view needs, which
permissions, and who may call a tool.

A server's author gives these settings, and what makes no sense is refused there and then. A host
gets them from a server that it need not trust: what is not exactly an origin could end one
directive of a policy and begin another, so it is left out.
https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx#ui-resource-format
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from ...errors import ConfigError
from ...protocol.base import Meta
from ...protocol.lifecycle import ClientCapabilities
from ...protocol.tools import Tool

ID = "io.modelcontextprotocol/ui"
MIME_TYPE = "text/html;profile=mcp-app"
SCHEME = "ui://"
AUDIENCES = ("model", "app")
"""Who may call a tool; both, where it does not say."""
PERMISSIONS = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboardWrite": "clipboard-write",
}
"""What a view may ask for, and what browsers call it."""
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_ORIGIN = re.compile(rf"(https|wss)://(\*\.)?{_LABEL}(\.{_LABEL})+(:\d{{1,5}})?", re.IGNORECASE)
# A comment ends where it ends (`?>`), so that many of them take no longer than one.
_DOCUMENT = re.compile(
    r"\ufeff?\s*+(?><!--.*?-->\s*)*+<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)


class Csp(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The origins that a view may reach; none where it does not say."""

    connect_domains: tuple[str, ...] = ()
    """To fetch from, and to open sockets to."""
    resource_domains: tuple[str, ...] = ()
    """To load scripts, styles, pictures, fonts, sound and film from."""
    frame_domains: tuple[str, ...] = ()
    """To show in frames of its own."""
    base_uri_domains: tuple[str, ...] = ()
    """To resolve relative URLs against."""


_WIRE = dict(zip(Csp.__struct_fields__, Csp.__struct_encode_fields__, strict=True))


def is_origin(text: Any, field: str) -> bool:
    """Whether this is an origin that a view may reach: `https://…`, or `wss://…` where it
    connects."""
    found = _ORIGIN.fullmatch(text) if isinstance(text, str) else None
    return found is not None and (field == "connect_domains" or found[1].lower() == "https")


def is_document(html: str) -> bool:
    """Whether this is a document, and not a piece of one, or the name of a file."""
    return _DOCUMENT.match(html) is not None


# what authors give


def app_meta(
    uri: str,
    *,
    permissions: Sequence[str] = (),
    domain: str | None = None,
    prefers_border: bool | None = None,
    **domains: Sequence[str],
) -> Meta:
    """The `_meta` of an app's resource; ConfigError where its settings make no sense."""
    if not uri.startswith(SCHEME) or uri == SCHEME or "{" in uri:
        raise ConfigError(
            f"{uri!r} is no URI of an app; write it like 'ui://weather/view', without variables"
        )
    listed = {field: _listed(uri, field, given) for field, given in domains.items()}
    for field, origins in listed.items():
        for origin in origins:
            if not is_origin(origin, field):
                schemes = "https:// or wss://" if field == "connect_domains" else "https://"
                raise ConfigError(
                    f"App {uri}: {field}= has {origin!r}, which is no origin; write {schemes} "
                    "and a host"
                )
    asked = _listed(uri, "permissions", permissions)
    if strange := [one for one in asked if one not in PERMISSIONS]:
        raise ConfigError(
            f"App {uri}: there is no permission {strange[0]!r}; there are {', '.join(PERMISSIONS)}"
        )
    ui: Meta = {
        "csp": to_builtins(Csp(**listed)) or None,
        "permissions": {one: {} for one in asked} or None,
        "domain": domain,
        "prefersBorder": prefers_border,
    }
    said = {name: value for name, value in ui.items() if value is not None}
    return {"ui": said} if said else {}


def tool_meta(
    name: str, meta: Meta, ui: str | None, visibility: Sequence[str] | str | None
) -> Meta:
    """The `_meta` of a tool that has a view, or is not for everybody; ConfigError where that makes
    no sense."""
    said: Any = meta.get("ui")
    if said is None:
        said = {} if ui is None else {"resourceUri": ui}
        if visibility is not None:
            said["visibility"] = [visibility] if isinstance(visibility, str) else list(visibility)
    elif ui is not None or visibility is not None:
        raise ConfigError(
            f"Tool {name!r}: its meta= has a 'ui' already; give either that or ui= and visibility="
        )
    elif not isinstance(said, dict):
        raise ConfigError(
            f"Tool {name!r}: its meta= has a 'ui' that is no object; write ui= and "
            "visibility= instead"
        )
    uri, seen = said.get("resourceUri", SCHEME), said.get("visibility", AUDIENCES)
    if not isinstance(uri, str) or not uri.startswith(SCHEME):
        raise ConfigError(
            f"Tool {name!r}: ui={uri!r} is no URI of an app, which begins with {SCHEME}"
        )
    if not isinstance(seen, list | tuple) or not seen or any(one not in AUDIENCES for one in seen):
        raise ConfigError(
            f"Tool {name!r}: visibility={seen!r}; a tool is for 'model', for 'app', or for both"
        )
    return {**meta, "ui": said}


def _listed(uri: str, field: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ConfigError(f"App {uri}: {field}= takes a list, such as [{given!r}]")
    return tuple(dict.fromkeys(given))


# what the other side said


def ui_of(meta: Meta | None) -> dict[str, Any]:
    """What a tool, a resource or its contents say in `_meta.ui`."""
    found = (meta or {}).get("ui")
    return found if isinstance(found, dict) else {}


def resource_uri(tool: Tool) -> str | None:
    """The view that a tool has."""
    found = ui_of(tool.meta).get(
        "resourceUri", (tool.meta or {}).get("ui/resourceUri")
    )  # the second was so before
    return found if isinstance(found, str) and found.startswith(SCHEME) else None


def visible(tool: Tool, audience: str) -> bool:
    """Whether a tool is for the "model", or for an "app" of the same server. A host must show a
    model no others."""
    return audience in _audiences(tool.meta)


def app_only(meta: Meta | None) -> bool:
    """Whether a tool is for apps alone."""
    return "model" not in _audiences(meta)


def _audiences(meta: Meta | None) -> Sequence[Any]:
    """Those whom a tool is for: nobody, where what it says makes no sense."""
    said = ui_of(meta).get("visibility")
    return AUDIENCES if said is None else said if isinstance(said, list) else ()


def shows(peer: ClientCapabilities) -> bool:
    """Whether a client shows apps of the one kind that there is."""
    declared = peer.extensions
    settings = declared.get(ID) if isinstance(declared, dict) else None
    types = settings.get("mimeTypes") if isinstance(settings, dict) else None
    return isinstance(types, list) and any(isinstance(one, str) and _same(one) for one in types)


def _same(mime_type: str) -> bool:
    return mime_type.replace(" ", "").lower() == MIME_TYPE


def sound_csp(said: Any) -> Csp:
    """The origins among those that a server asks for."""
    given: Mapping[str, Any] = said if isinstance(said, dict) else {}
    lists = {field: given.get(name) for field, name in _WIRE.items()}
    return Csp(
        **{
            field: tuple(one for one in listed if is_origin(one, field))
            for field, listed in lists.items()
            if isinstance(listed, list)
        }
    )
