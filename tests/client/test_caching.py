"""What a client keeps of a server's answers, for how long, and for whom."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest

from dovetail import Cache, Client, Context, Header, Limits, Server, SharedCache
from dovetail.client import caching
from dovetail.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionClosed,
    InvalidParams,
    ProtocolError,
)
from dovetail.ports import Call, CallHandler
from dovetail.protocol.resources import ReadResourceParams
from dovetail.testing import Bare, Tape, pair
from tests.behaviour.handmade import complete, handmade, notification, reply
from tests.behaviour.web import TapedApp, on_a_port

LISTS = {
    "tools/list": Client.list_tools,
    "resources/list": Client.list_resources,
    "resources/templates/list": Client.list_resource_templates,
    "prompts/list": Client.list_prompts,
}


class Clock:
    """The time that caches go by."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(caching, "monotonic", clock)
    return clock


def build(cache: Any = Cache(60, "public"), **options: Any) -> Server:  # noqa: B008  (frozen)
    server = Server("kept", cache=cache, **options)

    @server.tool
    def one() -> None: ...

    @server.tool
    def two() -> None: ...

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    @server.resource("kept://{+path}")
    def read(path: str) -> str:
        return path

    return server


def asked(tape: Tape, method: str) -> int:
    """How often the server was asked."""
    return tape.methods("client").count(method)


async def text(client: Client, uri: str, **options: Any) -> str:
    (contents,) = await client.read_resource(uri, **options)
    return contents.text  # type: ignore[no-any-return, attr-defined]


# time


@pytest.mark.requirement("cache-fresh", "cache-stale")
@pytest.mark.parametrize("method", LISTS)
async def test_a_list_is_asked_for_again_when_its_time_is_over_and_not_before(
    clock: Clock, method: str
) -> None:
    tape = Tape()
    async with pair(build(), record=tape) as client:
        first = await LISTS[method](client)
        clock.now += 59.9
        assert await LISTS[method](client) == first
        assert asked(tape, method) == 1
        clock.now += 0.1
        assert await LISTS[method](client) == first
        assert asked(tape, method) == 2


async def test_reads_and_discovery_are_kept_too_and_a_ping_is_not_one() -> None:
    tape = Tape()
    async with pair(build(), record=tape) as client:
        assert [await text(client, "kept://a") for _ in range(3)] == ["a"] * 3
        assert asked(tape, "resources/read") == 1
        before = asked(tape, "server/discover")
        found = [await client.request("server/discover") for _ in range(3)]
        assert found[0] == found[2]
        assert asked(tape, "server/discover") == before + 1
        await client.ping()
        assert asked(tape, "server/discover") == before + 2


@pytest.mark.requirement("cache-no-polling")
async def test_nothing_is_asked_for_that_nobody_needs(clock: Clock) -> None:
    tape = Tape()
    async with pair(build(), record=tape) as client:
        await client.list_tools()
        said = len(tape.entries)
        clock.now += 1000
        await asyncio.sleep(0.05)
        assert len(tape.entries) == said


@pytest.mark.requirement("cache-ttl-odd")
@pytest.mark.parametrize(
    "hints", [{}, {"ttlMs": 0}, {"ttlMs": -1000}, {"cacheScope": "public"}, {"ttlMs": None}]
)
async def test_without_a_time_nothing_is_kept(hints: dict[str, Any]) -> None:
    async with handmade() as (client, server):
        for number in range(2):
            reading = asyncio.create_task(text(client, "x:y"))
            asking = await server.receive()
            server.send(
                reply(
                    asking,
                    {
                        "resultType": "complete",
                        "contents": [{"uri": "x:y", "text": str(number)}],
                        **hints,
                    },
                )
            )
            assert await reading == str(number)


async def test_no_server_makes_a_client_keep_anything_for_longer_than_a_day(clock: Clock) -> None:
    async with handmade() as (client, server):
        await answered(
            server, client.list_tools(), complete(tools=[], ttlMs=2**62, cacheScope="private")
        )
        clock.now += 86399
        assert await client.list_tools() == []
        clock.now += 1
        await answered(server, client.list_tools(), complete(tools=[], ttlMs=0))


