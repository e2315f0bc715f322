"""A server with a guard, over real sockets: who is let in, on each way in, and what the others are
told."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail import Context, HttpRequest, Limits, Server
from dovetail.auth import ApiKeys, Bearer, Checker, jwt, static_tokens
from dovetail.auth.dpop import DpopSigner
from dovetail.auth.wire import parse_challenges, read_requirements
from dovetail.errors import ConfigError, ConnectFailed
from dovetail.ports import HttpResponse, Principal
from dovetail.serve import auth_gate

from ..behaviour.web import on_a_port
from ..transports.http.raw import BOTH, INFO, OLD, Answer, Site, hosted, modern, on_port, request
from .issuing import issuing

ISSUER = "https://issuer.example"
ADA, BOB = {"Authorization": "Bearer ada-token"}, {"Authorization": "Bearer bob-token"}
WELL_KNOWN = "/.well-known/oauth-protected-resource"


def tokens(**more: Any) -> Any:
    return static_tokens(
        {"ada-token": Principal("ada", scopes=("read",)), "bob-token": "bob", **more}
    )


def guarded(*, guard: Any = None, **options: Any) -> Server:
    server = Server(
        "guarded", auth=guard or Bearer(tokens(), authorization_servers=[ISSUER]), **options
    )

    @server.tool
    async def whoami(ctx: Context) -> str:
        assert ctx.user is not None
        return ctx.user.id

    @server.tool
    async def slow(ctx: Context) -> str:
        ctx.info("begun")
        await asyncio.Event().wait()
        return ""

    return server


def asked(answer: Answer) -> Any:
    return read_requirements(HttpResponse(headers=answer.headers))


async def said(answer: Answer) -> str:
    text: str = (await answer.whole())["result"]["content"][0]["text"]
    return text


# the endpoint


@pytest.mark.requirement(
    "authorization-401", "authorization-metadata-header", "http-authentication"
)
async def test_without_a_token_nobody_gets_in_and_everybody_hears_where_to_get_one() -> None:
    async with hosted(guarded()) as site:
        answer = await site.ask("tools/list")
        assert answer.status == 401
        (challenge,) = parse_challenges(answer.headers)
        assert challenge.scheme == "bearer"
        assert challenge.parameters == {
            "resource_metadata": f"http://127.0.0.1:{site.port}{WELL_KNOWN}/mcp"
        }
        assert (await answer.json())["error_description"]


@pytest.mark.requirement("elicitation-identity")
async def test_with_a_token_the_tool_knows_who_calls() -> None:
    async with hosted(guarded()) as site:
        assert await said(await site.call("whoami", ADA)) == "ada"
        assert (
            await said(await site.call("whoami", {"Authorization": "bearer  bob-token"})) == "bob"
        )


@pytest.mark.requirement("authorization-401")
async def test_a_token_that_is_not_good_is_called_that() -> None:
    async with hosted(guarded()) as site:
        answer = await site.call("whoami", {"Authorization": "Bearer forged"})
        assert (answer.status, asked(answer).error) == (401, "invalid_token")
        assert "forged" not in (await answer.body()).decode()


@pytest.mark.requirement("authorization-400")
@pytest.mark.parametrize(
    "value", ["Bearer", "Bearer ", "Bearer a b", "Bearer é", 'Bearer "x"', "Bearer " + "x" * 20_000]
)
async def test_what_cannot_be_a_token_is_malformed(value: str) -> None:
    async with hosted(guarded()) as site:
        answer = await site.call("whoami", {"Authorization": value})
        assert (answer.status, asked(answer).error) == (400, "invalid_request")


async def test_another_way_to_log_in_is_told_which_one_is_wanted() -> None:
    async with hosted(guarded()) as site:
        answer = await site.call("whoami", {"Authorization": "Basic YTpi"})
        assert (answer.status, asked(answer).error) == (401, "")


@pytest.mark.requirement("authorization-no-query-token")
async def test_a_token_in_the_url_is_refused_by_name_even_a_good_one() -> None:
    async with hosted(guarded()) as site:
        message, headers = modern("tools/call", {"name": "whoami", "arguments": {}})
        for extra in ({}, ADA):
            answer = await site.post(message, {**headers, **extra}, "/mcp?access_token=ada-token")
            assert (answer.status, asked(answer).error) == (400, "invalid_request")
            assert "Authorization header" in (await answer.json())["error_description"]


async def test_two_tokens_are_one_too_many() -> None:
    async with hosted(guarded(), sse=True) as site:
        message, headers = modern("tools/call", {"name": "whoami", "arguments": {}})
        two = {**ADA, "authorization": "Bearer bob-token"}
        given = {"Content-Type": "application/json", "Accept": BOTH, **headers, **two}
        assert (await site.send("POST", given, json.dumps(message).encode())).status == 400
        assert (
            await site.send("GET", {"Accept": "text/event-stream", **two}, path="/sse")
        ).status == 400


@pytest.mark.requirement("authorization-before-anything")
async def test_the_body_of_a_stranger_is_not_waited_for() -> None:
    async with hosted(guarded()) as site:
        head = {"Content-Type": "application/json", "Accept": BOTH, "Content-Length": "1000000"}
        assert (await site.send("POST", head)).status == 401


async def test_the_ladder_comes_before_the_guard() -> None:
    async with hosted(guarded()) as site:
        assert (await site.ask("tools/list", headers={"Host": "evil.example"})).status == 421
        assert (
            await site.ask("tools/list", headers={"Origin": "https://evil.example"})
        ).status == 403


async def test_a_page_of_an_allowed_origin_may_read_the_challenge_and_ask_beforehand_without_a_token() -> (  # noqa: E501
    None
):
    async with hosted(guarded(), origins=["https://app.example"]) as site:
        origin = {"Origin": "https://app.example"}
        answer = await site.ask("tools/list", headers=origin)
        assert answer.status == 401
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert "WWW-Authenticate" in answer.headers["access-control-expose-headers"]
        wanted = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, dpop",
        }
        preflight = await site.send("OPTIONS", {**origin, **wanted})
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-headers"] == "authorization, dpop"


async def test_whether_the_server_is_alive_is_no_secret() -> None:
    async with hosted(guarded()) as site:
        assert (await site.send("GET", {}, path="/health")).status == 200


# sessions


@pytest.mark.requirement("authorization-every-request", "http-session-no-proof")
async def test_each_request_of_a_session_needs_the_token() -> None:
    async with hosted(guarded()) as site:
        session = await site.greet(headers=ADA)
        assert await said(await session.call("whoami")) == "ada"
        for method in ("POST", "GET", "DELETE"):
            headers = {"Mcp-Session-Id": session.id, "MCP-Protocol-Version": OLD, "Accept": BOTH}
            answer = await site.send(method, {**headers, "Content-Type": "application/json"}, b"{}")
            assert answer.status == 401


@pytest.mark.requirement("authorization-session-binding", "http-session-bound")
async def test_the_session_of_another_user_is_none() -> None:
    async with hosted(guarded()) as site:
        session = await site.greet(headers=ADA)
        await session.listen()
        assert (await session.call("whoami", _headers=BOB)).status == 404
        assert (await session.get(headers=BOB)).status == 404
        stolen = await site.send("DELETE", {**session.headers, **BOB})
        assert stolen.status == 404
        assert await said(await session.call("whoami")) == "ada"


@pytest.mark.requirement("authorization-session-binding", "http-session-bound")
async def test_nobody_takes_up_the_stream_of_another_user() -> None:
    async with hosted(guarded()) as site:
        session, other = await site.greet(headers=ADA), await site.greet(headers=BOB)
        last = (await (await session.call("slow")).next()).id
        assert last is not None
        assert (await session.get(last, headers=BOB)).status == 404  # with her session
        assert (await other.get(last)).status == 400  # and with his own


async def test_a_session_from_before_there_was_a_guard_is_none() -> None:
    keys = ["the same sixteen characters"]
    open_server = Server("guarded")
    async with hosted(open_server, keys=keys) as site:
        id = (await site.greet()).id
    async with hosted(guarded(), keys=keys) as site:
        answer = await site.post(
            request("ping"), {"Mcp-Session-Id": id, "MCP-Protocol-Version": OLD, **ADA}
        )
        assert answer.status == 404


# what ends with the token


def expiring(seconds: float = 0.3) -> Server:
    soon = Principal("ada", expires=time.time() + seconds)
    return guarded(guard=Bearer(static_tokens({"ada-token": soon}), authorization_servers=[ISSUER]))


@pytest.mark.requirement("authorization-expired", "provider-expiry")
async def test_a_token_that_expired_is_refused() -> None:
    server = guarded(
        guard=Bearer(static_tokens({"ada-token": Principal("ada", expires=time.time() - 1)}))
    )
    async with hosted(server) as site:
        answer = await site.call("whoami", ADA)
        assert (answer.status, asked(answer).description) == (
            401,
            "The token was refused: it has expired",
        )


async def test_the_stream_of_a_session_ends_with_the_token() -> None:
    async with hosted(expiring()) as site:
        stream = await (await site.greet(headers=ADA)).listen()
        assert await stream.rest() == []


async def test_a_subscription_ends_in_good_order_with_the_token() -> None:
    async with hosted(expiring()) as site:
        params = {"notifications": {"toolsListChanged": True}}
        answer = await site.ask("subscriptions/listen", params, headers=ADA)
        assert "result" in (await answer.messages())[-1]


async def test_a_call_goes_on_and_its_stream_can_be_taken_up_with_a_new_token() -> None:
    server = expiring()
    async with hosted(server) as site:
        session = await site.greet(headers=ADA)
        answer = await session.call("slow")
        events = await answer.rest()
        assert events[-1].id is not None and "result" not in events[-1].data


class Revocable:
    """Tokens that can be revoked."""

    def __init__(self, **bound: Any) -> None:
        self.good = True
        self.seen = asyncio.Event()
        self._ada = Principal("ada", claims=bound)

    async def __call__(self, token: str, site: Any) -> Principal | None:
        self.seen.set()
        return self._ada if self.good else None


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked at very often who has stayed."""
    monkeypatch.setattr(auth_gate, "RECHECK_SECONDS", 0.02)


