"""MCP Apps (`io.modelcontextprotocol/ui`): views that a server provides and a host shows with tool
results.

A server adds views with `@server.app(…)` and `@server.tool(ui=…)`. This module is for hosts
(docs/guides/apps.md).
"""

from typing import Any

from .bridge import Bridge, ViewHost
from .settings import MIME_TYPE, Csp, visible
from .view import APPS, PROXY_SANDBOX, View

__all__ = ["APPS", "MIME_TYPE", "PROXY_SANDBOX", "Bridge", "Csp", "View", "ViewHost", "visible"]


def __getattr__(name: str) -> Any:
    if name != "Host":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import warnings

    warnings.warn("Host has been renamed to ViewHost", DeprecationWarning, stacklevel=2)
    return ViewHost