async def test_the_last_answer_counts_also_where_it_is_not_to_be_kept() -> None:
    async with handmade() as (client, server):
        await answered(
            server, client.list_tools(), complete(tools=[], ttlMs=60_000, cacheScope="public")
        )
        await answered(
            server, client.list_tools(fresh=True), complete(tools=[], ttlMs=0, cacheScope="public")
        )
        await answered(
            server, client.list_tools(), complete(tools=[], ttlMs=0, cacheScope="public")
        )


async def test_what_is_over_is_not_served_where_the_server_fails(clock: Clock) -> None:
    async with handmade() as (client, server):
        await answered(server, client.list_tools(), complete(tools=[], ttlMs=1000))
        clock.now += 1
        listing = asyncio.create_task(client.list_tools())
        asking = await server.receive()
        server.send(
            {"jsonrpc": "2.0", "id": asking["id"], "error": {"code": -32603, "message": "down"}}
        )
        with pytest.raises(ProtocolError, match="down"):
            await listing


async def test_fresh_asks_the_server_and_keeps_what_it_says() -> None:
    tape = Tape()
    async with pair(build(), record=tape) as client:
        for number, (method, ask) in enumerate([*LISTS.items(), ("resources/read", read_fresh)]):
            await ask(client)
            await ask(client, fresh=True)
            await ask(client)
            assert asked(tape, method) == 2, number


async def read_fresh(client: Client, fresh: bool = False) -> None:
    await client.read_resource("kept://a", fresh=fresh)
    await client.request("resources/read", {"uri": "kept://a"})


async def test_a_client_without_a_cache_keeps_nothing() -> None:
    tape = Tape()
    async with pair(build(), record=tape, cache=False) as client:
        await client.list_tools()
        await client.list_tools()
    assert asked(tape, "tools/list") == 2
    with pytest.raises(ConfigError, match=r"cache='yes' must be True, False or a SharedCache"):
        Client(build(), cache="yes")  # type: ignore[arg-type]


async def test_revisions_of_the_handshake_know_no_hints_whatever_a_server_says() -> None:
    async with handmade("2025-11-25") as (client, server):
        for _ in range(2):
            await answered(
                server, client.list_tools(), {"tools": [], "ttlMs": 60_000, "cacheScope": "public"}
            )


async def test_nobody_can_change_what_is_kept() -> None:
    async with pair(build()) as client:
        tools = await client.list_tools()
        tools[0].name = "changed"
        (contents,) = await client.read_resource("kept://a")
        contents.text = "changed"  # type: ignore[attr-defined]
        read = await client.request("resources/read", {"uri": "kept://a"})
        read.contents.clear()
        assert [tool.name for tool in await client.list_tools()] == ["one", "two"]
        assert await text(client, "kept://a") == "a"


# what it is kept under


@pytest.mark.requirement("cache-key")
async def test_an_answer_is_served_to_the_same_question_only() -> None:
    tape = Tape()
    async with pair(build(), record=tape) as client:
        for _ in range(2):
            assert [await text(client, f"kept://{path}") for path in "abc"] == ["a", "b", "c"]
            for lang in ("en", "de"):
                await client.request(
                    "resources/read", ReadResourceParams(uri="kept://a", meta={"lang": lang})
                )
        assert asked(tape, "resources/read") == 5


@pytest.mark.requirement("cache-key")
async def test_what_took_a_question_is_never_kept() -> None:
    async with handmade(on_elicit=lambda request: {"name": "Ada"}) as (client, server):
        for said in ("hello", "hello again"):
            reading = asyncio.create_task(text(client, "x:who"))
            asking = await server.receive()
            assert "requestState" not in asking["params"], "it begins anew"
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            question = {
                "method": "elicitation/create",
                "params": {"message": "Who?", "requestedSchema": schema},
            }
            asks = {
                "resultType": "input_required",
                "inputRequests": {"who": question},
                "requestState": "s",
            }
            server.send(reply(asking, asks))
            again = await server.receive()
            assert again["params"]["inputResponses"]["who"]["content"] == {"name": "Ada"}
            contents = [{"uri": "x:who", "text": said}]
            server.send(
                reply(again, complete(contents=contents, ttlMs=60_000, cacheScope="public"))
            )
            assert await reading == said