async def looked_at(revocable: Revocable) -> None:
    """Until it was, twice."""
    for _ in range(2):
        revocable.seen.clear()
        await revocable.seen.wait()


@pytest.mark.usefixtures("soon")
async def test_streams_end_when_the_token_is_revoked() -> None:
    revocable = Revocable()
    async with hosted(guarded(guard=Bearer(revocable)), sse=True) as site:
        stream = await (await site.greet(headers=ADA)).listen()
        params = {"notifications": {"toolsListChanged": True}}
        changes = await site.ask("subscriptions/listen", params, headers=ADA)
        pair = await site.send("GET", {"Accept": "text/event-stream", **ADA}, path="/sse")
        await looked_at(revocable)
        revocable.good = False
        assert await stream.rest() == []
        assert "result" in (await changes.messages())[-1]
        assert [event.name for event in await pair.rest()] == ["endpoint"]


@pytest.mark.usefixtures("soon")
async def test_a_websocket_ends_when_the_token_is_revoked_and_not_before() -> None:
    from websockets.asyncio.client import connect

    prover = DpopSigner()
    revocable = Revocable(cnf={"jkt": prover.thumbprint})
    async with on_socket(guarded(guard=Bearer(revocable)).asgi("/mcp", websocket=True)) as port:
        url = f"ws://127.0.0.1:{port}/ws"
        headers = {
            "Authorization": "DPoP t0k3n",
            "DPoP": prover.proof("GET", f"http{url[2:]}", "t0k3n"),
        }
        async with connect(url, additional_headers=headers) as channel:
            await looked_at(revocable)  # though a proof is good once
            await channel.send(
                json.dumps(modern("tools/call", {"name": "whoami", "arguments": {}})[0])
            )
            assert json.loads(await channel.recv())["result"]["content"][0]["text"] == "ada"
            revocable.good = False
            await channel.wait_closed()


