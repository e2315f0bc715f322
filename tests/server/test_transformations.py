"""`tool.with_(…)`: changed copies of tools."""

import asyncio
import logging
import re
from base64 import urlsafe_b64decode
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from dovetail import (
    Client,
    Context,
    Header,
    InputRequired,
    Server,
    ToolError,
    ToolResult,
    audit,
)
from dovetail.auth import ApiKeys
from dovetail.errors import ConfigError
from dovetail.ports import Principal
from dovetail.protocol.client_features import ElicitParams
from dovetail.server.tools import CallNext, RegisteredTool
from dovetail.testing import Tape, pair
from tests.spec import REVISIONS, check_tape
from tests.transports.http.raw import hosted

SECRET = "sk-hidden-0123456789"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "q": {"type": "string", "description": "What to find."},
        "api_key": {"type": "string", "pattern": "^sk-"},
        "limit": {"type": "integer", "minimum": 1},
    },
    "required": ["q", "api_key"],
    "additionalProperties": False,
}


@dataclass
class Found:
    query: str
    key: str
    limit: int


def make_server(**options: Any) -> Server:
    """A server with the same tool twice: made from a function, and with a schema."""
    server = Server("s", **options)

    @server.tool
    async def search(q: str, api_key: str, limit: int = 10) -> Found:
        """Search everything."""
        return Found(q, api_key[:2], limit)

    @server.tool(schema=SCHEMA)
    async def lookup(q: str, api_key: str, limit: int = 10) -> Found:
        return Found(q, api_key[:2], limit)

    return server


def get(name: str) -> RegisteredTool:
    return make_server().get_tool(name)


both = pytest.mark.parametrize("name", ["search", "lookup"])


async def call(tool: RegisteredTool, arguments: dict[str, Any]) -> ToolResult:
    server = Server("s")
    server.add_tool(tool)
    async with pair(server) as client:
        return await client.call_tool(tool.name, arguments, raise_on_error=False)


def text_of(tape: Tape) -> str:
    """All that was sent, also what is in base64, such as a state that is only signed."""
    text = b"".join(data for _, data in tape.entries).decode()
    words = re.findall(r"[\w-]{16,}", text)
    decoded = [
        urlsafe_b64decode(word + "=" * (-len(word) % 4)) for word in words if len(word) % 4 != 1
    ]
    return text + "".join(map(repr, decoded))


# --------------------------------------------------------------------------------------------------
# what callers see


@both
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_changed_tool_is_listed_and_called_in_every_revision(
    name: str, revision: str
) -> None:
    server, tape = make_server(), Tape()
    server.add_tool(
        server.get_tool(name).with_(
            name="find",
            title="Find",
            description="Finds things.",
            hide={"api_key": SECRET},
            rename={"q": "query"},
            defaults={"limit": 3},
        )
    )
    async with pair(server, revision=revision, record=tape) as client:
        tool = next(one for one in await client.list_tools() if one.name == "find")
        result = await client.call_tool("find", {"query": "x"})
        with pytest.raises(ToolError, match="api_key"):
            await client.call_tool("find", {"query": "x", "api_key": "mine"})
    assert tool.description == "Finds things."
    assert tool.input_schema["required"] == ["query"]
    assert list(tool.input_schema["properties"]) == ["query", "limit"]
    assert tool.input_schema["properties"]["limit"]["default"] == 3
    assert result.text == '{"query":"x","key":"sk","limit":3}'
    assert SECRET not in text_of(tape)
    check_tape(tape, revision)


@both
async def test_the_original_stays_as_it_is(name: str) -> None:
    tool = get(name)
    tool.with_(name="find", description="x", hide={"api_key": SECRET}, rename={"q": "query"})
    assert tool.name == name and list(tool.definition.input_schema["properties"]) == [
        "q", "api_key", "limit",
    ]  # fmt: skip
    result = await call(tool, {"q": "x", "api_key": "sk-1", "limit": 2})
    assert not result.is_error


@both
async def test_changes_compose(name: str) -> None:
    tool = get(name).with_(rename={"q": "query"}, hide={"api_key": SECRET})
    tool = tool.with_(name="find", rename={"query": "text", "limit": "q"}, defaults={"limit": 4})
    tool = tool.with_(hide={"q": 5})
    assert list(tool.definition.input_schema["properties"]) == ["text"]
    assert (await call(tool, {"text": "x"})).data == {"query": "x", "key": "sk", "limit": 5}


