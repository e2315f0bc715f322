"""Apps on both sides of the wire, and between a host and its views; how they fare in a browser is
in another file."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail import Client, Context, Server, TextContent, ToolResult
from dovetail.connection.extension import Extension
from dovetail.errors import ConfigError, InternalError, InvalidParams, InvalidRequest, NotFound
from dovetail.extensions import apps
from dovetail.extensions.apps import APPS, MIME_TYPE, Bridge, Csp, View, ViewHost, visible
from dovetail.extensions.apps.settings import is_document
from dovetail.protocol.tools import Tool
from dovetail.server.options import AppSettings
from dovetail.testing import Tape, pair
from tests.conftest import named
from tests.requirements import APPS_SINCE, REVISIONS
from tests.spec import check_tape

ID = "io.modelcontextprotocol/ui"
HTML = "<!doctype html><title>Weather</title><p>Hello"
URI = "ui://weather/view"


def weather() -> Server:
    server = Server("weather")
    server.add_app(
        URI,
        HTML,
        title="Weather",
        connect_domains=["https://api.example.com", "wss://live.example.com:8443"],
        resource_domains=["https://*.example.com"],
        permissions=["geolocation", "clipboardWrite"],
        domain="weather.example.com",
        prefers_border=False,
    )

    @server.tool(ui=URI)
    async def forecast(city: str, ctx: Context) -> ToolResult:
        """The weather."""
        return ToolResult(
            content=[], structured_content={"city": city, "sky": "clear", "shown": ctx.shows_apps}
        )

    @server.tool(visibility=["app"])
    async def hours(city: str) -> list[int]:
        return [1, 2, 3]

    @server.tool(visibility="model")
    async def set_home(city: str) -> str:
        return city

    @server.tool
    async def plain() -> str:
        return "plain"

    return server


def test_the_guide_names_every_option_of_apps_and_hosts() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/apps.md").read_text(encoding="utf-8")
    named = [*AppSettings.__optional_keys__, *ViewHost.__struct_fields__, *apps.__all__]
    assert [
        name
        for name in named
        if not re.search(rf"`{name}\b|\b{name}\b.*import|import.*\b{name}\b", guide)
    ] == []


# on the wire


@pytest.mark.requirement("apps-mime-type", "apps-mime-types")
@pytest.mark.parametrize("revision", APPS_SINCE)
async def test_a_client_that_shows_apps_finds_them_with_their_settings(revision: str) -> None:
    tape = Tape()
    async with pair(weather(), revision=revision, record=tape, extensions=[APPS]) as client:
        tools = {tool.name: tool.meta for tool in await client.list_tools()}
        (listed,) = await client.list_resources()
        (read,) = await client.read_resource(URI)
        assert client.capabilities.extensions == {ID: {}}
    assert tools == {
        "forecast": {"ui": {"resourceUri": URI}},
        "hours": {"ui": {"visibility": ["app"]}},
        "set_home": {"ui": {"visibility": ["model"]}},
        "plain": None,
    }
    assert (listed.uri, listed.name, listed.title, listed.mime_type) == (
        URI,
        "view",
        "Weather",
        MIME_TYPE,
    )
    assert (read.text, read.mime_type) == (HTML, MIME_TYPE)
    assert (
        read.meta
        == listed.meta
        == {
            "ui": {
                "csp": {
                    "connectDomains": ["https://api.example.com", "wss://live.example.com:8443"],
                    "resourceDomains": ["https://*.example.com"],
                },
                "permissions": {"geolocation": {}, "clipboardWrite": {}},
                "domain": "weather.example.com",
                "prefersBorder": False,
            }
        }
    )
    check_tape(tape, revision)


OTHERS = {
    "undeclared": (),
    "of other types": (Extension(id=ID, settings={"mimeTypes": ["text/uri-list"]}),),
    "of no type": (Extension(id=ID),),
    "malformed": (Extension(id=ID, settings={"mimeTypes": {MIME_TYPE: True}}),),
}


@pytest.mark.requirement("apps-fallback", "apps-content")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("extensions", OTHERS.values(), ids=OTHERS)
async def test_a_client_that_shows_no_apps_gets_plain_tools_and_text(
    extensions: Any, revision: str
) -> None:
    tape = Tape()
    async with pair(weather(), revision=revision, record=tape, extensions=extensions) as client:
        assert {tool.name: tool.meta for tool in await client.list_tools()} == {
            "forecast": None,
            "set_home": None,
            "plain": None,
        }
        assert await client.list_resources() == []
        said = (await client.call_tool("forecast", {"city": "Oslo"})).text
        assert said == '{"city":"Oslo","sky":"clear","shown":false}'
        with pytest.raises(InvalidParams, match="Unknown tool: hours"):
            await client.call_tool("hours", {"city": "Oslo"})
    check_tape(tape, revision)


@pytest.mark.parametrize("revision", sorted(set(REVISIONS) - set(APPS_SINCE)))
async def test_a_revision_that_cannot_carry_apps_has_plain_tools(revision: str) -> None:
    async with pair(weather(), revision=revision, extensions=[APPS]) as client:
        assert client.capabilities.extensions is None
        assert [tool.name for tool in await client.list_tools()] == [
            "forecast",
            "set_home",
            "plain",
        ]


async def test_a_tool_knows_whether_its_view_is_shown_and_words_of_its_own_are_kept() -> None:
    server = weather()

    @server.tool(ui=URI)
    async def worded(ctx: Context) -> ToolResult:
        return ToolResult(
            content=[TextContent(f"shown: {ctx.shows_apps}")], structured_content={"a": 1}
        )

    async with pair(server, extensions=[APPS]) as client:
        assert (await client.call_tool("worded")).text == "shown: True"
        assert (await client.call_tool("hours", {"city": "Oslo"})).data == [1, 2, 3]
    async with pair(server) as client:
        assert (await client.call_tool("worded")).text == "shown: False"


async def test_a_server_without_apps_declares_nothing() -> None:
    async with pair(Server("plain"), extensions=[APPS]) as client:
        assert client.capabilities.extensions is None


# what authors are told


@pytest.mark.requirement("apps-uri", "apps-document", "apps-resource")
@pytest.mark.parametrize(
    ("uri", "html", "options", "said"),
    [
        (
            "https://weather",
            HTML,
            {},
            "'https://weather' is not a valid app URI; use the form 'ui://weather/view'",
        ),
        ("ui://", HTML, {}, "is not a valid app URI"),
        ("ui://{city}", HTML, {}, "is not a valid app URI; .* without variables"),
        (URI, "", {}, "'' is not an HTML document that starts with <!doctype html>"),
        (URI, "view.html", {}, r"'view.html' is not an HTML document .* pass Path\(…\)"),
        (URI, Path("nowhere.html"), {}, "the file /.*/nowhere.html does not exist"),
        (
            URI,
            HTML,
            {"connect_domains": ["http://api.example.com"]},
            "connect_domains= contains 'http://api.example.com', which",
        ),
        (
            URI,
            HTML,
            {"connect_domains": ["api.example.com"]},
            "use https:// or wss:// followed by a host",
        ),
        (
            URI,
            HTML,
            {"connect_domains": ["https://a.example.com; script-src *"]},
            "is not an origin",
        ),
        (
            URI,
            HTML,
            {"resource_domains": ["wss://cdn.example.com"]},
            "is not an origin; use https:// followed by a host",
        ),
        (URI, HTML, {"resource_domains": ["https://cdn.example.com/lib"]}, "is not an origin"),
        (URI, HTML, {"frame_domains": ["*"]}, "is not an origin"),
        (URI, HTML, {"frame_domains": ["https://*.com"]}, "is not an origin"),
        (
            URI,
            HTML,
            {"base_uri_domains": "https://a.example.com"},
            r"base_uri_domains= must be a list, such as \['https",
        ),
        (
            URI,
            HTML,
            {"permissions": ["bluetooth"]},
            "unknown permission 'bluetooth'; the permissions are camera, microphone",
        ),
        (URI, HTML, {"permissions": "camera"}, "permissions= must be a list"),
        (URI, HTML, {"mime_type": "text/html"}, "remove mime_type="),
    ],
)
def test_an_app_that_makes_no_sense_is_refused_when_it_is_registered(
    uri: str, html: Any, options: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        Server("weather").add_app(uri, html, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"ui": "https://weather"},
            "'https://weather' is not a valid app URI; it must start with ui://",
        ),
        ({"ui": "ui://other"}, "there is no app 'ui://other' yet; register it before its tools"),
        ({"visibility": ["user"]}, "must be a list that contains 'model', 'app' or both"),
        ({"visibility": []}, "must be a list that contains 'model'"),
        ({"ui": URI, "meta": {"ui": {}}}, "meta= already contains 'ui'"),
        (
            {"meta": {"ui": URI}},
            "the 'ui' in meta= is not an object; use ui= and visibility= instead",
        ),
        ({"meta": {"ui": {"resourceUri": "ui://other"}}}, "there is no app 'ui://other' yet"),
        ({"meta": {"ui": {"resourceUri": 1}}}, "ui=1 is not a valid app URI"),
        ({"meta": {"ui": {"visibility": "app"}}}, "visibility='app' must be a list"),
        ({"meta": {"ui": {"visibility": ["app", "user"]}}}, "must be a list that contains 'model'"),
    ],
)
def test_a_tool_that_makes_no_sense_is_refused_when_it_is_registered(
    options: Any, said: str
) -> None:
    server = weather()
    with pytest.raises(ConfigError, match=said):
        server.add_tool(lambda: "", name="odd", **options)


async def test_a_tool_that_says_in_its_meta_whom_it_is_for_is_shown_to_nobody_else() -> None:
    server = Server("weather")
    server.add_tool(
        lambda: "hidden", name="hidden", meta={"ui": {"visibility": ["app"]}, "mine": 1}
    )
    async with pair(server) as client:
        assert await client.list_tools() == []
        with pytest.raises(InvalidParams, match="Unknown tool: hidden"):
            await client.call_tool("hidden")
    async with pair(server, extensions=[APPS]) as client:
        assert [tool.meta for tool in await client.list_tools()] == [
            {"ui": {"visibility": ["app"]}, "mine": 1}
        ]


def test_an_extension_of_the_same_name_does_not_take_the_place_of_apps() -> None:
    server = Server("weather", extensions=[APPS])
    for add in (
        lambda: server.add_tool(lambda: "", name="hidden", visibility="app"),
        lambda: server.add_app(URI, HTML),
    ):
        with pytest.raises(ConfigError, match="/ui was added twice; a server adds the tasks"):
            add()
        assert len(server._tools.snapshot.items) == len(server._resources.snapshot.items) == 0


@pytest.mark.requirement("apps-resource")
def test_an_app_stays_as_long_as_a_tool_points_to_it() -> None:
    server = weather()
    server.resource("ui://cities/{name}", mime_type=MIME_TYPE)(lambda name: HTML)
    server.add_tool(lambda: "", name="oslo", ui="ui://cities/oslo")
    for uri, tool in ((URI, "forecast"), ("ui://cities/{name}", "oslo")):
        with pytest.raises(
            ConfigError, match=f"is used as the view of the tool '{tool}'; remove the tool first"
        ):
            server.remove_resource(uri)
        server.remove_tool(tool)
        server.remove_resource(uri)
    with pytest.raises(ConfigError, match="There is no resource"):
        server.remove_resource(URI)


@pytest.mark.requirement("apps-document")
@pytest.mark.parametrize(
    "hostile",
    [
        "<!--" + "-->" * 50_000,
        "<!---->" * 50_000,
        "<!--" * 50_000,
        " " * 500_000,
        "<!--" + "--" * 99_000,
    ],
)
def test_what_is_no_document_is_found_out_in_no_time(hostile: str) -> None:
    began = time.process_time()
    assert not is_document(hostile)
    assert not is_document(hostile + "<p>")
    assert time.process_time() - began < 0.5


async def test_an_app_may_be_a_file_or_a_function_and_is_read_anew_each_time(
    tmp_path: Path,
) -> None:
    server, file = Server("weather"), tmp_path / "view.html"
    file.write_text("\ufeff<!-- first -->\n<HTML lang=en>")
    server.add_app("ui://file", file, meta={"mine": 1})

    @server.app("ui://function")
    async def view(ctx: Context) -> str:
        """What a function says."""
        return f"<!doctype html>{ctx.request_id is not None}{len(file.read_text())}"

    async with pair(server, extensions=[APPS]) as client:
        assert (await client.read_app("ui://function")).html.startswith("<!doctype html>True")
        file.write_text("<!DOCTYPE html>changed")
        assert (await client.read_app("ui://file")).html == "<!DOCTYPE html>changed"
        listed = {one.name: one for one in await client.list_resources()}
        assert (listed["view"].description, listed["file"].meta) == (
            "What a function says.",
            {"mine": 1},
        )
        file.write_text("changed")
        with pytest.raises(InternalError, match="App ui://file: its function must return an HTML"):
            await client.read_app("ui://file")


# what a host reads


@pytest.mark.requirement("apps-csp")
async def test_a_host_reads_the_view_of_a_tool_with_all_that_a_browser_has_to_know() -> None:
    async with pair(weather(), extensions=[APPS]) as client:
        view = await client.read_app("forecast")
        assert await client.read_app(view.tool) == view
        assert await client.read_app(URI) == replace(view, tool=None)
    assert (view.uri, view.html, view.domain, view.prefers_border) == (
        URI,
        HTML,
        "weather.example.com",
        False,
    )
    assert view.content_security_policy.split("; ") == [
        "default-src 'none'",
        "script-src 'self' 'unsafe-inline' https://*.example.com",
        "style-src 'self' 'unsafe-inline' https://*.example.com",
        "img-src 'self' data: https://*.example.com",
        "font-src 'self' https://*.example.com",
        "media-src 'self' data: https://*.example.com",
        "connect-src https://api.example.com wss://live.example.com:8443",
        "frame-src 'none'",
        "base-uri 'self'",
        "object-src 'none'",
        "form-action 'none'",
        "webrtc 'block'",
    ]
    assert view.origins == (
        "https://api.example.com",
        "wss://live.example.com:8443",
        "https://*.example.com",
    )
    assert view.sandbox == "allow-scripts allow-forms"
    assert view.allow == "geolocation; clipboard-write"
    assert replace(view, permissions=()).allow == ""
    ready = view.resource_ready()["params"]
    assert (ready["html"], ready["permissions"]) == (
        HTML,
        {"geolocation": {}, "clipboardWrite": {}},
    )


@pytest.mark.requirement("apps-csp-default")
def test_a_view_that_asks_for_nothing_gets_the_policy_that_the_specification_has_for_it() -> None:
    policy = View(uri=URI, html=HTML).content_security_policy.split("; ")
    assert set(policy) >= {
        "default-src 'none'",
        "script-src 'self' 'unsafe-inline'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "media-src 'self' data:",
        "connect-src 'none'",
        "frame-src 'none'",
        "base-uri 'self'",
        "object-src 'none'",
    }


@pytest.mark.parametrize(
    "said", [None, 1, [], {"csp": 1, "permissions": [], "domain": 1, "prefersBorder": "yes"}]
)
async def test_settings_that_make_no_sense_grant_nothing(said: Any) -> None:
    server = Server("odd")
    server.resource("ui://odd", mime_type=MIME_TYPE)(lambda: HTML)
    server.add_app("ui://other", HTML)
    server._resources.get("ui://odd").definition.meta = {"ui": said}  # type: ignore[union-attr]
    async with pair(server, extensions=[APPS]) as client:
        assert await client.read_app("ui://odd") == View(uri="ui://odd", html=HTML)


async def test_domains_of_a_server_that_is_not_trusted_cannot_change_the_policy_around_them() -> (
    None
):
    server = Server("hostile")
    bad = [
        "*",
        "https:",
        "data:",
        "'unsafe-eval'",
        "https://a.example.com; script-src *",
        "https://a.example.com\n",
        1,
        None,
    ]
    names = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
    ui = {
        "csp": {name: [*bad, "https://good.example.com"] for name in names},
        "permissions": {"camera": {}, "usb": {}},
    }
    server.resource("ui://hostile", mime_type=MIME_TYPE, meta={"ui": ui})(lambda: HTML)
    server.add_app("ui://other", HTML)
    async with pair(server, extensions=[APPS]) as client:
        view = await client.read_app("ui://hostile")
    good = ("https://good.example.com",)
    assert view.csp == Csp(
        connect_domains=good, resource_domains=good, frame_domains=good, base_uri_domains=good
    )
    assert view.allow == "camera"


async def test_what_has_no_view_is_said_plainly() -> None:
    server = weather()
    server.resource("ui://text", mime_type="text/html")(lambda: HTML)
    async with pair(server, extensions=[APPS]) as client:
        with pytest.raises(NotFound, match=r"The tool 'plain' has no view$"):
            await client.read_app("plain")
        with pytest.raises(NotFound, match="The server has no tool 'nothing'"):
            await client.read_app("nothing")
        with pytest.raises(NotFound, match="Resource not found"):
            await client.read_app("ui://nothing")
        with pytest.raises(
            InvalidRequest,
            match="ui://text is not a view: the server sent no content of type text/html;profile",
        ):
            await client.read_app("ui://text")
    async with pair(server) as client:
        with pytest.raises(
            NotFound,
            match=r"has no view; servers provide views only to Client\(extensions=\[APPS\]\)",
        ):
            await client.read_app("forecast")


async def test_the_page_around_a_view_is_for_one_host() -> None:
    view = View(uri=URI, html=HTML, permissions=("camera",))
    page = view.proxy("https://chat.example.com")
    assert page.headers["content-security-policy"] == (
        f"{view.content_security_policy}; frame-ancestors https://chat.example.com"
    )
    assert (
        b'{"host":"https://chat.example.com","sandbox":"allow-scripts '
        b'allow-forms","allow":"camera"}' in page.body
    )
    for odd in (
        "*",
        "chat.example.com",
        "https://chat.example.com; script-src *",
        "https://a.com/</script>",
    ):
        with pytest.raises(ConfigError, match="is not a valid host origin"):
            view.proxy(odd)


@pytest.mark.requirement("apps-visibility-model")
async def test_a_host_tells_the_tools_for_its_model_from_those_for_views() -> None:
    async with pair(weather(), extensions=[APPS]) as client:
        tools = await client.list_tools()
    assert [tool.name for tool in tools if visible(tool, "model")] == [
        "forecast",
        "set_home",
        "plain",
    ]
    assert [tool.name for tool in tools if visible(tool, "app")] == [
        "forecast",
        "hours",
        "plain",
    ]


@pytest.mark.parametrize("said", ["app", {"app": True}, 1, True, [], ["App"], [["app"]], [None]])
def test_a_tool_that_says_whom_it_is_for_in_no_words_that_make_sense_is_for_nobody(
    said: Any,
) -> None:
    tool = Tool(name="odd", input_schema={}, meta={"ui": {"visibility": said}})
    assert (visible(tool, "model"), visible(tool, "app")) == (False, False)


@pytest.mark.parametrize("meta", [None, {}, {"ui": None}, {"ui": {}}, {"ui": {"visibility": None}}])
def test_a_tool_that_does_not_say_whom_it_is_for_is_for_everybody(meta: Any) -> None:
    tool = Tool(name="plain", input_schema={}, meta=meta)
    assert (visible(tool, "model"), visible(tool, "app")) == (True, True)


# between a host and its views


class Window:
    """A view as its host sees it: what it is posted, and what it asks."""

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []
        self.bridge: Bridge
        self.client: Client

    async def ask(self, method: str, **params: Any) -> Any:
        reply = await self.bridge.handle(
            {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        )
        assert reply is not None
        assert (reply["jsonrpc"], reply["id"]) == ("2.0", 7)
        return reply.get("result", reply.get("error"))

    async def tell(self, method: str, **params: Any) -> None:
        assert (
            await self.bridge.handle({"jsonrpc": "2.0", "method": method, "params": params}) is None
        )

    async def begin(self, **capabilities: Any) -> Any:
        result = await self.ask(
            "ui/initialize", protocolVersion="x", appInfo={}, appCapabilities=capabilities
        )
        await self.tell("ui/notifications/initialized")
        return result

    @property
    def told(self) -> list[tuple[str, Any]]:
        return [
            (one["method"].removeprefix("ui/notifications/"), one["params"]) for one in self.posted
        ]


@asynccontextmanager
async def shown(
    server: Server | None = None, revision: str | None = None, **host: Any
) -> AsyncIterator[Window]:
    window = Window()
    async with pair(server or weather(), revision=revision, extensions=[APPS]) as client:
        window.client = client
        view = await client.read_app("forecast")
        window.bridge = Bridge(
            client, view, window.posted.append, ViewHost(name="chat", version="2.0", **host)
        )
        yield window


@pytest.mark.parametrize("revision", APPS_SINCE)
@pytest.mark.requirement("apps-initialized", "apps-data")
async def test_a_view_is_told_what_went_into_its_tool_and_what_came_out_once_it_is_ready(
    revision: str,
) -> None:
    async with shown(revision=revision) as window:
        result = await window.bridge.call({"city": "Oslo"})
        assert result.structured_content["sky"] == "clear"
        assert window.posted == []
        await window.tell("ui/notifications/initialized")  # which comes too early
        assert window.posted == []
        await window.begin()
        (given, (name, got)) = window.told
        assert given == ("tool-input", {"arguments": {"city": "Oslo"}})
        assert (name, got["structuredContent"]) == (
            "tool-result",
            {"city": "Oslo", "sky": "clear", "shown": True},
        )
        assert got["content"][0]["type"] == "text"
        assert "resultType" not in got
        with pytest.raises(
            ConfigError,
            match="tool-input cannot follow tool-input and tool",
        ):
            await window.bridge.call({"city": "Rome"})


async def test_a_view_learns_where_it_is_shown_and_what_it_may_do() -> None:
    context = {"theme": "dark", "locale": "nb-NO"}
    async with shown(context=context, on_link=lambda url: True, on_log=print) as window:
        result = await window.begin()
        assert result["protocolVersion"] == "2026-01-26"
        assert result["hostInfo"] == {"name": "chat", "version": "2.0"}
        assert set(result["hostCapabilities"]) == {
            "serverTools",
            "serverResources",
            "sandbox",
            "openLinks",
            "logging",
        }
        assert result["hostCapabilities"]["sandbox"]["permissions"] == {
            "geolocation": {},
            "clipboardWrite": {},
        }
        assert result["hostContext"]["toolInfo"]["tool"]["name"] == "forecast"
        assert {**context, "displayMode": "inline"}.items() <= result["hostContext"].items()
        window.bridge.change_context(theme="light")
        assert window.told == [("host-context-changed", {"theme": "light"})]
        assert window.bridge.context["locale"] == "nb-NO"


async def test_a_context_that_changes_while_a_view_starts_reaches_it_once() -> None:
    async with shown(context={"theme": "dark"}) as window:
        window.bridge.change_context(theme="light")
        params = {"protocolVersion": "x", "appInfo": {}, "appCapabilities": {}}
        result = await window.ask("ui/initialize", **params)
        assert result["hostContext"]["theme"] == "light"
        window.bridge.change_context(theme="dark")
        assert window.posted == []  # the view has not said yet that it is ready
        await window.tell("ui/notifications/initialized")
        assert window.told == [("host-context-changed", {"theme": "dark"})]


@pytest.mark.requirement("apps-data")
async def test_what_a_model_writes_is_shown_while_it_writes() -> None:
    async with shown() as window:
        window.bridge.tool_input_partial({"city": "O"})  # nobody is there yet
        await window.begin()
        window.bridge.tool_input_partial({"city": "Os"})
        window.bridge.tool_input({"city": "Oslo"})
        window.bridge.tool_input_partial({"city": "Oslo"})  # too late
        with pytest.raises(
            ConfigError, match="tool-input cannot follow tool-input: a view shows only one call"
        ):
            window.bridge.tool_input({"city": "Rome"})
        assert [name for name, _ in window.told] == ["tool-input-partial", "tool-input"]


@pytest.mark.requirement("apps-cancelled")
async def test_a_view_is_told_of_a_call_that_came_to_nothing() -> None:
    server, begun = weather(), asyncio.Event()
    server.remove_tool("forecast")

    @server.tool(ui=URI)
    async def forecast(city: str) -> str:
        begun.set()
        await asyncio.Event().wait()
        return city

    async with shown(server) as window:
        await window.begin()
        calling = asyncio.create_task(window.bridge.call({"city": "Oslo"}))
        await begun.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        assert window.told[-1] == ("tool-cancelled", {"reason": "The call was cancelled"})
    async with shown(server) as window:
        await window.begin()
        server.remove_tool("forecast")
        with pytest.raises(InvalidParams):
            await window.bridge.call({"city": "Oslo"})
        assert window.told[-1] == ("tool-cancelled", {"reason": "Unknown tool: forecast"})


@pytest.mark.requirement("apps-visibility-app")
async def test_a_view_calls_tools_that_are_for_apps_and_reads_what_can_be_read() -> None:
    async with shown() as window:
        early = await window.ask("tools/call", name="hours", arguments={"city": "Oslo"})
        assert early == {"code": -32600, "message": "tools/call was sent before ui/initialize"}
        await window.begin()
        hours = await window.ask("tools/call", name="hours", arguments={"city": "Oslo"})
        assert hours["structuredContent"] == {"result": [1, 2, 3]}
        failed = await window.ask("tools/call", name="hours", arguments={"town": "Oslo"})
        assert failed["isError"] is True
        for hidden in ("set_home", "nothing"):
            refused = await window.ask("tools/call", name=hidden, arguments={"city": "Oslo"})
            assert refused["code"] == -32602
            assert refused["message"] == f"No tool named {hidden!r} is available to apps"
        assert (await window.ask("tools/call", name="hours", arguments=[]))["code"] == -32602
        assert (await window.ask("resources/read", uri=URI))["contents"][0]["text"] == HTML
        assert (await window.ask("resources/read", uri="ui://nothing"))["code"] in (-32602, -32002)


async def test_a_host_may_ask_its_user_about_the_calls_of_a_view() -> None:
    asked: list[Any] = []

    async def ask(tool: Any, arguments: Any) -> bool:
        asked.append((tool.name, arguments))
        return bool(arguments["city"] == "Oslo")

    async with shown(on_call=ask) as window:
        await window.begin()
        assert "structuredContent" in await window.ask(
            "tools/call", name="hours", arguments={"city": "Oslo"}
        )
        denied = await window.ask("tools/call", name="hours", arguments={"city": "Rome"})
        assert denied == {"code": -32000, "message": "The call was denied"}
        assert asked == [("hours", {"city": "Oslo"}), ("hours", {"city": "Rome"})]


REQUESTS = {
    "ui/open-link": (
        "on_link",
        {"url": "https://example.com/"},
        ("https://example.com/",),
        "Opening the link was denied",
    ),
    "ui/message": (
        "on_message",
        {"role": "user", "content": {"type": "text", "text": "Hello"}},
        ("user", {"type": "text", "text": "Hello"}),
        "Sending the message was denied",
    ),
    "ui/update-model-context": (
        "on_model_context",
        {"structuredContent": {"day": "Mon"}},
        ({"structuredContent": {"day": "Mon"}},),
        "Updating the context was denied",
    ),
}


@pytest.mark.parametrize("method", REQUESTS)
async def test_what_a_view_wants_of_its_host_takes_somebody_who_allows_it(method: str) -> None:
    name, params, given, refusal = REQUESTS[method]
    got: list[Any] = []
    for answer, expected in ((True, {}), (False, {"code": -32000, "message": refusal})):
        async with shown(
            **{name: lambda *args, answer=answer: got.append(args) or answer}
        ) as window:
            await window.begin()
            assert await window.ask(method, **params) == expected
    assert got == [given, given]
    async with shown() as window:
        await window.begin()
        assert (await window.ask(method, **params))["message"] == refusal


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "https://a\nb", "", "data:text/html,x"]
)
async def test_a_link_that_is_none_is_not_even_asked_about(url: str) -> None:
    asked: list[str] = []
    async with shown(on_link=asked.append) as window:
        await window.begin()
        assert await window.ask("ui/open-link", url=url) == {
            "code": -32000,
            "message": "Invalid URL",
        }
    assert asked == []


@pytest.mark.requirement("apps-display-mode")
async def test_a_view_is_shown_in_modes_only_that_both_sides_have() -> None:
    context = {"availableDisplayModes": ["inline", "fullscreen"]}
    async with shown(context=context, on_display_mode=lambda mode: mode) as window:
        await window.begin(availableDisplayModes=["inline", "fullscreen", "pip"])
        assert await window.ask("ui/request-display-mode", mode="pip") == {"mode": "inline"}
        assert await window.ask("ui/request-display-mode", mode="fullscreen") == {
            "mode": "fullscreen"
        }
        assert (await window.ask("ui/request-display-mode", mode="huge"))["code"] == -32602
    async with shown(context=context, on_display_mode=lambda mode: mode) as window:
        await window.begin(availableDisplayModes=["inline"])
        assert await window.ask("ui/request-display-mode", mode="fullscreen") == {"mode": "inline"}
    async with shown(context=context) as window:
        await window.begin()
        assert await window.ask("ui/request-display-mode", mode="fullscreen") == {"mode": "inline"}
    for odd in ("pip", None, True, ["fullscreen"]):  # what a host says it did, and cannot have done
        async with shown(context=context, on_display_mode=lambda mode, odd=odd: odd) as window:
            await window.begin()
            assert await window.ask("ui/request-display-mode", mode="fullscreen") == {
                "mode": "inline"
            }


@pytest.mark.requirement("apps-display-mode")
async def test_a_host_shows_a_view_in_no_mode_that_it_does_not_have() -> None:
    async with shown(context={"availableDisplayModes": ["inline", "fullscreen", "pip"]}) as window:
        await window.begin(availableDisplayModes=["inline", "fullscreen"])
        assert window.bridge.modes == ["inline", "fullscreen"]
        window.bridge.change_context(displayMode="fullscreen")
        with pytest.raises(
            ConfigError,
            match=r"in the mode 'pip'; the host and the view both support \['inline', 'full",
        ):
            window.bridge.change_context(displayMode="pip", theme="dark")
        assert window.told == [("host-context-changed", {"displayMode": "fullscreen"})]
        assert "theme" not in window.bridge.context


@pytest.mark.requirement("apps-size")
async def test_a_host_hears_the_size_of_a_view_and_its_log_where_they_make_sense() -> None:
    heard: list[Any] = []
    async with shown(on_size=lambda *size: heard.append(size), on_log=heard.append) as window:
        await window.begin()
        await window.tell("ui/notifications/size-changed", width=300, height=400.5)
        await window.tell("ui/notifications/size-changed", height=20)
        for odd in (-1, 10**9, "wide", None):
            await window.tell(
                "ui/notifications/size-changed", width=1, height=odd if odd is not None else "x"
            )
        await window.tell("notifications/message", level="info", data="hello")
        await window.tell("ui/notifications/anything")
    assert heard == [(300, 400.5), (None, 20), {"level": "info", "data": "hello"}]


@pytest.mark.requirement("apps-teardown")
async def test_a_view_is_told_that_it_ends_and_given_time() -> None:
    async with shown() as window:
        await window.bridge.teardown("never begun")
        assert window.posted == []
        await window.begin()
        leaving = asyncio.create_task(window.bridge.teardown("The user closed it"))
        while not window.posted:
            await asyncio.sleep(0)
        (request,) = window.posted
        assert (request["method"], request["params"]) == (
            "ui/resource-teardown",
            {"reason": "The user closed it"},
        )
        again = asyncio.create_task(window.bridge.teardown("At once"))
        for other in (
            {"id": 7, "result": {}},
            {"id": "1", "result": {}},
            {"id": None, "error": {"code": 1, "message": ""}},
        ):
            assert await window.bridge.handle({"jsonrpc": "2.0", **other}) is None
        assert await asyncio.wait([leaving, again], timeout=0.05) == (set(), {leaving, again})
        assert (
            await window.bridge.handle({"jsonrpc": "2.0", "id": request["id"], "result": {}})
            is None
        )
        async with asyncio.timeout(1):  # which is less than it would wait for
            await asyncio.gather(leaving, again)
        assert len(window.posted) == 1
    async with shown() as window:
        await window.begin()
        await window.bridge.handle(
            {"jsonrpc": "2.0", "id": 1, "result": {}}
        )  # before anybody asked
        await window.bridge.teardown(timeout=0.01)  # a view that says nothing holds nobody up


MALFORMED: list[Any] = [
    None,
    1,
    "x",
    [],
    {},
    {"jsonrpc": "1.0", "method": "ping", "id": 1},
    {"jsonrpc": "2.0", "id": {}, "method": "ping"},
    {"jsonrpc": "2.0", "id": 1, "method": 5},
    {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": 5},
    object(),
]


@pytest.mark.parametrize("message", MALFORMED, ids=named)
async def test_what_is_no_message_is_refused_and_ends_nothing(message: Any) -> None:
    async with shown() as window:
        reply = await window.bridge.handle(message)
        assert reply is None or reply["error"]["code"] in (-32600, -32602, -32700)
        assert await window.ask("ping") == {}
        assert (await window.ask("sampling/createMessage"))["code"] == -32601
        assert (await window.ask("ui/notifications/sandbox-proxy-ready"))["code"] == -32601


async def test_a_host_that_fails_says_so_to_the_view_and_the_details_to_its_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("secret")

    async with shown(on_link=fail, on_size=fail) as window:
        await window.begin()
        failed = await window.ask("ui/open-link", url="https://example.com")
        assert failed == {"code": -32603, "message": "The host failed to handle ui/open-link"}
        await window.tell("ui/notifications/size-changed", height=1)
    assert caplog.text.count("RuntimeError: secret") == 2


async def test_a_view_cannot_ask_more_at_once_than_its_host_can_bear() -> None:
    gate = asyncio.Event()

    async def wait(*args: Any) -> bool:
        await gate.wait()
        return True

    async with shown(on_link=wait) as window:
        await window.begin()
        asking = [
            asyncio.create_task(window.ask("ui/open-link", url="https://example.com"))
            for _ in range(80)
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gate.set()
        replies = await asyncio.gather(*asking)
        assert replies.count({}) == 64
        assert {reply["code"] for reply in replies if reply} == {-31001}
        assert await window.ask("ping") == {}


async def test_what_a_view_says_while_its_host_has_enough_to_do_is_not_heard() -> None:
    gate, heard = asyncio.Event(), 0

    async def wait(*args: Any) -> None:
        nonlocal heard
        heard += 1
        await gate.wait()

    async with shown(on_size=wait, on_log=wait) as window:
        await window.begin()
        saying = [
            asyncio.create_task(window.tell("ui/notifications/size-changed", height=1))
            for _ in range(500)
        ]
        saying += [
            asyncio.create_task(window.tell("notifications/message", level="info", data=1))
            for _ in range(500)
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (heard, (await window.ask("ping"))["code"]) == (64, -31001)
        gate.set()
        await asyncio.gather(*saying)
        assert await window.ask("ping") == {}


@pytest.mark.requirement("apps-log")
async def test_the_policy_of_a_view_and_all_that_it_asks_for_are_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "dovetail.extensions")
    async with shown(on_link=lambda url: False) as window:
        (policy,) = caplog.messages
        assert window.bridge.view.content_security_policy in policy
        assert (
            policy.startswith("Showing 'ui://weather/view' with policy") and "geolocation" in policy
        )
        await window.begin()
        await window.ask("tools/call", name="hours", arguments={"city": "secret"})
        await window.ask("tools/call", name="set_home\nforged" + "x" * 1000, arguments={})
        await window.ask("resources/read", uri=URI)
        await window.ask("ui/open-link", url="https://example.com/")
        assert [
            line.removeprefix("View 'ui://weather/view' requests ")[:40]
            for line in caplog.messages[1:]
        ] == [
            "ui/initialize {}",
            "tools/call 'hours'",
            "tools/call 'set_home\\nforgedxxxxxxxxxxxxxxx"[:40],
            "resources/read 'ui://weather/view'",
            "ui/open-link 'https://example.com/'",
        ]
        assert max(map(len, caplog.messages[1:])) < 300


async def test_a_view_that_was_read_by_its_uri_has_no_tool_to_call() -> None:
    async with pair(weather(), extensions=[APPS]) as client:
        bridge = Bridge(client, await client.read_app(URI), print, ViewHost(name="chat"))
        with pytest.raises(ConfigError, match="was read by its URI, so it has no tool to call"):
            await bridge.call()


def test_the_former_name_of_the_view_host_still_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="Host has been renamed to ViewHost"):
        from dovetail.extensions.apps import Host  # type: ignore[attr-defined]
    assert Host is ViewHost