@pytest.mark.usefixtures("soon")
async def test_while_nobody_can_tell_who_is_in_stays() -> None:
    revocable = Revocable()

    async def unreachable(token: str, at: Any) -> Principal | None:
        who = await revocable(token, at)
        if who is None:
            raise ConnectFailed("out of reach")
        return who

    async with hosted(guarded(guard=Bearer(unreachable))) as site:
        changes = await site.ask(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, headers=ADA
        )
        await looked_at(revocable)
        revocable.good = False
        await looked_at(revocable)
        reading = asyncio.create_task(changes.messages())
        await looked_at(revocable)
        assert not reading.done()
        reading.cancel()
        changes.cut()


# what of a request is nobody's business


async def test_a_handler_does_not_see_what_its_caller_proved_itself_by() -> None:
    server = guarded(guard=ApiKeys({"k-7Qy0bR8mVfXw2nTz4LpJ": "backup"}, header="X-Shop-Key"))

    @server.tool
    async def headers(ctx: Context) -> list[str]:
        return [
            name
            for name in ctx.headers
            if name not in ("host", "accept", "content-type", "content-length")
        ]

    secret = {
        "X-Shop-Key": "k-7Qy0bR8mVfXw2nTz4LpJ",
        "Cookie": "a=b",
        "Proxy-Authorization": "Basic x",
        "DPoP": "x",
    }
    async with hosted(server) as site:
        seen = (
            await (
                await site.call("headers", {**secret, "Authorization": "Basic x", "X-Trace": "7"})
            ).whole()
        )["result"]
        assert set(seen["structuredContent"]["result"]) & {name.lower() for name in secret} == set()
        assert "x-trace" in seen["structuredContent"]["result"]
        assert "authorization" not in seen["structuredContent"]["result"]