@both
async def test_two_arguments_can_exchange_their_names(name: str) -> None:
    tool = get(name).with_(rename={"q": "api_key", "api_key": "q"})
    result = await call(tool, {"api_key": "x", "q": "sk-1"})
    assert result.data == {"query": "x", "key": "sk", "limit": 10}


async def test_what_is_not_changed_is_kept() -> None:
    server = Server("s", auth=ApiKeys({"ada-key-0123456789": Principal("ada")}))

    @server.tool(
        title="T", annotations={"readOnlyHint": True}, meta={"a": 1}, scopes="x", timeout=9
    )
    def search(q: str) -> str:
        """About it."""
        return q

    tool = server.get_tool("search").with_(rename={"q": "query"})
    definition = tool.definition
    assert (definition.title, definition.description, definition.meta) == (
        "T",
        "About it.",
        {"a": 1},
    )
    assert definition.annotations is not None and definition.annotations.read_only_hint
    assert (tool.scopes, tool.timeout) == (("x",), 9)
    assert definition.output_schema == server.get_tool("search").definition.output_schema


async def test_strings_are_still_repaired() -> None:
    tool = get("search").with_(hide={"api_key": SECRET}, rename={"limit": "at_most"})
    assert (await call(tool, {"q": "x", "at_most": "7"})).data["limit"] == 7


async def test_hidden_values_may_be_positional_keyword_only_and_typed() -> None:
    @dataclass
    class Place:
        city: str

    server = Server("s")

    @server.tool
    async def visit(
        a: int, place: Place, /, b: int, ctx: Context, *, c: list[int], d: int = 4
    ) -> Any:
        c.append(d)
        return [a, place.city, b, type(ctx) is Context, c]

    tool = server.get_tool("visit").with_(
        name="go", hide={"place": Place("Oslo"), "c": [3]}, rename={"b": "bb", "d": "dd"}
    )
    for _ in range(2):  # a call does not change the hidden list
        assert (await call(tool, {"a": 1, "bb": 2})).data == [1, "Oslo", 2, True, [3, 4]]


# --------------------------------------------------------------------------------------------------
# mistakes of callers


@both
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"query": "x", "api_key": "mine"}, "api_key"),
        ({"query": "x", "q": "y"}, "q"),
        ({"query": 5}, "query"),
        ({}, "query"),
        ({"query": "x", "limit": "many"}, "limit"),
    ],
)
async def test_errors_use_the_new_names_and_show_no_hidden_value(
    name: str, arguments: dict[str, Any], said: str
) -> None:
    tool = get(name).with_(name="find", hide={"api_key": SECRET}, rename={"q": "query"})
    result = await call(tool, arguments)
    assert result.is_error and said in result.text
    assert SECRET not in result.text and f"of {name}" not in result.text


async def test_a_hidden_argument_cannot_be_passed_even_if_the_schema_takes_any_argument() -> None:
    server = Server("s")

    @server.tool(schema={"type": "object", "properties": {"a": {}, "b": {}}})
    async def echo(**values: Any) -> Any:
        return values

    tool = server.get_tool("echo").with_(hide={"a": 1}, rename={"b": "c"})
    assert (await call(tool, {"c": 2, "more": 3})).data == {"a": 1, "b": 2, "more": 3}
    for name in ("a", "b"):
        result = await call(tool, {name: 2})
        assert result.text == f"`{name}` is not an argument of echo: it accepts c"


async def test_a_result_that_does_not_fit_is_reported_with_the_new_name() -> None:
    server = Server("s")

    @server.tool
    async def count() -> int:
        return "many"  # type: ignore[return-value]

    result = await call(server.get_tool("count").with_(name="number"), {})
    assert result.text.startswith("number returned a value that does not match its output schema")


# --------------------------------------------------------------------------------------------------
# mistakes of authors


