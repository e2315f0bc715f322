"""Every call leaves one record: who, what, when, with what outcome, and nothing that is a
secret."""

import asyncio
import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dovetail import (
    AuditRecord,
    Cache,
    Client,
    Context,
    InputRequired,
    Limits,
    Rate,
    Rates,
    Server,
    ToolError,
    audit,
)
from dovetail.connection.middleware import Observer
from dovetail.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionClosed,
    Forbidden,
    InvalidParams,
    Overloaded,
    ProtocolError,
    TimedOut,
    Unauthorized,
)
from dovetail.ports import Caller, Principal
from dovetail.protocol.base import Implementation
from dovetail.protocol.client_features import ElicitParams
from dovetail.protocol.methods import METHODS
from dovetail.protocol.tools import CallToolParams
from dovetail.revisions import OFFICIAL
from dovetail.testing import Tape, pair
from tests.behaviour.web import App, first_era_only, on_a_port
from tests.server.guarded import SLOW, TRANSPORTS, Door, build, over, placed
from tests.transports.http.raw import on_port

each_era = pytest.mark.parametrize("revision", ["stateless", "handshake"])


class Person(msgspec.Struct):
    name: str


SECRET = "sk-live-0123456789abcdefghij"


def audited(**options: Any) -> tuple[Server, list[AuditRecord]]:
    records: list[AuditRecord] = []
    return build(middleware=[audit(records.append, **options)]), records


def told(record: AuditRecord) -> tuple[Any, ...]:
    return record.method, record.target, record.outcome, record.code, record.error


# what is recorded


@pytest.mark.parametrize("transport", TRANSPORTS)
@each_era
async def test_each_call_leaves_one_record_on_every_transport(
    transport: str, revision: str, tmp_path: Path
) -> None:
    file = tmp_path / "audit"
    async with over(transport, revision, {"tools": {"chatter": SLOW}}, file, timeout=20) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        with pytest.raises(ToolError):
            await client.call_tool("fail", {"secret": SECRET})
        with pytest.raises(InvalidParams):
            await client.call_tool("nothing", {})
        await client.get_prompt("greet", {"name": "Ada"})
        await client.read_resource("data://key")
        await client.complete(prompt="greet", argument="name", value="A")
        for _ in range(2):
            await client.call_tool("chatter", {"lines": 0})
        with pytest.raises(Overloaded):
            await client.call_tool("chatter", {"lines": 0})
    lines = file.read_bytes().splitlines()
    records = [
        record
        for record in map(msgspec.json.Decoder(AuditRecord).decode, lines)
        if "/disc" not in record.method
    ]
    chatter = ("tools/call", "chatter", "ok", None, None)
    assert [told(record) for record in records] == [
        ("tools/call", "add", "ok", None, None),
        ("tools/call", "fail", "tool-error", None, None),
        ("tools/call", "nothing", "error", -32602, "InvalidParams"),
        ("prompts/get", "greet", "ok", None, None),
        ("resources/read", "data://key", "ok", None, None),
        ("completion/complete", "greet", "ok", None, None),
        chatter,
        chatter,
        ("tools/call", "chatter", "refused", Overloaded.code, "Overloaded"),
    ]
    assert [record.arguments for record in records[:6]] == [
        ["a", "b"],
        ["secret"],
        [],
        ["name"],
        None,
        ["name"],
    ]
    assert all(record.agent and record.agent.startswith("dovetail ") for record in records)
    assert all(record.id is not None for record in records[:-1])
    assert SECRET not in file.read_text()


def test_a_record_says_who_it_was() -> None:
    records: list[AuditRecord] = []
    caller = Caller(OFFICIAL[-1], Implementation(name="desk", version="2"))
    caller.principal = Principal("ada", client="app", scopes=("read",), claims={"token": SECRET})
    caller.address = "203.0.113.1"
    params = CallToolParams(name="pay", arguments=Raw(b'{"card":"4111"}'))
    audit(records.append).request_refused(
        METHODS["tools/call"], params, caller, Forbidden("needs pay")
    )
    (record,) = records
    assert (record.user, record.client, record.agent, record.address) == (
        "ada",
        "app",
        "desk 2",
        "203.0.113.1",
    )
    assert told(record) == ("tools/call", "pay", "refused", Forbidden.code, "Forbidden")
    assert record.arguments == ["card"]
    assert SECRET not in msgspec.json.encode(record).decode()


