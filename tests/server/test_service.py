"""A service without registries is served like a `Server`: in the same ways, with the same access
control."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dovetail import Client, Extension, HttpRequest, Server, ToolError, audit
from dovetail.auth import ApiKeys
from dovetail.errors import ConfigError, MethodNotFound, Overloaded, Unauthorized
from dovetail.protocol.base import EmptyResult, Params
from dovetail.protocol.methods import Method
from dovetail.testing import bare, pair
from tests.server.echo_service import (
    ROOT,
    URLS,
    WAYS,
    EchoService,
    build,
    in_process,
    reachable,
)
from tests.transports.http.raw import modern

TWO_CALLS = {"calls": {"count": 0.001, "burst": 2}}
KEY = "k" * 32
everywhere = pytest.mark.parametrize(("transport", "revision"), WAYS)
over_network = pytest.mark.parametrize(
    ("transport", "revision"), [way for way in WAYS if way[0] in URLS]
)


@asynccontextmanager
async def reach(
    transport: str,
    revision: str,
    *,
    rates: dict[str, Any] | None = None,
    client: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[Client]:
    """A client of an echo service; `client` has the options of the client."""
    settings = {"revision": revision, **(client or {})}
    if transport == "stdio":
        async with Client(**in_process(json.dumps(rates)), **settings) as found:
            yield found
    else:
        async with reachable(transport, build(rates, **options)) as target:
            async with Client(target, **settings) as found:
                yield found


@everywhere
async def test_a_service_is_served_on_every_transport_in_both_eras(
    transport: str, revision: str
) -> None:
    async with reach(transport, revision) as client:
        assert client.revision == revision
        assert client.server_info is not None and client.server_info.name == "echo"
        assert client.instructions == "Nothing to say"
        assert [tool.name for tool in await client.list_tools()] == ["echo"]
        assert (await client.call_tool("echo", {"a": 1})).text == "echo: heard"
        with pytest.raises(MethodNotFound):
            await client.get_prompt("none")


@everywhere
async def test_the_rates_of_a_service_hold_on_every_transport(
    transport: str, revision: str
) -> None:
    async with reach(transport, revision, rates=TWO_CALLS) as client:
        for _ in range(2):
            await client.call_tool("echo")
        with pytest.raises(Overloaded, match="Too many tool calls"):
            await client.call_tool("echo")


@over_network
async def test_the_guard_of_a_service_admits_only_those_it_knows(
    transport: str, revision: str
) -> None:
    guard = ApiKeys({KEY: "ada"})
    known = {"headers": {"Authorization": f"Bearer {KEY}"}}
    async with reach(transport, revision, auth=guard, client=known) as client:
        assert (await client.call_tool("echo")).text == "echo: heard"
    with pytest.raises(Unauthorized):
        async with reach(transport, revision, auth=guard):
            pass


@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_a_service_runs_in_a_loop(transport: Any) -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    service = build()
    serving = asyncio.create_task(service.run_async(transport, port=0, ready=ready.set_result))
    async with Client(await ready) as client:
        assert (await client.call_tool("echo")).text == "echo: heard"
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_a_service_answers_one_request_as_a_serverless_function() -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2025-06-18",
    }
    url = "https://localhost/mcp"
    request = HttpRequest(
        path=urlsplit(url).path, url=url, headers=headers, body=json.dumps(body).encode()
    )
    answer = await build().handle(request)
    assert answer.status == 200
    assert [tool["name"] for tool in json.loads(answer.body)["result"]["tools"]] == ["echo"]


def test_a_service_refuses_the_same_options_as_a_server() -> None:
    with pytest.raises(ConfigError, match="stdio transport supports only the option quiet"):
        build().run("stdio", port=1)
    with pytest.raises(ConfigError, match="Unknown transport"):
        build().run("carrier-pigeon")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Unknown HTTP option"):
        build().asgi(prot=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="auth= must be a guard"):
        EchoService(auth="secret")
    with pytest.raises(ConfigError, match="Unknown revisions"):
        EchoService(revisions=["1999-01-01"])


async def test_extensions_and_observers_see_the_calls_of_a_service() -> None:
    seen: list[str] = []

    async def wrap(call: Any, next: Any) -> Any:
        seen.append(call.name)
        return await next(call)

    async def answer(call: Any) -> EmptyResult:
        return EmptyResult()

    ours = Method("demo/ask", "client", Params, EmptyResult)
    extension = Extension(
        id="com.example/demo",
        methods=[ours],
        handlers={"demo/ask": answer},
        around={"tools/call": wrap},
    )
    service = build(extensions=[extension], middleware=[audit(lambda one: seen.append(one.method))])
    theirs = Extension(id="com.example/demo", methods=[ours])
    service.offered["extensions"] = service.extensions.declared
    async with pair(service, revision="2026-07-28", extensions=[theirs]) as client:
        seen.clear()
        await client.call_tool("echo")
        await client.request("demo/ask")
    assert seen == ["tools/call", "tools/call", "demo/ask"]


async def test_a_service_that_lacks_a_tool_answers_with_an_error() -> None:
    async def refuse(call: Any) -> Any:
        raise ToolError("no such tool")

    service = build()
    service.add_handlers({"tools/call": refuse})
    async with pair(service) as client:
        with pytest.raises(Exception, match="no such tool"):
            await client.call_tool("echo")


async def test_a_file_may_hold_a_service(tmp_path: Path) -> None:
    file = tmp_path / "relay.py"
    file.write_text("from tests.server.echo_service import build\nrelay = build()\n")
    env = {"PYTHONPATH": str(ROOT)}
    for target in (str(file), f"{file}:relay"):
        async with Client(target, env=env) as client:
            assert (await client.call_tool("echo")).text == "echo: heard"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_who_connects_later_reads_what_holds_then(transport: str, revision: str) -> None:
    service = build()
    async with reachable(transport, service) as target:
        async with Client(target, revision=revision) as client:
            assert client.instructions == "Nothing to say"
            assert client.capabilities.get("prompts") is None
        service.told = "Ask me"
        service.offered["prompts"] = {"listChanged": True}
        async with Client(target, revision=revision) as client:
            assert client.instructions == "Ask me"
            assert client.capabilities["prompts"] == {"listChanged": True}


async def test_on_one_connection_each_discovery_reads_what_holds_then() -> None:
    service = build()
    async with bare(service) as peer:
        discover = modern("server/discover")[0]
        first = (await peer.ask(discover["method"], discover["params"], id=1))["result"]
        service.told = "Ask me"
        second = (await peer.ask(discover["method"], discover["params"], id=2))["result"]
    assert (first["instructions"], second["instructions"]) == ("Nothing to say", "Ask me")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_instructions_of_a_server_may_change(revision: str) -> None:
    server = Server("changing", instructions="before")
    server.instructions = "after"
    async with pair(server, revision=revision) as client:
        assert client.instructions == "after"

    class Changing(Server):
        @property
        def instructions(self) -> str:  # type: ignore[override]
            return "now"

    async with pair(Changing("changing"), revision=revision) as client:
        assert client.instructions == "now"
