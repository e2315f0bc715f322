"""`routes=`: an application of the program's own, at all paths where the server has nothing."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from dovetail import Limits
from dovetail.auth import ApiKeys
from dovetail.errors import ConfigError
from tests.transports.http.raw import Stage, hosted, text

KEY = "k" * 32


async def echo(request: Request) -> Response:
    return PlainTextResponse(
        f"{request.method} {request.url.path} {(await request.body()).decode()}".strip()
    )


PAGES = Starlette(
    routes=[Route(path, echo, methods=["GET", "POST"]) for path in ("/about", "/mcp", "/health")]
)
guards = pytest.mark.parametrize(
    "options", [{}, {"auth": ApiKeys({KEY: "ada"})}], ids=["open", "guarded"]
)


@guards
async def test_it_answers_where_the_server_has_nothing_and_only_there(
    options: dict[str, Any],
) -> None:
    async with hosted(Stage(**options).server, routes=PAGES) as site:
        assert await (await site.send("GET", {}, path="/about")).body() == b"GET /about"
        assert (
            await (await site.send("POST", {}, b"a body", path="/about")).body()
            == b"POST /about a body"
        )
        assert (await site.send("GET", {}, path="/nowhere")).status == 404
        assert await (await site.send("GET", {}, path="/health")).body() == b'{"status":"ok"}'
        assert (
            text(
                await (await site.call("add", {"Authorization": f"Bearer {KEY}"}, a=1, b=2)).json()
            )
            == "3"
        )


@guards
async def test_a_host_that_is_not_ours_does_not_get_there(options: dict[str, Any]) -> None:
    async with hosted(Stage(**options).server, routes=PAGES) as site:
        assert (await site.send("GET", {"Host": "evil.example.com"}, path="/about")).status == 421


async def test_where_a_guard_has_to_look_first_a_body_is_bounded_as_any_other() -> None:
    limits = Limits(incoming=100_000)
    async with hosted(
        Stage(auth=ApiKeys({KEY: "ada"}), limits=limits).server, routes=PAGES
    ) as site:
        assert (
            len(await (await site.send("POST", {}, b"x" * 100_000, path="/about")).body()) > 100_000
        )
        assert (await site.send("POST", {}, b"x" * 100_001, path="/about")).status == 413


async def test_the_former_name_of_the_option_still_works_with_a_warning() -> None:
    server = Stage().server
    with pytest.warns(DeprecationWarning, match="beside= has been renamed to routes="):
        app = server.asgi("/mcp", beside=PAGES)
    assert app.options.routes is PAGES
    with pytest.raises(ConfigError, match="pass only routes="):
        server.asgi("/mcp", beside=PAGES, routes=PAGES)