@pytest.mark.parametrize("transport", ["http", "websocket"])
@each_era
async def test_what_a_caller_may_not_do_is_recorded_with_its_name(
    transport: str, revision: str
) -> None:
    records: list[AuditRecord] = []
    server = build(auth=Door(), middleware=[audit(records.append)])

    @server.tool(scopes=["pay"])
    async def pay(card: str) -> None: ...

    url = TRANSPORTS[transport]
    assert url is not None
    async with on_a_port(server.asgi(path="/mcp", websocket=True)) as address:
        async with Client(
            url.format(address), revision=revision, headers={"Authorization": "ada"}
        ) as client:
            await client.call_tool("add", {"a": 1})
            with pytest.raises((Forbidden, Unauthorized, ConnectFailed)):
                await client.call_tool("pay", {"card": SECRET})
    called = [record for record in records if record.method == "tools/call"]
    assert [told(record)[1:] for record in called] == [
        ("add", "ok", None, None),
        ("pay", "refused", Forbidden.code, "Forbidden"),
    ]
    assert {(record.user, record.client, record.address) for record in called} == {
        ("ada", "app", "127.0.0.1")
    }


async def test_of_one_session_each_call_is_recorded_with_the_place_that_it_came_from() -> None:
    records: list[AuditRecord] = []
    server = build(middleware=[audit(records.append)])
    began, go = asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow() -> None:
        began.set()
        await go.wait()

    async with on_port(placed(server.asgi("/mcp")), lifespan="on") as site:
        session = await site.greet()
        waiting = asyncio.create_task(session.call("slow", 1, {"X-From": "192.0.2.1"}))
        await began.wait()
        await (await session.call("add", 2, {"X-From": "192.0.2.2"}, a=1)).json()
        go.set()
        await (await waiting).whole()
    assert [(record.target, record.address) for record in records] == [
        ("add", "192.0.2.2"),
        ("slow", "192.0.2.1"),
    ]


