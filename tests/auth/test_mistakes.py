"""What people write that cannot work, and servers that want something else: what they are told, and
what to do."""

import asyncio
import gc
import logging
import socket
from typing import Any

import pytest
import uvicorn
from aiohttp import web

from dovetail import Client, Context, HttpRequest, Server
from dovetail.auth import (
    ApiKeys,
    Bearer,
    KnownClient,
    MemoryStore,
    OAuth,
    Provider,
    jwt,
    static_tokens,
)
from dovetail.auth.server.guards import expand_scopes
from dovetail.errors import ConfigError, Unauthorized
from dovetail.ports import Principal
from dovetail.serve.uvicorn_server import websocket_protocol

from ..transports.http.raw import Site, hosted
from .provider_kit import HASHES, Agent, decoded, site

KEY = "k-7Qy0bR8mVfXw2nTz4LpJ"
ISSUER = "https://issuer.example"
HOSTS = ["mcp.example"]
POSTED = {"host": "mcp.example", "content-type": "application/json", "accept": "application/json"}


def served(guard: Any) -> Any:
    server = Server("guarded", auth=guard)

    @server.tool
    async def me(ctx: Context) -> str:
        return ctx.user.id if ctx.user else "nobody"

    return server


def url_of(at: Site) -> str:
    return f"http://127.0.0.1:{at.port}{at.path}"


# what is no guard, and what are no credentials


@pytest.mark.parametrize("wrong", ["secret", jwt(ISSUER), Bearer, OAuth()])
def test_what_is_no_guard_is_refused_at_once_with_what_to_write(wrong: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"auth= must be a guard, not (a|the class) \w+; use Bearer\(jwt\("
    ):
        Server("guarded", auth=wrong)


def test_a_url_or_a_token_is_no_verifier() -> None:
    with pytest.raises(ConfigError, match=r"Bearer\(jwt\("):
        Bearer(ISSUER)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [["token"], "token", None, {1: "ada"}])
def test_a_table_of_secrets_has_to_be_one(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="pass a dict"):
        static_tokens(wrong)
    with pytest.raises(ConfigError, match="pass a dict"):
        ApiKeys(wrong)


def test_credentials_have_to_be_made_of_their_class() -> None:
    with pytest.raises(ConfigError, match=r"auth=OAuth\(…\)"):
        Client("http://127.0.0.1:1/mcp", auth=OAuth)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "target", [["server"], Server("here"), {"mcpServers": {"one": {"command": "x"}}}]
)
def test_credentials_for_a_server_that_asks_nobody_are_a_mistake(target: Any) -> None:
    with pytest.raises(ConfigError, match="auth= applies only to a URL"):
        Client(target, auth="token")


# scopes are a list, or words in a string


async def test_words_in_a_string_are_scopes_everywhere() -> None:
    assert Bearer(static_tokens({"t": "ada"}), scopes="read write").scopes == ("read", "write")
    assert expand_scopes(["admin"], {"admin": "read write"}) == ("admin", "read", "write")
    known = KnownClient(id="nightly", secret="a-long-enough-secret", scopes="read write")
    provider = Provider(
        users=HASHES, storage=":memory:", scopes="read write", required="read", clients=[known]
    )
    agent = Agent(provider)
    metadata = decoded(await agent.get("/.well-known/oauth-authorization-server"))
    assert metadata["scopes_supported"] == ["read", "write", "offline_access"]
    form = {
        "grant_type": "client_credentials",
        "client_id": "nightly",
        "client_secret": "a-long-enough-secret",
    }
    assert decoded(await agent.form("/token", form))["scope"] == "read write"
    verify = static_tokens({"t": {"id": "ada", "scopes": "read write"}})
    assert await verify("t", site()) == Principal("ada", scopes=("read", "write"))


# why a server says no


@pytest.mark.parametrize(
    "options", [{"auth": "forged"}, {"headers": {"Authorization": "Bearer forged"}}]
)
async def test_a_refused_token_comes_with_the_servers_reason(options: Any) -> None:
    async with hosted(served(Bearer(static_tokens({"t": "ada"})))) as at:
        with pytest.raises(Unauthorized) as caught:
            await Client(url_of(at), **options).connect()
    message = str(caught.value).rstrip(".").lower()
    assert "it is unknown" in message and message.endswith(("give another one", "pass another one"))
    assert "log in" not in str(caught.value)


