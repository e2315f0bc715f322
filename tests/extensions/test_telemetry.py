"""Spans and metrics with the real SDK of OpenTelemetry, whose exporters keep what they are given in memory."""

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

from dovetail import Client, Context, NotFound, ProtocolError, Rate, Rates, Server, ToolError, telemetry
from dovetail.connection.observing import MOST
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

    def points(self, name: str) -> list[Any]:
        data = self._metrics.get_metrics_data()
        found = (
            [metric for one in data.resource_metrics for scope in one.scope_metrics for metric in scope.metrics]
            if data
            else []
        )
        return [point for metric in found if metric.name == name for point in metric.data.data_points]


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
        return f"{baggage.get_baggage('user')} {trace.get_current_span().get_span_context().span_id:x}"

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


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_call_is_a_span_on_either_side_and_the_servers_is_the_clients_child(seen: Seen, revision: str) -> None:
    server = build(seen.telemetry())
    async with pair(server, revision=revision, middleware=[seen.telemetry()]) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
        await client.get_prompt("greet", {"name": "Ada"})
        await client.read_resource("doc://text")
    asked, answered = (seen.span("tools/call add", kind) for kind in (SpanKind.CLIENT, SpanKind.SERVER))
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


@pytest.mark.requirement("meta-trace-context")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_context_travels_in_meta_by_its_three_reserved_names(seen: Seen, revision: str) -> None:
    tape = Tape()
    token = context.attach(baggage.set_baggage("user", "ada"))
    try:
        async with pair(build(seen.telemetry()), revision=revision, record=tape, middleware=[seen.telemetry()]) as client:
            said = (await client.call_tool("threaded")).text
    finally:
        context.detach(token)
    (sent,) = [message["params"]["_meta"] for message in tape.messages("client") if message.get("method") == "tools/call"]
    asked, answered = (seen.span("tools/call threaded", kind).context for kind in (SpanKind.CLIENT, SpanKind.SERVER))
    assert sent["traceparent"].startswith(f"00-{asked.trace_id:032x}-{asked.span_id:016x}-0")
    assert sent["baggage"] == "user=ada"
    assert said == f"ada {answered.span_id:x}", "a tool in a thread knows both"


async def test_baggage_stays_at_home_where_it_is_not_wanted(seen: Seen) -> None:
    tape = Tape()
    token = context.attach(baggage.set_baggage("user", "ada"))
    try:
        async with pair(build(), record=tape, middleware=[seen.telemetry(baggage=False)]) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
    finally:
        context.detach(token)
    assert "traceparent" in str(tape.messages("client"))
    assert "baggage" not in str(tape.messages("client"))


async def called(server: Server, meta: Any) -> None:
    async with bare(server) as peer:
        await peer.greet("2025-11-25")
        await peer.ask("tools/call", {"name": "nested", "arguments": {}, "_meta": meta})


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
    async with bare(build(seen.telemetry())) as peer:
        await peer.greet("2025-11-25")
        for number, meta in enumerate([{"baggage": "user=bo"}, {"baggage": "user=bo", "traceparent": PARENT}, {}]):
            reply = await peer.ask("tools/call", {"name": "threaded", "arguments": {}, "_meta": meta}, id=number)
            said = reply["result"]["content"][0]["text"]
            assert said.startswith("bo " if meta else "None ")
    assert baggage.get_baggage("user") is None
    parents = [span.parent is not None for span in seen.spans() if span.name == "tools/call threaded"]
    assert parents == [False, True, False]