def moving(app: App, posted: list[Any]) -> App:
    """The application, as one sees it whose every request comes from another place: the first from
    192.0.2.1, and so on."""

    async def moved(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            posted.append(scope["path"])
            scope = {**scope, "client": (f"192.0.2.{len(posted)}", 1)}
        await app(scope, receive, send)

    return moved


async def test_over_the_old_pair_a_record_has_the_place_of_the_post() -> None:
    server, records = audited()
    posted: list[Any] = []
    async with on_a_port(moving(first_era_only(server.asgi(sse=True)), posted)) as address:
        async with Client(f"http://{address}/sse", revision="2024-11-05") as client:
            for _ in range(2):
                await client.call_tool("add", {"a": 1})
                assert records[-1].address == f"192.0.2.{len(posted)}"


async def test_a_call_that_asked_is_recorded_with_the_place_of_its_last_request() -> None:
    server, records = audited()
    posted: list[Any] = []

    @server.tool
    async def greet_them(ctx: Context) -> str:
        return (await ctx.elicit("Who?", Person)).action

    async with on_a_port(moving(server.asgi("/mcp"), posted)) as address:
        async with Client(
            f"http://{address}/mcp", revision="stateless", on_elicit=lambda _: {"name": "Ada"}
        ) as client:
            first = len(posted) + 1
            assert (await client.call_tool("greet_them")).text == "accept"
    places = [record.address for record in records if record.target == "greet_them"]
    assert places[-1] == f"192.0.2.{len(posted)}" != f"192.0.2.{first}"


async def test_a_call_that_nobody_waits_for_any_more_is_cancelled() -> None:
    records: list[AuditRecord] = []
    server = Server("slow", middleware=[audit(records.append)])
    began, recorded = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            recorded.set()

    async with pair(server) as client:
        call = asyncio.ensure_future(client.call_tool("wait"))
        await began.wait()
        call.cancel()
        await recorded.wait()
        await client.ping()
    assert [told(record)[:3] for record in records if record.target] == [
        ("tools/call", "wait", "cancelled")
    ]
    assert records[0].duration < 30


@pytest.mark.parametrize("replay", [False, True], ids=["live", "replay"])
async def test_a_call_that_asks_is_one_record_and_one_more_for_each_run_that_starts_again(
    replay: bool,
) -> None:
    records: list[AuditRecord] = []
    server = Server("curious", middleware=[audit(records.append)])

    @server.tool
    async def hello(ctx: Context) -> str:
        return f"Hello {(await ctx.elicit('Who?', Person)).data.name}"

    async with pair(
        server, revision="stateless", replay=replay, on_elicit=lambda _: {"name": "Ada"}
    ) as client:
        assert (await client.call_tool("hello")).text == "Hello Ada"
    assert [record.outcome for record in records if record.target] == (
        ["asked"] if replay else []
    ) + ["ok"]


async def test_a_handler_that_asks_by_itself_asked() -> None:
    records: list[AuditRecord] = []
    server = Server("curious", middleware=[audit(records.append)])

    @server.tool
    async def hello(ctx: Context) -> Any:
        if "who" in ctx.input_responses:
            return "Hello"
        return InputRequired(
            {
                "who": ElicitParams(
                    message="Who?", requested_schema={"type": "object", "properties": {}}
                )
            }
        )

    async with pair(server, revision="stateless", on_elicit=lambda _: {}) as client:
        assert (await client.call_tool("hello")).text == "Hello"
    assert [record.outcome for record in records if record.target] == ["asked", "ok"]


async def test_what_a_rate_refuses_is_recorded_and_so_is_a_greeting() -> None:
    records: list[AuditRecord] = []
    server = Server(
        "busy", rates=Rates(openings=Rate(0.001, burst=1)), middleware=[audit(records.append)]
    )
    async with Client(server, revision="handshake"):
        pass
    with pytest.raises(Overloaded):
        async with Client(server, revision="handshake"):
            pass
    assert [told(record) for record in records] == [
        ("initialize", None, "refused", Overloaded.code, "Overloaded")
    ]


# secrets


async def test_values_are_seen_only_as_far_as_a_function_allows() -> None:
    def show(name: str, value: Any) -> Any:
        return value if name == "a" else "***"

    server, records = audited(arguments=show)
    async with pair(server) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        with pytest.raises(ToolError):
            await client.call_tool("fail", {"secret": SECRET})
        await client.get_prompt("greet", {"name": SECRET})
        await client.complete(prompt="greet", argument="name", value=SECRET)
    seen = [record.arguments for record in records if record.arguments is not None]
    assert seen == [{"a": 1, "b": "***"}, {"secret": "***"}, {"name": "***"}, {"name": "***"}]


async def test_a_function_that_fails_shows_nothing(caplog: pytest.LogCaptureFixture) -> None:
    server, records = audited(arguments=lambda name, value: int(value))
    async with pair(server) as client:
        with pytest.raises(ToolError):
            await client.call_tool("fail", {"secret": SECRET})
    assert records[-1].arguments == {"secret": "[redacted]"}
    (line,) = [entry.getMessage() for entry in caplog.records if "audit(" in entry.getMessage()]
    assert line == "audit(arguments=…) failed for the argument 'secret': ValueError"


async def test_credentials_in_a_uri_are_taken_out() -> None:
    server, records = audited()

    @server.resource("db://{+place}")
    def place(place: str) -> str:
        return place

    async with pair(server) as client:
        await client.read_resource("db://ada:hunter2@host/table")
        await client.read_resource(f"db://host/{SECRET}")
    assert [record.target for record in records if record.target] == [
        "db://ada:[redacted]@host/table",
        "db://host/[redacted]",
    ]


async def test_the_text_of_an_error_is_not_recorded() -> None:
    records: list[AuditRecord] = []

    async def refuse(call: Any, next: Any) -> Any:
        raise ProtocolError(-31444, f"{SECRET} is wrong", {"token": SECRET})

    async with pair(build(middleware=[audit(records.append), refuse])) as client:
        with pytest.raises(ProtocolError):
            await client.call_tool("add", {"a": 1})
    assert told(records[-1]) == ("tools/call", "add", "error", -31444, "ProtocolError")
    assert SECRET not in repr(records)


async def test_what_strangers_send_is_cut() -> None:
    server, records = audited(arguments=lambda name, value: value, longest=100)

    @server.tool(schema={"type": "object"})
    async def free(**given: Any) -> None: ...

    async with pair(server, info=Implementation(name="n" * 10_000, version="1")) as client:
        await client.call_tool(
            "free", {"k" * 10_000: "v" * 10_000, **{f"n{number}": 1 for number in range(1000)}}
        )
        with pytest.raises(ProtocolError):
            await client.call_tool("t" * 10_000)
    assert len(msgspec.json.encode(records)) < 10_000
    assert records[-2].arguments is not None
    assert len(records[-2].arguments) == 64


# where it goes


async def test_without_a_sink_it_is_one_line_of_json_for_each_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "dovetail.audit")
    async with pair(build(middleware=[audit()])) as client:
        await client.call_tool("add", {"a": 1})
        with pytest.raises(ProtocolError):
            await client.call_tool('x"\n{"method": "forged"}')
    lines = [record.getMessage() for record in caplog.records if record.name == "dovetail.audit"]
    assert all("\n" not in line for line in lines)
    good, forged = [json.loads(line) for line in lines][-2:]
    assert (good["target"], good["outcome"], good["arguments"]) == ("add", "ok", ["a"])
    assert good["time"].endswith("Z")
    assert forged["target"] == 'x"\n{"method": "forged"}'


