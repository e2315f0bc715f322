"""The embedded authorization server where it is served: on a port, below a mount point, for several
endpoints."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from dovetail import Client, Context, Server
from dovetail.auth import ClientCredentials, KnownClient, MemoryStore, OAuth, Provider
from dovetail.auth.client.store import read_record

from ..person import Person
from ..transports.http.raw import on_port
from .provider_kit import HASHES


class Robot:
    """A browser that logs in by itself."""

    redirect_uri = "http://127.0.0.1:3999/callback"
    visits = 0

    @asynccontextmanager
    async def session(self) -> AsyncIterator["Robot"]:
        yield self

    async def go(self, url: str, about: str) -> Mapping[str, str]:
        self.visits += 1
        person = Person(username="ada", password="lovelace")
        ended = await asyncio.to_thread(person.visit, url, self.redirect_uri, arrive=False)
        return dict(parse_qsl(urlsplit(ended).query))


def served(**settings: Any) -> Server:
    server = Server(
        "guarded", auth=Provider(**{"users": HASHES, "storage": ":memory:", **settings})
    )

    @server.tool
    async def whoami(ctx: Context) -> str:
        return ctx.user.id if ctx.user else "nobody"

    return server


async def asked(url: str, auth: Any) -> Any:
    async with Client(url, auth=auth) as client:
        return (await client.call_tool("whoami")).data


async def test_a_client_finds_its_way_from_the_url_of_a_server_to_its_tools() -> None:
    async with on_port(served().asgi(path="/mcp")) as site:
        auth = OAuth(store=MemoryStore(), browser=Robot())
        assert await asked(f"http://127.0.0.1:{site.port}/mcp", auth) == "ada"


@pytest.mark.parametrize("spellings", [("/mcp", "/mcp/"), ("/mcp/", "/mcp")])
@pytest.mark.parametrize("dpop", [False, True])
async def test_a_slash_at_the_end_of_the_url_does_not_require_another_login(
    spellings: tuple[str, str], dpop: bool
) -> None:
    store, robot = MemoryStore(), Robot()
    async with on_port(served(dpop=dpop).asgi(path="/mcp")) as site:
        for path in spellings:
            url = f"http://127.0.0.1:{site.port}{path}"
            assert await asked(url, OAuth(store=store, browser=robot)) == "ada"
        assert robot.visits == 1
        assert await store.keys() == [f"http://127.0.0.1:{site.port}/mcp"]


async def test_the_provider_says_who_logged_in_and_a_renewal_says_so_too() -> None:
    store = MemoryStore()
    async with on_port(served(access_life=0.5).asgi(path="/mcp")) as site:
        url = f"http://127.0.0.1:{site.port}/mcp"
        tokens = []
        for _ in range(2):  # the first token is about to expire when the second client starts
            assert await asked(url, OAuth(store=store, browser=Robot())) == "ada"
            tokens.append(read_record(await store.load(url)).tokens)
            await asyncio.sleep(0.5)  # the token's life, which no event ends
    assert [one and one.user for one in tokens] == ["ada", "ada"]
    assert tokens[0] and tokens[1] and tokens[0].access_token != tokens[1].access_token


async def test_a_client_that_acts_for_itself_is_not_called_a_user() -> None:
    known, store = [KnownClient(id="cron", secret="hush hush, said the vault")], MemoryStore()
    async with on_port(served(clients=known).asgi(path="/mcp")) as site:
        url = f"http://127.0.0.1:{site.port}/mcp"
        await asked(url, ClientCredentials("cron", "hush hush, said the vault", store=store))
        tokens = read_record(await store.load(url)).tokens
        assert tokens is not None and tokens.user is None


async def test_a_program_authenticates_with_the_credentials_in_a_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRON_SECRET", "hush hush, said the vault")
    known = [KnownClient(id="cron", secret="hush hush, said the vault")]
    async with on_port(served(clients=known).asgi(path="/mcp")) as site:
        auth = {
            "grantType": "client_credentials",
            "clientId": "cron",
            "clientSecret": "${CRON_SECRET}",
            "issuer": f"http://127.0.0.1:{site.port}",
        }
        entry = {"url": f"http://127.0.0.1:{site.port}/mcp", "auth": auth}
        async with Client({"mcpServers": {"guarded": entry}}) as client:
            assert (await client.call_tool("whoami")).data == "cron"


async def test_below_a_mount_point_everything_is_found_there() -> None:
    inner = served().asgi(path="/mcp")

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        if not scope["path"].startswith("/tools/"):
            await send(
                {
                    "type": "http.response.start",
                    "status": 404,
                    "headers": [(b"content-length", b"0")],
                }
            )
            await send({"type": "http.response.body", "body": b""})
            return
        await inner({**scope, "root_path": "/tools"}, receive, send)

    async with on_port(mounted) as site:
        auth = OAuth(store=MemoryStore(), browser=Robot())
        assert await asked(f"http://127.0.0.1:{site.port}/tools/mcp", auth) == "ada"
    await inner.close()


async def test_the_old_pair_beside_the_endpoint_takes_tokens_of_its_own() -> None:
    async with on_port(served().asgi(path="/mcp", sse=True)) as site:
        auth = OAuth(store=MemoryStore(), browser=Robot())
        assert await asked(f"http://127.0.0.1:{site.port}/sse", auth) == "ada"


async def test_a_known_client_calls_for_itself() -> None:
    known = [KnownClient(id="cron", secret="hush hush, said the vault")]
    async with on_port(served(users=None, clients=known).asgi(path="/mcp")) as site:
        auth = ClientCredentials("cron", "hush hush, said the vault", store=MemoryStore())
        assert await asked(f"http://127.0.0.1:{site.port}/mcp", auth) == "cron"
