"""An extension as a value: what it may be called, what clashes, in which order wrappers run, and which methods there are."""

from typing import Any

import pytest

from dovetail import Cache, Client, Server, TextContent, ToolResult
from dovetail.connection.extension import NONE, Extensions
from dovetail.errors import ConfigError, InvalidRequest
from dovetail.extensions import EmptyResult, Extension, Kind, Method, Observer, Params, Result, settings_of, undeclared
from dovetail.protocol.capabilities import ClientCapabilities, ServerCapabilities
from dovetail.protocol.methods import METHODS
from dovetail.revisions import ALL, BY_NAME, DRAFT_DIALECT, OFFICIAL
from dovetail.testing import bare, pair

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
@pytest.mark.parametrize("id", ["com.example/x", "a/b", "io.modelcontextprotocol/ui", "com.ex-ample.v2/My.Thing_2", "a.b/1"])
def test_an_identifier_is_a_prefix_of_labels_and_a_name(id: str) -> None:
    assert Extension(id=id).id == id


@pytest.mark.requirement("stateless-extension-names")
@pytest.mark.parametrize(
    "id",
    ["", "x", "/x", "com.example/", "com..example/x", "-a/x", "1a/x", "a-/x", "a/b/c", "a/-b", "a/b.", "a b/c", "ä/x", 7],
)
def test_what_is_no_identifier_is_refused_with_an_example(id: Any) -> None:
    with pytest.raises(ConfigError, match=r"write it like 'com\.example/name'"):
        Extension(id=id)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"methods": [Method("tools/call", "client", Params, Result)]}, "tools/call belongs to the core"),
        ({"methods": [Method("ping", "client", Params, Result)]}, "ping belongs to the core"),
        (
            {"methods": [Method("server/discover", "client", Params)], "handshake": False},
            "server/discover belongs to the core",
        ),
        ({"handlers": {"x/do": nothing}}, "x/do has a handler, but is no method"),
        ({"methods": [ROW], "handlers": {"x/do": nothing, "x/b": nothing, "x/a": nothing}}, "x/a, x/b has a handler"),
        ({"around": {"tools/cal": through}}, "tools/cal cannot be wrapped"),
        ({"around": {"initialize": through}}, "initialize cannot be wrapped"),
        ({"around": {"ping": through}}, "ping cannot be wrapped"),
        ({"around": {"notifications/progress": through}}, "notifications/progress cannot be wrapped"),
        ({"kinds": {"complete": Kind(Result, finish)}}, "complete is a kind of result that the core defines"),
        ({"kinds": {"input_required": Kind(Result, finish)}}, "input_required is a kind of result"),
    ],
)
def test_what_an_extension_cannot_be_is_a_config_error(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"{ID}: {problem}"):
        Extension(id=ID, **given)


def test_a_method_of_the_handshake_era_alone_may_be_an_extensions_in_the_other() -> None:
    """As `ping` might come back: the core of the stateless era has none."""
    ping = Method("ping", "client", Params, EmptyResult)
    given = Extensions([Extension(id=ID, methods=[ping], handshake=False)])
    assert given.find("ping", NEW) is ping
    assert given.find("ping", OLD) is METHODS["ping"]
    assert given.speaks(NEW, ping)
    assert given.speaks(OLD, METHODS["ping"])
    assert not given.speaks(OLD, ping)
    assert not given.speaks(NEW, METHODS["ping"])


async def test_nothing_is_declared_in_the_handshake_where_nothing_is_for_it() -> None:
    async with bare(Server("s", extensions=[Extension(id=ID, handshake=False)])) as peer:
        welcome = await peer.greet("2025-11-25")
        assert "extensions" not in welcome["result"]["capabilities"]


# What clashes.

