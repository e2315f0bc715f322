"""A client that is not let in at first: what it sends along, whom it tells, and when somebody has
to log in."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from websockets.asyncio.server import ServerConnection, serve

from dovetail import Client, Limits, SharedCache
from dovetail.auth import ClientCredentials, EnterpriseManaged
from dovetail.client import reconnect
from dovetail.connection.extension import Extension
from dovetail.errors import ConfigError, ConnectFailed, ConnectionClosed, TimedOut, Unauthorized
from dovetail.ports import Fetch, HttpRequest, HttpResponse
from dovetail.protocol.base import CLIENT_CAPABILITIES, SUBSCRIPTION_ID
from dovetail.protocol.tasks import EXTENSION as TASKS
from dovetail.revisions import HANDSHAKE
from tests.transports.http.scripted import DISCOVERED, OLD, WELCOME, Asked, Scripted, modern, old

TOOLS = {"resultType": "complete", "tools": [], "prompts": [], "ttlMs": 0, "cacheScope": "private"}
RESULT = {"resultType": "complete", "content": []}
Opening = Callable[[Asked], Awaitable[bool]]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    reconnect._handshake_servers.clear()
    yield


class Tickets:
    """Credentials that are a number: whoever is refused asks again with the next one, as often as
    `free` allows; then it takes a login. `refusals` and `answers` are what they were told."""

    def __init__(self, free: int = 0, logins: int = 1) -> None:
        self.number, self.free, self.left = 0, free, logins
        self.bound: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.refusals: list[HttpResponse] = []
        self.answers: list[HttpResponse] = []
        self.logins = 0
        self.login: Callable[[], Awaitable[None]] | None = None

    def bind(self, url: str, fetch: Fetch) -> "Tickets":
        self.bound.append(url)
        self.fetch = fetch
        return self

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        self.asked.append((method, url))
        return {"Authorization": f"Ticket {self.number}"}

    async def on_refused(self, method: str, url: str, answer: HttpResponse) -> bool:
        self.refusals.append(answer)
        if self.free:
            self.free -= 1
            self.number += 1
            return True
        raise Unauthorized(f"{url} wants a login", curable=self.left > 0)

    def on_response(self, answer: HttpResponse) -> None:
        self.answers.append(answer)

    async def authorize(self) -> None:
        self.logins += 1
        if self.login is not None:
            await self.login()
        self.left -= 1
        self.number += 1


def guarded(
    wanted: Callable[[Asked], str | None], opening: Opening = modern
) -> Callable[[Asked], Awaitable[None]]:
    """A server that wants a certain ticket for each request; None lets anybody in."""

    async def script(asked: Asked) -> None:
        want = wanted(asked)
        if want is not None and asked.headers.get("authorization") != f"Ticket {want}":
            await asked.answer(401, b"", {"WWW-Authenticate": 'Bearer realm="x"'})
        elif not await opening(asked):
            await asked.result(RESULT if asked.rpc == "tools/call" else TOOLS)

    return script


def always(number: int) -> Callable[[Asked], str]:
    return lambda asked: str(number)


# what is sent along


@pytest.mark.requirement("auth-every-request")
async def test_each_request_carries_what_the_credentials_say_and_each_answer_is_told_them() -> None:
    auth = Tickets()
    async with Scripted(guarded(always(0))) as server:
        async with Client(server.url, auth=auth) as client:
            await client.list_tools()
        assert {one.headers["authorization"] for one in server.asked} == {"Ticket 0"}
    assert auth.bound == [server.url] and set(auth.asked) == {("POST", server.url)}
    assert [answer.status for answer in auth.answers] == [200] * len(server.asked)
    assert auth.answers[0].headers["content-type"] == "application/json" and auth.refusals == []


@pytest.mark.parametrize("opening", [modern, old])
async def test_who_is_refused_asks_again_with_what_is_better(opening: Opening) -> None:
    auth = Tickets(free=1)
    async with (
        Scripted(guarded(always(1), opening)) as server,
        Client(server.url, auth=auth) as client,
    ):
        await client.list_tools()
    assert [(one.status, one.headers["www-authenticate"]) for one in auth.refusals] == [
        (401, 'Bearer realm="x"')
    ]
    assert auth.logins == 0


@pytest.mark.requirement("auth-every-request")
async def test_a_stream_and_a_goodbye_carry_credentials_too() -> None:
    listening = asyncio.Event()

    async def opening(asked: Asked) -> bool:
        if asked.rpc == "GET":
            await asked.stream()
            listening.set()
            await asked.hung_up.wait()
            return True
        return await old(asked)

    async with Scripted(guarded(always(0), opening)) as server:
        async with Client(server.url, auth=Tickets()):
            await listening.wait()
        for method in ("GET", "DELETE"):
            assert [one.headers["authorization"] for one in server.heard(method)] == ["Ticket 0"]


async def test_asking_again_has_a_bound() -> None:
    auth = Tickets(free=1000)
    async with Scripted(guarded(lambda asked: "never")) as server:
        with pytest.raises(Unauthorized, match=r"/mcp requires authorization \(401\)"):
            async with Client(server.url, auth=auth):
                pass
        assert len(server.asked) == 4 and len(auth.refusals) == 4


async def test_credentials_that_know_no_better_leave_the_last_word_to_the_server() -> None:
    class Resigned(Tickets):
        async def on_refused(self, method: str, url: str, answer: HttpResponse) -> bool:
            return False

    async def forbidding(asked: Asked) -> None:
        if not await modern(asked):
            await asked.error(-31003, "not for you", 403)

    async with Scripted(forbidding) as server, Client(server.url, auth=Resigned()) as client:
        with pytest.raises(Exception, match="not for you"):
            await client.list_tools()


async def test_the_users_own_header_goes_first_and_no_credentials_are_asked() -> None:
    auth = Tickets()
    async with Scripted(guarded(lambda asked: None)) as server:
        async with Client(server.url, auth=auth, headers={"authorization": "Own"}):
            pass
        assert {one.headers["authorization"] for one in server.asked} == {"Own"}
    assert auth.bound == []


async def test_other_headers_of_the_user_go_along() -> None:
    async with Scripted(guarded(always(0))) as server:
        async with Client(server.url, auth=Tickets(), headers={"X-Tenant": "acme"}):
            pass
        assert {one.headers["x-tenant"] for one in server.asked} == {"acme"}


# where they never go


@pytest.mark.parametrize("status", [307, 308])
async def test_credentials_never_follow_to_another_origin(status: int) -> None:
    async with Scripted(guarded(lambda asked: None)) as elsewhere:

        async def away(asked: Asked) -> None:
            await asked.answer(status, b"", {"Location": elsewhere.url})

        async with Scripted(away) as server:
            with pytest.raises(ConnectFailed, match="another origin"):
                async with Client(server.url, auth=Tickets()):
                    pass
        assert elsewhere.asked == []


async def test_within_the_origin_they_are_made_for_the_address_that_is_asked() -> None:
    auth = Tickets()

    async def moved(asked: Asked) -> None:
        if asked.path == "/mcp":
            await asked.answer(308, b"", {"Location": "/mcp/"})
        else:
            await guarded(always(0))(asked)

    async with Scripted(moved) as server, Client(server.url, auth=auth):
        assert auth.asked[-2:] == [("POST", server.url), ("POST", server.url + "/")]


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/mcp",
        "ws://example.com/mcp",
        "http://10.0.0.1/mcp",
        "http://localhost.evil.example/",
    ],
)
async def test_credentials_do_not_go_over_plain_http_to_another_host(url: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"credentials are sent only over https or to localhost. Use an https URL",
    ):
        Client(url, auth=Tickets())
    Client(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/",
        "wss://example.com/",
        "http://localhost:1/",
        "http://[::1]/",
        "ws://127.0.0.1/",
    ],
)
async def test_https_and_this_machine_are_good_enough(url: str) -> None:
    auth = Tickets()
    Client(url, auth=auth)
    assert auth.bound == [url.replace("ws", "http", 1)]


@pytest.mark.parametrize("auth", [object(), 7, {"token": "x"}])
async def test_what_are_no_credentials_is_refused(auth: Any) -> None:
    with pytest.raises(ConfigError, match="auth= must be a token or credentials such as OAuth"):
        Client("https://example.com/mcp", auth=auth)


# logging in


@pytest.mark.parametrize("opening", [modern, old])
async def test_a_login_on_opening_lets_the_client_in(opening: Opening) -> None:
    auth = Tickets()
    async with (
        Scripted(guarded(always(1), opening)) as server,
        Client(server.url, auth=auth) as client,
    ):
        await client.list_tools()
    assert auth.logins == 1


@pytest.mark.parametrize("opening", [modern, old])
async def test_a_login_in_the_middle_of_a_call_makes_the_call_again_once(opening: Opening) -> None:
    auth = Tickets()
    wanted = lambda asked: "1" if asked.rpc == "tools/call" else None  # noqa: E731
    async with (
        Scripted(guarded(wanted, opening)) as server,
        Client(server.url, auth=auth) as client,
    ):
        await client.call_tool("charge", {})
        assert [one.headers["authorization"] for one in server.heard("tools/call")] == [
            "Ticket 0",
            "Ticket 1",
        ]
    assert auth.logins == 1


async def test_a_login_takes_no_time_from_the_call() -> None:
    auth = Tickets()
    wanted = lambda asked: "1" if asked.rpc == "tools/list" else None  # noqa: E731
    timeout = 0.5

    async def slowly() -> None:
        await asyncio.sleep(2 * timeout)

    auth.login = slowly
    async with (
        Scripted(guarded(wanted)) as server,
        Client(server.url, auth=auth, timeout=timeout) as client,
    ):
        await client.list_tools()


async def test_opening_may_wait_for_a_login_longer_than_its_own_time() -> None:
    auth = Tickets()

    async def slowly() -> None:
        await asyncio.sleep(1)

    auth.login = slowly
    limits = Limits(probe_timeout=0.2)
    async with (
        Scripted(guarded(always(1))) as server,
        Client(server.url, auth=auth, timeout=0.5, limits=limits) as client,
    ):
        assert client.revision == DISCOVERED["supportedVersions"][0]


async def test_credentials_that_find_out_at_length_are_not_taken_for_a_deaf_server() -> None:
    class Thorough(Tickets):
        async def on_refused(self, method: str, url: str, answer: HttpResponse) -> bool:
            await asyncio.sleep(0.5)
            return await super().on_refused(method, url, answer)

    limits = Limits(probe_timeout=0.2)
    async with (
        Scripted(guarded(always(1))) as server,
        Client(server.url, auth=Thorough(free=1), limits=limits) as client,
    ):
        assert client.revision == DISCOVERED["supportedVersions"][0]
        assert server.heard("initialize") == []


async def test_an_issuer_that_is_silent_is_not_taken_for_a_deaf_server() -> None:
    class Waiting(Tickets):
        async def on_refused(self, method: str, url: str, answer: HttpResponse) -> bool:
            raise TimedOut("the issuer does not answer")

    async with Scripted(guarded(always(1))) as server:
        with pytest.raises(ConnectFailed, match="the issuer does not answer"):
            async with Client(server.url, auth=Waiting()):
                pass
        assert server.heard("initialize") == []


async def test_calls_that_are_refused_at_once_share_one_login() -> None:
    auth, refused = Tickets(), asyncio.Event()
    auth.login = refused.wait
    async with Scripted(
        guarded(lambda asked: "1" if asked.rpc == "tools/list" else None)
    ) as server:
        async with Client(server.url, auth=auth) as client:
            calls = [asyncio.create_task(client.list_tools(fresh=True)) for _ in range(5)]
            await server.until("tools/list", 5)
            while len(auth.refusals) < 5:
                await asyncio.sleep(0)
            refused.set()
            await asyncio.gather(*calls)
    assert auth.logins == 1


async def test_who_was_refused_before_somebody_logged_in_does_not_log_in_again() -> None:
    """Its refusal arrives when the login of the other is over already."""
    auth, first = Tickets(logins=2), asyncio.Event()
    slow: list[Asked] = []

    async def script(asked: Asked) -> None:
        if asked.rpc == "prompts/list" and asked.headers["authorization"] == "Ticket 0":
            slow.append(asked)
            first.set()
        else:
            await guarded(lambda one: "1" if one.rpc != "server/discover" else None)(asked)

    async with Scripted(script) as server, Client(server.url, auth=auth) as client:
        late = asyncio.create_task(client.request("prompts/list"))
        await first.wait()
        await client.list_tools()
        assert auth.logins == 1
        await slow[0].answer(401)
        await late
    assert auth.logins == 1


async def test_a_login_that_does_not_help_ends_in_the_servers_refusal() -> None:
    auth = Tickets(logins=2)
    async with Scripted(guarded(lambda asked: "never")) as server:
        with pytest.raises(Unauthorized, match="wants a login"):
            async with Client(server.url, auth=auth):
                pass
    assert auth.logins == 2


@pytest.mark.requirement("auth-step-up-limit")
async def test_logins_have_a_bound() -> None:
    auth = Tickets(logins=1000)
    async with Scripted(guarded(lambda asked: "never")) as server:
        with pytest.raises(Unauthorized):
            async with Client(server.url, auth=auth):
                pass
    assert auth.logins == 3


async def test_a_login_that_fails_is_told_flat_and_tried_again_by_the_next_call() -> None:
    auth = Tickets()

    async def refuse() -> None:
        auth.login = None
        raise Unauthorized("the user said no")

    auth.login = refuse
    async with Scripted(
        guarded(lambda asked: "1" if asked.rpc == "tools/list" else None)
    ) as server:
        async with Client(server.url, auth=auth) as client:
            with pytest.raises(Unauthorized, match=r"^the user said no$"):
                await client.list_tools()
            await client.list_tools()


async def test_closing_the_client_ends_a_login() -> None:
    auth, begun, ended = Tickets(), asyncio.Event(), asyncio.Event()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    auth.login = forever
    async with Scripted(
        guarded(lambda asked: "1" if asked.rpc == "tools/list" else None)
    ) as server:
        client = Client(server.url, auth=auth)
        await client.connect()
        call = asyncio.create_task(client.list_tools())
        await begun.wait()
        await client.close()
        assert ended.is_set()
        with pytest.raises(ConnectionClosed, match="is closed"):
            await call


async def test_who_gives_up_waiting_leaves_the_login_to_others() -> None:
    auth, go = Tickets(), asyncio.Event()
    auth.login = go.wait
    async with Scripted(
        guarded(lambda asked: "1" if asked.rpc == "tools/list" else None)
    ) as server:
        async with Client(server.url, auth=auth) as client:
            hasty, patient = (
                asyncio.create_task(client.list_tools()),
                asyncio.create_task(client.list_tools(fresh=True)),
            )
            while auth.logins == 0 or len(auth.refusals) < 2:
                await asyncio.sleep(0)
            hasty.cancel()
            await asyncio.wait([hasty])
            go.set()
            await patient
    assert auth.logins == 1


async def test_a_stream_of_news_that_was_shut_out_is_asked_for_again_after_the_login() -> None:
    auth = Tickets()

    async def opening(asked: Asked) -> bool:
        if asked.rpc == "GET":
            await asked.stream()
            await asked.hung_up.wait()
            return True
        return await old(asked)

    wanted = lambda asked: "1" if asked.rpc in ("GET", "tools/list") else None  # noqa: E731
    async with (
        Scripted(guarded(wanted, opening)) as server,
        Client(server.url, auth=auth) as client,
    ):
        await server.until("GET")
        while not auth.refusals:
            await asyncio.sleep(0)
        await client.list_tools()
        await server.until("GET", 2)
        assert [one.headers["authorization"] for one in server.heard("GET")] == [
            "Ticket 0",
            "Ticket 1",
        ]


async def test_a_call_whose_stream_broke_is_not_made_again_on_account_of_a_login() -> None:
    """It had been let in, so it may have done its work; only the way back is refused."""

    async def opening(asked: Asked) -> bool:
        if asked.rpc == "tools/call":
            await asked.stream()
            await asked.raw(b"11\r\nid: 1\nretry: 10\n\n\r\n")
            await asked.end()
            return True
        return await old(asked)

    auth = Tickets()
    wanted = lambda asked: "1" if asked.headers.get("last-event-id") else None  # noqa: E731
    async with (
        Scripted(guarded(wanted, opening)) as server,
        Client(server.url, auth=auth) as client,
    ):
        with pytest.raises(ConnectionClosed, match="cannot be resumed"):
            await client.call_tool("charge", {})
        assert len(server.heard("tools/call")) == 1 and auth.logins == 0


@pytest.mark.parametrize("shut_out", ["at first", "later"])
async def test_a_subscription_waits_for_a_login_and_comes_back_after_one(shut_out: str) -> None:
    auth, heard, broken = Tickets(), asyncio.Queue[str](), asyncio.Event()

    async def opening(asked: Asked) -> bool:
        if asked.rpc != "subscriptions/listen":
            return await modern(asked)
        meta = {SUBSCRIPTION_ID: asked.message["id"]}
        granted = {"notifications": {"resourceSubscriptions": ["x://y"]}, "_meta": meta}
        await asked.stream()
        await asked.event(
            {
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": granted,
            }
        )
        if asked.headers["authorization"] == "Ticket 0":
            await broken.wait()
            await asked.cut()
            return True
        news = {"uri": "x://y", "_meta": meta}
        await asked.event(
            {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": news}
        )
        await asked.hung_up.wait()
        return True

    def wanted(asked: Asked) -> str | None:
        return (
            "1"
            if asked.rpc != "server/discover" and (shut_out == "at first" or broken.is_set())
            else None
        )

    async with (
        Scripted(guarded(wanted, opening)) as server,
        Client(server.url, auth=auth) as client,
    ):
        await client.subscribe("x://y", heard.put_nowait)
        if shut_out == "later":
            broken.set()
            while not auth.refusals:
                await asyncio.sleep(0.01)
            assert auth.logins == 0, "a stream in the background surprises nobody with a browser"
            await client.list_tools()
        assert await heard.get() == "x://y"
    assert auth.logins == 1


async def test_what_was_said_before_a_login_and_turned_away_is_said_again() -> None:
    """A server that greets everybody, and then wants to know who it is."""
    auth, ready = Tickets(), []

    async def script(asked: Asked) -> None:
        if asked.rpc != "initialize" and asked.headers.get("authorization") != "Ticket 1":
            await asked.answer(401, b"", {"WWW-Authenticate": "Bearer"})
        elif asked.rpc == "tools/list" and not ready:
            await asked.error(-32002, "not initialized", 400)
        else:
            ready.extend([1] if asked.rpc == "notifications/initialized" else [])
            if not await old(asked):
                await asked.result(TOOLS)

    async with Scripted(script) as server, Client(server.url, auth=auth, revision=OLD) as client:
        await client.list_tools()
        await client.list_prompts()
    assert ready == [1]


# without credentials


@pytest.mark.parametrize("opening", [modern, old])
async def test_who_has_no_credentials_is_told_what_to_do(opening: Opening) -> None:
    async with Scripted(guarded(always(1), opening)) as server:
        with pytest.raises(Unauthorized) as refused:
            async with Client(server.url):
                pass
    assert not refused.value.curable
    for remedy in ("auth=OAuth()", f"dovetail login {server.url}", "requires authorization (401)"):
        assert remedy in str(refused.value)


# the other transports


async def test_the_old_pair_carries_credentials_and_waits_for_a_login() -> None:
    auth, posted = Tickets(), []

    async def get(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Ticket 1":
            return web.Response(status=401)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"event: endpoint\ndata: /message\n\n")
        while (message := await inbox.get()) is not None:
            await response.write(b"event: message\ndata: " + message + b"\n\n")
        return response

    async def post(request: web.Request) -> web.Response:
        message = await request.json()
        posted.append(request.headers.get("Authorization"))
        if message["method"] == "ping" and posted[-1] != "Ticket 2":
            return web.Response(status=401)
        if "id" in message:
            result = WELCOME if message["method"] == "initialize" else {}
            inbox.put_nowait(
                web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}).body
            )
        return web.Response(status=202)

    inbox: asyncio.Queue[Any] = asyncio.Queue()
    app = web.Application()
    app.router.add_get("/sse", get)
    app.router.add_post("/message", post)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    auth.left = 2
    try:
        async with Client(
            f"http://127.0.0.1:{runner.addresses[0][1]}/sse", auth=auth, revision=OLD
        ) as client:
            await client.ping()
        assert auth.logins == 2 and posted == ["Ticket 1", "Ticket 1", "Ticket 1", "Ticket 2"]
    finally:
        inbox.put_nowait(None)
        await runner.cleanup()


@pytest.mark.requirement("auth-other-transports")
async def test_the_handshake_of_a_websocket_carries_credentials_and_waits_for_a_login() -> None:
    seen: list[str | None] = []

    def judge(connection: ServerConnection, request: Any) -> Any:
        seen.append(request.headers.get("Authorization"))
        refused = connection.respond(401, "who are you?")
        refused.headers["WWW-Authenticate"] = "Bearer"
        return None if seen[-1] == "Ticket 2" else refused

    async def talk(connection: ServerConnection) -> None:
        import json

        async for text in connection:
            message = json.loads(text)
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": DISCOVERED}
            await connection.send(json.dumps(reply))

    auth = Tickets(free=1)
    async with serve(talk, "127.0.0.1", 0, process_request=judge, subprotocols=["mcp"]) as server:  # type: ignore[list-item]
        port = next(iter(server.sockets)).getsockname()[1]
        async with Client(f"ws://127.0.0.1:{port}/ws", auth=auth):
            pass
        assert seen == ["Ticket 0", "Ticket 1", "Ticket 2"]
        with pytest.raises(
            Unauthorized,
            match=r"requires authorization \(401: who are you\?\)\. Log in with auth=OAuth",
        ):
            async with Client(f"ws://127.0.0.1:{port}/ws"):
                pass
    assert (
        auth.refusals[0].headers["www-authenticate"] == "Bearer" and auth.answers[0].status == 101
    )
    assert set(auth.asked) == {("GET", f"http://127.0.0.1:{port}/ws")}


async def test_a_websocket_logs_no_token(caplog: pytest.LogCaptureFixture) -> None:
    async def talk(connection: ServerConnection) -> None:
        await connection.close()

    quiet = logging.getLogger("the server's")
    quiet.setLevel(logging.ERROR)
    caplog.set_level(logging.DEBUG)
    async with serve(talk, "127.0.0.1", 0, subprotocols=["mcp"], logger=quiet) as server:  # type: ignore[list-item]
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(ConnectFailed):
            async with Client(f"ws://127.0.0.1:{port}/", auth="a-secret-token"):
                pass
    assert "a-secret-token" not in caplog.text


# around them


@pytest.mark.requirement("auth-token-not-in-query", "auth-token-in-header")
async def test_a_token_is_credentials_enough() -> None:
    async def script(asked: Asked) -> None:
        assert asked.headers["authorization"] == "Bearer tok" and asked.path == "/mcp"
        await modern(asked)

    async with Scripted(script) as server:
        async with Client(server.url, auth="tok"):
            pass
        for auth in ("tok", None):
            entry = {"url": server.url, "auth": "${TICKET:-tok}"}
            async with Client({"mcpServers": {"one": entry}}, auth=auth):
                pass
        entry = {"url": server.url, "auth": "other", "headers": {"Authorization": "Bearer tok"}}
        async with Client({"mcpServers": {"one": entry}}):
            pass


@pytest.mark.requirement("auth-stdio-environment")
async def test_a_server_that_is_started_here_has_its_environment_and_no_credentials(
    tmp_path: Path,
) -> None:
    auth, script = Tickets(), tmp_path / "server.py"
    script.write_text(
        "import os\n"
        "from dovetail import Server\n"
        "server = Server('here')\n"
        "@server.tool\n"
        "def token() -> str:\n"
        "    return os.environ['TOKEN']\n"
        "server.run()\n"
    )
    with pytest.raises(ConfigError, match="auth= applies only to a URL"):
        Client(script, auth=auth)
    async with Client(
        script, env={"TOKEN": "from the environment", "PYTHONPATH": str(ROOT)}
    ) as client:
        assert (await client.call_tool("token")).data == "from the environment"
    assert auth.bound == [] and auth.asked == []


async def test_a_login_can_be_configured(tmp_path: Path) -> None:
    from dovetail.auth import OAuth
    from dovetail.client.targets import _auth_from_config
    from dovetail.config import choose, expand, parse

    auth = {
        "clientId": "c",
        "clientSecret": "${SECRET}",
        "issuer": "https://${WHO}/",
        "scopes": ["s"],
    }
    chosen = expand(
        parse({"mcpServers": {"a": {"url": "https://a/", "auth": auth}}})["a"],
        {"SECRET": "x", "WHO": "as"},
    )
    made = _auth_from_config(chosen.auth)
    assert (
        isinstance(made, OAuth)
        and isinstance(_auth_from_config("oauth"), OAuth)
        and _auth_from_config(None) is None
    )
    known = made._options
    assert (known.client_id, known.client_secret, known.issuer, known.scopes) == (
        "c",
        "x",
        "https://as/",
        ("s",),
    )
    wrong = parse({"mcpServers": {"a": {"url": "https://a/", "auth": {"client_id": "c"}}}})
    with pytest.raises(ConfigError, match=r"unknown key .client_id.\. Did you mean .clientId"):
        choose(wrong, "a")


async def test_what_is_public_is_not_shared_between_different_credentials() -> None:
    async def script(asked: Asked) -> None:
        if not await modern(asked):
            await asked.result({**TOOLS, "ttlMs": 60_000, "cacheScope": "public"})

    one, cache = Tickets(), SharedCache()
    async with Scripted(script) as server:
        for auth, count in [
            (one, 1),
            (one, 1),
            (Tickets(), 2),
            ("token", 3),
            ("token", 3),
            ("other", 4),
            (None, 5),
        ]:
            async with Client(server.url, auth=auth, cache=cache) as client:  # type: ignore[arg-type]
                await client.list_tools()
            assert len(server.heard("tools/list")) == count


@pytest.mark.requirement("auth-version-header")
async def test_who_is_asked_for_metadata_is_told_which_revision_is_spoken() -> None:
    async def script(asked: Asked) -> None:
        await asked.answer(404, b"", {})

    auth = Tickets()
    async with Scripted(script) as server:
        Client(server.url, auth=auth)
        for method in ("GET", "POST"):
            await auth.fetch(
                HttpRequest(
                    method=method, url=f"{server.origin}/.well-known/x", headers={"accept": "a/b"}
                )
            )
    metadata, token = server.asked
    assert (metadata.headers["mcp-protocol-version"], metadata.headers["accept"]) == (
        HANDSHAKE[-1].version,
        "a/b",
    )
    assert "mcp-protocol-version" not in token.headers


async def test_credentials_that_are_an_extension_are_declared() -> None:
    passed_on = EnterpriseManaged(
        "me", id_token="a", idp_token_endpoint="https://idp.example/token", idp_client_id="me"
    )
    client_credentials, enterprise = (
        f"io.modelcontextprotocol/{name}"
        for name in ("oauth-client-credentials", "enterprise-managed-authorization")
    )
    mine = Extension(id=client_credentials, settings={"mine": True})
    async with Scripted(guarded(lambda asked: None)) as server:
        for auth, given, declared in [
            (ClientCredentials("me", "secret"), [], {client_credentials: {}}),
            (ClientCredentials("me", "secret"), [mine], {client_credentials: {"mine": True}}),
            (passed_on, [], {enterprise: {}}),
            ("token", [], {}),
        ]:
            server.asked.clear()
            async with Client(server.url, auth=auth, extensions=given) as client:  # type: ignore[arg-type]
                await client.list_tools()
            for asked in server.asked:
                said = json.loads(asked.body)["params"]["_meta"][CLIENT_CAPABILITIES]["extensions"]
                assert said == declared | {TASKS: {}}  # which every client can wait for


async def test_a_public_server_cannot_make_the_credentials_ask_on_the_local_network() -> None:
    auth = Tickets()
    Client("https://93.184.216.34/mcp", auth=auth)
    with pytest.raises(ConnectFailed, match="a private address"):
        await auth.fetch(HttpRequest(method="GET", url="http://127.0.0.1:1/metadata"))
