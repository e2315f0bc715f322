"""An extension as a value: what it may be called, what clashes, in which order wrappers run, and
which methods there are."""

import asyncio
from typing import Any

import aiohttp
import pytest
from msgspec import Raw

from dovetail import Cache, Client, Rate, Rates, Server, TextContent, ToolResult
from dovetail.auth import ApiKeys
from dovetail.connection.extension import Extensions
from dovetail.errors import ConfigError, InvalidRequest, Overloaded
from dovetail.extensions import (
    EmptyResult,
    Extension,
    Method,
    Observer,
    Params,
    Result,
    ResultKind,
    has_declared,
    missing_extension,
    notify,
    settings_of,
)
from dovetail.limits import Limits
from dovetail.ports import Principal
from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION, CacheHints
from dovetail.protocol.lifecycle import ClientCapabilities, ServerCapabilities
from dovetail.protocol.methods import METHODS
from dovetail.revisions import ALL, BY_NAME, DRAFT_DIALECT, OFFICIAL
from dovetail.testing import bare, pair
from tests.behaviour.web import on_a_port

ID = "com.example/x"
ROW = Method("x/do", "client", Params, EmptyResult)
OLD, NEW = BY_NAME["2025-11-25"], BY_NAME["2026-07-28"]


async def nothing(call: Any) -> EmptyResult:
    return EmptyResult()


async def through(call: Any, next: Any) -> Any:
    return await next(call)


async def finish(client: Any, params: Any, result: Any) -> Any:
    return result


# What it may be.


@pytest.mark.requirement("stateless-extension-names")
@pytest.mark.parametrize(
    "id",
    ["com.example/x", "a/b", "io.modelcontextprotocol/ui", "com.ex-ample.v2/My.Thing_2", "a.b/1"],
)
def test_an_identifier_is_a_prefix_of_labels_and_a_name(id: str) -> None:
    assert Extension(id=id).id == id


@pytest.mark.requirement("stateless-extension-names")
@pytest.mark.parametrize(
    "id",
    [
        "",
        "x",
        "/x",
        "com.example/",
        "com..example/x",
        "-a/x",
        "1a/x",
        "a-/x",
        "a/b/c",
        "a/-b",
        "a/b.",
        "a b/c",
        "ä/x",
        7,
    ],
)
def test_what_is_no_identifier_is_refused_with_an_example(id: Any) -> None:
    with pytest.raises(ConfigError, match=r"use the form 'com\.example/name'"):
        Extension(id=id)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"methods": [Method("tools/call", "client", Params, Result)]},
            "tools/call is a core method",
        ),
        ({"methods": [Method("ping", "client", Params, Result)]}, "ping is a core method"),
        (
            {"methods": [Method("server/discover", "client", Params)], "handshake": False},
            "server/discover is a core method",
        ),
        ({"handlers": {"x/do": nothing}}, "x/do has a handler but is not listed in methods"),
        (
            {"methods": [ROW], "handlers": {"x/do": nothing, "x/b": nothing, "x/a": nothing}},
            "x/a, x/b has a handler",
        ),
        ({"around": {"tools/cal": through}}, "tools/cal cannot be wrapped"),
        ({"around": {"initialize": through}}, "initialize cannot be wrapped"),
        ({"around": {"ping": through}}, "ping cannot be wrapped"),
        ({"instead": {"ping": through}}, "ping cannot be wrapped"),
        (
            {"around": {"notifications/progress": through}},
            "notifications/progress cannot be wrapped",
        ),
        (
            {"kinds": {"complete": ResultKind(Result, finish)}},
            "complete is a result type defined by the core",
        ),
        (
            {"kinds": {"input_required": ResultKind(Result, finish)}},
            "input_required is a result type",
        ),
    ],
)
def test_what_an_extension_cannot_be_is_a_config_error(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"{ID}: {problem}"):
        Extension(id=ID, **given)


def test_a_method_of_the_handshake_era_alone_may_be_an_extensions_in_the_other() -> None:
    """As `ping` might come back: the core of the stateless era has none."""
    ping = Method("ping", "client", Params, EmptyResult)
    given = Extensions([Extension(id=ID, methods=[ping], handshake=False)])
    assert given.find_method("ping", NEW) is ping
    assert given.find_method("ping", OLD) is METHODS["ping"]