@pytest.mark.requirement("cache-pages", "cache-snapshot")
async def test_a_page_whose_time_is_over_is_asked_for_by_its_own_cursor(clock: Clock) -> None:
    async with handmade() as (client, server):

        async def serve(*pages: tuple[str | None, str | None, int]) -> None:
            for cursor, following, ttl in pages:
                asking = await server.receive()
                assert asking["params"].get("cursor") == cursor
                server.send(
                    reply(
                        asking,
                        complete(tools=[], nextCursor=following, ttlMs=ttl, cacheScope="public"),
                    )
                )

        await both(
            client.list_tools(), serve((None, "2", 3000), ("2", "3", 1000), ("3", None, 3000))
        )
        clock.now += 1
        await both(client.list_tools(), serve(("2", "3", 1000)))
        assert await client.list_tools() == []
        await both(client.list_tools(fresh=True), serve((None, "2", 0), ("2", None, 0)))


def refused(request: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": request["id"],
        "error": {"code": -32602, "message": "no such cursor"},
    }


@pytest.mark.requirement("cache-pages-invalid")
@pytest.mark.parametrize("news", [True, False])
async def test_a_list_is_walked_again_whatever_else_dropped_its_pages(news: bool) -> None:
    async with handmade() as (client, server):

        async def page(cursor: str | None, following: str | None, ttl: int = 60_000) -> None:
            asking = await server.receive()
            assert asking["params"].get("cursor") == cursor
            server.send(
                reply(
                    asking, complete(tools=[], nextCursor=following, ttlMs=ttl, cacheScope="public")
                )
            )

        listing = asyncio.create_task(client.list_tools())
        await page(None, "2")
        await page("2", None, ttl=0)
        await listing
        walks = [asyncio.create_task(client.list_tools()) for _ in range(1 if news else 2)]
        asking = [await server.receive() for _ in walks]
        if news:
            server.send(notification("notifications/tools/list_changed"))
        for one in asking:
            server.send(refused(one))
        for _ in walks:
            await page(None, None)
        assert await asyncio.gather(*walks) == [[] for _ in walks]


@pytest.mark.requirement("cache-pages-invalid")
async def test_a_cursor_that_is_not_good_any_more_drops_every_page(clock: Clock) -> None:
    async with handmade() as (client, server):

        async def serve(*pages: tuple[str | None, dict[str, Any]]) -> None:
            for cursor, answer in pages:
                asking = await server.receive()
                assert asking["params"].get("cursor") == cursor
                server.send({"jsonrpc": "2.0", "id": asking["id"], **answer})

        def page(following: str | None, ttl: int) -> dict[str, Any]:
            return {
                "result": complete(tools=[], nextCursor=following, ttlMs=ttl, cacheScope="public")
            }

        gone = {"error": {"code": -32602, "message": "no such cursor"}}
        await both(client.list_tools(), serve((None, page("2", 9000)), ("2", page(None, 1000))))
        clock.now += 1
        await both(
            client.list_tools(),
            serve(("2", gone), (None, page("x", 9000)), ("x", page(None, 1000))),
        )
        clock.now += 1
        with pytest.raises(InvalidParams, match="no such cursor"):
            await both(
                client.list_tools(), serve(("x", gone), (None, page("y", 9000)), ("y", gone))
            )


async def test_a_refused_list_is_asked_for_once_where_nothing_was_kept() -> None:
    async with handmade() as (client, server):
        listing = asyncio.create_task(client.list_tools())
        asking = await server.receive()
        server.send(
            {"jsonrpc": "2.0", "id": asking["id"], "error": {"code": -32602, "message": "no"}}
        )
        with pytest.raises(InvalidParams, match="no"):
            await listing
        assert server.waiting() == 0


async def test_middleware_sees_every_call_and_what_it_changes_is_what_counts() -> None:
    seen: list[str] = []

    async def moved(call: Call, following: CallHandler) -> Any:
        seen.append(call.params.uri)
        call.params.uri = call.params.uri.replace("old", "new")
        return await following(call)

    tape = Tape()
    async with pair(build(), record=tape, middleware=[moved]) as client:
        assert [await text(client, f"kept://{path}") for path in ("old", "new", "old")] == [
            "new"
        ] * 3
    assert seen == ["kept://old", "kept://new", "kept://old"]
    assert asked(tape, "resources/read") == 1


async def test_text_that_cannot_be_written_is_kept_under_itself_or_not_at_all() -> None:
    async with pair(build()) as client:
        for _ in range(2):
            with pytest.raises(ProtocolError):
                await client.read_resource("nowhere://\ud800")


# what makes it old


