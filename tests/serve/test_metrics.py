"""`/metrics`, asked for over HTTP as Prometheus asks for it."""

import asyncio
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import (
    Client,
    DovetailError,
    HttpRequest,
    ProtocolError,
    Rate,
    Rates,
    Server,
    ToolError,
)
from dovetail.auth import ApiKeys
from dovetail.connection.instrumentation import INSTRUMENTS
from dovetail.errors import ConfigError
from dovetail.ports import Principal
from dovetail.serve import metrics as module
from dovetail.serve.metrics import Metrics, MetricsPage
from tests.behaviour.web import first_era_only, on_a_port

DURATION = "mcp_server_operation_duration_seconds"

ROOT = Path(__file__).parents[2]
LINE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.e+-]+|\+Inf|NaN)')
Page = dict[tuple[str, frozenset[tuple[str, str]]], float]


def build(**options: Any) -> Server:
    server = Server("shop", **options)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def fail() -> str:
        raise ToolError("no luck")

    return server


def read(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return (
                answer.status,
                {name.lower(): value for name, value in answer.headers.items()},
                answer.read().decode(),
            )
    except urllib.error.HTTPError as refusal:
        with refusal:
            return (
                refusal.code,
                {name.lower(): value for name, value in refusal.headers.items()},
                refusal.read().decode(),
            )


async def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    return await asyncio.to_thread(read, url, method, **headers)


def parsed(text: str) -> Page:
    """The page by the grammar of the text format: each family once, its kind before its lines."""
    assert text.endswith("\n")
    found: Page = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = LINE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            family = (
                re.sub(r"_(bucket|sum|count)$", "", name) if name.startswith(DURATION) else name
            )
            assert list(kinds)[-1] == family, line
            key = name, frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""))
            assert key not in found, line
            found[key] = float(value)
    return found


def value(page: Page, name: str, **labels: str) -> float:
    """The sum of all series that have these labels."""
    return sum(
        found for (one, had), found in page.items() if one == name and labels.items() <= set(had)
    )


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(("scheme", "path"), [("http", "/mcp"), ("ws", "/ws"), ("http", "/sse")])
async def test_calls_are_counted_by_method_tool_and_outcome(
    revision: str, scheme: str, path: str
) -> None:
    if path == "/sse" and revision == "2026-07-28":
        pytest.skip("the old pair has no such revision")
    app = build().asgi(path="/mcp", websocket=True, sse=True, metrics="/metrics")
    async with on_a_port(first_era_only(app)) as address:
        async with Client(f"{scheme}://{address}{path}", revision=revision) as client:
            for _ in range(3):
                await client.call_tool("add", {"a": 1, "b": 2})
            with pytest.raises(ToolError):
                await client.call_tool("fail")
            with pytest.raises(ProtocolError):
                await client.call_tool("invented")
            status, headers, text = await ask(f"http://{address}/metrics")
    assert status == 200
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    page = parsed(text)
    counted = f"{DURATION}_count"
    assert value(page, counted, mcp_method_name="tools/call", gen_ai_tool_name="add") == 3
    assert (
        value(
            page,
            counted,
            mcp_method_name="tools/call",
            gen_ai_tool_name="fail",
            error_type="tool_error",
        )
        == 1
    )
    assert (
        value(page, counted, mcp_method_name="tools/call", rpc_response_status_code="-32602") == 1
    )
    assert value(page, counted, error_type="-32602") == 0, (
        "a caller's mistake is no failure of the server"
    )
    assert "invented" not in text
    assert value(page, f"{DURATION}_bucket", gen_ai_tool_name="add", le="+Inf") == 3
    assert value(page, f"{DURATION}_sum", gen_ai_tool_name="add") > 0
    assert value(page, "mcp_server_operations_in_flight") == 0
    session = revision == "2025-11-25" and scheme == "http" and path == "/mcp"
    assert value(page, "mcp_server_sessions") == (1 if session else 0)
    assert value(page, "mcp_server_streams") == (1 if session else 0)
    assert value(page, "mcp_server_conversations") == (0 if path == "/mcp" else 1)
    assert value(page, "process_start_time_seconds") > 1.7e9