async def test_nothing_is_declared_in_the_handshake_where_nothing_is_for_it() -> None:
    async with bare(Server("s", extensions=[Extension(id=ID, handshake=False)])) as peer:
        welcome = await peer.greet("2025-11-25")
        assert "extensions" not in welcome["result"]["capabilities"]


# What clashes.

CLASHES = [
    ([Extension(id=ID), Extension(id=ID)], "com.example/x was added twice"),
    (
        [Extension(id=ID, methods=[ROW]), Extension(id="com.example/y", methods=[ROW])],
        "Two extensions define the method x/do: com.example/x and com.example/y",
    ),
    (
        [
            Extension(id=f"com.example/{name}", kinds={"k": ResultKind(Result, finish)})
            for name in "xy"
        ],
        "Two extensions define the result type k: com.example/x and com.example/y",
    ),
]


@pytest.mark.parametrize(("given", "problem"), CLASHES)
def test_two_that_clash_are_refused_on_either_side(given: list[Extension], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Server("s", extensions=given)
    with pytest.raises(ConfigError, match=problem):
        Client(Server("s"), extensions=given)
    server = Server("s", extensions=given[:1])
    with pytest.raises(ConfigError, match=problem):
        server.add_extension(given[1])
    assert list(server.extensions) == given[:1]


# Which methods there are.


@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.name)
def test_without_extensions_the_methods_are_those_of_the_revision(revision: Any) -> None:
    for name, row in METHODS.items():
        spoken = row if name in revision.methods else None
        assert Extensions().find_method(name, None) is row
        assert Extensions().find_method(name, revision) is spoken
        assert spoken is None or Extensions().find_method(revision.wire_name(name), revision) is row
    assert Extensions().find_method("x/do", revision) is None


@pytest.mark.parametrize("revision", OFFICIAL, ids=lambda one: one.name)
def test_an_extension_adds_its_own_to_each_revision(revision: Any) -> None:
    given = Extensions([Extension(id=ID, methods=[ROW])])
    assert given.find_method("x/do", revision) is ROW
    assert given.find_method("x/do", None) is ROW
    assert given.find_method("tools/list", revision) is METHODS["tools/list"]


def test_a_dialect_keeps_its_own_names() -> None:
    assert Extensions().find_method("tools/invoke", DRAFT_DIALECT) is METHODS["tools/call"]


def test_what_is_added_later_is_found_though_it_was_looked_for_before() -> None:
    given = Extensions()
    assert given.find_method("x/do", NEW) is None
    given.add(Extension(id=ID, methods=[ROW]))
    assert given.find_method("x/do", NEW) is ROW


# What was declared.


@pytest.mark.parametrize(
    "odd", [None, {}, {"extensions": None}, {"extensions": {ID: True}}, {"extensions": {ID: None}}]
)
def test_a_declaration_that_is_no_object_is_none(odd: Any) -> None:
    assert settings_of(ID, ClientCapabilities.of(odd or {})) is None


def test_settings_are_what_the_other_side_said() -> None:
    assert settings_of(ID, ServerCapabilities(extensions={ID: {"a": 1}})) == {"a": 1}
    assert settings_of("com.example/y", ServerCapabilities(extensions={ID: {"a": 1}})) is None


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_on_a_client_what_the_other_side_declared_is_what_the_server_did(
    revision: str,
) -> None:
    found: list[tuple[str, bool, bool]] = []

    def note(call: Any) -> None:
        found.append((call.name, has_declared(call, ID), has_declared(call, "com.example/y")))

    async def look(call: Any, next: Any) -> Any:
        note(call)
        return await next(call)

    async def hear(call: Any) -> None:
        note(call)

    async def tell(call: Any) -> EmptyResult:
        notify(call, "notifications/x/told", Params())
        return EmptyResult()

    rows = [ROW, Method("notifications/x/told", "server", Params)]
    theirs = Extension(id=ID, methods=rows, handlers={"x/do": tell})
    ours = Extension(
        id=ID, methods=rows, handlers={"notifications/x/told": hear}, around={"tools/list": look}
    )
    async with pair(
        Server("s", extensions=[theirs]), revision=revision, extensions=[ours]
    ) as client:
        await client.list_tools()
        await client.request("x/do")
        await client.list_prompts()
    assert found == [("tools/list", True, False), ("notifications/x/told", True, False)]