@pytest.mark.requirement("cache-notifications")
async def test_news_of_a_list_drop_that_list_and_no_other() -> None:
    server, tape, news = build(), Tape(), asyncio.Event()
    async with pair(server, record=tape) as client:
        await client.on_change("tools", lambda kind: news.set())
        await asyncio.gather(client.list_tools(), client.list_prompts())
        server.remove_tool("two")
        await news.wait()
        assert [tool.name for tool in await client.list_tools()] == ["one"]
        await client.list_prompts()
        assert (asked(tape, "tools/list"), asked(tape, "prompts/list")) == (2, 1)


@pytest.mark.requirement("cache-notifications")
async def test_whoever_hears_the_news_is_given_the_new_list() -> None:
    server, heard = build(), asyncio.get_running_loop().create_future()
    async with pair(server) as client:

        async def look(kind: str) -> None:
            heard.set_result([tool.name for tool in await client.list_tools()])

        await client.on_change("tools", look)
        await client.list_tools()
        server.remove_tool("two")
        assert await heard == ["one"]


@pytest.mark.requirement("cache-notifications")
async def test_an_update_drops_a_resource_with_all_above_and_below_it() -> None:
    server, tape, news = build(), Tape(), asyncio.Event()
    paths = ["a", "a/b", "a/b/c", "a/bc", "d"]
    async with pair(server, record=tape) as client:
        await client.subscribe("kept://a/b", lambda uri: news.set())
        for path in paths:
            await text(client, f"kept://{path}")
        server.notify_resource_updated("kept://a/b")
        await news.wait()
        before = asked(tape, "resources/read")
        again = []
        for path in paths:
            await text(client, f"kept://{path}")
            if asked(tape, "resources/read") > before + len(again):
                again.append(path)
        assert again == ["a", "a/b", "a/b/c"]


async def test_a_stream_of_changes_that_begins_drops_what_may_have_changed_before_it() -> None:
    server, tape = build(), Tape()
    async with pair(server, record=tape) as client:
        await asyncio.gather(
            client.list_tools(),
            client.list_prompts(),
            text(client, "kept://a"),
            text(client, "kept://b"),
        )
        await client.on_change("tools", print)
        await client.subscribe("kept://a", print)
        await asyncio.gather(
            client.list_tools(),
            client.list_prompts(),
            text(client, "kept://a"),
            text(client, "kept://b"),
        )
        assert [asked(tape, one) for one in ("tools/list", "prompts/list", "resources/read")] == [
            2,
            1,
            3,
        ]


@pytest.mark.requirement("cache-notifications")
async def test_an_answer_that_the_news_overtook_is_not_kept() -> None:
    async with handmade() as (client, server):
        listing = asyncio.create_task(client.list_tools())
        asking = await server.receive()
        server.send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        server.send(reply(asking, complete(tools=[], ttlMs=60_000, cacheScope="public")))
        await listing
        await answered(
            server, client.list_tools(), complete(tools=[], ttlMs=60_000, cacheScope="public")
        )


async def test_a_new_conversation_begins_without_anything_kept() -> None:
    server, tape = build(), Tape()
    async with (
        served(server, tape) as url,
        Client(url.replace("http", "ws").replace("mcp", "ws")) as client,
    ):
        back = asyncio.Event()
        client.on_change("state", lambda state: back.set() if state == "connected" else None)
        await client.list_tools()
        await client.list_tools()
        assert asked(tape, "tools/list") == 1
        connector = client._connector
        assert connector.session is not None
        await connector.session.connection.close(ConnectionClosed("cut"))
        await back.wait()
        await client.list_tools()
        assert asked(tape, "tools/list") == 2


@pytest.mark.parametrize(
    ("method", "ask"),
    [
        ("tools/list", lambda client: client.call_tool("gone")),
        ("prompts/list", lambda client: client.get_prompt("gone")),
        ("resources/list", lambda client: client.read_resource("gone://x")),
    ],
)
async def test_what_the_server_does_not_know_drops_the_list_that_said_so(
    method: str, ask: Callable[..., Any]
) -> None:
    tape = Tape()
    async with pair(build(), record=tape) as client:
        for _ in range(2):
            await LISTS[method](client)
        assert asked(tape, method) == 1
        with pytest.raises(InvalidParams):
            await ask(client)
        await LISTS[method](client)
        assert asked(tape, method) == 2


