"""Views that a host shows: the document of an app, and browser policies that grant only the access
that the app requested.

    view = await client.read_app("forecast")
    view.html, view.content_security_policy, view.sandbox, view.allow

A web page shows a view in two nested frames. The outer frame is the *proxy*, our own page on an
origin other than the host's. The proxy holds the view's document in a frame without an origin, and
forwards messages. `view.proxy(host)` returns the response to a request for that page, with the
policy as a header. The view inherits the policy, because its document has no address. A policy also
limits where frames may navigate, so the view cannot leak anything by navigating away.
https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx#sandbox-proxy
"""

import re
from typing import Any

from msgspec import Struct, to_builtins

from ...connection.extension import Extension
from ...errors import ConfigError, InvalidRequest, NotFound
from ...jsonrpc.messages import encode
from ...ports import HttpResponse
from ...protocol.tools import Tool
from .settings import ID, MIME_TYPE, PERMISSIONS, SCHEME, Csp, get_ui, get_view_uri, parse_csp

APPS = Extension(id=ID, settings={"mimeTypes": [MIME_TYPE]})
"""The extension for a client that shows apps: `Client(target, extensions=[APPS])`."""
# In a frame without `allow-same-origin` a document has no origin: no storage, no cookies, no access
# to another frame. Scripts may use forms; the policy keeps them from being submitted.
SANDBOX = "allow-scripts allow-forms"
PROXY_SANDBOX = f"{SANDBOX} allow-same-origin"
"""The `sandbox` of the outer frame, which the host's page creates."""
_DIRECTIVES = (
    # directive, its fixed sources, the field of `Csp` with more, and its value if both are empty
    ("default-src", "", "", "'none'"),
    ("script-src", "'self' 'unsafe-inline'", "resource_domains", ""),
    ("style-src", "'self' 'unsafe-inline'", "resource_domains", ""),
    ("img-src", "'self' data:", "resource_domains", ""),
    ("font-src", "'self'", "resource_domains", ""),
    ("media-src", "'self' data:", "resource_domains", ""),
    ("connect-src", "", "connect_domains", "'none'"),
    ("frame-src", "", "frame_domains", "'none'"),
    ("base-uri", "", "base_uri_domains", "'self'"),
    ("object-src", "", "", "'none'"),
    ("form-action", "", "", "'none'"),
    # https://w3c.github.io/webappsec-csp/#directive-webrtc, which not all browsers support yet
    ("webrtc", "", "", "'block'"),
)
_HOST = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+")


class View(Struct, frozen=True, kw_only=True):
    """The document of an app, with its settings.

    To grant less than the view requests, change a copy:
    `msgspec.structs.replace(view, permissions=())`.
    """

    uri: str
    """The URI of the app: `ui://…`."""
    html: str
    """The document."""
    tool: Tool | None = None
    """The tool that the view belongs to; None if the view was read by its URI."""
    csp: Csp = Csp()
    """The origins that the view requests access to."""
    permissions: tuple[str, ...] = ()
    """The permissions that the view requests, such as "camera"."""
    domain: str | None = None
    """The origin that the view requests for itself; the host decides how to interpret it."""
    prefers_border: bool | None = None
    """Whether the view prefers a border; None if the view has no preference."""

    @property
    def content_security_policy(self) -> str:
        """The `Content-Security-Policy` that allows only what the view requests."""
        return "; ".join(self._directive(*row) for row in _DIRECTIVES)

    def _directive(self, name: str, always: str, field: str, nothing: str) -> str:
        sources = [*always.split(), *(getattr(self.csp, field) if field else ())]
        return " ".join([name, *(sources or [nothing])])

    @property
    def origins(self) -> tuple[str, ...]:
        """All origins that the view may reach. A host "SHOULD" warn its user if there are any."""
        return tuple(
            dict.fromkeys(
                origin
                for field in self.csp.__struct_fields__
                for origin in getattr(self.csp, field)
            )
        )

    @property
    def sandbox(self) -> str:
        """The `sandbox` attribute of the inner frame."""
        return SANDBOX

    @property
    def allow(self) -> str:
        """The `allow` attribute of both frames, which lists the view's permissions."""
        return "; ".join(PERMISSIONS[name] for name in self.permissions)

    def proxy(self, host: str) -> HttpResponse:
        """Return the page of the outer frame, which must be served from an origin other than the
        host's.

        Args:
            host: The origin of the host's page.

        Raises:
            ConfigError: `host` is not an origin.
        """
        if not _HOST.fullmatch(host):
            raise ConfigError(
                f"{host!r} is not a valid host origin; use an origin such as "
                "https://chat.example.com"
            )
        headers = {
            "content-type": "text/html; charset=utf-8",
            "content-security-policy": f"{self.content_security_policy}; frame-ancestors {host}",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "cache-control": "no-store",
        }
        settings = encode({"host": host, "sandbox": self.sandbox, "allow": self.allow})
        return HttpResponse(headers=headers, body=_PROXY.replace(b"SETTINGS", settings))

    def resource_ready(self) -> dict[str, Any]:
        """Return the message that contains the document. Send it once the proxy reports that it is
        ready."""
        params = {"html": self.html, "sandbox": self.sandbox, **self.granted}
        return {
            "jsonrpc": "2.0",
            "method": "ui/notifications/sandbox-resource-ready",
            "params": params,
        }

    @property
    def granted(self) -> dict[str, Any]:
        """The granted origins and permissions, in wire form."""
        return {
            "csp": to_builtins(self.csp),
            "permissions": {name: {} for name in self.permissions},
        }