# the other ways in


@asynccontextmanager
async def on_socket(app: Any) -> AsyncIterator[int]:
    """An application on a port, with WebSocket."""
    async with on_a_port(app) as address:
        yield int(address.rpartition(":")[2])


@pytest.mark.requirement("authorization-other-transports")
async def test_a_websocket_is_opened_with_a_token_and_refused_with_the_challenge() -> None:
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidStatus

    async with on_socket(guarded().asgi("/mcp", websocket=True)) as port:
        url = f"ws://127.0.0.1:{port}/ws"
        for headers in ({}, {"Authorization": "Bearer forged"}):
            with pytest.raises(InvalidStatus) as refusal:
                await connect(url, additional_headers=headers)
            assert refusal.value.response.status_code == 401
            found = read_requirements(
                HttpResponse(
                    headers={"www-authenticate": refusal.value.response.headers["www-authenticate"]}
                )
            )
            assert found.metadata_url == f"http://127.0.0.1:{port}{WELL_KNOWN}/ws"
        with pytest.raises(InvalidStatus) as refusal:
            await connect(f"{url}?access_token=ada-token")
        assert refusal.value.response.status_code == 400
        async with connect(url, additional_headers=ADA) as channel:
            message, _ = modern("tools/call", {"name": "whoami", "arguments": {}})
            await channel.send(json.dumps(message))
            assert json.loads(await channel.recv())["result"]["content"][0]["text"] == "ada"
            params = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": INFO}
            await channel.send(json.dumps(request("initialize", params, 2)))
            await channel.recv()
            await channel.send(
                json.dumps(request("tools/call", {"name": "whoami", "arguments": {}}, 3))
            )
            assert json.loads(await channel.recv())["result"]["content"][0]["text"] == "ada"


async def test_a_conversation_over_websocket_ends_with_the_token() -> None:
    from websockets.asyncio.client import connect

    async with on_socket(expiring().asgi("/mcp", websocket=True)) as port:
        async with connect(f"ws://127.0.0.1:{port}/ws", additional_headers=ADA) as channel:
            await channel.wait_closed()


@pytest.mark.requirement("authorization-session-binding")
async def test_the_old_pair_needs_the_token_of_the_same_user_at_both_ends() -> None:
    async with hosted(guarded(), sse=True) as site:
        refused = await site.send("GET", {"Accept": "text/event-stream"}, path="/sse")
        assert refused.status == 401
        assert asked(refused).metadata_url == f"http://127.0.0.1:{site.port}{WELL_KNOWN}/sse"
        stream = await site.send("GET", {"Accept": "text/event-stream", **ADA}, path="/sse")
        place = (await stream.next()).data
        message = modern("tools/call", {"name": "whoami", "arguments": {}})[0]
        assert (await site.post(message, {}, place)).status == 401
        assert (await site.post(message, BOB, place)).status == 404
        assert (await site.post(message, ADA, place)).status == 202
        assert (await stream.next()).message["result"]["content"][0]["text"] == "ada"


