"""Spans and metrics with the real SDK of OpenTelemetry, whose exporters keep what they are given in
memory."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from dovetail import (
    Cache,
    Client,
    Context,
    DovetailError,
    NotFound,
    ProtocolError,
    Rate,
    Rates,
    Server,
    ToolError,
    telemetry,
)
from dovetail.connection.instrumentation import MAX_TARGETS
from dovetail.testing import Tape, bare, pair
from tests.behaviour.web import on_a_port

ROOT = Path(__file__).parents[2]
REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


class Seen:
    """What one program would report."""

    def __init__(self) -> None:
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._metrics])

    def telemetry(self, **options: Any) -> Any:
        return telemetry(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def spans(self, kind: SpanKind | None = None) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if kind in (None, span.kind)]

    def span(self, name: str, kind: SpanKind = SpanKind.SERVER) -> ReadableSpan:
        (found,) = [span for span in self.spans(kind) if span.name == name]
        return found

    def metrics(self) -> list[Any]:
        data = self._metrics.get_metrics_data()
        resources = data.resource_metrics if data else []
        return [
            metric for one in resources for scope in one.scope_metrics for metric in scope.metrics
        ]

    def points(self, name: str) -> list[Any]:
        return [
            point
            for metric in self.metrics()
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def build(*middleware: Any, **options: Any) -> Server:
    server = Server("shop", middleware=middleware, **options)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def fail() -> str:
        raise ToolError("no luck")

    @server.tool
    async def refuse() -> str:
        raise ProtocolError(-32050, "not today")

    @server.tool
    async def nested() -> str:
        return format(trace.get_current_span().get_span_context().span_id, "x")

    @server.tool
    def threaded() -> str:
        return (
            f"{baggage.get_baggage('user')} {trace.get_current_span().get_span_context().span_id:x}"
        )

    @server.resource("doc://text")
    def text() -> str:
        return "hello"

    @server.resource("doc://gone")
    def gone() -> str:
        raise NotFound("it is gone")

    @server.prompt
    def greet(name: str) -> str:
        return f"hello {name}"

    return server


@pytest.mark.requirement("telemetry-parent")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_call_is_a_span_on_either_side_and_the_servers_is_the_clients_child(
    seen: Seen, revision: str
) -> None:
    server = build(seen.telemetry())
    async with pair(server, revision=revision, middleware=[seen.telemetry()]) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
        await client.get_prompt("greet", {"name": "Ada"})
        await client.read_resource("doc://text")
    asked, answered = (
        seen.span("tools/call add", kind) for kind in (SpanKind.CLIENT, SpanKind.SERVER)
    )
    assert answered.parent is not None
    assert answered.parent.span_id == asked.context.span_id
    assert answered.context.trace_id == asked.context.trace_id
    for span in (asked, answered):
        said = dict(span.attributes or {})
        assert said.pop("jsonrpc.request.id") == (asked.attributes or {})["jsonrpc.request.id"]
        assert said == {
            "mcp.method.name": "tools/call",
            "mcp.protocol.version": revision,
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "add",
        }
        assert span.status.status_code is StatusCode.UNSET
    assert (seen.span("prompts/get greet").attributes or {})["gen_ai.prompt.name"] == "greet"
    assert (seen.span("resources/read").attributes or {})["mcp.resource.uri"] == "doc://text"


@pytest.mark.requirement("meta-trace-context", "meta-trace-format")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_context_travels_in_meta_by_its_three_reserved_names(
    seen: Seen, revision: str
) -> None:
    tape = Tape()
    token = context.attach(baggage.set_baggage("user", "ada"))
    try:
        ends = [seen.telemetry(baggage=True) for _ in range(2)]
        async with pair(
            build(ends[0]), revision=revision, record=tape, middleware=ends[1:]
        ) as client:
            said = (await client.call_tool("threaded")).text
    finally:
        context.detach(token)
    (sent,) = [
        message["params"]["_meta"]
        for message in tape.messages("client")
        if message.get("method") == "tools/call"
    ]
    asked, answered = (
        seen.span("tools/call threaded", kind).context
        for kind in (SpanKind.CLIENT, SpanKind.SERVER)
    )
    assert re.fullmatch(
        f"00-{asked.trace_id:032x}-{asked.span_id:016x}-[0-9a-f]{{2}}", sent["traceparent"]
    )
    assert sent["baggage"] == "user=ada"
    assert said == f"ada {answered.span_id:x}", "a tool in a thread knows both"


async def test_baggage_neither_leaves_nor_enters_unless_it_is_wanted(seen: Seen) -> None:
    tape = Tape()
    token = context.attach(baggage.set_baggage("user", "ada"))
    try:
        async with pair(build(), record=tape, middleware=[seen.telemetry()]) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
    finally:
        context.detach(token)
    assert "traceparent" in str(tape.messages("client"))
    assert "baggage" not in str(tape.messages("client"))
    async with bare(build(seen.telemetry())) as peer:
        await peer.greet("2025-11-25")
        meta = {"baggage": "user=bo", "traceparent": PARENT}
        reply = await peer.ask("tools/call", {"name": "threaded", "arguments": {}, "_meta": meta})
    assert reply["result"]["content"][0]["text"].startswith("None ")


async def called(server: Server, meta: Any) -> None:
    async with bare(server) as peer:
        await peer.greet("2025-11-25")
        await peer.ask("tools/call", {"name": "nested", "arguments": {}, "_meta": meta})


@pytest.mark.requirement("telemetry-parent")
async def test_a_span_belongs_to_the_callers_and_is_linked_to_what_surrounds_it(seen: Seen) -> None:
    """As a web server that is instrumented itself would surround it."""
    with seen.tracers.get_tracer("web").start_as_current_span("POST /mcp") as web:
        await called(build(seen.telemetry()), {"traceparent": PARENT, "tracestate": "vendor=1"})
    span = seen.span("tools/call nested")
    assert format(span.context.trace_id, "032x") == PARENT[3:35]
    assert span.context.trace_state.get("vendor") == "1"
    assert [link.context.span_id for link in span.links] == [web.get_span_context().span_id]


async def test_a_caller_that_is_not_trusted_with_the_trace_is_only_linked_to(seen: Seen) -> None:
    await called(build(seen.telemetry(incoming=False)), {"traceparent": PARENT})
    span = seen.span("tools/call nested")
    assert span.parent is None
    assert [format(link.context.trace_id, "032x") for link in span.links] == [PARENT[3:35]]


async def test_baggage_of_a_caller_is_known_to_the_tool_with_a_trace_or_without(seen: Seen) -> None:
    async with bare(build(seen.telemetry(baggage=True))) as peer:
        await peer.greet("2025-11-25")
        for number, meta in enumerate(
            [{"baggage": "user=bo"}, {"baggage": "user=bo", "traceparent": PARENT}, {}]
        ):
            reply = await peer.ask(
                "tools/call", {"name": "threaded", "arguments": {}, "_meta": meta}, id=number
            )
            said = reply["result"]["content"][0]["text"]
            assert said.startswith("bo " if meta else "None ")
    assert baggage.get_baggage("user") is None
    parents = [
        span.parent is not None for span in seen.spans() if span.name == "tools/call threaded"
    ]
    assert parents == [False, True, False]


@pytest.mark.parametrize(
    "odd",
    ["nonsense", 7, None, "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "0" * 100_000, ["a"], {}],
)
async def test_what_is_no_trace_context_begins_a_trace_of_its_own(seen: Seen, odd: Any) -> None:
    await called(
        build(seen.telemetry(baggage=True)), {"traceparent": odd, "tracestate": odd, "baggage": odd}
    )
    assert seen.span("tools/call nested").parent is None


@pytest.mark.requirement("telemetry-errors")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_what_failed_says_so_by_its_kind(seen: Seen, revision: str) -> None:
    async with pair(
        build(seen.telemetry()), revision=revision, middleware=[seen.telemetry()]
    ) as client:
        with pytest.raises(ToolError):
            await client.call_tool("fail")
        with pytest.raises(ProtocolError):
            await client.call_tool("refuse")
    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        failed = seen.span("tools/call fail", kind)
        assert (failed.attributes or {})["error.type"] == "tool_error"
        assert failed.status.status_code is StatusCode.ERROR
        refused = seen.span("tools/call", kind)
        assert (refused.attributes or {})["error.type"] == "_OTHER", (
            "there is no such code in the protocol"
        )
        assert (refused.attributes or {})["rpc.response.status_code"] == "-32050"
        assert refused.status.status_code is StatusCode.ERROR
        assert refused.status.description == "not today"
        assert refused.events == (), "no exception with its text is recorded"


@pytest.mark.requirement("telemetry-errors")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_what_a_caller_did_wrong_is_a_failure_of_the_caller_only(
    seen: Seen, revision: str
) -> None:
    async with pair(
        build(seen.telemetry()), revision=revision, middleware=[seen.telemetry()]
    ) as client:
        with pytest.raises(NotFound):
            await client.read_resource("doc://gone")
    asked, answered = (
        seen.span("resources/read", kind) for kind in (SpanKind.CLIENT, SpanKind.SERVER)
    )
    code = "-32602" if revision == "2026-07-28" else "-32002"
    for span in (asked, answered):
        assert (span.attributes or {})["rpc.response.status_code"] == code
    assert (asked.attributes or {})["error.type"] == code
    assert (asked.status.status_code, asked.status.description) == (StatusCode.ERROR, "it is gone")
    assert "error.type" not in (answered.attributes or {})
    assert (answered.status.status_code, answered.status.description) == (StatusCode.UNSET, None)
    for side, types in (("client", [code]), ("server", [])):
        points = [dict(point.attributes) for point in seen.points(f"mcp.{side}.operation.duration")]
        assert [
            point["rpc.response.status_code"]
            for point in points
            if "rpc.response.status_code" in point
        ] == [code]
        assert [point["error.type"] for point in points if "error.type" in point] == types


SECRET = "password=hunter2"


def hide(text: str) -> str:
    return text.replace(SECRET, "[hidden]")


def fail(text: str) -> str:
    if SECRET in text:
        raise ValueError("a rule that fails")
    return text


@pytest.mark.parametrize("rule", [hide, fail, None])
@pytest.mark.parametrize("over_http", [False, True])
async def test_spans_hold_no_text_of_an_exception_and_no_more_than_a_caller_is_shown(
    seen: Seen, rule: Any, over_http: bool
) -> None:
    server = build(seen.telemetry(), redact=rule)

    @server.resource("doc://{name}/broken")
    def broken(name: str) -> str:
        raise ValueError(f"{SECRET} does not open the database")

    @server.resource("doc://{name}/closed")
    def closed(name: str) -> str:
        raise ProtocolError(-31003, f"closed to {SECRET}")

    async def read(client: Client) -> None:
        with pytest.raises(ProtocolError):
            await client.call_tool(SECRET)  # a model that mixes things up
        for what in ("broken", "closed"):
            with pytest.raises(ProtocolError):
                await client.read_resource(f"doc://{SECRET}/{what}")

    if over_http:
        async with (
            on_a_port(server.asgi(path="/mcp")) as address,
            Client(f"http://{address}/mcp") as client,
        ):
            await read(client)
    else:
        async with pair(server) as client:
            await read(client)
    first, second = (span for span in seen.spans(SpanKind.SERVER) if span.name == "resources/read")
    assert first.status.status_code is second.status.status_code is StatusCode.ERROR
    assert first.status.description is None
    told = {hide: "closed to [hidden]", fail: None, None: f"closed to {SECRET}"}
    assert second.status.description == told[rule]
    uri = {hide: "doc://[hidden]/closed", fail: None, None: f"doc://{SECRET}/closed"}
    assert (second.attributes or {}).get("mcp.resource.uri") == uri[rule]
    tool = {hide: "[hidden]", fail: None, None: SECRET}
    assert (seen.span("tools/call").attributes or {}).get("gen_ai.tool.name") == tool[rule]


async def test_a_client_that_is_watched_keeps_answers_as_any_other(seen: Seen) -> None:
    """A span of its own goes with each request, and says nothing about the answer."""
    tape = Tape()
    watch = seen.telemetry(baggage=True)
    async with pair(
        build(cache=Cache(60)), revision="2026-07-28", record=tape, middleware=[watch]
    ) as client:
        for _ in range(3):
            assert len(await client.list_tools()) == 5
            assert len(await client.read_resource("doc://text")) == 1
    sent = [message["method"] for message in tape.messages("client")]
    assert [sent.count(method) for method in ("tools/list", "resources/read")] == [1, 1]
    assert len([span for span in seen.spans() if span.name == "tools/list"]) == 3


# The conventions, as https://github.com/open-telemetry/semantic-conventions-genai has them in
# model/mcp.

COMMON = {
    "mcp.method.name", "mcp.protocol.version", "gen_ai.operation.name", "gen_ai.tool.name",
    "gen_ai.prompt.name", "error.type", "rpc.response.status_code", "network.transport",
    "network.protocol.name",
}  # fmt: skip
PLACE = {"server.address", "server.port"}
IN_SPANS = COMMON | {"mcp.resource.uri", "jsonrpc.request.id"}
SPANS = {
    SpanKind.CLIENT: IN_SPANS | PLACE,
    SpanKind.SERVER: IN_SPANS | {"client.address", "mcp.session.id"},
}
SESSION = {"mcp.protocol.version", "network.transport", "network.protocol.name"}
METRICS = {
    "mcp.client.operation.duration": COMMON | PLACE,
    "mcp.server.operation.duration": COMMON,
    "mcp.client.session.duration": SESSION | PLACE,
    "mcp.server.session.duration": SESSION,
}
BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)


@pytest.mark.requirement("telemetry-names", "telemetry-metrics")
async def test_names_kinds_and_units_are_those_of_the_conventions(seen: Seen) -> None:
    async with on_a_port(build(seen.telemetry()).asgi(path="/mcp")) as address:
        for revision in ("2025-11-25", "2026-07-28"):
            watch = [seen.telemetry()]
            async with Client(
                f"http://{address}/mcp", revision=revision, middleware=watch, cache=False
            ) as client:
                await client.list_tools()
                await client.call_tool("add", {"a": 1, "b": 2})
                await client.get_prompt("greet", {"name": "Ada"})
                await client.read_resource("doc://text")
                for failing in (
                    client.call_tool("fail"),
                    client.call_tool("refuse"),
                    client.read_resource("doc://gone"),
                ):
                    with pytest.raises(DovetailError):
                        await failing
    spans = [span for span in seen.spans() if span.name != "server/discover"]
    names = {
        "tools/list",
        "tools/call add",
        "prompts/get greet",
        "resources/read",
        "tools/call fail",
        "tools/call",
    }
    for kind, attributes in SPANS.items():
        made = [span for span in spans if span.kind is kind]
        assert {span.name for span in made} == names
        assert {name for span in made for name in span.attributes or {}} == attributes
        failed = [span for span in made if span.status.status_code is StatusCode.ERROR]
        assert failed == [span for span in made if "error.type" in (span.attributes or {})]
    assert {span.instrumentation_scope.name for span in spans if span.instrumentation_scope} == {
        "dovetail"
    }
    metrics = {metric.name: metric for metric in seen.metrics()}
    assert metrics.keys() == METRICS.keys()
    for name, metric in metrics.items():
        points = metric.data.data_points
        assert metric.unit == "s"
        assert {said for point in points for said in point.attributes} == METRICS[name]
        assert {tuple(point.explicit_bounds) for point in points} == {BOUNDS}


@pytest.mark.requirement("telemetry-cardinality")
async def test_names_that_callers_invent_name_no_span_and_no_series(seen: Seen) -> None:
    async with pair(build(seen.telemetry())) as client:
        for number in range(5):
            with pytest.raises(ProtocolError):
                await client.call_tool(f"invented{number}")
        await client.call_tool("add", {"a": 1, "b": 2})
    names = {span.name for span in seen.spans()}
    assert "tools/call add" in names
    assert not any("invented" in name for name in names)
    series = [dict(point.attributes) for point in seen.points("mcp.server.operation.duration")]
    assert {one.get("gen_ai.tool.name") for one in series} == {None, "add"}


async def test_a_name_that_is_given_up_before_anything_answers_to_it_is_not_known(
    seen: Seen,
) -> None:
    started = asyncio.Event()

    async def slow(call: Any, next: Any) -> Any:
        if call.method.name == "tools/call":
            started.set()
            await asyncio.Event().wait()
        return await next(call)

    async with pair(build(seen.telemetry(), slow)) as client:
        calling = asyncio.ensure_future(client.call_tool("invented"))
        await started.wait()
        calling.cancel()
        await asyncio.wait([calling])
        await client.list_tools()
    (point,) = [
        one
        for one in seen.points("mcp.server.operation.duration")
        if "error.type" in one.attributes
    ]
    assert point.attributes["error.type"] == "cancelled"
    assert "gen_ai.tool.name" not in point.attributes
    assert "tools/call" in {span.name for span in seen.spans()}


@pytest.mark.requirement("telemetry-cardinality")
async def test_codes_that_somebody_invents_make_no_series(seen: Seen) -> None:
    server = build(seen.telemetry())
    codes = iter(range(-31900, -31800))

    @server.tool
    async def odd() -> str:
        raise ProtocolError(next(codes), "odd")

    async with pair(server, middleware=[seen.telemetry()]) as client:
        for _ in range(20):
            with pytest.raises(ProtocolError):
                await client.call_tool("odd")
    for side in ("client", "server"):
        (series,) = [
            one
            for one in seen.points(f"mcp.{side}.operation.duration")
            if "error.type" in one.attributes
        ]
        assert series.count == 20
        assert (
            series.attributes["error.type"]
            == series.attributes["rpc.response.status_code"]
            == "_OTHER"
        )


async def test_there_is_a_bound_to_known_names(seen: Seen) -> None:
    server = build(seen.telemetry())
    for number in range(MAX_TARGETS + 5):
        server.add_tool(lambda: "", name=f"t{number}")
    async with pair(server) as client:
        for number in range(MAX_TARGETS + 5):
            await client.call_tool(f"t{number}")
    series = [dict(point.attributes) for point in seen.points("mcp.server.operation.duration")]
    assert len({one.get("gen_ai.tool.name") for one in series} - {None}) == MAX_TARGETS


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_durations_are_counted_by_method_tool_and_error(seen: Seen, revision: str) -> None:
    async with pair(
        build(seen.telemetry()), revision=revision, middleware=[seen.telemetry()]
    ) as client:
        for _ in range(3):
            await client.call_tool("add", {"a": 1, "b": 2})
        with pytest.raises(ToolError):
            await client.call_tool("fail")
        await client.list_tools(fresh=True)
    for side in ("client", "server"):
        points = seen.points(f"mcp.{side}.operation.duration")
        counts = {
            (
                one.attributes["mcp.method.name"],
                one.attributes.get("gen_ai.tool.name"),
                one.attributes.get("error.type"),
            ): one
            for one in points
        }
        assert counts["tools/call", "add", None].count == 3
        assert counts["tools/call", "fail", "tool_error"].count == 1
        assert counts["tools/list", None, None].count >= 1
        assert counts["tools/call", "add", None].explicit_bounds[:3] == (0.01, 0.02, 0.05)


async def test_what_was_refused_before_it_began_is_counted_too(seen: Seen) -> None:
    server = build(seen.telemetry(), rates=Rates(calls=Rate(1, per=1000)))
    async with pair(server) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        with pytest.raises(ProtocolError):
            await client.call_tool("add", {"a": 1, "b": 2})
    points = seen.points("mcp.server.operation.duration")
    assert [
        one.attributes["mcp.method.name"] for one in points if "error.type" in one.attributes
    ] == ["tools/call"]


@pytest.mark.requirement("telemetry-metrics")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_session_is_counted_at_its_end_where_there_are_sessions(
    seen: Seen, revision: str
) -> None:
    async with pair(
        build(seen.telemetry()), revision=revision, middleware=[seen.telemetry()]
    ) as client:
        await client.list_tools()
        assert seen.points("mcp.client.session.duration") == []
    for side in ("client", "server"):
        counts = [
            (one.count, one.attributes["mcp.protocol.version"])
            for one in seen.points(f"mcp.{side}.session.duration")
        ]
        assert counts == ([(1, revision)] if revision == "2025-11-25" else [])


@pytest.mark.requirement("telemetry-session")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("scheme", "path", "protocol"), [("http", "/mcp", "http"), ("ws", "/ws", "websocket")]
)
async def test_on_a_network_it_says_which_and_where(
    seen: Seen, revision: str, scheme: str, path: str, protocol: str
) -> None:
    app = build(seen.telemetry()).asgi(path="/mcp", websocket=True)
    async with on_a_port(app) as address:
        async with Client(
            f"{scheme}://{address}{path}", revision=revision, middleware=[seen.telemetry()]
        ) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
    host, _, port = address.rpartition(":")
    asked, answered = (
        seen.span("tools/call add", kind) for kind in (SpanKind.CLIENT, SpanKind.SERVER)
    )
    for span in (asked, answered):
        assert (span.attributes or {})["network.transport"] == "tcp"
        assert (span.attributes or {})["network.protocol.name"] == protocol
    assert (
        (asked.attributes or {})["server.address"],
        (asked.attributes or {})["server.port"],
    ) == (host, int(port))
    assert (answered.attributes or {})["client.address"] == "127.0.0.1"
    assert answered.parent is not None
    assert answered.parent.span_id == asked.context.span_id
    if revision == "2025-11-25":
        assert len(seen.points("mcp.client.session.duration")) == 1
        assert len(seen.points("mcp.server.session.duration")) == 1
    session = (answered.attributes or {}).get("mcp.session.id")
    assert (session is not None) == (revision == "2025-11-25" and protocol == "http")
    assert "mcp.session.id" not in (asked.attributes or {}), "what it has opens the session"


async def test_over_pipes_it_says_so(seen: Seen) -> None:
    command = [sys.executable, "-m", "tests.behaviour.everything"]
    async with Client(
        command, cwd=ROOT, middleware=[seen.telemetry()], on_stderr=lambda line: None
    ) as client:
        await client.call_tool("add", {"a": 1})
    said = seen.span("tools/call add", SpanKind.CLIENT).attributes or {}
    assert said["network.transport"] == "pipe"
    assert "server.address" not in said


async def test_a_tool_that_asks_is_one_span_from_its_question_to_its_end(seen: Seen) -> None:
    server = build(seen.telemetry())

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("sure?", bool)).data)

    async with pair(
        server,
        revision="2026-07-28",
        on_elicit=lambda request: {"value": True},
        middleware=[seen.telemetry()],
    ) as client:
        assert (await client.call_tool("ask")).text == "True"
    assert len([span for span in seen.spans(SpanKind.SERVER) if span.name == "tools/call ask"]) == 1
    assert len([span for span in seen.spans(SpanKind.CLIENT) if span.name == "tools/call ask"]) == 2


def test_nothing_of_it_is_loaded_unless_it_is_asked_for() -> None:
    code = (
        "import dovetail, sys; from dovetail import Server, telemetry; Server('s'); "
        "print('opentelemetry' in sys.modules)"
    )
    assert run(code) == "False"


def test_without_the_library_the_remedy_is_one_line() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from dovetail import telemetry\n"
        "from dovetail.errors import ConfigError\n"
        "try: telemetry()\n"
        "except ConfigError as error: print(error)"
    )
    assert run(code) == (
        "telemetry() requires the optional packages in the [telemetry] extra. "
        "Run: pip install 'dovetail-mcp[telemetry]'"
    )


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_relayed_call_continues_the_trace(seen: Seen, revision: str) -> None:
    server = build(seen.telemetry())
    params = {"name": "fail", "arguments": {}, "_meta": {"traceparent": PARENT, "com.example/a": 1}}
    async with pair(server, revision=revision, middleware=[seen.telemetry()]) as client:
        await client.relay("tools/call", params)
    sent, received = (
        seen.span("tools/call fail", kind) for kind in (SpanKind.CLIENT, SpanKind.SERVER)
    )
    assert received.parent is not None
    assert received.parent.span_id == sent.context.span_id
    assert sent.attributes is not None
    assert sent.attributes["error.type"] == "tool_error"
