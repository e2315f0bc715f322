"""The headers of a caller: which of them reach a server."""

import asyncio
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

import pytest

from dovetail import Client, Header, Server
from dovetail.auth import ApiKeys
from dovetail.errors import ConfigError, ProtocolError
from dovetail.gateway.gateway import Gateway
from dovetail.gateway.health import TRIP_AFTER
from tests.behaviour.web import on_a_port

from .programs import PATIENT
from .serving import ANN, BOB, KEYS, headers_of, post, recorded, served

SECRETS = {
    "Authorization": "Bearer the-callers-own-token",
    "Cookie": "session=the-callers-own-cookie",
    "DPoP": "the-callers-own-proof",
    "Proxy-Authorization": "Basic the-callers-own-password",
    "Proxy-Token": "the-callers-own-proxy",
    "X-Api-Key": ANN,
    "X-Auth-Token": "the-callers-own-auth",
    "Forwarded": "for=192.0.2.60",
    "X-Forwarded-For": "192.0.2.61",
    "X-Real-IP": "192.0.2.62",
    "Via": "1.1 the-callers-own-proxy",
    "Origin": "http://127.0.0.1",
    "Referer": "http://127.0.0.1/the-callers-own-page",
    "X-Anything": "the-callers-own-value",
    "User-Agent": "the-callers-own-agent",
}


def a_server() -> Server:
    server = Server("up")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def find(text: str, region: Annotated[str, Header("Region")] = "north") -> str:
        return f"{text} in {region}"

    return server


@pytest.mark.parametrize("forward", [[], ["X-Tenant"]])
@pytest.mark.parametrize("auth", [None, KEYS], ids=["anonymous", "authenticated"])
@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_no_header_of_a_caller_reaches_a_server_unless_its_entry_says_so(
    revision: str, auth: ApiKeys | None, forward: list[str]
) -> None:
    async with recorded(a_server()) as (url, recorder):
        source = {"mcpServers": {"up": {"url": url, "dovetail": {"forward": forward}}}}
        async with served(source, auth=auth) as (_, gateway):
            headers = {**SECRETS, "X-Tenant": "blue"}
            async with Client(gateway, headers=headers, revision=revision) as client:
                assert (await client.call_tool("up__add", {"a": 1, "b": 2})).data == 3
                await client.list_tools()
    assert recorder.requests
    sent = [f"{name}: {value}" for one in recorder.requests for name, value in one.items()]
    assert not [one for one in sent if any(value in one for value in SECRETS.values())]
    assert any("x-tenant: blue" in one for one in sent) is bool(forward)


async def test_each_value_that_is_passed_on_has_a_connection_of_its_own() -> None:
    async with recorded(a_server()) as (url, recorder):
        source = {"mcpServers": {"up": {"url": url, "dovetail": {"forward": ["X-Tenant"]}}}}
        async with served(source, auth=KEYS) as (_, gateway):
            for key, tenant in ((ANN, "blue"), (ANN, "red"), (BOB, "green"), (ANN, "blue")):
                headers = headers_of(key, X_Tenant=tenant)
                async with Client(gateway, headers=headers) as client:
                    await client.call_tool("up__add", {"a": 1, "b": 2})
            async with Client(gateway, headers=headers_of(BOB)) as client:
                await client.call_tool("up__add", {"a": 1, "b": 2})
    tenants = [one.get("x-tenant") for one in recorder.calls]
    assert tenants == ["blue", "red", "green", "blue", None]


async def test_header_parameters_are_written_again_from_the_arguments() -> None:
    async with recorded(a_server()) as (url, recorder):
        async with served({"mcpServers": {"up": {"url": url}}}) as (_, gateway):
            headers = {"Mcp-Param-Later": "unknown to the gateway"}
            async with Client(gateway, headers=headers) as client:
                await client.list_tools()
                found = await client.call_tool("up__find", {"text": "x", "region": "söuth"})
                assert found.text == "x in söuth"
    (call,) = recorder.calls
    assert call["mcp-param-region"].startswith("=?base64?")
    assert call["mcp-param-later"] == "unknown to the gateway"
    assert call["mcp-name"] == "find"


async def test_a_header_parameter_that_differs_from_the_argument_is_refused() -> None:
    async with recorded(a_server()) as (url, recorder):
        async with served({"mcpServers": {"up": {"url": url}}}) as (_, gateway):
            params = {"name": "up__find", "arguments": {"text": "x", "region": "south"}}
            headers = {"Mcp-Param-Region": "west"}
            status, reply = await asyncio.to_thread(post, gateway, "tools/call", params, headers)
    assert status == 400
    assert "region" in reply["error"]["message"].lower()
    assert recorder.calls == []


@pytest.mark.parametrize("name", ["X-Key", "x-key"])
def test_a_header_in_which_callers_send_their_keys_cannot_be_passed_on(name: str) -> None:
    source = {"mcpServers": {"up": {"command": "x", "dovetail": {"forward": [name]}}}}
    with pytest.raises(ConfigError, match=r"server 'up': .*credentials"):
        Gateway(source, auth=ApiKeys({ANN: "ann"}, header="X-Key"))
    Gateway(source, auth=KEYS)