async def test_buckets_hold_all_that_took_no_longer() -> None:
    server = build()
    started, go = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        started.set()
        await go.wait()
        return "done"

    async with on_a_port(server.asgi(path="/mcp", metrics="/metrics")) as address:
        async with Client(f"http://{address}/mcp") as client:
            waiting = asyncio.ensure_future(client.call_tool("wait"))
            await started.wait()
            page = parsed((await ask(f"http://{address}/metrics"))[2])
            assert value(page, "mcp_server_operations_in_flight") == 1
            await asyncio.sleep(0.03)
            go.set()
            await waiting
            page = parsed((await ask(f"http://{address}/metrics"))[2])
    buckets = [
        (float(dict(labels)["le"]), found)
        for (name, labels), found in page.items()
        if name == f"{DURATION}_bucket" and ("gen_ai_tool_name", "wait") in labels
    ]
    assert [bound for bound, _ in sorted(buckets)] == [*module.BUCKETS, float("inf")]
    assert [count for _, count in sorted(buckets)] == sorted(count for _, count in buckets)
    assert dict(buckets)[0.01] == 0
    assert dict(buckets)[float("inf")] == 1


async def test_refusals_and_responses_are_counted() -> None:
    app = build(rates=Rates(calls=Rate(1, per=1000))).asgi(path="/mcp", metrics="/metrics")
    async with on_a_port(app) as address:
        async with Client(f"http://{address}/mcp", revision="2026-07-28") as client:
            await client.call_tool("add", {"a": 1, "b": 2})
            with pytest.raises(
                DovetailError
            ):  # it is told when to come again, and waits for as long as it may
                await client.call_tool("add", {"a": 1, "b": 2}, timeout=0.2)
        await ask(f"http://{address}/mcp", "PUT")
        await ask(f"http://{address}/nowhere", "PROPFIND")
        page = parsed((await ask(f"http://{address}/metrics"))[2])
    assert value(page, "mcp_server_refusals_total", mcp_method_name="tools/call") == 1
    assert (
        value(
            page,
            "mcp_server_http_responses_total",
            http_request_method="POST",
            http_response_status_code="200",
        )
        >= 1
    )
    assert (
        value(
            page,
            "mcp_server_http_responses_total",
            http_request_method="POST",
            http_response_status_code="429",
        )
        == 1
    )
    assert value(page, "mcp_server_http_responses_total", http_request_method="PUT") == 1
    assert value(page, "mcp_server_http_responses_total", http_request_method="_OTHER") == 1


async def test_it_is_not_there_unless_asked_for_and_only_to_be_read() -> None:
    async with on_a_port(build().asgi(path="/mcp")) as address:
        assert (await ask(f"http://{address}/metrics"))[0] == 404
    async with on_a_port(build().asgi(path="/mcp", metrics="/internal/metrics")) as address:
        assert (await ask(f"http://{address}/internal/metrics"))[0] == 200
        assert (await ask(f"http://{address}/internal/metrics/", "HEAD"))[0] == 200
        assert (await ask(f"http://{address}/internal/metrics", "POST"))[0] == 404
        assert (await ask(f"http://{address}/metrics"))[0] == 404


async def test_a_page_of_another_site_cannot_have_it_read() -> None:
    async with on_a_port(build().asgi(path="/mcp", metrics="/metrics")) as address:
        assert (await ask(f"http://{address}/metrics", Host="evil.example"))[0] in (403, 421)
        assert (await ask(f"http://{address}/metrics", Origin="https://evil.example"))[0] == 403


KEYS = {
    "ops-key-0123456789": Principal("prometheus", scopes=("metrics",)),
    "ada-key-0123456789": Principal("ada"),
}


@pytest.mark.parametrize(
    ("who", "statuses"),
    [("metrics", (401, 403, 200)), (False, (200, 200, 200)), ("other", (401, 403, 403))],
)
async def test_behind_a_guard_it_is_for_those_with_a_scope_or_for_anybody(
    who: Any, statuses: tuple[int, ...]
) -> None:
    app = build(auth=ApiKeys(KEYS)).asgi(path="/mcp", metrics="/metrics", metrics_auth=who)
    asking: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer ada-key-0123456789"},
        {"Authorization": "Bearer ops-key-0123456789"},
    ]
    async with on_a_port(app) as address:
        answers = [await ask(f"http://{address}/metrics", **headers) for headers in asking]
    assert tuple(status for status, _, _ in answers) == statuses
    assert all(
        (DURATION in text or "mcp_server" in text) == (status == 200) for status, _, text in answers
    )
    if 403 in statuses:
        assert f'scope="{who}"' in answers[1][1]["www-authenticate"]


