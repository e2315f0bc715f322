"""FastMCP's apps: `app=…`, `FastMCPApp`, and views that are built with the package prefab_ui.

As in FastMCP, each tool with such a view has a document of its own, and clients that do not show
apps see all tools and documents, too.
"""

import re
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from inspect import unwrap
from typing import Any, get_args

from msgspec.structs import replace

from ..errors import ConfigError
from ..protocol.content import TextContent
from ..protocol.tools import ToolResult
from ..server.tools import RegisteredTool
from .providers import LocalProvider

PREFAB = "ui://prefab/renderer.html"
"""Stands for the document of a tool, whose URI contains a digest of the tool's name."""


class AppConfig(dict[str, Any]):
    """The settings of an app, with keys that are spelled as in the protocol."""

    def __init__(self, **options: Any) -> None:
        super().__init__({_to_camel(key): one for key, one in options.items() if one is not None})


ResourceCSP = ResourcePermissions = AppConfig
PrefabAppConfig = partial(AppConfig, resource_uri=PREFAB)


def _to_camel(name: str) -> str:
    return re.sub("_(.)", lambda found: found[1].upper(), name)


def to_settings(app: Any) -> dict[str, Any]:
    """Return the `_meta.ui` for the option `app=`."""
    settings = {**(PrefabAppConfig() if app is True else app)}
    if settings.get("resourceUri") == PREFAB and find_spec("prefab_ui") is None:
        raise ConfigError("app=True requires the package prefab-ui. Install it.")
    return settings


def add_view(server: Any, tool: RegisteredTool) -> RegisteredTool:
    """Return a tool that may return views, and add the document that shows them."""
    from prefab_ui.app import PrefabApp
    from prefab_ui.components.base import Component

    views, meta = (PrefabApp, Component), dict(tool.definition.meta or {})
    returns_view = _contains(tool.signature.returns, views)
    settings = meta.get("ui", PrefabAppConfig() if returns_view else {})
    if settings.get("resourceUri") == PREFAB:
        kept = {key: settings[key] for key in settings.keys() - {"csp", "permissions"}}
        meta["ui"] = kept | {"resourceUri": _add_document(server, tool.name, meta, settings)}
    changes = {"meta": meta or None, **({"output_schema": None} if returns_view else {})}
    make_result = partial(_make_result, server, views, tool.make_result)
    definition = replace(tool.definition, **changes)
    return replace(tool, definition=definition, make_result=make_result)


def _contains(annotation: Any, views: tuple[type, ...]) -> bool:
    is_view = isinstance(annotation, type) and issubclass(annotation, views)
    return is_view or any(_contains(each, views) for each in get_args(annotation))


def _add_document(server: Any, tool: str, meta: Any, settings: Any) -> str:
    """Add the document of a tool, and return its URI."""
    from prefab_ui.renderer import get_renderer_csp, get_renderer_html

    owner = meta.get("fastmcp", {}).get("app", "")
    digest = sha256(f"{owner}\0{tool}".encode()).hexdigest()[:12]
    uri = f"ui://prefab/tool/{digest}/renderer.html"
    if server._find(uri) is None:
        fields = [f"{kind}_domains" for kind in ("connect", "resource", "frame", "base_uri")]
        own, csp = get_renderer_csp(), settings.get("csp") or {}
        options: Any = {key: [*own.get(key, ()), *csp.get(_to_camel(key), ())] for key in fields}
        options["permissions"] = [*(settings.get("permissions") or ())]
        server.add_app(
            uri, lambda: get_renderer_html(), name=f"Prefab Renderer ({tool})", **options
        )
    return uri


def _make_result(server: Any, views: Any, make_result: Any, value: Any) -> Any:
    if not isinstance(value, views):
        return make_result(value)
    app = value if isinstance(value, views[0]) else views[0](view=value)
    data = app.to_json(tool_resolver=partial(_resolve, server))
    return ToolResult(content=[TextContent("[Rendered Prefab UI]")], structured_content=data)


def _resolve(server: Any, reference: Any) -> Any:
    """Return the tool that a view calls. The view names it, or has its function."""
    from prefab_ui.app import ResolvedTool

    found = [tool.name for tool in server._tools if unwrap(tool.signature.function) is reference]
    return ResolvedTool(name=next(iter(found), getattr(reference, "__name__", reference)))


class FastMCPApp(LocalProvider):
    """Tools that open views for the model, and tools that these views call."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self._meta = name, {"fastmcp": {"app": name}}

    def tool(self, function_or_name: Any = None, /, *, model: bool = False, **options: Any) -> Any:
        """Register a tool that views call, and with `model=True` the model, too."""
        app = AppConfig(visibility=["app", "model"] if model else ["app"])
        return self._decorate("tool", function_or_name, app=app, meta=self._meta, **options)

    def ui(self, function_or_name: Any = None, /, **options: Any) -> Any:
        """Register a tool that opens a view."""
        app = PrefabAppConfig(visibility=["model"])
        return self._decorate("tool", function_or_name, app=app, meta=self._meta, **options)