async def test_a_sink_that_fails_hurts_no_call(caplog: pytest.LogCaptureFixture) -> None:
    def broken(record: AuditRecord) -> None:
        raise OSError("disk full")

    async with pair(build(rates={"completions": SLOW}, middleware=[audit(broken)])) as client:
        assert (await client.call_tool("add", {"a": 1})).data == 2
        for _ in range(2):
            await client.complete(prompt="greet", argument="name", value="A")
        with pytest.raises(Overloaded):
            await client.complete(prompt="greet", argument="name", value="A")
    assert "could not be recorded" in caplog.text


def test_a_sink_that_would_have_to_be_awaited_is_refused() -> None:
    async def later(record: AuditRecord) -> None: ...

    with pytest.raises(ConfigError, match="plain function"):
        audit(later)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="name and value"):
        audit(arguments=True)  # type: ignore[arg-type]


# what only looks costs little


async def test_results_are_not_opened_for_those_who_only_look() -> None:
    seen: list[Any] = []

    class Look(Observer):
        async def __call__(self, call: Any, next: Any) -> Any:
            result = await next(call)
            seen.append(type(getattr(result, "structured_content", result)))
            return result

    async with pair(
        build(middleware=[Look(), audit(lambda record: None)]), revision="handshake"
    ) as client:
        await client.list_tools()
        assert (await client.call_tool("add", {"a": 1})).data == 2
    assert seen == [Raw, Raw]


async def test_beside_other_middleware_results_are_opened_as_ever() -> None:
    seen: list[Any] = []

    async def look(call: Any, next: Any) -> Any:
        result = await next(call)
        seen.append(getattr(result, "structured_content", None))
        return result

    async with pair(build(middleware=[audit(lambda record: None), look])) as client:
        await client.call_tool("add", {"a": 1})
    assert seen[-1] == {"result": 2}


async def test_what_only_looks_keeps_nothing_from_being_public() -> None:
    tape = Tape()
    server = Server("open", cache=Cache(60, "public"), middleware=[audit(lambda record: None)])
    async with pair(server, revision="stateless", record=tape) as client:
        await client.list_tools()
    assert tape.messages("server")[-1]["result"]["cacheScope"] == "public"


