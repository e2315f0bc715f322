"""The endpoint inside of other applications, and under other people's servers."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.limits import Limits
from tests.ports import free_port
from tests.transports.http.raw import OLD, Site, Stage, drive, hosted, logged, modern, on_port, text

ROOT = Path(__file__).parents[3]
PROGRAM = "tests.transports.http.hosted_program"
HOSTS = {
    "its own": [sys.executable, "-m", PROGRAM, "PORT"],
    "uvicorn": [
        sys.executable,
        "-m",
        "uvicorn",
        f"{PROGRAM}:app",
        "--port",
        "PORT",
        "--log-level",
        "error",
    ],
    "granian": [
        sys.executable,
        "-m",
        "granian",
        "--interface",
        "asgi",
        "--port",
        "PORT",
        "--log-level",
        "error",
        f"{PROGRAM}:app",
    ],
    "hypercorn": [
        sys.executable,
        "-m",
        "hypercorn",
        "-b",
        "127.0.0.1:PORT",
        "--log-level",
        "ERROR",
        f"{PROGRAM}:app",
    ],
}


@asynccontextmanager
async def program(host: str, *arguments: str) -> AsyncIterator[tuple[Site, Process]]:
    """The program under a server, up and answering."""
    port = free_port()
    command = [part.replace("PORT", str(port)) for part in HOSTS[host]]
    process = await asyncio.create_subprocess_exec(*command, *arguments, cwd=ROOT, stdout=PIPE)
    site = Site(port)
    try:
        while True:
            assert process.returncode is None, "it did not start"
            try:
                if (await site.send("GET", {}, path="/health")).status == 200:
                    break
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.05)
        yield site, process
    finally:
        for writer in site.open:
            writer.close()
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def stop(process: Process) -> str:
    """End the program as a system does; returns what it wrote."""
    process.send_signal(signal.SIGTERM)
    output, _ = await process.communicate()
    return output.decode()


@pytest.mark.parametrize("host", HOSTS)
async def test_it_works_under(host: str) -> None:
    async with program(host) as (site, process):
        session = await site.greet()
        await session.tell("notifications/initialized")
        assert text(await (await session.call("add", a=1, b=2)).json()) == "3"
        assert text(await (await site.call("add", a=3, b=4)).json()) == "7"
        standing = await session.listen()
        assert text(await (await session.call("grow")).json()) == "grown"
        assert (await standing.next()).message["method"] == "notifications/tools/list_changed"
        hanging = await site.call("hang")
        assert logged([(await hanging.next()).message]) == ["begun"]
        waiting = asyncio.create_task(site.call("cancelled"))
        hanging.cut()
        assert text(await (await waiting).whole()) == "yes"
        standing.cut()
        for writer in site.open:
            writer.close()
        async with asyncio.timeout(60):
            output = await stop(process)
    assert output.split() == ["entered", "left"]


async def test_a_signal_ends_it_soon_however_many_streams_are_open() -> None:
    async with program("its own") as (site, process):
        session = await site.greet()
        streams = [await session.listen() for _ in range(10)]
        streams += [
            await site.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            for _ in range(10)
        ]
        streams += [await site.call("hang") for _ in range(10)]
        async with asyncio.timeout(60):
            output = await stop(process)
            for stream in streams:
                await stream.ended()
        assert process.returncode == 0, (
            "who called `run` goes on, and here that is the end of the program"
        )
    assert output.split() == ["entered", "left"]


@pytest.mark.parametrize("tool", ["stubborn", "block"])
async def test_a_tool_that_cannot_be_ended_does_not_keep_the_process(
    tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTED_SHUTDOWN", "0.2")
    async with program("its own") as (site, process):
        assert logged([(await (await site.call(tool)).next()).message]) == ["begun"]
        await asyncio.sleep(0.2)  # until it blocks
        async with asyncio.timeout(60):
            await stop(process)
        assert process.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_ends_it_at_once(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTED_SHUTDOWN", "60")
    async with program("its own") as (site, process):
        assert logged([(await (await site.call("stubborn")).next()).message]) == ["begun"]
        process.send_signal(number)
        await asyncio.sleep(0.5)
        assert process.returncode is None
        async with asyncio.timeout(20):
            await stop(process)
        assert process.returncode == 130


async def test_a_lifespan_that_does_not_end_does_not_keep_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOSTED_SHUTDOWN", "0.5")
    async with program("its own") as (site, process):
        assert text(await (await site.call("stay")).json()) == "stays"
        async with asyncio.timeout(20):
            output = await stop(process)
        assert process.returncode == 0, "it was cancelled, which it took notice of"
    assert output.split() == ["entered"]


@pytest.mark.requirement("http-localhost")
async def test_by_default_nobody_but_this_machine_can_reach_it() -> None:
    async with program("its own") as (site, _):
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.2", site.port)


async def test_a_client_that_does_not_finish_its_headers_is_not_waited_for() -> None:
    server = Stage(limits=Limits(body_timeout=0.1)).server
    async with hosted(server) as site:
        reader, writer = await site.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        assert await reader.read() == b""
        assert (await site.call("add", a=1, b=2)).status == 200


# inside of other applications


async def speak(site: Site, path: str) -> None:
    """Both eras, JSON and a stream, at a path."""
    site.path = path
    session = await site.greet()
    assert text(await (await session.call("add", a=1, b=2)).json()) == "3"
    assert text(await (await site.call("add", a=1, b=2)).json()) == "3"
    assert logged(await (await site.call("chat")).messages()) == ["line 0", "line 1", "line 2"]
    assert (await session.listen()).status == 200
    assert (await session.delete()).status == 204


@pytest.mark.requirement("http-endpoint")
async def test_mounted_in_starlette() -> None:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    async def home(request: Any) -> PlainTextResponse:
        return PlainTextResponse("home")

    app = Starlette(routes=[Route("/", home), Mount("/mcp", app=Stage().server.asgi())])
    async with on_port(app) as site:
        await speak(site, "/mcp/")
        assert await (await site.send("GET", {}, path="/")).body() == b"home"
        assert (await site.send("GET", {}, path="/mcp/health")).status == 200
        assert (await site.send("GET", {}, path="/health")).status == 404


async def test_mounted_in_starlette_with_a_path_of_its_own() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    app = Starlette(
        routes=[
            Mount("/a/b", app=Stage().server.asgi("/mcp")),
            Mount("/c", app=Stage().server.asgi("/mcp")),
        ]
    )
    async with on_port(app) as site:
        await speak(site, "/a/b/mcp")
        await speak(site, "/c/mcp/")
        assert (await site.send("GET", {}, path="/a/b/other")).status == 404


async def test_mounted_in_fastapi_with_nothing_but_mount() -> None:
    from fastapi import FastAPI

    app = FastAPI()
    app.mount("/mcp", Stage().server.asgi())
    async with on_port(app) as site:
        await speak(site, "/mcp/")
        message, headers = modern("tools/list")
        bare = await site.post(message, headers, path="/mcp")
        if bare.status != 200:  # FastAPI's own redirect, which keeps method and body
            assert (bare.status, bare.headers["location"]) == (
                307,
                f"http://127.0.0.1:{site.port}/mcp/",
            )


async def test_mounted_at_the_root_of_fastapi_both_spellings_are_the_endpoint() -> None:
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/hello")
    async def hello() -> str:
        return "hello"

    app.mount("/", Stage().server.asgi("/mcp"))
    async with on_port(app) as site:
        await speak(site, "/mcp")
        await speak(site, "/mcp/")
        assert await (await site.send("GET", {}, path="/hello")).json() == "hello"


async def test_the_old_pair_knows_where_it_is_mounted() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    app = Starlette(routes=[Mount("/tools", app=Stage().server.asgi(sse=True))])
    async with on_port(app) as site:
        stream = await site.send("GET", {"Accept": "text/event-stream"}, path="/tools/sse")
        assert (await stream.next()).data.startswith("/tools/message?session_id=")


async def test_middleware_around_it_does_not_break_streams() -> None:
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.routing import Mount

    async def tag(request: Any, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["x-tag"] = "tagged"
        return response

    stage = Stage()
    routes = [Mount("/mcp", app=stage.server.asgi())]
    app = Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=tag)])
    async with on_port(app, path="/mcp/") as site:
        await speak(site, "/mcp/")
        answer = await site.call("talk")
        assert answer.headers["x-tag"] == "tagged"
        await answer.next()
        answer.cut()
        await stage.cancelled.wait()


async def test_mounted_beside_django() -> None:
    import django
    from django.conf import settings
    from django.core.asgi import get_asgi_application
    from django.http import HttpRequest, HttpResponse
    from django.urls import path

    def home(request: HttpRequest) -> HttpResponse:
        return HttpResponse("home")

    if not settings.configured:
        settings.configure(
            ROOT_URLCONF=(path("", home),), ALLOWED_HOSTS=["*"], SECRET_KEY="x", LOGGING_CONFIG=None
        )
        django.setup()
    pages, mcp = get_asgi_application(), Stage().server.asgi("/mcp")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        ours = scope["type"] == "http" and scope["path"].startswith("/mcp")
        await (mcp if ours else pages)(scope, receive, send)

    async with on_port(app, lifespan="auto") as site:  # which Django has none of
        await speak(site, "/mcp")
        await speak(site, "/mcp/")
        assert await (await site.send("GET", {}, path="/")).body() == b"home"


async def test_the_lifespan_of_a_mounted_server_is_entered_by_its_first_request() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    life: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        life.append("entered")
        yield
        life.append("left")

    mcp = Stage(lifespan=lifespan).server.asgi()
    async with on_port(
        Starlette(routes=[Mount("/mcp", app=mcp)]), lifespan="on", path="/mcp/"
    ) as site:
        assert life == [], "nobody tells a mounted application"
        for _ in range(3):
            assert (await site.call("add", a=1, b=2)).status == 200
        assert life == ["entered"]
        await mcp.close()
    assert life == ["entered", "left"]


@pytest.mark.parametrize(
    ("root", "path", "status"),
    [
        ("", "/mcp", 200),
        ("/", "/mcp", 200),
        ("/api", "/api/mcp", 200),
        ("/api/", "/api/mcp", 200),
        ("/api", "/mcp", 200),  # some hosts leave it out of the path
        ("/api", "/apix/mcp", 404),
        ("/mcp", "/mcp", 404),
    ],
)
async def test_the_place_that_it_is_mounted_at_ends_at_a_slash(
    root: str, path: str, status: int
) -> None:
    app = Stage().server.asgi("/mcp")
    message, headers = modern("tools/list")
    proper = {
        "content-type": "application/json",
        **{name: value or "" for name, value in headers.items()},
    }

    async def host(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "root_path": root}, receive, send)

    sent = await drive(host, "POST", proper, json.dumps(message).encode(), path)
    assert sent[0]["status"] == status
    await app.close()


async def test_one_server_may_be_served_in_two_places_at_once() -> None:
    stage = Stage()
    async with hosted(stage.server) as one, hosted(stage.server, sessions=False) as two:
        session = await one.greet(OLD)
        standing = await session.listen()
        assert (await two.greet(OLD)).id is None
        stage.server.remove_tool("add")
        assert (await standing.next()).message["method"] == "notifications/tools/list_changed"