class Open:
    """A guard that lets everybody in, and knows nobody."""

    async def admit(self, request: Any, site: Any) -> Any:
        return None

    async def respond(self, request: Any, site: Any) -> Any:
        return None

    def challenge(self, site: Any, principal: Any, scopes: Any) -> Any:
        return {}


async def test_who_is_not_known_has_no_scope() -> None:
    app = build(auth=Open()).asgi(path="/mcp", metrics="/metrics", metrics_auth="metrics")
    async with on_a_port(app) as address:
        assert (await ask(f"http://{address}/metrics"))[0] == 403


@pytest.mark.parametrize(
    ("guard", "who", "problem"),
    [
        (None, "metrics:read", "the server does not authenticate its callers; pass it a guard"),
        (None, True, "the server does not authenticate its callers; pass it a guard"),
        (ApiKeys(KEYS), None, "Set the scope that is required to read them"),
        (ApiKeys(KEYS), True, "Set the scope that is required to read them"),
        (ApiKeys(KEYS), " ", "Set the scope that is required to read them"),
        (ApiKeys(KEYS), " metrics:read", "Set the scope that is required to read them"),
        (ApiKeys(KEYS), "metrics:read other", "Set the scope that is required to read them"),
    ],
)
def test_it_has_to_be_said_who_may_read_it_and_somebody_has_to_check(
    guard: Any, who: Any, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        build(auth=guard).asgi(metrics="/metrics", metrics_auth=who)
    build(auth=guard).asgi(metrics_auth=who)  # what is not there needs no reader


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"metrics": "metrics"}, "a path must start with a slash"),
        ({"metrics": "/mcp", "path": "/mcp"}, "that path is already in use"),
        ({"metrics": "/health", "health": "/health"}, "that path is already in use"),
    ],
)
def test_a_place_that_makes_no_sense_is_a_config_error(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        build().asgi(**options)


async def test_a_function_that_ends_after_each_request_has_none() -> None:
    with pytest.raises(ConfigError, match="telemetry"):
        await build().handle(HttpRequest(), metrics="/metrics")


async def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SERIES", 3)
    server = build()
    for number in range(20):
        server.add_tool(lambda: "", name=f"t{number}")
    async with on_a_port(server.asgi(path="/mcp", metrics="/metrics")) as address:
        async with Client(f"http://{address}/mcp") as client:
            for number in range(20):
                await client.call_tool(f"t{number}")
        page = parsed((await ask(f"http://{address}/metrics"))[2])
    kinds = {dict(labels).get("error_type") for name, labels in page if name == f"{DURATION}_count"}
    assert "_OTHER" in kinds
    assert len([one for one in page if one[0] == f"{DURATION}_count"]) <= 4


@pytest.mark.requirement("telemetry-cardinality")
async def test_codes_that_handlers_invent_and_names_that_callers_give_up_make_no_series() -> None:
    started = asyncio.Event()

    async def slow(call: Any, next: Any) -> Any:
        if getattr(call.params, "name", None) == "invented":
            started.set()
            await asyncio.Event().wait()
        return await next(call)

    server = build(middleware=[slow])
    codes = iter(range(-31900, -31800))

    @server.tool
    async def odd() -> str:
        raise ProtocolError(next(codes), "odd")

    async with on_a_port(server.asgi(path="/mcp", metrics="/metrics")) as address:
        async with Client(f"http://{address}/mcp", revision="2025-11-25") as client:
            for _ in range(20):
                with pytest.raises(ProtocolError):
                    await client.call_tool("odd")
            calling = asyncio.ensure_future(client.call_tool("invented"))
            await started.wait()
            calling.cancel()
            await asyncio.wait([calling])
            await client.ping()
        text = (await ask(f"http://{address}/metrics"))[2]
    page = parsed(text)
    counted = f"{DURATION}_count"
    assert value(page, counted, error_type="_OTHER", rpc_response_status_code="_OTHER") == 20
    assert value(page, counted, mcp_method_name="tools/call", error_type="cancelled") == 1
    assert "-319" not in text
    assert "invented" not in text


def test_labels_are_written_so_that_they_can_be_read_again() -> None:
    line = module._line("name", (("tool", 'a"b\\c\nd'),), 1.5)
    assert line == 'name{tool="a\\"b\\\\c\\nd"} 1.5'
    assert LINE.fullmatch(line)


# Several workers.

PROGRAM = """
import os, sys
from dovetail import Server
server = Server("shop")
@server.tool
async def pid() -> int:
    return os.getpid()
server.run("http", port=0, workers=2, metrics="/metrics", ready=lambda url: print(url, flush=True))
"""


@contextmanager
def two_workers() -> Iterator[str]:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    try:
        yield program.stdout.readline().strip()
    finally:
        program.terminate()
        program.wait(10)
        program.stdout.close()


async def test_any_worker_tells_what_all_of_them_have_counted() -> None:
    with two_workers() as url:
        pids: list[int] = []
        while len(set(pids)) < 2:  # the system decides which of them gets a connection
            async with Client(url, revision="2026-07-28", cache=False) as client:
                pids.append((await client.call_tool("pid")).data)
        for _ in range(4):
            page = parsed((await ask(url.replace("/mcp", "/metrics")))[2])
            counts = {
                dict(labels)["worker"]: found
                for (name, labels), found in page.items()
                if name == f"{DURATION}_count" and ("gen_ai_tool_name", "pid") in labels
            }
            assert set(counts) == {"1", "2"}
            assert sum(counts.values()) == len(pids)
            started = {
                dict(labels)["worker"]
                for name, labels in page
                if name == "process_start_time_seconds"
            }
            assert started == {"1", "2"}


class Silent:
    """A bus on which nobody answers, but somebody hears."""

    alone = False

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}
        self.said: list[tuple[str, Any]] = []

    def on(self, topic: str, handler: Any) -> None:
        self.handlers[topic] = handler

    def publish(self, topic: str, payload: Any) -> None:
        self.said.append((topic, payload))

    async def ask(self, topic: str, payload: Any, patience: float = 1.0) -> Any: ...

    async def close(self) -> None: ...