async def test_a_tool_that_fails_drops_nothing() -> None:
    tape = Tape()
    async with pair(build(), record=tape) as client:
        await client.list_tools()
        await client.call_tool("one", {"odd": 1}, raise_on_error=False)
        await client.list_tools()
        assert asked(tape, "tools/list") == 1


async def test_strict_clients_look_again_for_a_tool_that_a_kept_list_lacks() -> None:
    server, tape = build(), Tape()
    async with pair(server, record=tape, validate="strict") as client:
        await client.list_tools()

        @server.tool
        def three() -> int:
            return 3

        assert (await client.call_tool("three")).data == 3
        assert asked(tape, "tools/list") == 2


# bounds


async def test_of_too_many_answers_those_not_used_for_longest_go() -> None:
    tape = Tape()
    async with pair(build(), record=tape, limits=Limits(cached=2)) as client:
        for path in ("a", "b", "a", "c", "a", "b"):
            assert await text(client, f"kept://{path}") == path
        assert asked(tape, "resources/read") == 4, "c took the place of b, then b that of c"


async def test_answers_that_are_too_large_are_not_kept() -> None:
    server, tape = build(), Tape()
    server.add_resource(lambda: "x" * 5000, "large://x", name="large", cache=Cache(60))
    async with pair(server, record=tape, limits=Limits(cached_bytes=4000)) as client:
        for uri in ("kept://a", "large://x", "large://x"):
            await text(client, uri)
        assert asked(tape, "resources/read") == 3
        kept = client._cache._cache
        assert [key.method for key in kept._responses] == ["resources/read"]
        assert kept._bytes < 4000


async def test_an_answer_that_is_larger_than_the_cache_costs_no_other_its_place() -> None:
    server, tape = build(), Tape()
    server.add_resource(lambda: "x" * 5000, "large://x", name="large", cache=Cache(60))
    async with pair(server, record=tape, limits=Limits(cached_bytes=4000)) as client:
        for uri in ("kept://a", "large://x", "kept://a", "large://x"):
            await text(client, uri)
        assert asked(tape, "resources/read") == 3


@pytest.mark.requirement("cache-ttl-odd")
@pytest.mark.parametrize(
    ("ttl", "scope", "kept"),
    [
        (10**400, "public", True),
        (1500.5, "public", True),
        ("60000", "public", False),
        ([], 5, False),
        (60_000, 5, True),
    ],
)
async def test_a_hint_that_makes_no_sense_spoils_no_list(ttl: Any, scope: Any, kept: bool) -> None:
    async with handmade() as (client, server):
        for _ in range(1 if kept else 2):
            listing = asyncio.create_task(client.list_tools())
            server.send(
                reply(await server.receive(), complete(tools=[], ttlMs=ttl, cacheScope=scope))
            )
            assert await listing == []
        if kept:
            assert await client.list_tools() == []


async def test_a_cache_knows_its_size_to_the_byte(clock: Clock) -> None:
    shared = SharedCache(entries=10)
    async with pair(build(), cache=shared) as client:
        for path in "abcabcdefghijklmn":
            await text(client, f"kept://{path}")
            await text(client, f"kept://{path}", fresh=True)
        await asyncio.gather(*(text(client, "kept://z") for _ in range(5)))
        assert len(shared._responses) == 10
        assert shared._bytes == sum(
            len(key.params) + len(kept.data) for key, kept in shared._responses.items()
        )
        clock.now += 60
        await text(client, "kept://z")
    assert (len(shared._responses), shared._bytes) == (0, 0), (
        "a client that closes leaves nothing of its own"
    )


# sharing


@asynccontextmanager
async def served(server: Server, tape: Tape) -> AsyncIterator[str]:
    async with on_a_port(TapedApp(server.asgi(path="/mcp", websocket=True), tape)) as address:
        yield f"http://{address}/mcp"


async def test_what_is_public_is_shared_by_clients_of_one_url() -> None:
    shared, tape = SharedCache(), Tape()
    async with served(build(), tape) as url:
        for token in ("one", "two"):
            async with Client(
                url, cache=shared, headers={"Authorization": f"Bearer {token}"}
            ) as client:
                assert [tool.name for tool in await client.list_tools()] == ["one", "two"]
                assert await text(client, "kept://a") == "a"
        assert (asked(tape, "tools/list"), asked(tape, "resources/read")) == (1, 1)
        async with Client(url, cache=shared, verify=False) as client, Client(url) as alone:
            await client.list_tools()
            await alone.list_tools()
        assert asked(tape, "tools/list") == 3, (
            "whom another trust was enough for is not trusted here"
        )