def test_the_refusal_names_what_to_declare() -> None:
    refusal = missing_extension("This tool", ID)
    assert refusal.code == -32021
    assert refusal.data == {"requiredCapabilities": {"extensions": {ID: {}}}}
    assert refusal.message == f"This tool requires a client that declares the extension {ID}"


# Wrappers.


def noted(order: list[str], name: str) -> Any:
    async def layer(call: Any, next: Any) -> Any:
        order.append(f"{name} in")
        result = await next(call)
        order.append(f"{name} out")
        return result

    return layer


def wrapping(order: list[str], name: str, method: str = "tools/call") -> Extension:
    return Extension(id=f"com.example/{name}", around={method: noted(order, name)})


async def test_on_a_server_middleware_is_outside_and_the_first_extension_is_the_outermost() -> None:
    order: list[str] = []
    server = Server(
        "s", middleware=[noted(order, "m")], extensions=[wrapping(order, "a"), wrapping(order, "b")]
    )

    @server.tool
    async def tool() -> str:
        order.append("tool")
        return "done"

    async with pair(server) as client:
        order.clear()
        await client.call_tool("tool")
    assert order == ["m in", "a in", "b in", "tool", "b out", "a out", "m out"]


@pytest.mark.parametrize("side", ["server", "client"])
async def test_what_may_answer_instead_is_outside_of_all_that_is_around_whoever_came_first(
    side: str,
) -> None:
    order: list[str] = []
    around, late = wrapping(order, "a"), wrapping(order, "b")
    instead = [
        Extension(id=f"com.example/{name}", instead={"tools/call": noted(order, name)})
        for name in "ij"
    ]
    given = [around, instead[0], late, instead[1]]
    server = Server("s", extensions=given if side == "server" else ())
    server.add_tool(lambda: order.append("tool"), name="tool")
    async with pair(server, extensions=given if side == "client" else ()) as client:
        order.clear()
        await client.call_tool("tool")
    assert order == ["i in", "j in", "a in", "b in", "tool", "b out", "a out", "j out", "i out"]


async def test_what_is_let_through_goes_out_as_it_was_encoded_and_is_not_to_be_shared() -> None:
    seen: list[Any] = []

    async def look(call: Any, next: Any) -> Any:
        seen.append(await next(call))
        return seen[-1]

    extension = Extension(id=ID, instead={"tools/list": look})
    server = Server(
        "s",
        cache=Cache(ttl=60, scope="public"),
        extensions=[extension],
        capabilities={"tools": True},
    )
    async with pair(server, revision="stateless") as client:
        assert (await client.request("tools/list")).cache_scope == "private"
    assert type(seen[0]) is Raw, "nobody opened it"


async def test_on_a_client_the_middleware_is_nearest_to_the_wire() -> None:
    order: list[str] = []
    server = Server("s", extensions=[wrapping(order, "server")])

    @server.tool
    async def tool() -> str:
        return "done"

    given = [wrapping(order, "a"), wrapping(order, "b")]
    async with pair(server, middleware=[noted(order, "m")], extensions=given) as client:
        order.clear()
        await client.call_tool("tool")
    inward = ["a in", "b in", "m in", "server in"]
    assert order == inward + [step.replace(" in", " out") for step in reversed(inward)]


async def test_a_wrapper_holds_for_its_method_alone_and_without_middleware_too() -> None:
    order: list[str] = []
    server = Server(
        "s",
        extensions=[wrapping(order, "a", "tools/list")],
        capabilities={"tools": True, "prompts": True},
    )
    async with pair(server) as client:
        await client.list_prompts()
        assert order == []
        await client.list_tools()
    assert order == ["a in", "a out"]