async def test_on_the_old_pair_each_message_has_the_scopes_of_its_own_token() -> None:
    known = {"few": Principal("ada"), "many": Principal("ada", scopes=("write",))}
    server = guarded(guard=Bearer(static_tokens(known)))
    server.add_tool(lambda: "done", name="change", scopes=["write"])
    few, many = {"Authorization": "Bearer few"}, {"Authorization": "Bearer many"}
    async with hosted(server, sse=True) as site:
        for opened in (few, many):
            stream = await site.send("GET", {"Accept": "text/event-stream", **opened}, path="/sse")
            place = (await stream.next()).data
            await site.post(
                request(
                    "initialize", {"protocolVersion": OLD, "capabilities": {}, "clientInfo": INFO}
                ),
                opened,
                place,
            )
            await stream.next()
            params = {"name": "change", "arguments": {}}
            for message in (
                request("tools/call", params, 2),
                modern("tools/call", params, id=3)[0],
            ):
                await site.post(message, few, place)
                assert (await stream.next()).message["error"]["data"] == {"scopes": ["write"]}
                await site.post(message, many, place)
                assert (await stream.next()).message["result"]["content"][0]["text"] == "done"
            stream.cut()


async def test_a_conversation_of_the_old_pair_ends_with_the_token() -> None:
    async with hosted(expiring(), sse=True) as site:
        stream = await site.send("GET", {"Accept": "text/event-stream", **ADA}, path="/sse")
        assert [event.name for event in await stream.rest()] == ["endpoint"]


async def test_a_serverless_function_is_guarded_too() -> None:
    message, headers = modern("tools/call", {"name": "whoami", "arguments": {}})
    given = {
        "content-type": "application/json",
        "accept": BOTH,
        **{k.lower(): str(v) for k, v in headers.items()},
    }
    call = HttpRequest(
        path="/mcp", headers=given, body=json.dumps(message).encode(), url="https://mcp.example/mcp"
    )
    options = {"public_url": "https://mcp.example/mcp"}
    refused = await guarded().handle(call, **options)
    assert refused.status == 401
    assert read_requirements(refused).metadata_url == f"https://mcp.example/mcp{WELL_KNOWN}"
    call.headers = {**given, "authorization": "Bearer ada-token"}
    assert (
        json.loads((await guarded().handle(call, **options)).body)["result"]["content"][0]["text"]
        == "ada"
    )


# the metadata


async def document(site: Site, path: str, **headers: str) -> Any:
    answer = await site.send("GET", headers, path=path)
    assert answer.status == 200, path
    assert answer.headers["access-control-allow-origin"] == "*"
    return await answer.json()


@pytest.mark.requirement("authorization-resource-metadata", "authorization-servers-named")
async def test_the_metadata_is_where_the_challenge_says_and_at_the_root() -> None:
    async with hosted(guarded(), sse=True) as site:
        origin = f"http://127.0.0.1:{site.port}"
        found = await document(site, f"{WELL_KNOWN}/mcp")
        assert found["resource"] == f"{origin}/mcp"
        assert found["authorization_servers"] == [ISSUER]
        assert found["bearer_methods_supported"] == ["header"]
        assert await document(site, WELL_KNOWN) == found
        assert (await document(site, f"{WELL_KNOWN}/sse"))["resource"] == f"{origin}/sse"
        assert (await site.send("GET", {}, path=f"{WELL_KNOWN}/other")).status == 404


async def test_any_page_may_read_the_metadata() -> None:
    async with hosted(guarded()) as site:
        await document(site, WELL_KNOWN, Origin="https://app.example")
        wanted = {
            "Origin": "https://app.example",
            "Access-Control-Request-Headers": "mcp-protocol-version",
        }
        preflight = await site.send("OPTIONS", wanted, path=WELL_KNOWN)
        assert (
            preflight.status == 204
            and "mcp-protocol-version" in preflight.headers["access-control-allow-headers"]
        )
        assert (await site.send("POST", {}, b"", path=WELL_KNOWN)).status == 405
        assert (await site.send("GET", {"Host": "evil.example"}, path=WELL_KNOWN)).status == 421


async def test_below_a_mount_point_the_metadata_is_below_it_too() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    for inner, url in (("", "/api"), ("/mcp", "/api/mcp")):
        app = Starlette(routes=[Mount("/api", guarded().asgi(inner))])
        async with on_port(
            app, path=url if inner else f"{url}/"
        ) as site:  # it sends on who leaves out the slash
            origin = f"http://127.0.0.1:{site.port}"
            place = asked(await site.ask("tools/list")).metadata_url
            assert place == f"{origin}/api{WELL_KNOWN}{inner}"
            assert (await document(site, place.removeprefix(origin)))["resource"] == origin + url
            assert await said(await site.call("whoami", ADA)) == "ada"