@both
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"hide": {"apikey": SECRET}}, "hide= names 'apikey'.*q, api_key, limit.*mean 'api_key'"),
        ({"rename": {"x": "y"}}, "rename= names 'x'"),
        ({"defaults": {"zzz": 1}}, "defaults= names 'zzz'"),
        ({"rename": {"q": "limit"}}, "'q' and 'limit' would both be called 'limit'"),
        ({"rename": {"q": "a", "limit": "a"}}, "would both be called 'a'"),
        ({"hide": {"q": SECRET}, "rename": {"q": "x"}}, "hide= and rename= both name 'q'"),
        ({"hide": {"q": SECRET}, "defaults": {"q": "x"}}, "hide= and defaults= both name 'q'"),
        ({"hide": {"limit": SECRET}}, "the value of the hidden argument 'limit' does not fit"),
        ({"hide": {"limit": object()}}, "the value of the hidden argument 'limit' does not fit"),
        ({"defaults": {"limit": "x"}}, "the default of 'limit' does not fit"),
        ({"rename": {"q": ""}}, "rename= must give 'q' a new name"),
        ({"rename": {"q": 3}}, "rename= must give 'q' a new name"),
        ({"hide": ["q"]}, "hide= must be a dict"),
        ({"name": 3}, "name= must be a string"),
        ({"wrap": len}, "wrap= must be an async function"),
    ],
)
def test_a_mistake_is_a_config_error_that_names_the_tool(
    name: str, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=rf"(?s)Tool '{name}': .*{problem}") as caught:
        get(name).with_(**changes)
    assert SECRET not in str(caught.value) and SECRET not in repr(caught.value.__context__)


def test_wrap_has_two_or_three_parameters() -> None:
    async def one(arguments: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"\(arguments, call_next\)"):
        get("search").with_(wrap=one)  # type: ignore[arg-type]


def test_there_is_no_such_tool() -> None:
    with pytest.raises(ConfigError, match=r"There is no tool 'serch'. Did you mean 'search'\?"):
        make_server().get_tool("serch")


def test_a_tool_takes_no_options() -> None:
    server = make_server()
    with pytest.raises(ConfigError, match=r"takes no options. Change it with with_"):
        server.add_tool(server.get_tool("search"), name="find")


def test_a_hostile_name_is_shown_safely() -> None:
    with pytest.raises(ConfigError) as caught:
        get("search").with_(hide={"\x1b[31m\u202e" * 500: SECRET})
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < 1000


# --------------------------------------------------------------------------------------------------
# schemas


def changed_schema(schema: dict[str, Any], **changes: Any) -> dict[str, Any]:
    server = Server("s")
    server.add_tool(lambda **values: values, name="t", schema={"type": "object", **schema})
    found = dict(server.get_tool("t").with_(**changes).definition.input_schema)
    assert found.pop("type") == "object"
    return found


ANY: dict[str, Any] = {"a": {}, "b": {}, "c": {}}