# on the client


@each_era
async def test_a_client_records_what_it_asks_for(revision: str) -> None:
    records: list[AuditRecord] = []
    async with pair(build(), revision=revision, middleware=[audit(records.append)]) as client:
        await client.call_tool("add", {"a": 1})
        with pytest.raises(ToolError):
            await client.call_tool("fail", {"secret": SECRET})
        with pytest.raises(ProtocolError):
            await client.call_tool("nothing")
    assert [told(record) for record in records] == [
        ("tools/call", "add", "ok", None, None),
        ("tools/call", "fail", "tool-error", None, None),
        ("tools/call", "nothing", "error", -32602, "InvalidParams"),
    ]
    assert {(record.server, record.id) for record in records} == {("guarded", None)}
    assert records[0].arguments == ["a"]


async def test_a_client_records_what_was_cancelled_and_what_was_cut_off() -> None:
    records: list[AuditRecord] = []
    server = Server("slow", limits=Limits(shutdown=0))
    began = asyncio.Event()

    @server.tool
    async def wait() -> None:
        began.set()
        await asyncio.sleep(60)

    async with pair(server, middleware=[audit(records.append)]) as client:
        call = asyncio.ensure_future(client.call_tool("wait"))
        await began.wait()
        call.cancel()
        await asyncio.wait([call])
        with pytest.raises(TimedOut):
            await client.call_tool("wait", timeout=0.01)
        lost = asyncio.ensure_future(client.call_tool("wait"))
        began.clear()
        await began.wait()
        await client.close()
        with pytest.raises(ConnectionClosed):
            await lost
    assert [(record.outcome, record.error) for record in records] == [
        ("cancelled", None),
        ("error", "TimedOut"),
        ("error", "ConnectionClosed"),
    ]


# decisions, which are not calls


def decision(**fields: Any) -> AuditRecord:
    known = {"time": datetime.now(UTC), "method": "call", "outcome": "denied", "user": "ada"}
    return AuditRecord(**{**known, **fields})


def test_a_decision_is_recorded_with_its_rule_and_what_it_was_about() -> None:
    server, records = audited()
    given = decision(target="pay", server="shop", rule="rule 3 of policy.toml", digest="sha256:ab")
    server.record_decision(given)
    assert records == [given]


def test_a_decision_has_the_names_of_arguments_and_only_the_values_that_are_shown() -> None:
    server, records = audited()
    server.record_decision(decision(arguments={"order": 1, "card": SECRET}))
    assert records[0].arguments == ["order", "card"]

    shown: list[AuditRecord] = []
    show = audit(shown.append, arguments=lambda name, value: value if name == "order" else "***")
    server = Server("shop", middleware=[show])
    server.record_decision(decision(arguments={"order": 1, "card": SECRET}))
    assert shown[0].arguments == {"order": 1, "card": "***"}


def test_what_is_long_or_secret_in_a_decision_is_not_written() -> None:
    server, records = audited()
    long = "x" * 10_000
    server.record_decision(
        decision(
            target=f"https://example.com/?token={SECRET}",
            server=long,
            rule=long,
            digest=long,
            arguments=[long] * 1000,
        )
    )
    assert SECRET not in str(records[0]) and len(str(records[0])) < 30_000
    assert records[0].rule == "x" * 256 + "…"


def test_a_decision_that_cannot_be_recorded_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(record: AuditRecord) -> None:
        raise OSError("full")

    Server("shop", middleware=[audit(fail)]).record_decision(decision())
    (entry,) = caplog.records
    assert entry.getMessage() == "The decision 'call' could not be recorded"


def test_a_decision_becomes_a_line_without_a_sink(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("shop", middleware=[audit()])
    with caplog.at_level(logging.INFO, "dovetail.audit"):
        server.record_decision(decision(rule="default"))
    (line,) = (json.loads(one.getMessage()) for one in caplog.records)
    assert (line["outcome"], line["rule"]) == ("denied", "default")
    assert "digest" not in line
