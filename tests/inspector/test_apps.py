"""The views of apps, without a browser: their listener, and what they may do."""

import asyncio
import errno
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail import Server
from dovetail.extensions.apps import APPS
from dovetail.inspector import make_policy, open_view_listener
from dovetail.inspector.access import Denied, check_access
from dovetail.inspector.apps import NOT_SHOWN, PROBE, VIOLATION, add_probe
from dovetail.inspector.files import load_files
from dovetail.inspector.refusal import Refused
from dovetail.inspector.view_listener import ViewListener, route_by_port
from dovetail.ports import HttpResponse

from .inspecting import SECONDS, Inspecting, Reply, inspecting, request

PAGE = "http://127.0.0.1:4711"
HTML = "<!doctype html><p>Forecast</p>"


def make_server() -> Server:
    server = Server("weather", version="1")
    server.add_app("ui://weather/forecast", HTML, connect_domains=["https://api.example.com"])

    @server.tool(ui="ui://weather/forecast")
    async def forecast(city: str) -> dict[str, str]:
        """Forecast the weather."""
        if city == "Atlantis":
            raise ValueError("no such city")
        return {"city": city, "api_key": "sk-0123456789abcdef0123"}

    @server.tool(visibility=["app"])
    async def hours(city: str) -> str:
        """For the view."""
        return f"hours of {city}"

    @server.tool(visibility=["model"])
    async def move(city: str) -> str:
        """Not for the view."""
        raise AssertionError

    return server


class Viewing(Inspecting):
    """An inspector that shows views."""

    listener: ViewListener

    async def post(self, app: int, **message: Any) -> None:
        await self.do("app_post", app=app, message=json.dumps({"jsonrpc": "2.0", **message}))

    async def ask(self, app: int, id: int, method: str, **params: Any) -> Any:
        """Send a request as the view, and return the reply."""
        await self.post(app, id=id, method=method, params=params)
        return await self.until_message(app, lambda message: message.get("id") == id)

    async def until_message(self, app: int, is_wanted: Any) -> Any:
        async with asyncio.timeout(SECONDS):
            while True:
                last = self.state.events.last
                for event in self.events("app"):
                    if event["app"] == app and event.get("direction") == "to_view":
                        message = json.loads(event.get("post", event["text"]))
                        if is_wanted(message):
                            return message
                await self.state.events.wait_after(last, SECONDS)

    async def initialize(self, app: int) -> Any:
        params = {"protocolVersion": "2026-01-26", "appInfo": {}, "appCapabilities": {}}
        reply = await self.ask(app, 1, "ui/initialize", **params)
        await self.post(app, method="ui/notifications/initialized", params={})
        return reply["result"]

    async def until_notified(self, app: int, name: str) -> Any:
        method = f"ui/notifications/{name}"
        found = await self.until_message(app, lambda message: message.get("method") == method)
        return found["params"]


@asynccontextmanager
async def viewing(**options: Any) -> AsyncIterator[Viewing]:
    async with inspecting(make_server(), extensions=[APPS], **options) as one:
        found = Viewing(one.state)
        found.listener = ViewListener()
        one.state.apps.use(found.listener, PAGE)
        yield found
        close(found.listener)


async def get(listener: ViewListener, url: str, host: str = "", method: str = "GET") -> Reply:
    """Send a request to a listener."""
    headers = {"host": host or listener.origin.removeprefix("http://")}
    return await request(listener, method, url.removeprefix(listener.origin), headers=headers)


@pytest.fixture
def listener() -> Iterator[ViewListener]:
    found = ViewListener()
    yield found
    close(found)


def close(listener: ViewListener) -> None:
    for one in listener.sockets:
        one.close()


# the listener


@pytest.mark.parametrize(
    ("path", "host", "method"),
    [
        ("", "", "GET"),
        ("/", "", "GET"),
        ("/api/snapshot", "", "GET"),
        ("/api/events", "", "GET"),
        ("/static/app.js", "", "GET"),
        ("{view}/", "", "GET"),
        ("{view}?x=1", "", "GET"),
        ("{view}", "", "POST"),
        ("{view}", "", "HEAD"),
        ("{view}", "", "OPTIONS"),
        ("{view}", "127.0.0.1:{port}", "GET"),
        ("{view}", "evil.example:{port}", "GET"),
        ("{view}", "localhost", "GET"),
    ],
)
async def test_the_listener_has_one_page_and_nothing_else(
    listener: ViewListener, path: str, host: str, method: str
) -> None:
    view = listener.show(HttpResponse(body=b"the view"))
    assert (await get(listener, view))[0::2] == (200, b"the view")
    names = {"view": view.removeprefix(listener.origin), "port": str(listener.port)}
    status, _, body = await get(listener, path.format(**names), host.format(**names), method)
    assert (status, body) == (404, b"")
    listener.hide()
    assert (await get(listener, view)).status == 404
    assert (await get(listener, "")).status == 404