@pytest.mark.parametrize(
    ("schema", "changes", "result"),
    [
        (
            {
                "properties": {"a": {"$ref": "#/$defs/A"}, "b": {}},
                "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {}},
            },
            {"hide": {"a": 1}},
            {"properties": {"b": {}}},
        ),
        (
            {"properties": {"a": {}, "b": {"$ref": "#/$defs/B"}}, "$defs": {"A": {}, "B": {}}},
            {"hide": {"a": 1}},
            {"properties": {"b": {"$ref": "#/$defs/B"}}, "$defs": {"B": {}}},
        ),
        (
            {"properties": {"a": {"type": "integer"}, "b": {"items": {"$ref": "#/properties/a"}}}},
            {"hide": {"a": 1}},
            {
                "properties": {"b": {"items": {"$ref": "#/$defs/at_properties_a"}}},
                "$defs": {"at_properties_a": {"type": "integer"}},
            },
        ),
        (
            {"properties": ANY, "dependentRequired": {"a": ["b"], "b": ["c", "a"]}},
            {"hide": {"a": 1}, "rename": {"c": "d"}},
            {
                "properties": {"b": {}, "d": {}},
                "dependentRequired": {"b": ["d"]},
                "required": ["b"],
            },
        ),
        (
            {"properties": ANY, "examples": [{"a": 1, "b": 2}], "default": {"c": 1}},
            {"hide": {"a": 1}, "rename": {"b": "x"}},
            {
                "properties": {"x": {}, "c": {}},
                "examples": [{"x": 2}],
                "default": {"c": 1},
            },
        ),
        (
            {"properties": ANY, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"rename": {"a": "x"}},
            {
                "properties": {"x": {}, "b": {}, "c": {}},
                "anyOf": [{"required": ["x"]}, {"required": ["b"]}],
            },
        ),
        (
            {
                "properties": {"a": {"type": "string"}},
                "oneOf": [
                    {"properties": {"a": {"const": "one"}, "b": {}}, "required": ["b"]},
                    {"properties": {"a": {"const": "two"}, "c": {}}},
                ],
            },
            {"hide": {"a": "one"}},
            {"properties": {}, "oneOf": [{"properties": {"b": {}}, "required": ["b"]}]},
        ),
        (
            {
                "allOf": [{"$ref": "#/$defs/Base"}],
                "$defs": {"Base": {"properties": {"a": {}, "b": {}}}},
            },
            {"rename": {"a": "x"}, "hide": {"b": 1}},
            {"allOf": [{"properties": {"x": {}}}]},
        ),
        (
            {"properties": ANY, "minProperties": 2, "dependentSchemas": {"a": {"required": ["c"]}}},
            {"hide": {"a": 1}},
            {
                "properties": {"b": {}, "c": {}},
                "minProperties": 1,
                "allOf": [{"required": ["c"]}],
            },
        ),
    ],
)  # fmt: skip
def test_nothing_of_a_schema_refers_to_what_is_gone(
    schema: dict[str, Any], changes: dict[str, Any], result: dict[str, Any]
) -> None:
    assert changed_schema(schema, **changes) == result


def test_a_schema_that_refers_to_itself_keeps_its_meaning() -> None:
    schema = changed_schema(
        {"properties": {"a": {}, "child": {"$ref": "#"}}, "additionalProperties": False},
        rename={"a": "x"},
    )
    assert schema["properties"] == {"x": {}, "child": {"$ref": "#/$defs/at"}}
    assert "a" in schema["$defs"]["at"]["properties"]  # inside, the tool has its own names


# --------------------------------------------------------------------------------------------------
# values that are made for each call


@both
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_makes_a_hidden_value_for_each_call(name: str, is_async: bool) -> None:
    made: list[int] = []

    def make() -> int:
        made.append(len(made) + 1)
        return made[-1]

    async def make_later() -> int:
        await asyncio.sleep(0)
        return make()

    tool = get(name).with_(hide={"limit": make_later if is_async else make})
    assert made == []
    for number in (1, 2):
        result = await call(tool, {"q": "x", "api_key": "sk-1"})
        assert result.data["limit"] == number


@both
async def test_a_made_value_that_does_not_fit_is_not_shown(name: str) -> None:
    tool = get(name).with_(hide={"limit": lambda: SECRET})
    result = await call(tool, {"q": "x", "api_key": "sk-1"})
    assert result.is_error and "the hidden argument 'limit' does not fit" in result.text
    assert SECRET not in result.text


