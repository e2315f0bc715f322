"""An app as a host shows it: its document, and what a browser is told so that it can do nothing but
what it asked for.

    view = await client.read_app("forecast")
    view.html, view.content_security_policy, view.sandbox, view.allow

A web page shows a view in two frames, one in the other. The outer one is the *proxy*, a page of
ours on an origin that is not the host's; it holds the view's document in a frame that has no origin
at all, and passes messages on. `view.proxy(host)` is the answer to a request for that page. The
policy comes as its header. The view inherits it, since its document has no address of its own; and
as a policy has a say in where frames may go, the view cannot tell the world anything by leaving.
https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx#sandbox-proxy
"""

import re
from typing import Any

from msgspec import Struct, to_builtins

from ...connection.extension import Extension
from ...errors import ConfigError, InvalidRequest, NotFound
from ...jsonrpc.codec import encode
from ...ports import HttpResponse
from ...protocol.tools import Tool
from .settings import ID, MIME_TYPE, PERMISSIONS, SCHEME, Csp, resource_uri, sound_csp, ui_of

APPS = Extension(id=ID, settings={"mimeTypes": [MIME_TYPE]})
"""What a client declares that shows apps: `Client(target, extensions=[APPS])`."""
# In a frame without `allow-same-origin` a document has no origin: no storage, no cookies, no way
# into another frame. Forms may be used, for scripts to look at; that they are sent nowhere is in
# the policy.
SANDBOX = "allow-scripts allow-forms"
PROXY_SANDBOX = f"{SANDBOX} allow-same-origin"
"""The `sandbox` of the frame around it, which the host's page makes."""
_DIRECTIVES = (
    # the directive, what it always has, whose domains it has too, and what it says where that is
    # nothing
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
    (
        "webrtc",
        "",
        "",
        "'block'",
    ),  # https://w3c.github.io/webappsec-csp/#directive-webrtc, which not all browsers know yet
)
_HOST = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+")


class View(Struct, frozen=True, kw_only=True):
    """An app, read and ready to be shown. `msgspec.structs.replace(view, permissions=())` grants
    less than it asks for."""

    uri: str
    html: str
    tool: Tool | None = None
    """The tool whose view it is."""
    csp: Csp = Csp()
    permissions: tuple[str, ...] = ()
    domain: str | None = None
    """The origin that it would like to have; what that means is the host's choice."""
    prefers_border: bool | None = None

    @property
    def content_security_policy(self) -> str:
        """The header that allows what it asked for and forbids all else."""
        return "; ".join(self._directive(*row) for row in _DIRECTIVES)

    def _directive(self, name: str, always: str, field: str, nothing: str) -> str:
        sources = [*always.split(), *(getattr(self.csp, field) if field else ())]
        return " ".join([name, *(sources or [nothing])])

    @property
    def origins(self) -> tuple[str, ...]:
        """Whatever it may reach outside. A host "SHOULD" warn its user where that is anything."""
        return tuple(
            dict.fromkeys(
                origin
                for field in self.csp.__struct_fields__
                for origin in getattr(self.csp, field)
            )
        )

    @property
    def sandbox(self) -> str:
        """The `sandbox` of the frame that it is shown in."""
        return SANDBOX

    @property
    def allow(self) -> str:
        """The `allow` of that frame, and of those around it: which permissions it has."""
        return "; ".join(PERMISSIONS[one] for one in self.permissions)

    def proxy(self, host: str) -> HttpResponse:
        """The page around it, to be served to the host's page (whose origin is `host`) from another
        origin."""
        if not _HOST.fullmatch(host):
            raise ConfigError(
                f"{host!r} is no origin of a host; write it like https://chat.example.com"
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
        """The message that gives a proxy the document, once it says that it is ready."""
        params = {"html": self.html, "sandbox": self.sandbox, **self.granted}
        return {
            "jsonrpc": "2.0",
            "method": "ui/notifications/sandbox-resource-ready",
            "params": params,
        }

    @property
    def granted(self) -> dict[str, Any]:
        """What it may do, in wire form."""
        return {"csp": to_builtins(self.csp), "permissions": {one: {} for one in self.permissions}}


async def read_view(client: Any, target: str | Tool) -> View:
    """The view under a URI, or that of a tool."""
    tool: Tool | None = None
    if isinstance(target, str) and target.startswith(SCHEME):
        uri = target
    else:
        tool = target if isinstance(target, Tool) else await _tool(client, target)
        uri = resource_uri(tool) or ""
        if not uri:
            hint = (
                ""
                if ID in (client.extensions.declared or {})
                else "; servers show them to Client(extensions=[APPS])"
            )
            raise NotFound(f"The tool {tool.name!r} has no view{hint}")
    parts = [part for part in await client.read_resource(uri) if part.mime_type == MIME_TYPE]
    if not parts:
        raise InvalidRequest(f"{uri}: the server gave no view, which would be of type {MIME_TYPE}")
    return _view(uri, parts[0].data.decode(errors="replace"), tool, ui_of(parts[0].meta))


async def _tool(client: Any, name: str) -> Tool:
    tools: list[Tool] = await client.list_tools()
    found = next((tool for tool in tools if tool.name == name), None)
    if found is None:
        raise NotFound(f"The server has no tool {name!r}")
    return found


def _view(uri: str, html: str, tool: Tool | None, said: dict[str, Any]) -> View:
    """A view with what makes sense of its settings."""
    asked, domain, border = said.get("permissions"), said.get("domain"), said.get("prefersBorder")
    return View(
        uri=uri,
        html=html,
        tool=tool,
        csp=sound_csp(said.get("csp")),
        permissions=tuple(one for one in PERMISSIONS if isinstance(asked, dict) and one in asked),
        domain=domain if isinstance(domain, str) else None,
        prefers_border=border if isinstance(border, bool) else None,
    )


# The proxy takes messages from the host's page and from the view, tells the two apart by their
# windows, and keeps to itself what is between the host and it.
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