async def test_only_the_last_view_is_served(listener: ViewListener) -> None:
    first = listener.show(HttpResponse(body=b"first"))
    second = listener.show(HttpResponse(body=b"second"))
    assert (await get(listener, first)).status == 404
    assert (await get(listener, second)).body == b"second"


@pytest.mark.parametrize("hosts", [[], ["localhost:{port}"] * 2, ["localhost:{port}", "evil"]])
async def test_a_request_has_one_host(listener: ViewListener, hosts: list[str]) -> None:
    path = listener.show(HttpResponse(body=b"the view")).removeprefix(listener.origin)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "method": "GET",
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", host.format(port=listener.port).encode()) for host in hosts],
    }
    await listener(scope, None, send)
    assert sent[0]["status"] == 404


async def test_the_port_decides_who_answers(listener: ViewListener) -> None:
    async def page(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b"the page"})

    app = route_by_port(listener, page)
    for address in ("127.0.0.1", "::1"):
        assert (await request(app, "GET", "/", server=(address, listener.port))).status == 404
    assert (await request(app, "GET", "/", server=("127.0.0.1", 4711))).status == 299


async def test_no_other_program_can_answer_for_localhost(listener: ViewListener) -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            socket.create_server((host, 0), family=family).close()
        except OSError:
            continue  # there is no IPv6
        with pytest.raises(OSError):
            socket.create_server((host, listener.port), family=family)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_page_may_frame_the_origin_of_views_and_no_other(host: str) -> None:
    listener = open_view_listener(host)
    assert isinstance(listener, ViewListener)
    try:
        (policy,) = (
            value
            for name, value in load_files(frames=listener.origin).headers
            if name == b"content-security-policy"
        )
        assert f"frame-src {listener.origin};".encode() in policy
    finally:
        close(listener)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "box.example"])
def test_a_page_that_other_machines_can_open_shows_no_views(host: str) -> None:
    assert open_view_listener(host) == NOT_SHOWN


def test_without_a_free_port_there_is_a_reason_and_no_listener(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*given: Any, **options: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "create_server", fail)
    why_not = open_view_listener("127.0.0.1")
    assert isinstance(why_not, str) and "Too many open files" in why_not


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost:4711"},
        {"host": "127.0.0.1:4711", "origin": "http://localhost:4712"},
        {"host": "127.0.0.1:4711", "origin": "null"},
    ],
)
def test_a_view_never_reaches_the_page(headers: dict[str, str]) -> None:
    policy = make_policy("127.0.0.1", 4711, "the-token")
    sent = headers | {"authorization": "Bearer the-token", "content-type": "application/json"}
    pairs = [(name.encode(), value.encode()) for name, value in sent.items()]
    for path, method in (("/", "GET"), ("/api/call", "POST"), ("/api/events", "GET")):
        assert isinstance(check_access(method, path, pairs, policy), Denied)


# views


async def test_a_view_is_shown_with_the_policy_of_what_it_requests() -> None:
    async with viewing() as one:
        shown = await one.do("app_open", tool="forecast", arguments='{"city": "Oslo"}')
        assert shown["uri"] == "ui://weather/forecast"
        assert shown["origins"] == ["https://api.example.com"]
        status, headers, _ = await get(one.listener, shown["src"])
        assert status == 200
        assert f"{shown['policy']}; frame-ancestors {PAGE}" in headers.values()
        html = json.loads(shown["resource"])["params"]["html"]
        assert html == HTML.replace("<p>", f"{PROBE}<p>")


async def test_a_view_gets_the_call_and_calls_tools_that_are_for_apps() -> None:
    async with viewing() as one:
        context = '{"theme": "dark"}'
        shown = await one.do(
            "app_open", tool="forecast", arguments='{"city": "Oslo"}', context=context
        )
        app = shown["app"]
        agreed = await one.initialize(app)
        assert agreed["hostContext"]["theme"] == "dark"
        given = await one.until_notified(app, "tool-input")
        assert given == {"arguments": {"city": "Oslo"}}
        result = await one.until_notified(app, "tool-result")
        assert result["structuredContent"]["api_key"].startswith("sk-")  # the view gets it all
        called = await one.ask(app, 2, "tools/call", name="hours", arguments={"city": "Oslo"})
        assert called["result"]["content"][0]["text"] == "hours of Oslo"
        refused = await one.ask(app, 3, "tools/call", name="move", arguments={"city": "Oslo"})
        assert "available to apps" in refused["error"]["message"]
        for id, method, params in (
            (4, "ui/open-link", {"url": "https://example.com/"}),
            (5, "ui/message", {"role": "user", "content": []}),
            (6, "ui/update-model-context", {"content": []}),
        ):
            assert (await one.ask(app, id, method, **params))["result"] == {}
        refused = await one.ask(app, 7, "ui/open-link", url="javascript:alert(1)")
        assert refused["error"]["message"] == "Invalid URL"


