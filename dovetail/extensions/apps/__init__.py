"""MCP Apps (`io.modelcontextprotocol/ui`): views that a server brings along, and a host shows
beside what its tools say.

A server has them by `@server.app(…)` and `@server.tool(ui=…)`; what is here is for hosts
(docs/guides/apps.md).
"""

from .bridge import Bridge, Host
from .settings import MIME_TYPE, Csp, visible
from .view import APPS, PROXY_SANDBOX, View

__all__ = ["APPS", "MIME_TYPE", "PROXY_SANDBOX", "Bridge", "Csp", "Host", "View", "visible"]
