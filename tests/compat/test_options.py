"""Options of the peers' constructors, run methods and decorators."""

import logging
from typing import Any

import pytest

from dovetail import Client
from dovetail.compat import (
    FastMCP,
    LowLevelServer,
    MCPServer,
    SDKFastMCP,
    TransportSecuritySettings,
    configure_logging,
    create_proxy,
    get_logger,
)
from dovetail.errors import ConfigError
from dovetail.testing import pair
from tests.behaviour.web import on_a_port
from tests.transports.http.raw import on_port


def echo(server: FastMCP) -> FastMCP:
    @server.tool()
    def echo(text: str) -> str:
        return text

    return server


async def status(app: Any, **headers: str) -> int:
    async with on_port(app) as site:
        return (await site.ask("tools/list", headers=headers)).status


def low_level() -> LowLevelServer:
    server = LowLevelServer("s")

    @server.list_tools()  # type: ignore[untyped-decorator]
    async def list_tools() -> list[Any]:
        return []

    return server


each_app = pytest.mark.parametrize("make_app", [
    lambda security: echo(MCPServer("s", transport_security=security)).streamable_http_app(),
    lambda security: echo(SDKFastMCP("s")).streamable_http_app(transport_security=security),
    lambda security: low_level().streamable_http_app(transport_security=security),
])  # fmt: skip


@each_app
async def test_the_host_names_of_the_sdk_are_the_ones_that_are_checked(make_app: Any) -> None:
    settings = TransportSecuritySettings(
        allowed_hosts=["mcp.example:*"], allowed_origins=["https://app.example"]
    )
    app = make_app(settings)
    assert await status(app, Host="mcp.example:8000") == 200
    assert await status(app, Host="evil.example") == 421
    assert await status(app, Origin="https://app.example") == 200
    assert await status(app, Origin="https://evil.example") == 403


@each_app
async def test_without_protection_any_host_is_accepted_but_no_other_origin(make_app: Any) -> None:
    settings = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = make_app(settings)
    assert await status(app, Host="any.example") == 200
    assert await status(app, Origin="https://evil.example") == 403


def test_a_server_says_what_it_was_given() -> None:
    server = MCPServer("s", "Title", "About", version="1.2", website_url="https://s.example")
    assert (server.version, server.title, server.description) == ("1.2", "Title", "About")
    assert server.website_url == "https://s.example"
    assert FastMCP("s", version=2).version == "2"


def test_an_event_store_is_not_needed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        SDKFastMCP("s", event_store=object(), debug=True).streamable_http_app()
    assert "event_store= has no effect" in caplog.text


async def test_a_version_of_a_tool_is_in_its_meta() -> None:
    server = FastMCP("s")
    server.tool(lambda: 1, name="tool", version="2", tags={"a"})
    async with pair(server) as client:
        (tool,) = await client.list_tools()
    assert tool.meta == {"fastmcp": {"tags": ["a"], "version": "2"}}


async def test_a_server_is_mounted_imported_or_relayed() -> None:
    outer = FastMCP("outer")
    outer.mount(echo(FastMCP("a")), namespace="one")
    outer.mount("two", echo(FastMCP("b")))
    await outer.import_server(echo(FastMCP("c")), prefix="three")
    async with Client(outer) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert names == ["one_echo", "two_echo", "three_echo"]
        assert (await client.call_tool("one_echo", {"text": "hi"})).data == "hi"
    async with on_a_port(echo(FastMCP("far")).http_app()) as site:
        for make in (FastMCP.as_proxy, create_proxy):
            async with Client(make(f"http://{site}/mcp", name="near")) as client:
                assert (await client.call_tool("echo", {"text": "hi"})).data == "hi"


class HttpxClient:
    """As much of an `httpx.AsyncClient` as is used."""

    base_url = "http://127.0.0.1:1"
    auth = None
    headers = {"user-agent": "python-httpx", "x-key": "secret"}


async def test_an_api_may_be_named_by_a_client() -> None:
    info = {"title": "Pets", "version": "1"}
    operation = {"operationId": "listPets", "responses": {"200": {"description": "All pets"}}}
    document = {"openapi": "3.1.0", "info": info, "paths": {"/pets": {"get": operation}}}
    server = FastMCP.from_openapi(openapi_spec=document, client=HttpxClient(), name="pets")
    assert [tool.name for tool in await server.list_tools()] == ["listPets"]
    signed = HttpxClient()
    signed.auth = object()  # type: ignore[assignment]
    with pytest.raises(ConfigError, match="pass base_url= and credentials="):
        FastMCP.from_openapi(document, signed)


def test_loggers_are_those_of_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Any] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **options: chosen.append(options["level"]))
    configure_logging("DEBUG")
    assert chosen == ["DEBUG"]
    assert get_logger("mine") is logging.getLogger("mine")