async def read_view(client: Any, target: str | Tool) -> View:
    """Read the view at a URI, or the view of a tool."""
    tool: Tool | None = None
    if isinstance(target, str) and target.startswith(SCHEME):
        uri = target
    else:
        tool = target if isinstance(target, Tool) else await _find_tool(client, target)
        uri = get_view_uri(tool) or ""
        if not uri:
            hint = (
                ""
                if ID in (client.extensions.declared or {})
                else "; servers provide views only to Client(extensions=[APPS])"
            )
            raise NotFound(f"The tool {tool.name!r} has no view{hint}")
    parts = [part for part in await client.read_resource(uri) if part.mime_type == MIME_TYPE]
    if not parts:
        raise InvalidRequest(f"{uri} is not a view: the server sent no content of type {MIME_TYPE}")
    return _make_view(uri, parts[0].data.decode(errors="replace"), tool, get_ui(parts[0].meta))


async def _find_tool(client: Any, name: str) -> Tool:
    tools: list[Tool] = await client.list_tools()
    found = next((tool for tool in tools if tool.name == name), None)
    if found is None:
        raise NotFound(f"The server has no tool {name!r}")
    return found


def _make_view(uri: str, html: str, tool: Tool | None, ui: dict[str, Any]) -> View:
    """Return a view with only its valid settings."""
    requested, domain, border = ui.get("permissions"), ui.get("domain"), ui.get("prefersBorder")
    return View(
        uri=uri,
        html=html,
        tool=tool,
        csp=parse_csp(ui.get("csp")),
        permissions=tuple(
            name for name in PERMISSIONS if isinstance(requested, dict) and name in requested
        ),
        domain=domain if isinstance(domain, str) else None,
        prefers_border=border if isinstance(border, bool) else None,
    )


# The proxy receives messages from the host's page and from the view, tells them apart by their
# windows, and does not forward those between the host and itself.
_PROXY = b"""<!doctype html>
<meta charset="utf-8">
<style>html, body, iframe { margin: 0; border: 0; width: 100%; height: 100%; display: block }</style>
<script>
"use strict";
const settings = SETTINGS;
const own = "ui/notifications/sandbox-";
let view = null;
addEventListener("message", ({ source, origin, data }) => {
  const mine = typeof data?.method === "string" && data.method.startsWith(own);
  if (source === parent && origin === settings.host) {
    if (data?.method === own + "resource-ready" && view === null) show(data.params.html);
    else if (!mine) view?.contentWindow.postMessage(data, "*");
  } else if (view !== null && source === view.contentWindow && !mine) {
    parent.postMessage(data, settings.host);
  }
});
function show(html) {
  view = document.createElement("iframe");
  view.setAttribute("sandbox", settings.sandbox);
  view.allow = settings.allow;
  view.srcdoc = html;
  document.body.append(view);
}
addEventListener("DOMContentLoaded", () =>
  parent.postMessage({ jsonrpc: "2.0", method: own + "proxy-ready", params: {} }, settings.host));
</script>
<body></body>
"""  # noqa: E501