@pytest.mark.requirement("cache-private")
async def test_what_is_private_is_never_shared() -> None:
    server, shared, tape = Server("private", cache=Cache(60)), SharedCache(), Tape()

    @server.resource("me://token")
    def token(ctx: Context) -> str:
        return ctx.headers["authorization"]

    async with served(server, tape) as url:

        def connected(token: str) -> Client:
            return Client(url, cache=shared, headers={"Authorization": token})

        async with connected("one") as one, connected("two") as two, connected("one") as again:
            for _ in range(2):
                assert await text(one, "me://token") == "one"
                assert await text(two, "me://token") == "two"
                assert await text(again, "me://token") == "one"
            assert asked(tape, "resources/read") == 3
        assert len(shared._responses) == 0


@pytest.mark.requirement("cache-private")
async def test_a_scope_that_nobody_knows_is_private_and_servers_without_a_url_share_nothing() -> (
    None
):
    shared = SharedCache()
    for scope in ("shared", "PUBLIC", None, "public"):
        for _ in range(2):
            async with handmade(cache=shared) as (client, server):
                await answered(
                    server, client.list_tools(), complete(tools=[], ttlMs=60_000, cacheScope=scope)
                )
                assert await client.list_tools() == []


async def test_other_urls_of_one_host_share_nothing() -> None:
    shared, tape = SharedCache(), Tape()
    other = Server("other", cache=Cache(60, "public"), capabilities={"tools": True})
    async with served(build(), tape) as first, served(other, tape) as second:
        async with Client(first, cache=shared) as one, Client(second, cache=shared) as two:
            assert (len(await one.list_tools()), len(await two.list_tools())) == (2, 0)
            with pytest.raises(InvalidParams):
                await one.call_tool("gone")
            await two.list_tools()
            assert asked(tape, "tools/list") == 2, "what one server lacks says nothing of the other"


async def test_news_that_one_client_hears_end_what_all_share() -> None:
    server, shared, tape, news = build(), SharedCache(), Tape(), asyncio.Event()
    async with (
        served(server, tape) as url,
        Client(url, cache=shared) as one,
        Client(url, cache=shared) as two,
    ):
        await one.on_change("tools", lambda kind: news.set())
        assert len(await two.list_tools()) == 2
        server.remove_tool("two")
        await news.wait()
        assert len(await two.list_tools()) == 1


async def test_a_list_that_was_shared_says_what_goes_into_headers() -> None:
    server, shared, tape = build(), SharedCache(), Tape()

    @server.tool
    def where(region: Annotated[str, Header("Region")]) -> str:
        return region

    async with served(server, tape) as url:
        for _ in range(2):
            async with Client(url, cache=shared) as client:
                await client.list_tools()
                assert (await client.call_tool("where", {"region": "north"})).text == "north"
    assert (asked(tape, "tools/list"), asked(tape, "tools/call")) == (1, 2)


async def test_a_list_that_is_wrong_about_headers_is_asked_for_again() -> None:
    server, tape = build(), Tape()

    def plain(region: str) -> str:
        return region

    def mirrored(region: Annotated[str, Header("Region")]) -> str:
        return region

    async with served(server, tape) as url, Client(url) as client:
        server.add_tool(plain, name="where")
        await client.list_tools()
        server.remove_tool("where")
        server.add_tool(mirrored, name="where")
        assert (await client.call_tool("where", {"region": "north"})).text == "north"
        assert asked(tape, "tools/list") == 2


async def test_blocking_clients_on_threads_of_their_own_share_too() -> None:
    shared, tape = SharedCache(), Tape()

    def look(url: str) -> int:
        with Client(url, cache=shared).blocking() as client:
            return len(client.list_tools()) + len(client.list_tools(fresh=True))

    async with served(build(), tape) as url:
        assert [await asyncio.to_thread(look, url) for _ in range(2)] == [4, 4]
    assert asked(tape, "tools/list") == 3


async def test_a_server_that_cannot_be_reached_is_not_hidden_by_what_others_kept() -> None:
    shared, tape = SharedCache(), Tape()
    async with served(build(), tape) as url:
        async with Client(url, cache=shared) as client:
            await client.list_tools()
    with pytest.raises(ConnectFailed):
        async with Client(url, cache=shared):
            pass