@pytest.mark.parametrize("odd", ["nonsense", 7, None, "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "0" * 100_000, ["a"], {}])
async def test_what_is_no_trace_context_begins_a_trace_of_its_own(seen: Seen, odd: Any) -> None:
    await called(build(seen.telemetry()), {"traceparent": odd, "tracestate": odd, "baggage": odd})
    assert seen.span("tools/call nested").parent is None


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_what_failed_says_so_by_its_kind(seen: Seen, revision: str) -> None:
    async with pair(build(seen.telemetry()), revision=revision, middleware=[seen.telemetry()]) as client:
        with pytest.raises(ToolError):
            await client.call_tool("fail")
        with pytest.raises(ProtocolError):
            await client.call_tool("refuse")
        with pytest.raises(NotFound):
            await client.read_resource("doc://gone")
    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        failed = seen.span("tools/call fail", kind)
        assert (failed.attributes or {})["error.type"] == "tool_error"
        assert failed.status.status_code is StatusCode.ERROR
        gone = seen.span("resources/read", kind)
        code = "-32602" if revision == "2026-07-28" else "-32002"
        assert (gone.attributes or {})["error.type"] == (gone.attributes or {})["rpc.response.status_code"] == code
        assert gone.status.description is not None
        assert "gone" in gone.status.description
        assert gone.events == (), "no exception with its text is recorded"


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


async def test_there_is_a_bound_to_known_names(seen: Seen) -> None:
    server = build(seen.telemetry())
    for number in range(MOST + 5):
        server.add_tool(lambda: "", name=f"t{number}")
    async with pair(server) as client:
        for number in range(MOST + 5):
            await client.call_tool(f"t{number}")
    series = [dict(point.attributes) for point in seen.points("mcp.server.operation.duration")]
    assert len({one.get("gen_ai.tool.name") for one in series} - {None}) == MOST


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_durations_are_counted_by_method_tool_and_error(seen: Seen, revision: str) -> None:
    async with pair(build(seen.telemetry()), revision=revision, middleware=[seen.telemetry()]) as client:
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
    assert [one.attributes["mcp.method.name"] for one in points if "error.type" in one.attributes] == ["tools/call"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_session_is_counted_at_its_end_where_there_are_sessions(seen: Seen, revision: str) -> None:
    async with pair(build(seen.telemetry()), revision=revision, middleware=[seen.telemetry()]) as client:
        await client.list_tools()
        assert seen.points("mcp.client.session.duration") == []
    for side in ("client", "server"):
        counts = [(one.count, one.attributes["mcp.protocol.version"]) for one in seen.points(f"mcp.{side}.session.duration")]
        assert counts == ([(1, revision)] if revision == "2025-11-25" else [])


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(("scheme", "path", "protocol"), [("http", "/mcp", "http"), ("ws", "/ws", "websocket")])
async def test_on_a_network_it_says_which_and_where(
    seen: Seen, revision: str, scheme: str, path: str, protocol: str
) -> None:
    app = build(seen.telemetry()).asgi(path="/mcp", websocket=True)
    async with on_a_port(app) as address:
        async with Client(f"{scheme}://{address}{path}", revision=revision, middleware=[seen.telemetry()]) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
    host, _, port = address.rpartition(":")
    asked, answered = (seen.span("tools/call add", kind) for kind in (SpanKind.CLIENT, SpanKind.SERVER))
    for span in (asked, answered):
        assert (span.attributes or {})["network.transport"] == "tcp"
        assert (span.attributes or {})["network.protocol.name"] == protocol
    assert ((asked.attributes or {})["server.address"], (asked.attributes or {})["server.port"]) == (host, int(port))
    assert (answered.attributes or {})["client.address"] == "127.0.0.1"
    assert answered.parent is not None
    assert answered.parent.span_id == asked.context.span_id
    if revision == "2025-11-25":
        assert len(seen.points("mcp.client.session.duration")) == 1
        assert len(seen.points("mcp.server.session.duration")) == 1
    session = (answered.attributes or {}).get("mcp.session.id")
    assert (session is not None) == (revision == "2025-11-25" and protocol == "http")


async def test_over_pipes_it_says_so(seen: Seen) -> None:
    command = [sys.executable, "-m", "tests.behaviour.everything"]
    async with Client(command, cwd=ROOT, middleware=[seen.telemetry()], on_stderr=lambda line: None) as client:
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
        server, revision="2026-07-28", on_elicit=lambda request: {"value": True}, middleware=[seen.telemetry()]
    ) as client:
        assert (await client.call_tool("ask")).text == "True"
    assert len([span for span in seen.spans(SpanKind.SERVER) if span.name == "tools/call ask"]) == 1
    assert len([span for span in seen.spans(SpanKind.CLIENT) if span.name == "tools/call ask"]) == 2


def test_nothing_of_it_is_loaded_unless_it_is_asked_for() -> None:
    code = "import dovetail, sys; from dovetail import Server, telemetry; Server('s'); print('opentelemetry' in sys.modules)"
    assert run(code) == "False"


def test_without_the_library_the_remedy_is_one_line() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from dovetail import telemetry\n"
        "from dovetail.errors import ConfigError\n"
        "try: telemetry()\n"
        "except ConfigError as error: print(error)"
    )
    assert run(code) == "telemetry() needs OpenTelemetry: pip install 'dovetail[telemetry]'"


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
