"""The embedded authorization server where it is served: on a port, below a mount point, for several
endpoints."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dovetail import Client, Context, Server
from dovetail.auth import ClientCredentials, KnownClient, MemoryStore, OAuth, Provider

from ..person import Person
from ..transports.http.raw import on_port
from .provider_kit import HASHES


class Robot:
    """A browser that logs in by itself."""

    redirect_uri = "http://127.0.0.1:3999/callback"

    @asynccontextmanager
    async def session(self) -> AsyncIterator["Robot"]:
        yield self

    async def go(self, url: str, about: str) -> Mapping[str, str]:
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