@pytest.mark.parametrize(
    ("public", "path", "resource", "metadata"),
    [
        (
            "https://mcp.example",
            "/mcp",
            "https://mcp.example/mcp",
            f"https://mcp.example{WELL_KNOWN}/mcp",
        ),
        (
            "https://MCP.example/mcp",
            "/mcp",
            "https://mcp.example/mcp",
            f"https://mcp.example{WELL_KNOWN}/mcp",
        ),
        (
            "https://mcp.example/a/mcp",
            "/mcp",
            "https://mcp.example/a/mcp",
            f"https://mcp.example/a{WELL_KNOWN}/mcp",
        ),
        (
            "https://mcp.example/a",
            "",
            "https://mcp.example/a",
            f"https://mcp.example/a{WELL_KNOWN}",
        ),
        (
            "https://mcp.example/x",
            "/mcp",
            "https://mcp.example/x",
            f"https://mcp.example{WELL_KNOWN}/x",
        ),
    ],
)
async def test_behind_a_proxy_the_public_url_is_what_tokens_are_for(
    public: str, path: str, resource: str, metadata: str
) -> None:
    async with hosted(guarded(), path, public_url=public) as site:
        site.path = path or "/"
        assert (
            asked(await site.ask("tools/list", headers={"Host": "mcp.example"})).metadata_url
            == metadata
        )
        assert (await document(site, WELL_KNOWN))["resource"] == resource
        whole = metadata.removeprefix("https://mcp.example").removeprefix("/a")
        assert (await document(site, whole))["resource"] == resource


@pytest.mark.requirement("authorization-resource-slash")
@pytest.mark.parametrize(
    "public", ["https://MCP.example", "https://mcp.example/", "https://mcp.example/mcp/"]
)
async def test_the_server_goes_by_its_name_without_a_slash_at_the_end(public: str) -> None:
    async with hosted(guarded(), public_url=public) as site:
        assert (await document(site, WELL_KNOWN))["resource"] == "https://mcp.example/mcp"


async def test_without_an_authorization_server_there_is_no_metadata() -> None:
    async with hosted(guarded(guard=Bearer(tokens()))) as site:
        assert asked(await site.ask("tools/list")).metadata_url is None
        assert (await site.send("GET", {}, path=WELL_KNOWN)).status == 404


# tokens that are signed


@pytest.mark.requirement("authorization-audience")
async def test_a_signed_token_is_for_one_server_and_not_for_another_way_into_it() -> None:
    async with issuing() as issuer:
        async with hosted(guarded(guard=Bearer(jwt(issuer.url))), sse=True) as site:
            here = f"http://127.0.0.1:{site.port}/mcp"
            assert (await document(site, WELL_KNOWN))["authorization_servers"] == [issuer.url]
            bearer = {"Authorization": f"Bearer {issuer.token(here)}"}
            assert await said(await site.call("whoami", bearer)) == "ada"
            assert (
                await site.send("GET", {"Accept": "text/event-stream", **bearer}, path="/sse")
            ).status == 401
            other = {"Authorization": f"Bearer {issuer.token('http://127.0.0.1:1/mcp')}"}
            assert (await site.call("whoami", other)).status == 401


@pytest.mark.requirement("authorization-audience")
async def test_a_stolen_token_is_no_good_with_the_host_it_was_for() -> None:
    async with issuing() as issuer:
        server = guarded(guard=Bearer(jwt(issuer.url)))
        for host in ("127.0.0.1:1", "192.0.2.7", "evil.example"):
            async with hosted(server, hosts=["*"]) as site:
                stolen = {
                    "Authorization": f"Bearer {issuer.token(f'http://{host}/mcp')}",
                    "Host": host,
                }
                assert (await site.call("whoami", stolen)).status == 401


@pytest.mark.requirement("authorization-audience")
async def test_nor_with_another_name_or_port_that_is_let_in() -> None:
    async with issuing() as issuer:
        async with hosted(
            guarded(guard=Bearer(jwt(issuer.url))), hosts=["*.example.com", "mcp.example.org"]
        ) as site:
            at = {
                "other.example.com": 401,
                "localhost": 401,
                "127.0.0.1": 401,
                "mcp.example.org": 200,
            }
            for host, status in {**at, f"localhost:{site.port}": 200}.items():
                bearer = {
                    "Authorization": f"Bearer {issuer.token(f'http://{host}/mcp')}",
                    "Host": host,
                }
                assert (await site.call("whoami", bearer)).status == status, host