async def test_a_wrapper_sees_values_and_may_change_them_where_others_are_sent_as_they_were_encoded() -> (  # noqa: E501
    None
):
    async def shorter(call: Any, next: Any) -> Any:
        result = await next(call)
        result.tools = result.tools[1:]
        return result

    async def louder(call: Any, next: Any) -> Any:
        result = await next(call)
        assert result.structured_content == {"result": "hello"}
        return ToolResult(content=[TextContent("HELLO")])

    server = Server(
        "s", extensions=[Extension(id=ID, around={"tools/list": shorter, "tools/call": louder})]
    )
    server.add_tool(lambda: "hidden", name="a")

    @server.tool
    async def b() -> str:
        return "hello"

    async with pair(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["b"]
        assert (await client.call_tool("b")).text == "HELLO"


@pytest.mark.parametrize(("layer", "scope"), [(through, "private"), (Observer(), "public")])
async def test_what_a_wrapper_may_change_for_one_caller_is_not_to_be_shared(
    layer: Any, scope: str
) -> None:
    server = Server(
        "s",
        cache=Cache(ttl=60, scope="public"),
        extensions=[Extension(id=ID, around={"tools/list": layer})],
        capabilities={"tools": True, "prompts": True},
    )
    async with pair(server, revision="stateless") as client:
        assert (await client.request("tools/list")).cache_scope == scope
        assert (await client.request("prompts/list")).cache_scope == "public"


@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18"])
async def test_what_the_connection_answers_can_be_wrapped_too(revision: str) -> None:
    order: list[str] = []
    async with pair(
        Server("s", extensions=[wrapping(order, "a", "logging/setLevel")]), revision=revision
    ) as client:
        await client.set_log_level("error")
    assert order == ["a in", "a out"]


async def test_a_wrapper_around_discovery_is_asked_on_the_server() -> None:
    order: list[str] = []
    async with pair(
        Server("s", extensions=[wrapping(order, "a", "server/discover")]), revision="stateless"
    ):
        pass
    assert order == ["a in", "a out"]


# Further kinds of result.


class Parcel(Result, kw_only=True):
    number: int


def sending(result: Any) -> Server:
    async def wrap(call: Any, next: Any) -> Any:
        return result

    server = Server("s", extensions=[Extension(id=ID, around={"tools/call": wrap})])
    server.add_tool(lambda: "", name="tool")
    return server


PARCEL = Parcel(result_type="parcel", number=7)


async def unpack(client: Any, params: Any, result: Parcel) -> Any:
    return ToolResult(content=[TextContent(f"{params.name} {result.number}")])


async def test_a_kind_is_finished_with_the_params_of_the_request() -> None:
    ours = Extension(id=ID, kinds={"parcel": ResultKind(Parcel, unpack)})
    async with pair(sending(PARCEL), extensions=[ours]) as client:
        assert (await client.call_tool("tool")).text == "tool 7"
        assert await client.request("tools/call", {"name": "tool"}, manual=True) == client_sees(
            PARCEL
        )


class client_sees:
    """A result as it is on the client: the same, with what the server signed it with."""

    def __init__(self, sent: Parcel) -> None:
        self.sent = sent

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parcel) and (other.number, other.result_type) == (
            self.sent.number,
            "parcel",
        )


async def test_a_kind_that_nobody_declared_is_refused_by_name() -> None:
    async with pair(sending(PARCEL)) as client:
        with pytest.raises(InvalidRequest, match="unknown result type: 'parcel'"):
            await client.call_tool("tool")


async def test_a_kind_is_for_the_methods_that_it_names() -> None:
    ours = Extension(id=ID, kinds={"parcel": ResultKind(Parcel, unpack, of=("prompts/get",))})
    async with pair(sending(PARCEL), extensions=[ours]) as client:
        with pytest.raises(InvalidRequest, match="unknown result type: 'parcel'"):
            await client.call_tool("tool")


@pytest.mark.requirement("extensions-untrusted")
async def test_a_kind_that_does_not_fit_its_type_is_the_servers_mistake() -> None:
    ours = Extension(id=ID, kinds={"parcel": ResultKind(Parcel, unpack)})
    async with pair(sending(EmptyResult(result_type="parcel")), extensions=[ours]) as client:
        with pytest.raises(InvalidRequest, match=r"\(type 'parcel'\) is malformed: .*number"):
            await client.call_tool("tool")


