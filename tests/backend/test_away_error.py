"""What a caller is told if the backend is away: one error, and over HTTP one status."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dovetail import Client, Server
from dovetail.errors import BackendAway, Overloaded
from dovetail.ports import HttpRequest, HttpResponse, Principal, PublicUrl
from dovetail.protocol.methods import Method
from tests.behaviour.web import on_a_port
from tests.transports.http.raw import BATCHING, Answer, Site, hosted

AWAY = "The server cannot reach its shared state. Try again in 7 s"


def away() -> BackendAway:
    return BackendAway(AWAY, data={"retryAfter": 6.2})


class Refusing(Server):
    """A server that refuses every request while its backend is away."""

    def admit(self, method: Method, params: Any, caller: Any) -> Any:
        if method.name == "tools/list":
            raise away()
        return super().admit(method, params, caller)


def build(kind: type[Server] = Server, **options: Any) -> Server:
    server = kind("shop", **options)

    @server.tool(annotations={"readOnlyHint": True})
    def look() -> str:
        raise away()

    return server


async def check_refusal(answer: Answer) -> None:
    assert (answer.status, answer.headers["retry-after"]) == (503, "7")
    error = await answer.error()
    assert (error["code"], error["data"]) == (Overloaded.code, {"retryAfter": 6.2})


async def stateless_call(site: Site, headers: Mapping[str, str]) -> Answer:
    return await site.ask("tools/call", {"name": "look", "arguments": {}}, headers=headers)


async def handshake_call(site: Site, headers: Mapping[str, str]) -> Answer:
    return await (await site.greet()).call("look", _headers=headers)


ERAS = [stateless_call, handshake_call]


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream"])
@pytest.mark.parametrize("call", ERAS)
async def test_a_handler_that_may_be_repeated_is_answered_with_503(
    call: Callable[..., Any], accept: str
) -> None:
    async with hosted(build()) as site:
        await check_refusal(await call(site, {"Accept": accept}))


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_a_request_that_is_refused_is_answered_with_503(era: str) -> None:
    async with hosted(build(Refusing)) as site:
        if era == "stateless":
            await check_refusal(await site.ask("tools/list"))
        else:
            await check_refusal(await (await site.greet()).ask("tools/list"))


async def test_in_a_batch_the_error_is_one_of_the_replies() -> None:
    async with hosted(build()) as site:
        session = await site.greet(BATCHING)
        call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "look"}}
        answer = await session.post([{**call, "id": 1}, {**call, "id": 2}])
        assert answer.status == 200
        assert [one["error"]["code"] for one in await answer.json()] == [Overloaded.code] * 2


@pytest.mark.parametrize("transport", ["memory", "websocket"])
async def test_other_transports_carry_the_error(transport: str) -> None:
    server = build()
    async with on_a_port(server.asgi(path="/mcp", websocket=True)) as address:
        target: Any = f"ws://{address}/ws" if transport == "websocket" else server
        async with Client(target, timeout=4) as client:
            with pytest.raises(Overloaded, match="cannot reach its shared state") as caught:
                await client.call_tool("look")
            assert caught.value.retry_after == 6.2


@pytest.mark.parametrize("hints", [{}, {"idempotentHint": True}, {"readOnlyHint": True}])
@pytest.mark.parametrize("kind", [BackendAway, Overloaded])
@pytest.mark.parametrize("transport", ["memory", "http", "websocket"])
async def test_a_tool_that_has_begun_is_repeated_only_if_it_says_that_this_is_safe(
    transport: str, kind: type[Overloaded], hints: dict[str, bool]
) -> None:
    server, runs = Server("shop"), 0

    @server.tool(annotations=hints)
    def buy() -> str:
        nonlocal runs
        runs += 1
        raise kind(AWAY, data={"retryAfter": 0.1})

    async with on_a_port(server.asgi(path="/mcp", websocket=True)) as address:
        targets = {"http": f"http://{address}/mcp", "websocket": f"ws://{address}/ws"}
        target: Any = targets.get(transport, server)
        async with Client(target, timeout=4) as client:
            with pytest.raises(Overloaded) as caught:
                await client.call_tool("buy")
    assert (runs > 1) == bool(hints)
    assert (caught.value.retry_after is not None) == bool(hints)


@pytest.mark.parametrize("hints", [{}, {"idempotentHint": True}])
async def test_a_tool_that_another_server_refuses_is_repeated_only_if_that_is_safe(
    hints: dict[str, bool],
) -> None:
    async def refuse(call: Any, call_next: Any) -> Any:
        if call.name == "tools/call":
            raise Overloaded("Stock is busy", data={"retryAfter": 0.2})
        return await call_next(call)

    stock, shop, runs = Server("stock", middleware=[refuse]), Server("shop"), 0
    stock.tool(lambda: "taken", name="take")

    async with Client(stock) as inner:

        @shop.tool(annotations=hints)
        async def buy() -> str:
            nonlocal runs
            runs += 1
            return (await inner.call_tool("take", timeout=0.1)).text

        async with Client(shop, timeout=4) as client:
            with pytest.raises(Overloaded, match="Stock is busy") as caught:
                await client.call_tool("buy")
    assert (runs > 1) == bool(hints)
    assert (caught.value.retry_after is not None) == bool(hints)


async def test_what_else_a_tool_says_about_its_overload_is_sent() -> None:
    server = Server("shop")

    @server.tool
    def buy() -> str:
        raise Overloaded("Sold out", data={"retryAfter": 1, "line": 7})

    async with Client(server) as client:
        with pytest.raises(Overloaded, match="Sold out") as caught:
            await client.call_tool("buy")
    assert caught.value.data == {"line": 7}


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_a_tool_that_must_not_be_repeated_invites_nobody_to_repeat_it(era: str) -> None:
    server = Server("shop")

    @server.tool
    def buy() -> str:
        raise away()

    async with hosted(server) as site:
        if era == "stateless":
            answer = await site.ask("tools/call", {"name": "buy", "arguments": {}})
        else:
            answer = await (await site.greet()).call("buy")
        assert (answer.status, answer.headers.get("retry-after")) == (503, None)
        error = await answer.error()
        assert (error["code"], error.get("data")) == (Overloaded.code, None)
        assert "buy could not reach the shared state" in error["message"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_task_that_has_failed_is_not_waited_for(revision: str) -> None:
    """Even if its tool may be repeated: its outcome does not change any more."""
    server = Server("shop")

    @server.tool(annotations={"idempotentHint": True}, task="optional")
    async def buy() -> str:
        raise away()

    async with Client(server, timeout=60, revision=revision) as client:
        task = await client.start_tool("buy")
        with pytest.raises(Overloaded, match="cannot reach") as caught:
            await asyncio.wait_for(task.result(), 40)
        assert caught.value.retry_after is None


class AwayGuard:
    """A guard whose state is in the backend."""

    is_away = True

    async def admit(self, request: HttpRequest, public_url: PublicUrl) -> Principal | HttpResponse:
        if self.is_away:
            raise away()
        return Principal("ada")

    async def respond(self, request: HttpRequest, public_url: PublicUrl) -> HttpResponse | None:
        if request.path == "/token":
            raise away()
        return None

    def challenge(self, *_: Any) -> Mapping[str, str]:
        return {}


@pytest.mark.parametrize(("method", "path"), [("POST", "/mcp"), ("POST", "/token")])
async def test_a_guard_that_needs_the_backend_is_answered_with_503(method: str, path: str) -> None:
    async with hosted(build(auth=AwayGuard())) as site:
        answer = await site.send(method, {"Content-Type": "application/json"}, b"{}", path)
        assert (answer.status, answer.headers["retry-after"]) == (503, "7")
        assert await answer.json() == {
            "error": "temporarily_unavailable",
            "error_description": AWAY,
        }


async def test_a_websocket_is_refused_with_503_if_the_guard_needs_the_backend() -> None:
    app = build(auth=AwayGuard()).asgi(path="/mcp", websocket=True)
    async with on_a_port(app) as address:
        upgrade = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
            "Sec-WebSocket-Version": "13",
        }
        answer = await Site(int(address.rpartition(":")[2])).send("GET", upgrade, path="/ws")
        assert (answer.status, answer.headers["retry-after"]) == (503, "7")
        await answer.body()


async def test_a_stream_stays_open_while_the_guard_cannot_check_its_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dovetail.serve.auth_gate.RECHECK_SECONDS", 0.01)
    guard = AwayGuard()
    guard.is_away = False
    async with hosted(build(auth=guard)) as site:
        session = await site.greet()
        stream = await session.listen()
        guard.is_away = True
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stream.event(), 0.3)
        stream.cut()