async def test_users_of_several_issuers_are_told_apart() -> None:
    async with issuing() as one, issuing() as two:
        async with hosted(guarded(guard=Bearer(jwt(one.url), jwt(two.url), tokens()))) as site:
            here = f"http://127.0.0.1:{site.port}/mcp"
            for issuer in (one, two):
                bearer = {"Authorization": f"Bearer {issuer.token(here)}"}
                assert await said(await site.call("whoami", bearer)) == f"{issuer.url}|ada"
            assert await said(await site.call("whoami", ADA)) == "local|ada"
            forged = two.token(here, iss=one.url)
            assert (await site.call("whoami", {"Authorization": f"Bearer {forged}"})).status == 401
            assert (await document(site, WELL_KNOWN))["authorization_servers"] == [one.url, two.url]


async def test_an_issuer_out_of_reach_is_said_to_be() -> None:
    async with issuing() as issuer:
        issuer.down = True
        async with hosted(guarded(guard=Bearer(jwt(issuer.url)))) as site:
            token = issuer.token(f"http://127.0.0.1:{site.port}/mcp")
            answer = await site.call("whoami", {"Authorization": f"Bearer {token}"})
            assert answer.status == 503 and "retry-after" in answer.headers


@pytest.mark.requirement("authorization-token-storage")
async def test_tokens_are_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    async with issuing() as issuer:
        async with hosted(guarded(guard=Bearer(jwt(issuer.url)))) as site:
            token = issuer.token(f"http://127.0.0.1:{site.port}/mcp")
            for bearer in (token, token[:-3] + "AAA", "short"):
                answer = await site.call("whoami", {"Authorization": f"Bearer {bearer}"})
                assert bearer not in (await answer.body()).decode() + str(answer.headers)
            issuer.down = True
            await site.call("whoami", {"Authorization": f"Bearer {issuer.token('x')}"})
    assert token.rpartition(".")[2] not in caplog.text and token.split(".")[1] not in caplog.text


# tokens that are bound to a key


async def test_a_bound_token_takes_a_proof_on_each_request() -> None:
    prover, thief = DpopSigner(), DpopSigner()
    bound = Principal("ada", claims={"cnf": {"jkt": prover.thumbprint}})
    server = guarded(
        guard=Bearer(
            static_tokens({"t0k3n": bound, "plain": "bob"}), authorization_servers=[ISSUER]
        )
    )
    async with hosted(server) as site:
        url = f"http://127.0.0.1:{site.port}/mcp"

        def headers(by: DpopSigner, **how: Any) -> dict[str, str]:
            proof = by.proof(
                how.get("method", "POST"), how.get("url", url), how.get("token", "t0k3n")
            )
            return {"Authorization": "DPoP t0k3n", "DPoP": proof}

        good = headers(prover)
        assert await said(await site.call("whoami", good)) == "ada"
        bad = [
            good,
            headers(thief),
            headers(prover, method="GET"),
            headers(prover, url=url + "2"),
            headers(prover, token="another"),
            {"Authorization": "DPoP t0k3n"},
            {**headers(prover), "Authorization": "Bearer t0k3n"},
        ]
        for given in bad:
            answer = await site.call("whoami", given)
            (challenge,) = parse_challenges(answer.headers)
            assert (answer.status, challenge.scheme) == (401, "dpop")
            assert challenge.parameters["error"] == "invalid_dpop_proof"
            assert "ES256" in challenge.parameters["algs"]
        loose = await site.call(
            "whoami", {"Authorization": "DPoP plain", "DPoP": prover.proof("POST", url, "plain")}
        )
        assert (loose.status, asked(loose).error) == (401, "invalid_token")
        assert await said(await site.call("whoami", {"Authorization": "Bearer plain"})) == "bob"


async def test_a_token_bound_in_an_unknown_way_is_refused() -> None:
    bound = Principal("ada", claims={"cnf": {"x5t#S256": "abc"}})
    async with hosted(guarded(guard=Bearer(static_tokens({"ada-token": bound})))) as site:
        assert (await site.call("whoami", ADA)).status == 401