# completions


def completed(**options: Any) -> tuple[Server, list[str]]:
    server, seen = build(**options), list[str]()

    @server.prompt
    def review(language: str, style: str) -> str:
        return language

    @review.complete("language")
    def languages(value: str) -> list[str]:
        if value == "!":
            raise RuntimeError("no")
        seen.append(value)
        return [f"{value}thon"]

    @review.complete("style")
    def styles(value: str) -> list[str]:
        seen.append(f"style {value}")
        return [value]

    return server, seen


async def test_completions_are_kept_on_request_by_all_that_they_depend_on(clock: Clock) -> None:
    server, seen = completed()
    async with pair(server) as client:

        async def ask(value: str, cache: float = 10, **options: Any) -> list[str]:
            return (
                await client.complete(
                    prompt="review", argument="language", value=value, cache=cache, **options
                )
            ).values

        assert [await ask("py"), await ask("py"), await ask("p")] == [
            ["python"],
            ["python"],
            ["pthon"],
        ]
        assert seen == ["py", "p"]
        await ask("py", context={"style": "terse"})
        await client.complete(prompt="review", argument="style", value="py", cache=10)
        assert seen == ["py", "p", "py", "style py"]
        await ask("py", cache=0)
        assert len(seen) == 5
        clock.now += 10
        await asyncio.gather(ask("py"), ask("py"))
        assert len(seen) == 7
        kept = client._cache._cache
        assert kept._bytes == sum(
            len(key.params) + len(one.data) for key, one in kept._responses.items()
        )


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_completions_are_kept_in_every_revision_until_prompts_change(revision: str) -> None:
    (server, seen), news = completed(), asyncio.Event()
    async with pair(server, revision=revision) as client:
        await client.on_change("prompts", lambda kind: news.set())
        for _ in range(2):
            await client.complete(prompt="review", argument="language", value="py", cache=60)
        assert seen == ["py"]
        server.remove_prompt("greet")
        await news.wait()
        await client.complete(prompt="review", argument="language", value="py", cache=60)
        assert seen == ["py", "py"]


async def test_of_calls_within_the_pause_only_the_latest_is_asked_and_all_get_its_answer() -> None:
    server, seen = completed()
    async with pair(server) as client:
        typing = [
            asyncio.create_task(
                client.complete(prompt="review", argument="language", value=value, debounce=0.05)
            )
            for value in ("p", "py", "pyt")
        ]
        other = asyncio.create_task(
            client.complete(prompt="review", argument="style", value="s", debounce=0.05)
        )
        assert [(await one).values for one in typing] == [["pytthon"]] * 3
        assert (await other).values == ["s"]
        assert sorted(seen) == ["pyt", "style s"]
        await client.complete(prompt="review", argument="language", value="q", debounce=0.01)
        assert seen[-1] == "q"
        assert client._completer._pending == {}


async def test_whoever_leaves_during_the_pause_leaves_the_others_in_peace() -> None:
    server, seen = completed()
    async with pair(server) as client:

        def ask(value: str) -> "asyncio.Task[Any]":
            return asyncio.create_task(
                client.complete(prompt="review", argument="language", value=value, debounce=0.05)
            )

        first, second = ask("p"), ask("py")
        await asyncio.sleep(0)
        second.cancel()
        assert (await first).values == ["python"]
        alone = ask("never")
        await asyncio.sleep(0)
        alone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await alone
        assert client._completer._pending == {}
        assert (await ask("pyt")).values == ["pytthon"]
        assert seen == ["py", "pyt"]


async def test_an_error_reaches_all_who_wait_and_is_not_kept() -> None:
    server, seen = completed()
    async with pair(server) as client:
        options: dict[str, Any] = {
            "prompt": "review",
            "argument": "language",
            "debounce": 0.01,
            "cache": 60,
        }
        asking = (client.complete(value=value, **options) for value in ("p", "!"))
        results = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(one, ProtocolError) for one in results)
        with pytest.raises(ProtocolError):
            await client.complete(value="!", **options)
        assert seen == []


# helpers


async def both(asking: Any, serving: Any) -> Any:
    task = asyncio.create_task(asking)
    await serving
    return await task


async def answered(server: Bare, asking: Any, result: dict[str, Any]) -> Any:
    async def serve() -> None:
        server.send(reply(await server.receive(), result))

    return await both(asking, serve())
