"""What operators and callers see of the servers: `/health`, metrics, spans and errors."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, ProtocolError, telemetry
from dovetail.auth import ApiKeys
from dovetail.gateway.gateway import Gateway
from dovetail.gateway.reports import explain_failure
from dovetail.ports import Principal
from tests.gateway.programs import PATIENT, entry, write_server
from tests.transports.http.raw import hosted

KEYS = {
    "ops-key-0123456789": Principal("prometheus", scopes=("metrics",)),
    "ada-key-0123456789": Principal("ada"),
}
ADA, OPS = ({"X-Api-Key": f"{who}-key-0123456789"} for who in ("ada", "ops"))


def make_gateway(folder: Path, **options: Any) -> Gateway:
    servers = {
        "good": entry(write_server(folder, "good")),
        "bad": {"command": "/no/such/program-hunter2"},
    }
    return Gateway({"mcpServers": servers}, **options, limits=PATIENT)


async def send_json(site: Any, path: str, headers: Any = ()) -> Any:
    answer = await site.send("GET", dict(headers), path=path)
    return await answer.json()


async def test_health_says_the_state_of_each_server(tmp_path: Path) -> None:
    gateway = make_gateway(tmp_path)
    async with gateway.lifespan():
        await gateway.upstreams.servers["good"].start()
        health = gateway.health()
    assert health["status"] == "degraded"
    assert health["servers"]["good"] == {"state": "started", "revision": "2026-07-28"}
    bad = health["servers"]["bad"]
    assert bad["state"] == "failed"
    assert "/no/such/program-hunter2" in bad["error"]
    assert bad["nextAttemptSeconds"] >= 0


async def test_health_and_the_log_say_which_names_were_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = entry(write_server(tmp_path, "plain", more="server.add_tool(pid, name='b__x')"))
    plain["dovetail"] = {"prefix": ""}
    servers = {"a": plain, "b": entry(write_server(tmp_path, "b"))}
    gateway = Gateway({"mcpServers": servers}, limits=PATIENT)
    async with gateway.lifespan(), Client(gateway) as client:
        await gateway.upstreams.servers["a"].start()
        assert "b__x" not in [tool.name for tool in await client.list_tools()]
        (left_out,) = gateway.health()["servers"]["a"]["leftOut"]
    assert left_out["name"] == "b__x"
    assert "begins with the prefix of b" in left_out["reason"]
    (logged,) = [one for one in caplog.messages if "left out" in one]
    assert logged == "a: left out 'b__x': the name b__x begins with the prefix of b"


async def test_a_server_cannot_fill_the_log_with_names_that_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    more = "for n in range(100): server.add_tool(pid, name=f'b__{n}')"
    plain = entry(write_server(tmp_path, "plain", more=more), prefix="")
    servers = {"a": plain, "b": entry(write_server(tmp_path, "b"))}
    gateway = Gateway({"mcpServers": servers}, limits=PATIENT)
    async with gateway.lifespan():
        await gateway.upstreams.servers["a"].start()
        assert len(gateway.health()["servers"]["a"]["leftOut"]) == 100
    logged = [one for one in caplog.messages if "left out" in one]
    assert len(logged) == 21
    assert logged[-1].startswith("80 more names were left out")


async def test_only_callers_that_metrics_auth_admits_read_the_details(tmp_path: Path) -> None:
    gateway = make_gateway(tmp_path, auth=ApiKeys(KEYS))
    async with hosted(gateway, metrics="/metrics", metrics_auth="metrics") as site:
        assert await send_json(site, "/health", ADA) == {"status": "degraded"}
        servers = (await send_json(site, "/health", OPS))["servers"]
    assert set(servers) == {"good", "bad"}
    assert "/no/such/program-hunter2" in servers["bad"]["error"]


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
async def test_a_page_of_another_site_learns_nothing(tmp_path: Path, headers: Any) -> None:
    """A page may point the name of its own host at this machine (DNS rebinding)."""
    async with hosted(make_gateway(tmp_path), metrics="/metrics") as site:
        assert set(await send_json(site, "/health", headers)) == {"status"}
        for method, path in (("GET", "/metrics"), ("POST", "/mcp")):
            answer = await site.send(method, headers, b"{}", path=path)
            text = (await answer.body()).decode()
            assert answer.status in (403, 421)
            assert "good" not in text and "bad" not in text


async def test_the_name_of_a_server_cannot_add_a_metric(tmp_path: Path) -> None:
    name = 'up"} 1\nforged{x="\\'
    servers = {name: {"command": "/no/such/program", "dovetail": {"prefix": "up"}}}
    async with hosted(Gateway({"mcpServers": servers}), metrics="/metrics") as site:
        answer = await site.send("GET", {}, path="/metrics")
        lines = (await answer.body()).decode().splitlines()
    assert not [line for line in lines if line.startswith("forged")]
    assert [line for line in lines if r'{mcp_upstream_name="up\"} 1\nforged{x=\"\\"}' in line]


@pytest.mark.parametrize("auth", [None, ApiKeys(KEYS)])
async def test_health_shows_no_command_line_to_callers_who_need_no_scope(
    tmp_path: Path, auth: Any
) -> None:
    gateway = make_gateway(tmp_path, auth=auth)
    async with hosted(gateway, metrics_auth=None if auth is None else False) as site:
        health = await send_json(site, "/health")
    assert health["servers"]["bad"]["error"] == "bad: the server is not available"


async def test_metrics_count_the_calls_of_each_server(tmp_path: Path) -> None:
    gateway = make_gateway(tmp_path)
    async with hosted(gateway, metrics="/metrics") as site:
        async with Client(f"http://127.0.0.1:{site.port}/mcp") as client:
            await client.call_tool("good__echo", {"text": "x"})
            with pytest.raises(ProtocolError):
                await client.call_tool("good__crash")
        answer = await site.send("GET", {}, path="/metrics")
        text = (await answer.body()).decode()
    assert 'mcp_upstream_calls_total{mcp_upstream_name="good"} 2' in text
    assert 'mcp_upstream_errors_total{mcp_upstream_name="good"} 1' in text
    assert 'mcp_upstream_calls_total{mcp_upstream_name="bad"} 0' in text
    assert 'mcp_upstream_state{mcp_upstream_name="bad",state="failed"} 1' in text
    assert 'mcp_upstream_connections{mcp_upstream_name="good"} 1' in text
    added = 'mcp_upstream_added_seconds_total{mcp_upstream_name="good"} '
    (line,) = [one for one in text.splitlines() if one.startswith(added)]
    assert 0 < float(line.removeprefix(added)) < 5


@pytest.mark.parametrize(("revision", "open_questions"), [("2025-11-25", 1), ("2026-07-28", 0)])
async def test_a_question_is_counted_while_a_server_waits_for_its_answer(
    revision: str, open_questions: int, tmp_path: Path
) -> None:
    """A server of the stateless era does not wait: it returns its question as a result."""
    command = write_server(tmp_path, "up", revisions=[revision])
    gateway = Gateway({"mcpServers": {"up": entry(command)}}, limits=PATIENT)
    seen: list[float] = []

    def answer(request: Any) -> Any:
        (value,) = gateway.series()["mcp.upstream.input_requests"].values()
        seen.append(value)
        return {"value": "large"}

    async with gateway.lifespan(), Client(gateway, on_elicit=answer) as client:
        await client.call_tool("up__ask")
        (value,) = gateway.series()["mcp.upstream.input_requests"].values()
        seen.append(value)
    assert seen == [open_questions, 0]


async def crash(client: Client) -> str:
    with pytest.raises(ProtocolError) as caught:
        await client.call_tool("up__crash")
    return str(caught.value)


@pytest.mark.parametrize("mask", [True, False])
async def test_callers_over_http_see_the_exit_status_but_not_stderr(
    tmp_path: Path, mask: bool
) -> None:
    servers = {"up": entry(write_server(tmp_path, "up"))}
    gateway = Gateway({"mcpServers": servers}, mask_errors=mask, limits=PATIENT)
    async with hosted(gateway) as site, Client(f"http://127.0.0.1:{site.port}/mcp") as client:
        text = await crash(client)
    assert text.startswith("up: ")
    assert "exited with code 7" in text
    assert ("hunter2" in text) is not mask


async def test_a_caller_on_stdio_sees_the_last_lines_of_stderr(tmp_path: Path) -> None:
    servers = {"up": entry(write_server(tmp_path, "up"))}
    gateway = Gateway({"mcpServers": servers}, limits=PATIENT)
    async with gateway.lifespan(), Client(gateway) as client:
        text = await crash(client)
    assert "exited with code 7" in text
    assert "hunter2" in text


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            "`x --token=a` exited with code 3; last lines of stderr: b",
            "up: the server exited with code 3",
        ),
        ("`x` was killed by SIGKILL", "up: the server was killed by SIGKILL"),
        ("`x` closed its output", "up: the server closed its output"),
        ("`x`; last lines of stderr: exited with code 9", "up: the server is not available"),
        ("https://internal.example/a: refused", "up: the server is not available"),
    ],
)
def test_a_masked_error_has_only_the_name_and_the_end_of_the_process(
    error: str, shown: str
) -> None:
    assert explain_failure("up", error, masked=True) == shown


async def test_each_hop_has_a_span_and_the_trace_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    more = (
        "@server.tool\nasync def trace(ctx: Context) -> str:\n"
        "    return str(ctx.meta.get('traceparent'))\n"
    )
    servers = {"up": entry(write_server(tmp_path, "up", more=more))}
    gateway = Gateway(
        {"mcpServers": servers}, middleware=[telemetry(tracer_provider=provider)], limits=PATIENT
    )
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with gateway.lifespan(), Client(gateway) as client:
        await asyncio.sleep(0)
        exporter.clear()
        result = await client.call_tool("up__trace", meta={"traceparent": parent})
    spans = {span.kind.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"SERVER", "CLIENT"}
    hop = spans["CLIENT"]
    assert hop.parent.span_id == spans["SERVER"].context.span_id
    assert f"{hop.context.trace_id:032x}" == parent.split("-")[1]
    assert result.text == f"00-{hop.context.trace_id:032x}-{hop.context.span_id:016x}-01"