async def test_what_goes_wrong_while_it_is_finished_is_what_the_caller_gets() -> None:
    async def lose(client: Any, params: Any, result: Any) -> Any:
        raise LookupError("lost on the way")

    ours = Extension(id=ID, kinds={"parcel": ResultKind(Parcel, lose)})
    async with pair(sending(PARCEL), extensions=[ours]) as client:
        with pytest.raises(LookupError, match="lost on the way"):
            await client.call_tool("tool")


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize("sender", ["client", "server", "both"])
async def test_a_notification_is_heard_of_the_side_only_that_is_to_send_it(
    revision: str, sender: Any
) -> None:
    heard: list[str] = []

    def part(side: str, sender: Any) -> Extension:
        async def hear(call: Any) -> None:
            heard.append(side)

        async def tell(call: Any, next: Any) -> Any:
            notify(call, "notifications/x/told", Params())
            return await next(call)

        rows = [Method("notifications/x/told", sender, Params)]
        around = {"tools/list": tell} if side == "server" else {}
        return Extension(id=ID, methods=rows, handlers={rows[0].name: hear}, around=around)

    for one, other in (
        ("both", sender),
        (sender, "both"),
    ):  # who sends it all the same, and who hears of it
        server = Server("s", extensions=[part("server", one)], capabilities={"tools": True})
        async with pair(server, revision=revision, extensions=[part("client", other)]) as client:
            await client.notify("notifications/x/told")
            await client.list_tools()
            await client.list_tools()
    expected = {"client": ["server"], "server": ["client"] * 2, "both": ["client"] * 2 + ["server"]}
    assert sorted(heard) == sorted(expected["both"] + expected[sender])


