"""FastMCP's apps. `make moving` runs FastMCP's own examples with the real package prefab_ui; here,
a few lines take its place."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from dovetail.compat import (
    AppConfig,
    FastMCP,
    FastMCPApp,
    PrefabAppConfig,
    ResourceCSP,
    ResourcePermissions,
)
from dovetail.errors import ConfigError
from dovetail.extensions.apps import APPS
from dovetail.testing import pair

MIME_TYPE = "text/html;profile=mcp-app"


class Component:
    def __init__(self, *calls: Any) -> None:
        self.calls = calls


class PrefabApp:
    def __init__(self, view: Component) -> None:
        self.view = view

    def to_json(self, tool_resolver: Callable[[Any], Any]) -> dict[str, Any]:
        return {"calls": [tool_resolver(call).name for call in self.view.calls]}


class ResolvedTool:
    def __init__(self, name: str) -> None:
        self.name = name


@pytest.fixture(autouse=True)
def prefab_ui(monkeypatch: pytest.MonkeyPatch) -> None:
    contents: dict[str, dict[str, Any]] = {
        "prefab_ui": {},
        "prefab_ui.app": {"PrefabApp": PrefabApp, "ResolvedTool": ResolvedTool},
        "prefab_ui.components": {},
        "prefab_ui.components.base": {"Component": Component},
        "prefab_ui.renderer": {
            "get_renderer_csp": lambda: {"resource_domains": ["https://cdn.example"]},
            "get_renderer_html": lambda: "<!doctype html><p>View",
        },
    }
    for name, values in contents.items():
        module = ModuleType(name)
        module.__spec__ = sys.__spec__
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)


async def test_a_tool_with_a_view_has_a_document_and_returns_data_for_it() -> None:
    server = FastMCP("s")

    @server.tool(app=True)
    def show(name: str) -> Any:
        return Component(name)

    async with pair(server) as client:
        (tool,) = await client.list_tools()
        (document,) = await client.list_resources()
        assert tool.meta is not None
        assert tool.meta["ui"] == {"resourceUri": document.uri}
        assert document.uri.startswith("ui://prefab/tool/")
        assert document.mime_type == MIME_TYPE
        (contents,) = await client.read_resource(document.uri)
        assert contents.text == "<!doctype html><p>View"
        assert contents.meta == {"ui": {"csp": {"resourceDomains": ["https://cdn.example"]}}}
        result = await client.call_tool("show", {"name": "save"})
        assert (result.text, result.structured_content) == (
            "[Rendered Prefab UI]",
            {"calls": ["save"]},
        )


async def test_the_type_of_the_result_is_enough() -> None:
    server = FastMCP("s")

    @server.tool
    def show() -> PrefabApp | None:
        return PrefabApp(Component())

    @server.tool
    def plain() -> int:
        return 1

    async with pair(server, extensions=[APPS]) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert tools["show"].output_schema is None
        assert tools["show"].meta is not None and "ui" in tools["show"].meta
        assert tools["plain"].output_schema is not None and tools["plain"].meta is None
        assert (await client.read_app("show")).html == "<!doctype html><p>View"


async def test_settings_are_sent_as_the_protocol_spells_them() -> None:
    server = FastMCP("s")
    csp = ResourceCSP(connect_domains=["https://a.example"], resource_domains=None)
    permissions = ResourcePermissions(clipboard_write={})

    @server.tool(app=AppConfig(resource_uri="ui://own/view", prefers_border=True))
    def first() -> int:
        return 1

    @server.tool(app=PrefabAppConfig(csp=csp, permissions=permissions))
    def second() -> Any:
        return Component()

    @server.resource("ui://own/view", app=AppConfig(csp=csp))
    def view() -> str:
        return "<!doctype html>"

    async with pair(server) as client:
        tools = {tool.name: tool.meta for tool in await client.list_tools()}
        assert tools["first"] == {"ui": {"resourceUri": "ui://own/view", "prefersBorder": True}}
        resources = {one.uri: one for one in await client.list_resources()}
        assert resources["ui://own/view"].mime_type == MIME_TYPE
        assert resources["ui://own/view"].meta == {
            "ui": {"csp": {"connectDomains": ["https://a.example"]}}
        }
        uri = tools["second"]["ui"]["resourceUri"]  # type: ignore[index]
        assert resources[uri].meta == {
            "ui": {
                "csp": {
                    "connectDomains": ["https://a.example"],
                    "resourceDomains": ["https://cdn.example"],
                },
                "permissions": {"clipboardWrite": {}},
            }
        }


async def test_an_app_is_tools_for_the_model_and_tools_for_its_views() -> None:
    app = FastMCPApp("Contacts")

    @app.tool("save_contact")
    def save(name: str) -> str:
        return name

    @app.tool(model=True)
    def find() -> int:
        return 2

    @app.ui
    def manager() -> Component:
        return Component(save, find, "other")

    server = FastMCP("s", providers=[app])

    @app.tool
    def later() -> int:
        return 3

    async with pair(server) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        audiences = {name: (tool.meta or {})["ui"]["visibility"] for name, tool in tools.items()}
        assert audiences == {
            "save_contact": ["app"],
            "find": ["app", "model"],
            "manager": ["model"],
            "later": ["app"],
        }
        shown = (await client.call_tool("manager")).structured_content
        assert shown == {"calls": ["save_contact", "find", "other"]}
        assert (await client.call_tool("save_contact", {"name": "Ada"})).data == "Ada"


async def test_two_apps_may_have_views_of_the_same_name_in_two_servers() -> None:
    uris = []
    for name in ("One", "Two"):
        app = FastMCPApp(name)
        app.ui("view")(lambda: Component())
        async with pair(FastMCP("s", providers=[app])) as client:
            uris += [one.uri for one in await client.list_resources()]
    assert len({*uris}) == 2


def test_views_need_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("prefab_ui")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("dovetail.compat.fastmcp_apps.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="requires the package prefab-ui"):
        FastMCP("s").tool(lambda: 1, name="t", app=True)