async def test_a_worker_that_is_silent_is_left_out_and_one_that_is_late_is_waited_for_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WORKERS_SECONDS", 0.05)
    monkeypatch.setenv("DOVETAIL_WORKER", "1")
    bus = Silent()
    exposition = MetricsPage(Metrics(), dict, bus)
    first, second = await asyncio.gather(exposition.page(), exposition.page())
    assert first == second
    assert [topic for topic, _ in bus.said] == ["metrics/ask"], (
        "two who ask at once ask the others once"
    )
    theirs = Metrics().lines({}, "2")
    bus.handlers["metrics/tell"](("1", "2", theirs))
    monkeypatch.setattr(module, "WORKERS_SECONDS", 20)
    asking = asyncio.ensure_future(exposition.page())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    bus.handlers["metrics/tell"](("7", "2", theirs))
    assert not asking.done(), "that was for somebody else"
    bus.handlers["metrics/tell"](("1", "2", theirs))
    assert b'worker="2"' in await asking


async def test_a_bus_that_fails_once_does_not_fail_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(Silent):
        def publish(self, topic: str, payload: Any) -> None:
            if not self.said:
                self.said.append((topic, payload))
                raise ConnectionError("the bus is away")

    monkeypatch.setattr(module, "WORKERS_SECONDS", 0.05)
    exposition = MetricsPage(Metrics(), dict, Broken())
    with pytest.raises(ConnectionError):
        await exposition.page()
    assert b"process_start_time_seconds" in await exposition.page()


def test_every_instrument_of_the_table_is_in_the_guide() -> None:
    guide = Path(__file__).parents[2].joinpath("docs/guides/observability.md").read_text("utf-8")
    for instrument in INSTRUMENTS:
        assert instrument.name in guide or f"`{instrument.prometheus_name}`" in guide