@both
async def test_the_error_of_a_function_that_makes_a_value_is_only_logged(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> int:
        raise ValueError(f"refused: {SECRET}")

    arguments = {"q": "x", "api_key": "sk-1"}
    result = await call(get(name).with_(hide={"limit": fail}), arguments)
    assert result.is_error and "hidden argument of this tool could not be computed" in result.text
    assert SECRET not in result.text and SECRET in caplog.text

    def refuse() -> int:
        raise ToolError("Try again at noon")

    assert "noon" in (await call(get(name).with_(hide={"limit": refuse}), arguments)).text


# --------------------------------------------------------------------------------------------------
# wrap


@both
async def test_wrap_changes_arguments_and_the_result(name: str) -> None:
    async def shout(arguments: dict[str, Any], call_next: CallNext) -> str:
        result = await call_next({**arguments, "query": arguments["query"].upper()})
        return f"{result.data['query']}! {arguments}"

    tool = get(name).with_(hide={"api_key": SECRET}, rename={"q": "query"}, wrap=shout)
    assert tool.definition.output_schema is None
    result = await call(tool, {"query": "x", "limit": 3})
    assert result.text == "X! {'query': 'x', 'limit': 3}"
    assert (await call(tool, {"query": 4})).is_error
    assert (await call(tool, {"query": "x", "api_key": "sk-1"})).is_error


async def test_wrap_sees_repaired_arguments_and_may_be_wrapped_again() -> None:
    async def add(arguments: dict[str, Any], call_next: CallNext) -> Any:
        return await call_next({**arguments, "limit": arguments["limit"] + 1})

    tool = get("search").with_(hide={"api_key": SECRET}, wrap=add)
    twice = tool.with_(rename={"limit": "n"}).with_(rename={"n": "limit"}, wrap=add)
    assert (await call(tool, {"q": "x", "limit": "5"})).data["limit"] == 6
    assert (await call(twice, {"q": "x", "limit": 5})).data["limit"] == 7


async def test_wrap_may_answer_itself_use_the_context_and_have_an_output_schema() -> None:
    async def stub(arguments: dict[str, Any], call_next: CallNext, ctx: Context) -> dict[str, Any]:
        await ctx.progress(1, 1)
        return {"tool": "stub"}

    schema = {"type": "object", "properties": {"tool": {"type": "string"}}}
    server = make_server()
    server.add_tool(server.get_tool("search").with_(name="stub", wrap=stub, output_schema=schema))
    steps: list[Any] = []
    async with pair(server) as client:
        result = await client.call_tool(
            "stub", {"q": "", "api_key": ""}, on_progress=lambda *step: steps.append(step)
        )
    assert result.data == {"tool": "stub"} and steps
    assert server.get_tool("stub").definition.output_schema == schema


async def test_what_wrap_passes_on_is_checked() -> None:
    async def break_it(arguments: dict[str, Any], call_next: CallNext) -> Any:
        return await call_next({"q": 5})

    result = await call(get("search").with_(wrap=break_it), {"q": "x", "api_key": "sk-1"})
    assert result.is_error and "`q` must be a string" in result.text


async def test_wrap_sees_the_errors_of_the_tool() -> None:
    server = Server("s")

    @server.tool
    def fail() -> None:
        raise ToolError("No.")

    async def catch(arguments: dict[str, Any], call_next: CallNext) -> Any:
        try:
            return await call_next(arguments)
        except ToolError as error:
            return f"caught {error}"

    assert (await call(server.get_tool("fail").with_(wrap=catch), {})).text == "caught No."


# --------------------------------------------------------------------------------------------------
# with other features


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("is_wrapped", [False, True])
async def test_a_changed_tool_asks_its_client(revision: str, is_wrapped: bool) -> None:
    server, tape = Server("s", resume="replay"), Tape()

    @server.tool
    async def book(ctx: Context, seats: int, key: str) -> str:
        answer = await ctx.elicit("Which day?", str)
        return f"{seats} on {answer.data}"

    async def wrap(arguments: dict[str, Any], call_next: CallNext) -> Any:
        return await call_next(arguments)

    changes: dict[str, Any] = {"wrap": wrap} if is_wrapped else {}
    tool = server.get_tool("book").with_(hide={"key": SECRET}, rename={"seats": "n"}, **changes)
    server.replace_tool("book", tool)
    async with pair(
        server, revision=revision, record=tape, on_elicit=lambda _: {"value": "Monday"}
    ) as client:
        if client.capabilities and revision < "2025-06-18":
            return
        result = await client.call_tool("book", {"n": 2})
    assert result.text == "2 on Monday"
    assert SECRET not in text_of(tape)


async def test_questions_that_a_wrapped_tool_returns_reach_the_client() -> None:
    server = Server("s")

    @server.tool
    async def book(ctx: Context) -> Any:
        if not ctx.input_responses:
            return InputRequired(
                {
                    "day": ElicitParams(
                        message="Which day?", requested_schema={"type": "object", "properties": {}}
                    )
                },
                "s",
            )
        return "booked"

    async def wrap(arguments: dict[str, Any], call_next: CallNext) -> Any:
        try:
            return f"{(await call_next(arguments)).text}!"
        except Exception:
            return "swallowed"

    server.replace_tool("book", server.get_tool("book").with_(wrap=wrap))
    async with pair(server, revision="2026-07-28", on_elicit=lambda _: {}) as client:
        assert (await client.call_tool("book", {})).text == "booked!"


def triple(number: int, factor: int) -> int:
    return number * factor


async def test_a_changed_tool_runs_in_a_child_process() -> None:
    server = Server("s")
    server.add_tool(triple, isolate="process")
    tool = server.get_tool("triple").with_(hide={"factor": lambda: 3}, rename={"number": "n"})
    assert (await call(tool, {"n": 5})).data == 15


async def test_a_changed_tool_runs_as_a_task() -> None:
    server = Server("s")

    @server.tool(task="optional")
    async def work(n: int, key: str) -> str:
        return f"{n} {key[:2]}"

    server.add_tool(server.get_tool("work").with_(name="job", hide={"key": SECRET}))
    other = Server("other")
    other.add_tool(server.get_tool("job"))
    for one in (server, other):
        async with pair(one) as client:
            task = await client.start_tool("job", {"n": 1})
            assert (await task.result()).text == "1 sk"


async def test_header_params_have_the_new_names_and_hidden_ones_are_gone() -> None:
    server = Server("s")

    @server.tool
    def where(
        region: Annotated[str, Header("Region")], zone: Annotated[str, Header("Zone")]
    ) -> str:
        return f"{region} {zone}"

    tool = server.get_tool("where").with_(hide={"zone": "z"}, rename={"region": "place"})
    assert [(one.name, one.path) for one in tool.header_params] == [("Region", ("place",))]
    server.replace_tool("where", tool)
    async with hosted(server) as site, Client(f"http://127.0.0.1:{site.port}/mcp") as client:
        assert (await client.call_tool("where", {"place": "north"})).text == "north z"


async def test_a_tool_takes_the_place_of_another_with_one_notification() -> None:
    server = make_server()
    changes: list[Any] = []
    async with pair(server) as client:
        client.on_change("tools", lambda *_: changes.append(1))
        await client.list_tools()
        server.replace_tool("search", server.get_tool("search").with_(name="find"))
        while not changes:
            await asyncio.sleep(0)
        assert [one.name for one in await client.list_tools()] == ["find", "lookup"]
    assert changes == [1]
    with pytest.raises(ConfigError, match="There is no tool 'search'"):
        server.replace_tool("search", server.get_tool("find"))
    with pytest.raises(ConfigError, match="The tool 'lookup' already exists"):
        server.replace_tool("find", server.get_tool("lookup"))


async def test_a_tool_of_another_server_uses_the_context_of_its_new_server() -> None:
    other, server = Server("other"), Server("s", lifespan=asynccontextmanager(_state))

    @other.tool
    async def who(ctx: Context) -> str:
        return str(ctx.state)

    server.add_tool(other.get_tool("who"))
    async with pair(server) as client:
        assert (await client.call_tool("who", {})).text == "state"


async def _state() -> Any:
    yield "state"


async def test_a_tool_with_scopes_needs_a_guard_at_its_new_server() -> None:
    guarded = Server("s", auth=ApiKeys({"ada-key-0123456789": Principal("ada")}))
    guarded.add_tool(lambda: "x", name="t", scopes="x")
    server = Server("open")
    server.add_tool(guarded.get_tool("t").with_(name="u"))
    with pytest.raises(ConfigError, match="scopes"):
        server.asgi()


# --------------------------------------------------------------------------------------------------
# secrets


async def test_a_hidden_value_shows_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    records: list[Any] = []
    server = make_server(middleware=[audit(records.append, arguments=lambda name, value: value)])

    @server.tool
    async def leak(q: str, api_key: str) -> str:
        raise RuntimeError("broken")

    texts: list[str] = []
    for name in ("search", "lookup", "leak"):
        tool = server.get_tool(name).with_(hide={"api_key": SECRET}, rename={"q": "query"})
        texts += [repr(tool), str(tool)]
        server.replace_tool(name, tool)
    tape = Tape()
    async with pair(server, record=tape) as client:
        for name in ("search", "lookup", "leak"):
            for arguments in ({"query": "x"}, {"query": 5}, {}, {"query": "x", "api_key": 3}):
                await client.call_tool(name, arguments, raise_on_error=False)
        await client.list_tools()
    texts += [text_of(tape), caplog.text, repr(records), repr(server)]
    assert "query" in repr(records)
    assert SECRET not in "".join(texts)