@pytest.mark.parametrize("show_secrets", [False, True])
async def test_credentials_in_messages_are_masked_in_what_is_shown(show_secrets: bool) -> None:
    async with viewing(show_secrets=show_secrets) as one:
        shown = await one.do("app_open", tool="forecast", arguments='{"city": "Oslo"}')
        await one.initialize(shown["app"])
        await one.until_notified(shown["app"], "tool-result")
        texts = [event.get("text", "") for event in one.events("app")]
        assert any("sk-0123" in text for text in texts) is show_secrets
        assert any('"api_key":"***"' in text for text in texts) is not show_secrets


async def test_the_last_result_is_shown_again_without_a_call() -> None:
    async with viewing() as one:
        with pytest.raises(Refused, match="no result to show again"):
            await one.do("app_open", tool="forecast", again=True)
        first = await one.do("app_open", tool="forecast", arguments='{"city": "Oslo"}')
        await one.initialize(first["app"])
        before = await one.until_notified(first["app"], "tool-result")
        calls = sum(event.get("method") == "tools/call" for event in one.events("wire"))
        second = await one.do("app_open", tool="forecast", again=True)
        await one.initialize(second["app"])
        assert await one.until_notified(second["app"], "tool-result") == before
        assert sum(event.get("method") == "tools/call" for event in one.events("wire")) == calls
        with pytest.raises(Refused, match="no longer open"):
            await one.post(first["app"], method="ping")


async def test_a_view_hears_of_a_new_host_context() -> None:
    async with viewing() as one:
        shown = await one.do("app_open", tool="forecast", arguments='{"city": "Oslo"}')
        await one.initialize(shown["app"])
        await one.until_notified(shown["app"], "tool-input")  # the view is ready
        await one.do("app_context", app=shown["app"], context='{"theme": "dark"}')
        changed = await one.until_notified(shown["app"], "host-context-changed")
        assert changed == {"theme": "dark"}
        with pytest.raises(Refused, match="cannot be shown in the mode"):
            await one.do("app_context", app=shown["app"], context='{"displayMode": "pip"}')
        await one.do("app_close", app=shown["app"])
        assert (await get(one.listener, shown["src"])).status == 404
        with pytest.raises(Refused, match="no longer open"):
            await one.do("app_context", app=shown["app"], context="{}")


async def test_a_tool_that_fails_is_a_result_that_the_view_gets() -> None:
    async with viewing() as one:
        shown = await one.do("app_open", tool="forecast", arguments='{"city": "Atlantis"}')
        await one.initialize(shown["app"])
        assert (await one.until_notified(shown["app"], "tool-result"))["isError"] is True


VIOLATED = {"directive": "connect-src", "blocked": "https://evil.example", "source": "", "line": 3}


async def test_what_the_policy_blocked_is_reported_and_not_passed_on() -> None:
    async with viewing() as one:
        shown = await one.do("app_open", tool="forecast", arguments='{"city": "Oslo"}')
        await one.post(shown["app"], method=VIOLATION, params=VIOLATED)
        event = await one.until("app", violation=VIOLATED)
        assert "direction" not in event


@pytest.mark.parametrize(
    "message",
    [
        "null",
        "[]",
        "1e999",
        "not json",
        '"\\ud800"',
        f'{{"method": "{VIOLATION}"}}',
        f'{{"method": "{VIOLATION}", "params": 1}}',
        f'{{"method": "{VIOLATION}", "params": {{"directive": 1}}}}',
        '{"method": 1}',
    ],
)
async def test_whatever_a_view_sends_the_inspector_goes_on(message: str) -> None:
    async with viewing() as one:
        shown = await one.do("app_open", tool="forecast", arguments='{"city": "Oslo"}')
        await one.do("app_post", app=shown["app"], message=message)
        assert (await one.initialize(shown["app"]))["hostInfo"]["name"] == "dovetail-inspector"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tool": "forecast", "uri": "ui://other"}, "unknown field"),
        ({"tool": "forecast", "arguments": "[]"}, "must be a JSON object"),
        ({"tool": "forecast", "context": "{"}, "not valid JSON"),
    ],
)
async def test_a_request_for_anything_but_a_view_of_a_tool_is_refused(
    fields: dict[str, str], problem: str
) -> None:
    async with viewing() as one:
        with pytest.raises(Refused, match=problem):
            await one.do("app_open", **fields)


async def test_without_a_listener_the_page_says_why_there_are_no_views() -> None:
    async with inspecting(make_server()) as one:
        assert "--allow-remote" in (await one.do("snapshot"))["apps"]["why_not"]
        with pytest.raises(Refused, match="http://localhost"):
            await one.do("app_open", tool="forecast")


@pytest.mark.parametrize(
    ("html", "probed"),
    [
        ("<!DOCTYPE html>\n<p>", f"<!DOCTYPE html>{PROBE}\n<p>"),
        ("<!-- a --> <!doctype html><p>", f"<!-- a --> <!doctype html>{PROBE}<p>"),
        ("<html><p>", f"{PROBE}<html><p>"),
        ("<!doctype", f"{PROBE}<!doctype"),
        ("", PROBE),
    ],
)
def test_the_script_that_reports_violations_comes_after_the_doctype(html: str, probed: str) -> None:
    assert add_probe(html) == probed