async def test_a_server_gets_the_credentials_of_its_entry() -> None:
    async with recorded(a_server()) as (url, recorder):
        entry = {"url": url, "headers": {"Authorization": "Bearer of-the-gateway", "X-Team": "a"}}
        async with served({"mcpServers": {"up": entry}}, auth=KEYS) as (_, gateway):
            async with Client(gateway, headers=headers_of(ANN)) as client:
                await client.call_tool("up__add", {"a": 1, "b": 2})
    assert {one["authorization"] for one in recorder.requests} == {"Bearer of-the-gateway"}
    assert {one["x-team"] for one in recorder.requests} == {"a"}


@pytest.mark.parametrize("auth", ["oauth", {"clientId": "x"}, {"scopes": ["read"]}])
def test_a_server_that_a_user_logs_in_to_is_refused_at_the_start(auth: Any) -> None:
    source = {"mcpServers": {"up": {"url": "https://example.com/mcp", "auth": auth}}}
    expected = r"^auth= is missing\. The server 'up' .*client_credentials"
    with pytest.raises(ConfigError, match=expected):
        Gateway(source)


def test_credentials_of_the_gateway_are_accepted() -> None:
    own = {"grantType": "client_credentials", "clientId": "x", "clientSecret": "y"}
    for auth in ("a-token", own):
        Gateway({"mcpServers": {"up": {"url": "https://example.com/mcp", "auth": auth}}})


class Redirecting:
    """An ASGI application that redirects to another one once it is told where that is."""

    def __init__(self, app: Any) -> None:
        self._app, self.target = app, ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not self.target:
            await self._app(scope, receive, send)
            return
        headers = [(b"location", self.target.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 307, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    "entry",
    [
        {"headers": {"X-Key": "secret"}},
        {"auth": "secret"},
        {"dovetail": {"forward": ["X-Tenant"]}},
    ],
    ids=["headers", "auth", "forward"],
)
async def test_a_server_cannot_redirect_credentials_to_another_origin(
    entry: dict[str, Any], revision: str
) -> None:
    app = Redirecting(a_server().asgi("/mcp", hosts="*"))
    async with recorded(a_server()) as (other, recorder), on_a_port(app) as place:
        source = {"mcpServers": {"up": {"url": f"http://{place}/mcp", **entry}}}
        async with served(source, auth=KEYS) as (_, gateway):
            headers = headers_of(ANN, X_Tenant="blue")
            async with Client(gateway, headers=headers, revision=revision) as client:
                await client.call_tool("up__add", {"a": 1, "b": 2})
                app.target = other
                for _ in range(2):
                    with pytest.raises(ProtocolError, match="up: the server is not available"):
                        await client.call_tool("up__add", {"a": 1, "b": 2})
    assert recorder.requests == []


async def test_a_repeated_header_is_passed_on_as_one_value() -> None:
    """A server behind the gateway and a proxy in front of it must not see different values."""
    async with recorded(a_server()) as (url, recorder):
        source = {"mcpServers": {"up": {"url": url, "dovetail": {"forward": ["x-TENANT"]}}}}
        async with served(source) as (_, gateway):
            params = {"name": "up__add", "arguments": {"a": 1, "b": 2}}
            repeated = {"X-Tenant": "blue", "x-tenant": "red"}
            await asyncio.to_thread(post, gateway, "tools/call", params, repeated)
    assert [one["x-tenant"] for one in recorder.calls] == ["blue, red"]


class Careless:
    """An ASGI server that decodes the values of headers, in front of an application."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = [(name, unquote_to_bytes(value)) for name, value in scope["headers"]]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)


@pytest.mark.parametrize(
    "value", ["blue%0D%0AX-Admin: yes", "blue%0AX-Admin: yes", "blue%00", "blue%01"]
)
async def test_a_value_with_control_characters_is_refused(value: str) -> None:
    async with recorded(a_server()) as (url, recorder):
        entry = {"url": url, "dovetail": {"forward": ["X-Tenant"]}}
        gateway = Gateway({"mcpServers": {"up": entry}}, limits=PATIENT)
        params = {"name": "up__add", "arguments": {"a": 1, "b": 2}}
        async with on_a_port(Careless(gateway.asgi("/mcp", hosts="*"))) as place:
            for _ in range(TRIP_AFTER + 1):
                headers = {"X-Tenant": value}
                _, reply = await asyncio.to_thread(
                    post, f"http://{place}/mcp", "tools/call", params, headers
                )
                assert "'X-Tenant' contains control characters" in reply["error"]["message"]
            # The server did not fail, so others can still use it.
            async with Client(f"http://{place}/mcp", headers={"X-Tenant": "blue"}) as client:
                assert (await client.call_tool("up__add", {"a": 1, "b": 2})).data == 3
    assert [one["x-tenant"] for one in recorder.calls] == ["blue"]
