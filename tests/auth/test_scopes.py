"""Scopes of tools, resources and prompts: who may use what, who sees what, and what the others are
told."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dovetail import Cache, Client, Context, Server
from dovetail.auth import Bearer, static_tokens
from dovetail.auth.wire import read_requirements
from dovetail.errors import ConfigError, Forbidden
from dovetail.ports import HttpResponse, Principal

from ..transports.http.raw import Answer, hosted, modern, request

ISSUER = "https://issuer.example"
READER = {"Authorization": "Bearer reader"}
ADMIN = {"Authorization": "Bearer admin"}
NOBODY = {"Authorization": "Bearer nobody"}
WELL_KNOWN = "/.well-known/oauth-protected-resource"
TOKENS = {
    "reader": Principal("rita", scopes=("read",)),
    "admin": Principal("ada", scopes=("admin",)),
    "nobody": Principal("norbert"),
}


def scoped(
    tmp_path: Path | None = None, *, scopes: Any = (), implies: Any = None, **options: Any
) -> Server:
    guard = Bearer(
        static_tokens(TOKENS),
        authorization_servers=[ISSUER],
        scopes=scopes,
        implies=implies if implies is not None else {"admin": ["read", "write"]},
    )
    server = Server("scoped", auth=guard, **options)

    @server.tool
    async def open_to_all() -> str:
        return "hello"

    @server.tool(scopes=["read"])
    async def look(ctx: Context) -> str:
        return (await ctx.read_resource("vault://open"))[0].text  # type: ignore[union-attr]

    @server.tool(scopes=["read", "write"])
    async def change() -> str:
        return "changed"

    @server.tool
    async def sneak(uri: str, ctx: Context) -> str:
        return (await ctx.read_resource(uri))[0].text  # type: ignore[union-attr]

    @server.resource("vault://open")
    def plain() -> str:
        return "plain"

    @server.resource("vault://secret", scopes="write")
    def secret() -> str:
        return "secret"

    @server.resource("vault://{name}/file", scopes=["write"])
    def templated(name: str) -> str:
        return name

    @templated.complete("name")
    def names(value: str) -> list[str]:
        return ["alpha"]

    @server.prompt(scopes=["write"])
    def draft(topic: str) -> str:
        return topic

    @draft.complete("topic")
    def topics(value: str) -> list[str]:
        return ["tides"]

    if tmp_path is not None:
        (tmp_path / "notes.txt").write_text("notes")
        server.add_file(tmp_path / "notes.txt", uri="vault://notes", scopes=["write"])
        server.add_directory(tmp_path, uri="files://", scopes=["write"])
    return server


def asked(answer: Answer) -> Any:
    return read_requirements(HttpResponse(headers=answer.headers))


async def names(answer: Answer, field: str, by: str = "name") -> list[str]:
    return [one[by] for one in (await answer.whole())["result"][field]]


# calling


@pytest.mark.requirement(
    "authorization-403",
    "authorization-insufficient-scope",
    "authorization-scopes-at-once",
    "tools-access",
)
async def test_a_tool_that_takes_more_than_the_token_has_is_refused_with_all_that_it_takes() -> (
    None
):
    async with hosted(scoped()) as site:
        answer = await site.call("change", READER)
        assert answer.status == 403
        wanted = asked(answer)
        assert (wanted.error, wanted.scopes) == ("insufficient_scope", ("read", "write"))
        assert wanted.metadata_url == f"http://127.0.0.1:{site.port}{WELL_KNOWN}/mcp"
        error = await answer.error()
        assert (error["code"], error["data"]) == (Forbidden.code, {"scopes": ["read", "write"]})


async def test_what_a_server_declares_does_not_depend_on_the_caller() -> None:
    server = Server("scoped", auth=Bearer(static_tokens(TOKENS), authorization_servers=[ISSUER]))
    server.add_tool(lambda: 1, name="t", scopes=["admin"])
    server.add_prompt(lambda topic: topic, name="p", scopes=["admin"]).complete("topic", ["x"])
    declared = {"tools", "prompts", "completions", "logging"}
    async with hosted(server) as site:
        for token in (ADMIN, NOBODY):
            answer = await (await site.greet(headers=token)).call("t")
            assert (answer.status == 200) == (token is ADMIN)
            found = await (await site.ask("server/discover", {}, headers=token)).whole()
            assert set(found["result"]["capabilities"]) == declared
            listed = await site.ask("tools/list", {}, headers=token)
            assert await names(listed, "tools") == (["t"] if token is ADMIN else [])


async def test_in_a_session_it_is_refused_just_so() -> None:
    async with hosted(scoped()) as site:
        session = await site.greet(headers=READER)
        answer = await session.call("change")
        assert (answer.status, asked(answer).scopes) == (403, ("read", "write"))
        assert (await session.call("look")).status == 200


@pytest.mark.requirement("authorization-scope-hierarchy")
async def test_a_scope_has_others_in_it_where_the_server_says_so() -> None:
    async with hosted(scoped()) as site:
        assert (await site.call("change", ADMIN)).status == 200
    async with hosted(
        scoped(implies={"admin": ["owner"], "owner": ["read", "write", "admin"]})
    ) as site:
        assert (await site.call("change", ADMIN)).status == 200
    async with hosted(
        scoped(implies=lambda scope: ["read", "write"] if scope == "admin" else [])
    ) as site:
        assert (await site.call("change", ADMIN)).status == 200
    async with hosted(scoped(implies={})) as site:
        assert (await site.call("change", ADMIN)).status == 403


async def test_an_endless_hierarchy_ends() -> None:
    async with hosted(scoped(implies=lambda scope: [scope + "x"])) as site:
        assert (await site.call("open_to_all", ADMIN)).status == 200


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "vault://secret"}),
        ("resources/read", {"uri": "vault://x/file"}),
        ("resources/read", {"uri": "vault://notes"}),
        ("resources/read", {"uri": "files:///notes.txt"}),
        ("resources/read", {"uri": "files:///"}),
        ("prompts/get", {"name": "draft", "arguments": {"topic": "t"}}),
    ],
)
@pytest.mark.requirement("resources-access", "cache-access-control")
async def test_resources_files_and_prompts_are_refused_too(
    tmp_path: Path, method: str, params: Any
) -> None:
    async with hosted(scoped(tmp_path)) as site:
        answer = await site.ask(method, params, headers=READER)
        assert (answer.status, asked(answer).scopes) == (403, ("write",))
        assert (await site.ask(method, params, headers=ADMIN)).status == 200


async def test_a_subscription_is_refused_too() -> None:
    async with hosted(scoped()) as site:
        session = await site.greet(headers=READER)
        assert (await session.ask("resources/subscribe", {"uri": "vault://secret"})).status == 403
        assert (await session.ask("resources/subscribe", {"uri": "vault://open"})).status == 200


async def test_a_tool_cannot_read_for_its_caller_what_that_may_not() -> None:
    async with hosted(scoped()) as site:
        answer = await site.call("sneak", READER, uri="vault://secret")
        assert (answer.status, asked(answer).scopes) == (403, ("write",))
        assert (await site.call("sneak", READER, uri="vault://open")).status == 200
        assert (await site.call("sneak", ADMIN, uri="vault://secret")).status == 200


async def test_a_handler_may_want_more_as_it_goes() -> None:
    server = scoped()

    @server.tool
    async def pay(amount: int) -> str:
        if amount > 100:
            raise Forbidden("That is a lot", data={"scopes": ["pay:much"]})
        return "paid"

    async with hosted(server) as site:
        assert (await site.call("pay", READER, amount=5)).status == 200
        answer = await site.call("pay", READER, amount=500)
        assert (answer.status, asked(answer).scopes) == (403, ("pay:much",))


@pytest.mark.requirement("authorization-challenge-scope", "authorization-scope-consistent")
async def test_what_everybody_needs_is_asked_for_at_the_door_and_with_whatever_else_is_needed() -> (
    None
):
    async with hosted(scoped(scopes=["read"])) as site:
        assert asked(await site.ask("tools/list")).scopes == ("read",)
        answer = await site.call("open_to_all", NOBODY)
        assert (answer.status, asked(answer).error, asked(answer).scopes) == (
            403,
            "insufficient_scope",
            ("read",),
        )
        answer = await site.ask("resources/read", {"uri": "vault://secret"}, headers=READER)
        assert asked(answer).scopes == ("read", "write")


async def test_two_tokens_of_one_user_in_one_session_are_told_apart() -> None:
    tokens = {
        "weak": Principal("ada", scopes=("read",)),
        "strong": Principal("ada", scopes=("read", "write")),
    }
    server = Server("two", auth=Bearer(static_tokens(tokens)))
    begun, go = asyncio.Event(), asyncio.Event()

    @server.resource("vault://secret", scopes=["write"])
    def secret() -> str:
        return "secret"

    @server.tool
    async def wait_and_read(ctx: Context) -> str:
        begun.set()
        await go.wait()
        return (await ctx.read_resource("vault://secret"))[0].text  # type: ignore[union-attr]

    async with hosted(server) as site:
        session = await site.greet(headers={"Authorization": "Bearer weak"})
        waiting = asyncio.create_task(session.call("wait_and_read"))
        await begun.wait()
        strong = {"Authorization": "Bearer strong"}
        read = await session.ask("resources/read", {"uri": "vault://secret"}, id=2, headers=strong)
        assert read.status == 200
        go.set()
        assert (await waiting).status == 403


# seeing


async def test_lists_show_what_the_caller_may_use() -> None:
    async with hosted(scoped()) as site:
        for who, tools in (
            (NOBODY, ["open_to_all", "sneak"]),
            (READER, ["open_to_all", "look", "sneak"]),
            (ADMIN, ["open_to_all", "look", "change", "sneak"]),
            (READER, ["open_to_all", "look", "sneak"]),
        ):
            assert await names(await site.ask("tools/list", headers=who), "tools") == tools
        assert await names(
            await site.ask("resources/list", headers=READER), "resources", "uri"
        ) == ["vault://open"]
        assert (
            await names(
                await site.ask("resources/templates/list", headers=READER), "resourceTemplates"
            )
            == []
        )
        assert await names(await site.ask("prompts/list", headers=READER), "prompts") == []
        assert await names(await site.ask("prompts/list", headers=ADMIN), "prompts") == ["draft"]


async def test_with_pages_too() -> None:
    async with hosted(scoped(page_size=1)) as site:
        seen: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            result = (await (await site.ask("tools/list", cursor, headers=READER)).whole())[
                "result"
            ]
            seen += [tool["name"] for tool in result["tools"]]
            if "nextCursor" not in result:
                break
            cursor = {"cursor": result["nextCursor"]}
        assert seen == ["look", "open_to_all", "sneak"]


async def test_with_middleware_too() -> None:
    async def pass_on(call: Any, next: Any) -> Any:
        return await next(call)

    async with hosted(scoped(middleware=[pass_on])) as site:
        assert await names(await site.ask("tools/list", headers=READER), "tools") == [
            "open_to_all",
            "look",
            "sneak",
        ]


async def test_a_list_is_encoded_once_for_all_who_see_the_same() -> None:
    server = scoped()
    async with hosted(server) as site:
        for who in (READER, READER, ADMIN, NOBODY):
            await (await site.ask("tools/list", headers=who)).body()
        views = server._tools.snapshot.views
        assert set(views) == {frozenset(), frozenset({"read"}), frozenset({"read", "write"})}
        assert all(len(view.cache) == 1 for view in views.values())


async def test_what_differs_by_caller_is_private_to_the_cache() -> None:
    server = scoped(cache=Cache(60, "public"))
    server.add_resource(lambda: "", "open://a", name="a", cache=Cache(60, "public"))
    server.add_resource(
        lambda: "", "closed://a", name="b", cache=Cache(60, "public"), scopes=["read"]
    )
    async with hosted(server) as site:
        for method in ("tools/list", "resources/list", "prompts/list"):
            assert (await (await site.ask(method, headers=READER)).whole())["result"][
                "cacheScope"
            ] == "private"
        for uri, scope in (("open://a", "public"), ("closed://a", "private")):
            result = (
                await (await site.ask("resources/read", {"uri": uri}, headers=READER)).whole()
            )["result"]
            assert result["cacheScope"] == scope


async def test_completions_know_nothing_of_what_the_caller_may_not_use() -> None:
    async with hosted(scoped()) as site:
        for reference, argument in (
            ({"type": "ref/prompt", "name": "draft"}, "topic"),
            ({"type": "ref/resource", "uri": "vault://{name}/file"}, "name"),
        ):
            params = {"ref": reference, "argument": {"name": argument, "value": ""}}
            hidden = await (await site.ask("completion/complete", params, headers=READER)).whole()
            unknown = (
                {**reference, "name": "none"}
                if "name" in reference
                else {**reference, "uri": "none://"}
            )
            none = await (
                await site.ask("completion/complete", {**params, "ref": unknown}, headers=READER)
            ).whole()
            assert hidden["error"]["code"] == none["error"]["code"]
            shown = await (await site.ask("completion/complete", params, headers=ADMIN)).whole()
            assert len(shown["result"]["completion"]["values"]) == 1


async def test_nobody_hears_of_changes_to_what_they_may_not_read() -> None:
    server = scoped()
    async with hosted(server) as site:
        wanted = {"notifications": {"resourceSubscriptions": ["vault://secret", "vault://open"]}}
        for who, heard in ((READER, ["vault://open"]), (ADMIN, ["vault://secret", "vault://open"])):
            stream = await site.ask("subscriptions/listen", wanted, headers=who)
            await stream.next()
            server.notify_resource_updated("vault://secret")
            server.notify_resource_updated("vault://open")
            for uri in heard:
                assert (await stream.next()).message["params"]["uri"] == uri
            stream.cut()


def test_a_change_of_a_list_names_nothing_that_is_not_for_everybody() -> None:
    server = scoped()
    heard: list[Any] = []
    server.add_listener(lambda method, params: heard.append(params))
    server.add_tool(lambda: "", name="late", scopes=["late"])
    server.remove_tool("late")
    assert [(change.added, change.removed) for change in heard] == [([], []), ([], [])]


async def test_nor_does_a_session_that_had_more_before() -> None:
    tokens = {"weak": Principal("ada", scopes=()), "strong": Principal("ada", scopes=("write",))}
    server = Server("two", auth=Bearer(static_tokens(tokens)))
    server.add_resource(lambda: "", "vault://secret", name="secret", scopes=["write"])
    server.add_resource(lambda: "", "vault://open", name="open")
    async with hosted(server) as site:
        session = await site.greet(headers={"Authorization": "Bearer strong"})
        for uri in ("vault://secret", "vault://open"):
            assert (await session.ask("resources/subscribe", {"uri": uri})).status == 200
        session.headers = {**session.headers, "Authorization": "Bearer weak"}
        stream = await session.listen()
        server.notify_resource_updated("vault://secret")
        server.notify_resource_updated("vault://open")
        assert (await stream.next()).message["params"]["uri"] == "vault://open"


WEAK, STRONG = {"Authorization": "Bearer weak"}, {"Authorization": "Bearer strong"}
SECRET, OPEN = "vault://secret", "vault://open"


def two_tokens() -> Server:
    """A server whose user has a token that may read the secret, and one that may not."""
    tokens = {"weak": Principal("ada", scopes=()), "strong": Principal("ada", scopes=("write",))}
    server = Server("two", auth=Bearer(static_tokens(tokens)))
    server.add_resource(lambda: "", SECRET, name="secret", scopes=["write"])
    server.add_resource(lambda: "", OPEN, name="open")
    return server


async def subscribed(site: Any) -> Any:
    """A session that is subscribed to both resources, with the strong token."""
    session = await site.greet(headers=STRONG)
    for uri in (SECRET, OPEN):
        assert (await session.ask("resources/subscribe", {"uri": uri})).status == 200
    return session


def as_token(session: Any, token: dict[str, str]) -> Any:
    session.headers = {**session.headers, **token}
    return session


def change(server: Server) -> None:
    server.notify_resource_updated(SECRET)
    server.notify_resource_updated(OPEN)


async def heard(stream: Any) -> str:
    uri: str = (await stream.next()).message["params"]["uri"]
    return uri


async def test_changes_are_filtered_by_the_token_that_opened_the_stream_not_by_the_last_request() -> (  # noqa: E501
    None
):
    server = two_tokens()
    async with hosted(server) as site:
        session = as_token(await subscribed(site), WEAK)
        stream = await session.listen()
        assert (await as_token(session, STRONG).ask("tools/list")).status == 200
        change(server)
        assert await heard(stream) == OPEN


async def test_changes_are_filtered_by_the_token_of_a_poll() -> None:
    server = two_tokens()
    async with hosted(server, long_polling=0.05) as site:
        session = as_token(await subscribed(site), WEAK)

        async def poll() -> list[str]:
            answer = await site.send("GET", {**session.headers, "Accept": "application/json"})
            messages = await answer.json() if answer.status == 200 else []
            return [message["params"]["uri"] for message in messages]

        assert await poll() == []
        assert (await as_token(session, STRONG).ask("tools/list")).status == 200
        change(server)
        as_token(session, WEAK)
        assert await poll() == [OPEN]
        as_token(session, STRONG)
        assert await poll() == []
        change(server)
        as_token(session, WEAK)
        assert await poll() == [], "what was kept for the stronger token"


async def test_a_request_with_a_weaker_token_takes_nothing_from_the_stream() -> None:
    server = two_tokens()
    async with hosted(server) as site:
        session = await subscribed(site)
        stream = await session.listen()
        assert (await as_token(session, WEAK).ask("tools/list")).status == 200
        change(server)
        assert [await heard(stream), await heard(stream)] == [SECRET, OPEN]


async def test_each_stream_of_a_session_has_the_scopes_of_its_own_token() -> None:
    server = two_tokens()
    async with hosted(server) as site:
        session = await subscribed(site)
        weak = await as_token(session, WEAK).listen()
        strong = await as_token(session, STRONG).listen()
        change(server)
        assert [await heard(strong), await heard(strong)] == [SECRET, OPEN]
        strong.cut()
        async with asyncio.timeout(60):
            while True:  # until the server has noticed that the newest stream is gone
                server.notify_resource_updated(SECRET)
                server.notify_resource_updated(OPEN)
                try:
                    async with asyncio.timeout(0.2):
                        assert await heard(weak) == OPEN
                        break
                except TimeoutError:
                    pass


async def test_a_weaker_token_cannot_resume_the_stream_of_a_stronger_one() -> None:
    server = two_tokens()
    async with hosted(server) as site:
        session = await subscribed(site)
        stream = await session.listen()
        server.notify_resource_updated(OPEN)
        last = (await stream.next()).id
        stream.cut()
        server.notify_resource_updated(SECRET)
        resumed = await as_token(session, WEAK).get(last)
        assert (await resumed.next()).data == "", "it is a new stream"
        change(server)
        assert await heard(resumed) == OPEN
        resumed.cut()
        again = await as_token(session, STRONG).get(last)
        assert await heard(again) == SECRET, "which was kept for it"


async def test_over_http_sse_the_token_of_the_stream_counts_too() -> None:
    server = two_tokens()
    async with hosted(server, sse=True) as site:
        stream = await site.send("GET", WEAK, path="/sse")
        path = (await stream.next()).data
        info = {"name": "raw", "version": "0"}
        params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": info}
        for message in (
            request("initialize", params),
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            request("resources/subscribe", {"uri": SECRET}),
            request("resources/subscribe", {"uri": OPEN}),
        ):
            assert (await site.post(message, STRONG, path=path)).status == 202
            if "id" in message:
                assert "result" in (await stream.next()).message
        change(server)
        assert await heard(stream) == OPEN


@pytest.mark.requirement("authorization-scopes-minimal")
async def test_the_metadata_names_the_scopes_that_everybody_needs_and_no_more() -> None:
    for scopes, supported in ((["read", "offline_access"], ["read"]), ([], None)):
        async with hosted(scoped(scopes=scopes)) as site:
            assert (await (await site.send("GET", {}, path=WELL_KNOWN)).json()).get(
                "scopes_supported"
            ) == supported
            assert asked(await site.ask("tools/list")).scopes == tuple(supported or ())


# other transports


async def test_over_websocket_it_is_an_error_of_the_protocol() -> None:
    import json

    from websockets.asyncio.client import connect

    from .test_guarded_server import on_socket

    async with on_socket(scoped().asgi("/mcp", websocket=True)) as port:
        async with connect(f"ws://127.0.0.1:{port}/ws", additional_headers=READER) as channel:
            await channel.send(
                json.dumps(modern("tools/call", {"name": "change", "arguments": {}})[0])
            )
            error = json.loads(await channel.recv())["error"]
            assert (error["code"], error["data"]) == (Forbidden.code, {"scopes": ["read", "write"]})
            await channel.send(json.dumps(modern("tools/list", id=2)[0]))
            tools = json.loads(await channel.recv())["result"]["tools"]
            assert [tool["name"] for tool in tools] == ["open_to_all", "look", "sneak"]


async def test_in_a_batch_it_is_one_of_the_answers() -> None:
    async with hosted(scoped()) as site:
        session = await site.greet("2025-03-26", headers=READER)
        batch = [
            request("tools/call", {"name": name, "arguments": {}}, name)
            for name in ("open_to_all", "change")
        ]
        answers = {one["id"]: one for one in await (await session.post(batch)).whole()}
        assert (
            answers["change"]["error"]["code"] == Forbidden.code
            and "result" in answers["open_to_all"]
        )


@pytest.mark.requirement("authorization-not-on-stdio")
async def test_whoever_runs_the_process_owns_it() -> None:
    async with Client(scoped()) as client:
        assert (await client.call_tool("change")).data == "changed"
        assert len(await client.list_tools()) == 4


# configuration


def test_scopes_that_nobody_would_ask_for_are_refused() -> None:
    server = Server("open")
    server.add_tool(lambda: "", name="one", scopes=["read"])
    with pytest.raises(ConfigError, match="auth="):
        server.asgi()
    with pytest.raises(ConfigError, match="auth="):
        server.run("http")
    server.remove_tool("one")
    server.asgi()
    with pytest.raises(ConfigError, match="auth="):
        server.add_tool(lambda: "", name="two", scopes=["read"])
    with pytest.raises(ConfigError, match="auth="):
        server.add_resource(lambda: "", "a://b", name="b", scopes=["read"])
    with pytest.raises(ConfigError, match="auth="):
        server.add_prompt(lambda: "", name="three", scopes=["read"])


@pytest.mark.parametrize("scopes", [["a b"], [""], ['a"b'], [7], ["é"]])
def test_what_is_no_scope_is_refused(scopes: Any) -> None:
    with pytest.raises(ConfigError, match="is not a valid scope"):
        Server("x").add_tool(lambda: "", name="one", scopes=scopes)