# Handlers that fail.


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_a_handler_that_fails_is_answered_like_any_other_and_one_that_hears_ends_nothing(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(call: Any) -> Any:
        raise LookupError("secret")

    told = Method("notifications/x/told", "client", Params)
    rows = [ROW, told]
    server = Server(
        "s", extensions=[Extension(id=ID, methods=rows, handlers={"x/do": fail, told.name: fail})]
    )
    async with pair(
        server, revision=revision, extensions=[Extension(id=ID, methods=rows)]
    ) as client:
        await client.notify(told.name)
        with pytest.raises(Exception, match="x/do failed: LookupError"):
            await client.request("x/do")
        assert await client.list_tools() == []


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize("side", ["server", "client"])
async def test_no_more_notifications_are_heard_at_once_than_requests_may_be_in_flight(
    side: str, revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard, go = 0, asyncio.Event()

    async def hear(call: Any) -> None:
        nonlocal heard
        heard += 1
        await go.wait()

    async def flood(call: Any) -> EmptyResult:
        for _ in range(50):
            notify(call, told.name, Params())
        return EmptyResult()

    told = Method("notifications/x/told", "both", Params)
    hearing = {told.name: hear}
    theirs = Extension(
        id=ID, methods=[ROW, told], handlers={"x/do": flood} | (hearing if side == "server" else {})
    )
    ours = Extension(id=ID, methods=[ROW, told], handlers=hearing if side == "client" else {})
    few = Limits(in_flight=5)
    async with pair(
        Server("s", limits=few, extensions=[theirs], capabilities={"tools": True}),
        limits=few,
        revision=revision,
        extensions=[ours],
    ) as client:
        for _ in range(2):
            heard = 0
            if side == "client":
                await client.request("x/do")
            else:
                for _ in range(50):
                    await client.notify(told.name)
            await client.list_tools()
            assert heard == 5
            go.set()
            await client.list_tools()
            await asyncio.sleep(0)
            go.clear()
        go.set()
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    peer = "the client" if side == "server" else "MemoryChannel"
    assert warned == [
        f"{peer}: rejected a notifications/x/told: 5 notifications are already being handled; "
        "the limit is 5"
    ], "and once only"


async def test_a_caller_that_tells_too_much_takes_no_room_of_others() -> None:
    heard, go = asyncio.Queue[str](), asyncio.Event()

    async def hear(call: Any) -> None:
        heard.put_nowait(call.principal.id)
        await go.wait()

    told = Method("notifications/x/told", "client", Params)
    hearing = Extension(id=ID, methods=[told], handlers={told.name: hear})
    keys = ApiKeys({key * 16: Principal(who) for key, who in (("a", "ann"), ("b", "bob"))})
    server = Server("s", auth=keys, limits=Limits(in_flight=2, calls=3), extensions=[hearing])
    meta = {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {"extensions": {ID: {}}}}
    message = {"jsonrpc": "2.0", "method": told.name, "params": {"_meta": meta}}
    async with on_a_port(server.asgi(path="/mcp")) as address, aiohttp.ClientSession() as session:

        async def tell(key: str) -> int:
            headers = {
                "authorization": f"Bearer {key * 16}",
                "accept": "application/json, text/event-stream",
            }
            headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": told.name}
            async with session.post(
                f"http://{address}/mcp", json=message, headers=headers
            ) as response:
                return response.status

        assert [await tell(key) for key in "aaabb"] == [202, 202, 503, 202, 503], (
            "two of each, and three of all"
        )
        assert [await heard.get() for _ in range(3)] == ["ann", "ann", "bob"]
        go.set()
        await asyncio.sleep(0)
        assert await tell("a") == 202


async def test_a_notification_is_counted_among_what_a_caller_may_do() -> None:
    heard = 0

    async def hear(call: Any) -> None:
        nonlocal heard
        heard += 1

    told = Method("notifications/x/told", "client", Params)
    server = Server(
        "s",
        rates=Rates(others=Rate(1, per=600, burst=3)),
        extensions=[Extension(id=ID, methods=[told], handlers={told.name: hear})],
        capabilities={"tools": True},
    )
    async with pair(
        server, revision="2025-11-25", extensions=[Extension(id=ID, methods=[told])]
    ) as client:
        for _ in range(50):
            await client.notify(told.name)
        with pytest.raises(Overloaded):
            await client.list_tools()
    assert heard == 3


# What is kept of its results.


class Doors(CacheHints, kw_only=True):
    doors: list[str]


DOORS = Method(
    "x/doors", "client", Params, Doors, cacheable=True, outdated_by=("notifications/x/moved",)
)
MOVED = Method("notifications/x/moved", "server", Params)


@pytest.mark.parametrize(
    ("said", "ttl", "scope"),
    [
        (None, 0, "private"),
        (Cache(ttl=60, scope="public"), 60_000, "private"),
        ({"x/doors": Cache(ttl=60, scope="public")}, 60_000, "public"),
        ({"tools/list": Cache(ttl=60)}, 0, "private"),
    ],
)
async def test_results_of_an_extension_are_kept_as_the_server_says_and_dropped_at_its_news(
    said: Any, ttl: int, scope: str
) -> None:
    asked, moved = 0, asyncio.Event()

    async def doors(call: Any) -> Doors:
        nonlocal asked
        asked += 1
        return Doors(doors=["front"])

    async def hear(call: Any) -> None:
        moved.set()

    server = Server(
        "s",
        cache=said,
        extensions=[Extension(id=ID, methods=[DOORS, MOVED], handlers={"x/doors": doors})],
    )
    ours = Extension(id=ID, methods=[DOORS, MOVED], handlers={MOVED.name: hear})
    async with pair(server, revision="stateless", extensions=[ours]) as client:
        await client.on_change("tools", lambda kind: None)
        found = await client.request("x/doors")
        assert (found.ttl_ms, found.cache_scope) == (ttl, scope)
        await client.request("x/doors")
        assert asked == (1 if ttl else 2)
        server.notify(MOVED.name, Params())
        await moved.wait()
        await client.request("x/doors")
        assert asked == (2 if ttl else 3)


async def test_what_a_handler_says_itself_of_caches_is_what_counts() -> None:
    async def doors(call: Any) -> Doors:
        return Doors(doors=[], ttl_ms=5000, cache_scope="public")

    given = Extension(id=ID, methods=[DOORS], handlers={"x/doors": doors})
    async with pair(
        Server("s", cache=Cache(ttl=60), extensions=[given]), extensions=[given]
    ) as client:
        found = await client.request("x/doors")
    assert (found.ttl_ms, found.cache_scope) == (5000, "public")


def test_what_no_extension_has_cannot_be_kept() -> None:
    with pytest.raises(
        ConfigError,
        match=r"cache: 'x/doors' cannot be cached; the cacheable methods are .*tools/list",
    ):
        Server("s", cache={"x/doors": Cache(ttl=60)})
    with pytest.raises(ConfigError, match="'x/do' cannot be cached"):
        Server("s", cache={"x/do": Cache(ttl=60)}, extensions=[Extension(id=ID, methods=[ROW])])


async def test_a_method_without_a_handler_is_not_there() -> None:
    server = Server("s", extensions=[Extension(id=ID, methods=[ROW])])
    async with pair(server, extensions=[Extension(id=ID, methods=[ROW])]) as client:
        with pytest.raises(Exception, match="This server does not support the method 'x/do'"):
            await client.request("x/do")