async def test_where_proofs_are_required_with_nonces_the_server_hands_them_out() -> None:
    prover = DpopSigner()
    bound = Principal("ada", claims={"cnf": {"jkt": prover.thumbprint}})
    verifier = static_tokens({"t0k3n": bound, "plain": "bob"})
    server = guarded(
        guard=Bearer(
            verifier, dpop=Checker(required=True, nonces=True), authorization_servers=[ISSUER]
        )
    )
    async with hosted(server) as site:
        url = f"http://127.0.0.1:{site.port}/mcp"
        assert (await document(site, WELL_KNOWN))["dpop_bound_access_tokens_required"] is True
        assert (await site.call("whoami", {"Authorization": "Bearer plain"})).status == 401
        first = await site.call(
            "whoami", {"Authorization": "DPoP t0k3n", "DPoP": prover.proof("POST", url, "t0k3n")}
        )
        assert (first.status, asked(first).error) == (401, "use_dpop_nonce")
        proof = prover.proof("POST", url, "t0k3n", first.headers["dpop-nonce"])
        assert (
            await said(await site.call("whoami", {"Authorization": "DPoP t0k3n", "DPoP": proof}))
            == "ada"
        )


# API keys


KEY = "a-key-of-some-length"


async def test_an_api_key_opens_by_its_own_header_or_as_a_bearer_token() -> None:
    async with hosted(
        guarded(guard=ApiKeys({KEY: "ada", "another-key-of-length": {"id": "bob"}}))
    ) as site:
        assert await said(await site.call("whoami", {"X-Api-Key": KEY})) == "ada"
        assert (
            await said(await site.call("whoami", {"Authorization": "Bearer another-key-of-length"}))
            == "bob"
        )
        refused = await site.call("whoami")
        assert refused.status == 401 and "x-api-key" in refused.headers["www-authenticate"]


async def test_guessing_keys_tells_nothing() -> None:
    async with hosted(guarded(guard=ApiKeys({KEY: "ada"}))) as site:
        told = set()
        for guess in (KEY[:-1], KEY + "x", "x" * len(KEY), "é" * 20, "x"):
            answer = await site.call("whoami", {"X-Api-Key": guess})
            told.add((answer.status, str(answer.headers), await answer.body()))
        assert len(told) == 1 and next(iter(told))[0] == 401


def test_a_key_that_could_be_guessed_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError, match="key 2") as refusal:
        ApiKeys({KEY: "ada", "hunter2": "bob"})
    assert "hunter2" not in str(refusal.value)


async def test_an_expired_key_is_refused() -> None:
    async with hosted(
        guarded(guard=ApiKeys({KEY: Principal("ada", expires=time.time() - 1)}))
    ) as site:
        assert (await site.call("whoami", {"X-Api-Key": KEY})).status == 401


# a guard of one's own


async def test_any_guard_will_do_and_its_pages_are_served() -> None:
    class Own:
        async def admit(self, request: Any, site: Any) -> Any:
            return (
                Principal(request.headers["x-user"])
                if "x-user" in request.headers
                else HttpResponse(status=418)
            )

        async def respond(self, request: Any, site: Any) -> Any:
            if request.path != "/login":
                return None
            return HttpResponse(
                headers={"content-type": "text/plain"}, body=request.method.encode() + request.body
            )

        def challenge(self, site: Any, principal: Any, scopes: Any) -> Any:
            return {}

    async with hosted(guarded(guard=Own(), limits=Limits(body_timeout=0.2))) as site:
        assert (await site.call("whoami")).status == 418
        assert await said(await site.call("whoami", {"X-User": "eve"})) == "eve"
        assert await (await site.send("POST", {}, b" me", path="/login")).body() == b"POST me"
        assert await (await site.send("HEAD", {}, path="/login")).body() == b""
        assert (await site.send("POST", {}, b"x" * 100_000, path="/login")).status == 413
        assert (await site.send("GET", {}, path="/elsewhere")).status == 404


async def test_a_guard_that_fails_lets_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(token: str, site: Any) -> Any:
        raise RuntimeError("no database")

    async with hosted(guarded(guard=Bearer(broken))) as site:
        answer = await site.call("whoami", ADA)
        assert answer.status == 500 and b"database" not in await answer.body()
    assert "ada-token" not in caplog.text and "no database" in caplog.text


async def test_the_address_of_the_caller_is_known() -> None:
    seen: list[Any] = []

    async def note(call: Any, next: Any) -> Any:
        seen.append(call.caller.address)
        return await next(call)

    async with hosted(guarded(middleware=[note])) as site:
        await said(await site.call("whoami", ADA))
        await said(await (await site.greet(headers=ADA)).call("whoami"))
    assert seen == ["127.0.0.1", "127.0.0.1"]
