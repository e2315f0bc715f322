"""The `_meta.ui` settings of apps and their tools, and the extension for a server that has apps.

An app is a resource whose `_meta.ui` lists the origins and permissions that its view needs. Tools
refer to the app, and declare who may call them. On the server, invalid settings raise ConfigError
immediately. A host receives the settings from a server that it might not trust. A string that is
not exactly an origin could end one directive of a policy and begin another, so the host drops it.

A client that does not show apps of this type sees neither the views nor the tools that are only for
views. Such a client sees all other tools as plain tools. A tool with a view always returns text for
the model. If the tool's author provides no text, the text is generated from the data.
https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx#ui-resource-format
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct, to_builtins
from msgspec.structs import replace

from ...connection.extension import Extension, settings_of
from ...errors import ConfigError, InternalError, InvalidParams
from ...jsonrpc.messages import encode
from ...ports import Call, CallHandler
from ...protocol.base import Meta
from ...protocol.content import ResourceContents, TextContent
from ...protocol.lifecycle import ClientCapabilities
from ...protocol.resources import ReadResourceResult
from ...protocol.tools import Tool, ToolResult

ID = "io.modelcontextprotocol/ui"
MIME_TYPE = "text/html;profile=mcp-app"
SCHEME = "ui://"
AUDIENCES = ("model", "app")
"""Who may call a tool: the model, apps, or both (the default)."""
PERMISSIONS = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboardWrite": "clipboard-write",
}
"""The permissions that a view may request, and their names in browsers."""
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_ORIGIN = re.compile(rf"(https|wss)://(\*\.)?{_LABEL}(\.{_LABEL})+(:\d{{1,5}})?", re.IGNORECASE)
# The atomic group (`?>`) keeps the time linear in the number of comments.
_DOCUMENT = re.compile(
    r"\ufeff?\s*+(?>(?:<!--.*?-->\s*)*)<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)

MetaLookup = Callable[[str], Meta | None]
"""Returns the `_meta` of the tool with this name, or of the resource with this URI."""


class Csp(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The origins that a view may reach (default: none)."""

    connect_domains: tuple[str, ...] = ()
    """Origins for requests and WebSockets."""
    resource_domains: tuple[str, ...] = ()
    """Origins for scripts, styles, images, fonts and media."""
    frame_domains: tuple[str, ...] = ()
    """Origins for frames inside the view."""
    base_uri_domains: tuple[str, ...] = ()
    """Origins that the base URL of the view may have."""


_WIRE = dict(zip(Csp.__struct_fields__, Csp.__struct_encode_fields__, strict=True))


def is_origin(text: Any, field: str) -> bool:
    """Return whether this is a valid origin for `Csp`: `https://…`, or `wss://…` for
    connections."""
    found = _ORIGIN.fullmatch(text) if isinstance(text, str) else None
    return found is not None and (field == "connect_domains" or found[1].lower() == "https")


def is_document(html: str) -> bool:
    """Return whether this is a complete HTML document, not a fragment or a file name."""
    return _DOCUMENT.match(html) is not None


# settings from the server's author


def app_meta(
    uri: str,
    *,
    permissions: Sequence[str] = (),
    domain: str | None = None,
    prefers_border: bool | None = None,
    **domains: Sequence[str],
) -> Meta:
    """Return the `_meta` of an app's resource; raise ConfigError if a setting is invalid."""
    if not uri.startswith(SCHEME) or uri == SCHEME or "{" in uri:
        raise ConfigError(
            f"{uri!r} is not a valid app URI; use the form 'ui://weather/view', without variables"
        )
    origins = {field: _check_list(uri, field, values) for field, values in domains.items()}
    for field, values in origins.items():
        for value in values:
            if not is_origin(value, field):
                schemes = "https:// or wss://" if field == "connect_domains" else "https://"
                raise ConfigError(
                    f"App {uri}: {field}= contains {value!r}, which is not an origin; use "
                    f"{schemes} followed by a host"
                )
    permissions = _check_list(uri, "permissions", permissions)
    if unknown := [permission for permission in permissions if permission not in PERMISSIONS]:
        raise ConfigError(
            f"App {uri}: unknown permission {unknown[0]!r}; the permissions are "
            f"{', '.join(PERMISSIONS)}"
        )
    ui: Meta = {
        "csp": to_builtins(Csp(**origins)) or None,
        "permissions": {permission: {} for permission in permissions} or None,
        "domain": domain,
        "prefersBorder": prefers_border,
    }
    settings = {name: value for name, value in ui.items() if value is not None}
    return {"ui": settings} if settings else {}


def tool_meta(
    name: str, meta: Meta, ui: str | None, visibility: Sequence[str] | str | None
) -> Meta:
    """Return the `_meta` of a tool with `ui=` or `visibility=`; raise ConfigError if it is
    invalid."""
    settings: Any = meta.get("ui")
    if settings is None:
        settings = {} if ui is None else {"resourceUri": ui}
        if visibility is not None:
            audiences = [visibility] if isinstance(visibility, str) else list(visibility)
            settings["visibility"] = audiences
    elif ui is not None or visibility is not None:
        raise ConfigError(
            f"Tool {name!r}: meta= already contains 'ui'; use either that or ui= and visibility="
        )
    elif not isinstance(settings, dict):
        raise ConfigError(
            f"Tool {name!r}: the 'ui' in meta= is not an object; use ui= and visibility= instead"
        )
    uri, audiences = settings.get("resourceUri", SCHEME), settings.get("visibility", AUDIENCES)
    if not isinstance(uri, str) or not uri.startswith(SCHEME):
        raise ConfigError(
            f"Tool {name!r}: ui={uri!r} is not a valid app URI; it must start with {SCHEME}"
        )
    is_list = isinstance(audiences, list | tuple) and len(audiences) > 0
    if not is_list or any(audience not in AUDIENCES for audience in audiences):
        raise ConfigError(
            f"Tool {name!r}: visibility={audiences!r} must be a list that contains 'model', 'app' "
            "or both"
        )
    return {**meta, "ui": settings}


