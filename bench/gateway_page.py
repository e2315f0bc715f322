"""The page `docs/benchmarks-gateway.md`, from the figures of the last full run of
`python -m bench.gateway`.

`python -m bench.gateway_page` writes it again.
"""

import json
from typing import Any

from .figures import Figure, Figures
from .gateway import BUSY, GOALS, KEPT, STARTS, GatewayGoal, bound_text
from .gateways import ALL_GATEWAYS, HANDSHAKE, MCP_PROXY, STATELESS
from .implementations import HERE
from .report import figures, table
from .words import duration, number

PAGE = HERE.parent / "docs" / "benchmarks-gateway.md"
TEXT = """# Gateway benchmarks

`make bench-gateway` performs these measurements and generates this page. A run alternates between Dovetail's gateway,
other gateways, and a server without a gateway. The server is the same everywhere: Dovetail, with one trivial tool,
`add(a, b)`. It runs over stdio, except in the row "Dovetail, HTTP". All callers use HTTP, and the benchmark sends raw
bytes, so that no client affects the result.

CPU time is that of a gateway and its helper processes, without the server behind it and without the load. Each figure
is the best of several rounds, because interference can only make a measurement worse. Only the ratios apply to other
machines. If the machine is busy (see below), medians and start times mean little, and ratios of CPU time are the ones to
look at.

## Goals

{goals}
The [design page](design/gateway.md#what-a-call-costs) shows where the time of a call goes, and why goals that compare the
gateway with a direct call are missed. The goal for the CPU time of mcp-proxy assumes the 4 ms for each call that it took
in an earlier measurement, on a busy machine. In this run, {mcp_proxy} takes {mcp_proxy_cpu}.

## Handshake era

{handshake}
## Stateless era

mcp-proxy and supergateway do not support this era.

{stateless}
## Memory, and the start of ten servers

The time is measured from the start of the process to a list with the tools of all servers that answer. One of the ten
servers never answers. Where no time is shown for FastMCP, it did not list the tools within {longest} s. The other
gateways do not merge the lists of servers.

{others}
## The machine

{machine}

## Method

- **calls/s** and **CPU time of a call**: 32 connections, each of which sends a call after the previous call has been
  answered. All of them use the same session in the handshake era.
- **median**: the time of a call on a single connection.
- **memory**: the resident memory of a gateway with one server, after the measurements above.

`python -m bench.gateway --short` takes one short round, and `--only Dovetail` measures only the gateways whose names
begin with `Dovetail`. Neither writes this page. `bench/gateways.py` contains the versions of the other gateways and how
they are started.
"""  # noqa: E501


def goals(found: dict[str, Figures]) -> str:
    """The goals, with what was measured."""

    def row(goal: GatewayGoal) -> list[str]:
        verdict = "met" if goal.is_met(found) else "missed"
        return [goal.title, number(goal.value(found)), bound_text(goal), verdict]

    return table(["", "measured", "goal", ""], [row(goal) for goal in GOALS])


def calls(found: dict[str, Figures], era: str) -> str:
    """What calls cost in one era."""
    busy, single = found[BUSY.replace(HANDSHAKE, era)], found[f"{era}_1"]
    rows = [
        [
            one.name,
            f"{number(busy[one.name].value)}/s",
            duration(busy[one.name].cpu or 0),
            f"{number(single[one.name].p50 or 0)} ms",
        ]
        for one in ALL_GATEWAYS
        if one.name in busy
    ]
    return table(["", "calls/s", "CPU time of a call", "median"], rows)


def others(found: dict[str, Figures]) -> str:
    """Memory and start."""

    def start(row: str, name: str) -> str:
        figure: Figure | None = found[row].get(name)
        return "" if figure is None else f"{figure.value:.2f} s"

    rows = [
        [
            one.name,
            f"{number(found['memory'][one.name].value)} MiB",
            *(start(row, one.name) for row in STARTS),
        ]
        for one in ALL_GATEWAYS
        if one.name in found["memory"]
    ]
    return table(["", "memory", *(f"ten servers, {title}" for title in STARTS.values())], rows)


def page(kept: dict[str, Any]) -> str:
    """The whole page."""
    from .gateway import LONGEST_SECONDS

    found = figures(kept)
    return TEXT.format(
        goals=goals(found),
        handshake=calls(found, HANDSHAKE),
        stateless=calls(found, STATELESS),
        others=others(found),
        longest=f"{LONGEST_SECONDS:g}",
        mcp_proxy=MCP_PROXY.name,
        mcp_proxy_cpu=duration(found[BUSY][MCP_PROXY.name].cpu or 0),
        machine="\n".join(f"- {name}: {what}" for name, what in kept["machine"].items()),
    )


def write() -> None:
    """Write the page from the figures that were kept."""
    PAGE.write_text(page(json.loads(KEPT.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    write()