CLASHES = [
    ([Extension(id=ID), Extension(id=ID)], "com.example/x is given twice"),
    (
        [Extension(id=ID, methods=[ROW]), Extension(id="com.example/y", methods=[ROW])],
        "x/do is a method of two extensions: com.example/x and com.example/y",
    ),
    (
        [Extension(id=f"com.example/{name}", kinds={"k": Kind(Result, finish)}) for name in "xy"],
        "k is a kind of result of two extensions: com.example/x and com.example/y",
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
        assert NONE.speaks(revision, row) == (name in revision.methods)
        assert NONE.find(name, None) is row
        if name in revision.methods:
            assert NONE.find(revision.wire_name(name), revision) is row
    assert NONE.find("x/do", revision) is None


@pytest.mark.parametrize("revision", OFFICIAL, ids=lambda one: one.name)
def test_an_extension_adds_its_own_to_each_revision(revision: Any) -> None:
    given = Extensions([Extension(id=ID, methods=[ROW])])
    assert given.find("x/do", revision) is ROW
    assert given.find("x/do", None) is ROW
    assert given.speaks(revision, ROW)
    assert given.find("tools/list", revision) is METHODS["tools/list"]


def test_a_dialect_keeps_its_own_names() -> None:
    assert NONE.find("tools/invoke", DRAFT_DIALECT) is METHODS["tools/call"]


def test_what_is_added_later_is_found_though_it_was_looked_for_before() -> None:
    given = Extensions()
    assert given.find("x/do", NEW) is None
    assert not given.speaks(NEW, ROW)
    given.add(Extension(id=ID, methods=[ROW]))
    assert given.find("x/do", NEW) is ROW
    assert given.speaks(NEW, ROW)


# What was declared.


@pytest.mark.parametrize("odd", [None, {}, {"extensions": None}, {"extensions": {ID: True}}, {"extensions": {ID: None}}])
def test_a_declaration_that_is_no_object_is_none(odd: Any) -> None:
    assert settings_of(ID, ClientCapabilities.of(odd or {})) is None


def test_settings_are_what_the_other_side_said() -> None:
    assert settings_of(ID, ServerCapabilities(extensions={ID: {"a": 1}})) == {"a": 1}
    assert settings_of("com.example/y", ServerCapabilities(extensions={ID: {"a": 1}})) is None


def test_the_refusal_names_what_to_declare() -> None:
    refusal = undeclared("This tool", ID)
    assert refusal.code == -32021
    assert refusal.data == {"requiredCapabilities": {"extensions": {ID: {}}}}
    assert refusal.message == f"This tool is for clients that declare the extension {ID}"


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
    server = Server("s", middleware=[noted(order, "m")], extensions=[wrapping(order, "a"), wrapping(order, "b")])

    @server.tool
    async def tool() -> str:
        order.append("tool")
        return "done"

    async with pair(server) as client:
        order.clear()
        await client.call_tool("tool")
    assert order == ["m in", "a in", "b in", "tool", "b out", "a out", "m out"]


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
    async with pair(Server("s", extensions=[wrapping(order, "a", "tools/list")])) as client:
        await client.list_prompts()
        assert order == []
        await client.list_tools()
    assert order == ["a in", "a out"]


async def test_a_wrapper_sees_values_and_may_change_them_where_others_are_sent_as_they_were_encoded() -> None:
    async def shorter(call: Any, next: Any) -> Any:
        result = await next(call)
        result.tools = result.tools[1:]
        return result

    async def louder(call: Any, next: Any) -> Any:
        result = await next(call)
        assert result.structured_content == {"result": "hello"}
        return ToolResult(content=[TextContent("HELLO")])

    server = Server("s", extensions=[Extension(id=ID, around={"tools/list": shorter, "tools/call": louder})])
    server.add_tool(lambda: "hidden", name="a")

    @server.tool
    async def b() -> str:
        return "hello"

    async with pair(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["b"]
        assert (await client.call_tool("b")).text == "HELLO"


@pytest.mark.parametrize(("layer", "scope"), [(through, "private"), (Observer(), "public")])
async def test_what_a_wrapper_may_change_for_one_caller_is_not_to_be_shared(layer: Any, scope: str) -> None:
    server = Server("s", cache=Cache(ttl=60, scope="public"), extensions=[Extension(id=ID, around={"tools/list": layer})])
    async with pair(server, revision="stateless") as client:
        assert (await client.request("tools/list")).cache_scope == scope
        assert (await client.request("prompts/list")).cache_scope == "public"


@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18"])
async def test_what_the_connection_answers_can_be_wrapped_too(revision: str) -> None:
    order: list[str] = []
    async with pair(Server("s", extensions=[wrapping(order, "a", "logging/setLevel")]), revision=revision) as client:
        await client.set_log_level("error")
    assert order == ["a in", "a out"]


async def test_a_wrapper_around_discovery_is_asked_on_the_server() -> None:
    order: list[str] = []
    async with pair(Server("s", extensions=[wrapping(order, "a", "server/discover")]), revision="stateless"):
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
    ours = Extension(id=ID, kinds={"parcel": Kind(Parcel, unpack)})
    async with pair(sending(PARCEL), extensions=[ours]) as client:
        assert (await client.call_tool("tool")).text == "tool 7"
        assert await client.request("tools/call", {"name": "tool"}, manual=True) == client_sees(PARCEL)


class client_sees:
    """A result as it is on the client: the same, with what the server signed it with."""

    def __init__(self, sent: Parcel) -> None:
        self.sent = sent

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parcel) and (other.number, other.result_type) == (self.sent.number, "parcel")


async def test_a_kind_that_nobody_declared_is_refused_by_name() -> None:
    async with pair(sending(PARCEL)) as client:
        with pytest.raises(InvalidRequest, match="unknown type 'parcel'"):
            await client.call_tool("tool")


async def test_a_kind_is_for_the_methods_that_it_names() -> None:
    ours = Extension(id=ID, kinds={"parcel": Kind(Parcel, unpack, of=("prompts/get",))})
    async with pair(sending(PARCEL), extensions=[ours]) as client:
        with pytest.raises(InvalidRequest, match="unknown type 'parcel'"):
            await client.call_tool("tool")


async def test_a_kind_that_does_not_fit_its_type_is_the_servers_mistake() -> None:
    ours = Extension(id=ID, kinds={"parcel": Kind(Parcel, unpack)})
    async with pair(sending(EmptyResult(result_type="parcel")), extensions=[ours]) as client:
        with pytest.raises(InvalidRequest, match=r"of type 'parcel', makes no sense: .*number"):
            await client.call_tool("tool")


async def test_what_goes_wrong_while_it_is_finished_is_what_the_caller_gets() -> None:
    async def lose(client: Any, params: Any, result: Any) -> Any:
        raise LookupError("lost on the way")

    ours = Extension(id=ID, kinds={"parcel": Kind(Parcel, lose)})
    async with pair(sending(PARCEL), extensions=[ours]) as client:
        with pytest.raises(LookupError, match="lost on the way"):
            await client.call_tool("tool")


# Handlers that fail.


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_a_handler_that_fails_is_answered_like_any_other_and_one_that_hears_ends_nothing(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(call: Any) -> Any:
        raise LookupError("secret")

    told = Method("notifications/x/told", "client", Params)
    rows = [ROW, told]
    server = Server("s", extensions=[Extension(id=ID, methods=rows, handlers={"x/do": fail, told.name: fail})])
    async with pair(server, revision=revision, extensions=[Extension(id=ID, methods=rows)]) as client:
        await client.notify(told.name)
        with pytest.raises(Exception, match="x/do failed: LookupError"):
            await client.request("x/do")
        assert await client.list_tools() == []


async def test_a_method_without_a_handler_is_not_there() -> None:
    server = Server("s", extensions=[Extension(id=ID, methods=[ROW])])
    async with pair(server, extensions=[Extension(id=ID, methods=[ROW])]) as client:
        with pytest.raises(Exception, match="There is no method 'x/do' here"):
            await client.request("x/do")