async def test_a_reason_is_shown_in_one_line_and_not_at_length() -> None:
    async def refuse(request: web.Request) -> web.Response:
        said = 'Bearer error="invalid_token", error_description="no \x9b31m ' + "x" * 5000 + '"'
        return web.Response(status=401, headers={"WWW-Authenticate": said})

    app = web.Application()
    app.router.add_post("/mcp", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    listening = web.TCPSite(runner, "127.0.0.1", 0)
    await listening.start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        for options in ({"auth": "t"}, {"headers": {"authorization": "Bearer t"}}, {}):
            with pytest.raises(Unauthorized, match=r"no .*31m x") as caught:
                await Client(url, **options).connect()  # type: ignore[arg-type]
            assert str(caught.value).isprintable() and len(str(caught.value)) < 600
    finally:
        await runner.cleanup()


async def test_a_server_that_wants_an_api_key_is_not_logged_in_to() -> None:
    class Nobody:
        def session(self) -> Any:
            raise AssertionError("there is nothing to log in to")

    async with hosted(served(ApiKeys({KEY: "backup"}))) as at:
        for auth in (None, OAuth(store=MemoryStore(), browser=Nobody())):
            with pytest.raises(Unauthorized, match=r"an API key.*headers=\{'x-api-key': …\}"):
                await Client(url_of(at), auth=auth).connect()
        with pytest.raises(
            Unauthorized,
            match=r"rejected the X-Api-Key header .*is not valid\)\. Pass another one",
        ):
            await Client(url_of(at), headers={"X-Api-Key": "wrong"}).connect()
        async with Client(url_of(at), headers={"X-Api-Key": KEY}) as client:
            assert (await client.call_tool("me")).data == "backup"


async def test_scopes_that_are_needed_are_named_as_such() -> None:
    server = Server(
        "shop", auth=Bearer(static_tokens({"t": {"id": "bo", "scopes": ["shop"]}}), scopes=["shop"])
    )

    @server.tool(scopes=["orders:cancel"])
    async def cancel() -> None: ...

    async with hosted(server) as at, Client(url_of(at), auth="t") as client:
        with pytest.raises(
            Unauthorized, match="requires a token with these scopes: shop orders:cancel"
        ) as caught:
            await client.call_tool("cancel")
    assert caught.value.scopes == ("shop", "orders:cancel")


async def test_over_websocket_the_reason_is_text_and_nothing_is_complained_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = served(Bearer(static_tokens({"t": "ada"}))).asgi(websocket=True)
    with socket.create_server(("127.0.0.1", 0)) as listening, caplog.at_level(logging.WARNING):
        running = uvicorn.Server(uvicorn.Config(app, ws=websocket_protocol(), log_config=None))
        task = asyncio.create_task(running.serve([listening]))
        url = f"ws://127.0.0.1:{listening.getsockname()[1]}/ws"
        try:
            with pytest.raises(
                Unauthorized,
                match=r"\(401: This server requires an access token.*Log in with auth=OAuth",
            ):
                await Client(url).connect()
            with pytest.raises(
                Unauthorized, match=r"refused this token \(invalid_token: .*it is unknown\)"
            ):
                await Client(url, auth="forged").connect()
            async with Client(url, auth="t") as client:
                assert (await client.call_tool("me")).data == "ada"
        finally:
            running.should_exit = True
            await task
    assert caplog.text == ""


# what a server is found by


async def test_the_metadata_of_a_function_lies_where_its_refusal_says() -> None:
    server = served(Bearer(jwt(ISSUER)))
    refused = await server.handle(
        HttpRequest(path="/fn", url="https://mcp.example/fn", headers=POSTED), hosts=HOSTS
    )
    assert refused.status == 401
    where = (
        refused.headers["www-authenticate"].partition('resource_metadata="')[2].partition('"')[0]
    )
    path = where.removeprefix("https://mcp.example")
    found = await server.handle(
        HttpRequest(method="GET", path=path, url=where, headers={"host": "mcp.example"}),
        hosts=HOSTS,
    )
    assert found.status == 200 and decoded(found)["resource"] == "https://mcp.example/fn"


async def test_an_application_that_nobody_holds_lives_until_its_loop_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def once() -> None:
        answered: list[Any] = []

        async def send(message: Any) -> None:
            answered.append(message)

        async def receive() -> Any:
            return {"type": "http.request"}

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/health",
            "headers": [],
            "query_string": b"",
        }
        await Server("dropped").asgi()(scope, receive, send)
        assert answered[0]["status"] == 200

    with caplog.at_level(logging.ERROR, "asyncio"):
        await once()
        for _ in range(3):
            await asyncio.sleep(0)
            gc.collect()
    assert "Task was destroyed" not in caplog.text