def _check_list(uri: str, field: str, values: Sequence[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise ConfigError(f"App {uri}: {field}= must be a list, such as [{values!r}]")
    return tuple(dict.fromkeys(values))


# settings from the other side


def get_ui(meta: Meta | None) -> dict[str, Any]:
    """Return the `_meta.ui` of a tool, a resource or the contents of a resource."""
    ui = (meta or {}).get("ui")
    return ui if isinstance(ui, dict) else {}


def get_view_uri(tool: Tool) -> str | None:
    """Return the URI of a tool's view."""
    deprecated = (tool.meta or {}).get("ui/resourceUri")
    uri = get_ui(tool.meta).get("resourceUri", deprecated)
    return uri if isinstance(uri, str) and uri.startswith(SCHEME) else None


def visible(tool: Tool, audience: str) -> bool:
    """Return whether a tool is for this audience. A host must show a model only the tools that are
    for models.

    Args:
        tool: The tool, as listed by the server.
        audience: "model", or "app" for a view of the same server.
    """
    return audience in _audiences(tool.meta)


def is_app_only(meta: Meta | None) -> bool:
    """Return whether only apps may call the tool with this `_meta`."""
    return "model" not in _audiences(meta)


def _audiences(meta: Meta | None) -> Sequence[Any]:
    visibility = get_ui(meta).get("visibility")
    if visibility is None:
        return AUDIENCES
    return visibility if isinstance(visibility, list) else ()


def shows_apps(peer: ClientCapabilities) -> bool:
    """Return whether a client shows apps of the type `MIME_TYPE`."""
    types = (settings_of(ID, peer) or {}).get("mimeTypes")
    return isinstance(types, list) and any(
        isinstance(mime_type, str) and mime_type.replace(" ", "").lower() == MIME_TYPE
        for mime_type in types
    )


def parse_csp(csp: Any) -> Csp:
    """Return the origins that a server requests, without any value that is not an origin."""
    requested: Mapping[str, Any] = csp if isinstance(csp, dict) else {}
    lists = {field: requested.get(name) for field, name in _WIRE.items()}
    return Csp(
        **{
            field: tuple(value for value in values if is_origin(value, field))
            for field, values in lists.items()
            if isinstance(values, list)
        }
    )


# the server's side


def apps_extension(
    tool_lookup: MetaLookup, app_lookup: MetaLookup, *, strict: bool = True
) -> Extension:
    """Return the extension for a server that has apps. A `strict` server hides them from clients
    that do not show apps, and always returns text for the model."""

    async def list_tools(call: Call, next: CallHandler) -> Any:
        result = await next(call)
        if strict and not shows_apps(call.caller.capabilities):
            result.tools = [
                _without_view(tool) for tool in result.tools if not is_app_only(tool.meta)
            ]
        return result

    async def list_resources(call: Call, next: CallHandler) -> Any:
        result = await next(call)
        if strict and not shows_apps(call.caller.capabilities):
            result.resources = [
                resource for resource in result.resources if not resource.uri.startswith(SCHEME)
            ]
        return result

    async def call_tool(call: Call, next: CallHandler) -> Any:
        meta = tool_lookup(call.params.name)
        if strict and is_app_only(meta) and not shows_apps(call.caller.capabilities):
            raise InvalidParams(f"Unknown tool: {call.params.name}", parameter="name")
        result = await next(call)
        return _with_text(result) if strict and get_ui(meta) else result

    async def read(call: Call, next: CallHandler) -> Any:
        result = await next(call)
        if isinstance(result, ReadResourceResult) and call.params.uri.startswith(SCHEME):
            meta = app_lookup(call.params.uri)
            result.contents = [_with_settings(part, meta) for part in result.contents]
        return result

    around = {
        "tools/list": list_tools,
        "resources/list": list_resources,
        "tools/call": call_tool,
        "resources/read": read,
    }
    return Extension(id=ID, around=around)


def _without_view(tool: Tool) -> Tool:
    if not get_ui(tool.meta):
        return tool
    meta = {name: value for name, value in (tool.meta or {}).items() if name != "ui"}
    return replace(tool, meta=meta or None)


def _with_text(result: Any) -> Any:
    """Add text for the model, because "meaningful content" is required even if there is a view."""
    if (
        isinstance(result, ToolResult)
        and not result.content
        and result.structured_content is not None
    ):
        data = result.structured_content
        result.content = [TextContent(bytes(data if type(data) is Raw else encode(data)).decode())]
    return result


def _with_settings(part: ResourceContents, meta: Meta | None) -> ResourceContents:
    """Add the settings of the app to its contents, where a host looks for them."""
    if part.mime_type != MIME_TYPE:
        return part
    if not is_document(part.data.decode(errors="replace")):
        raise InternalError(
            f"App {part.uri}: its function must return an HTML document that starts with "
            "<!doctype html>"
        )
    ui = get_ui(part.meta) or get_ui(meta)
    return replace(part, meta={**(part.meta or {}), "ui": ui}) if ui else part
