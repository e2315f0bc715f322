"""The page `docs/benchmarks-backend.md`, from the figures of the last full run of
`python -m bench.backend`.

`python -m bench.backend_page` writes it again.
"""

import json
from typing import Any

from .backend import GOALS, GROWTH, KEPT, SETTINGS, BackendGoal, bound_text
from .backend_sites import FASTMCP, TASK_SERVERS
from .figures import Figures
from .implementations import HERE
from .report import figures, table
from .words import duration, number

TAKEOVERS = ["takeover", "takeover_5"]
PAGE = HERE.parent / "docs" / "benchmarks-backend.md"
TEXT = """# Backend benchmarks

`make bench-backend` performs these measurements and generates this page. It measures a Dovetail server with a
[shared backend](design/backend.md) and, on the same Redis, {fastmcp}.
A run alternates between the two. Redis has an append-only file, as the guide recommends.

CPU time is that of the server and Redis, without the load. Each figure is the best of several rounds, because
interference can only make a measurement worse. Only the ratios apply to other machines.

## Goals

{goals}
## Tasks

A task is started with `tools/call`, runs a tool that returns a number, and is requested with `tasks/get` until it has
completed: first after 5 ms, then after pauses that double up to 100 ms. 16 tasks run at the same time.

{tasks}
## Takeover

The time from `kill -9` of the replica that runs a task until another replica runs it.

{takeover}
## Plain calls

Stateless calls of a trivial tool over 32 connections. A call with shared rates is one whose caller has a rate limit that
all replicas count together.

{calls}
The calls that several replicas answer together, on one machine. With few cores, the CPU time of a call shows the growth,
and the rate does not.

{growth}
## The machine

{machine}
"""  # noqa: E501


def goals(found: dict[str, Figures]) -> str:
    """The goals, with what was measured."""

    def row(goal: BackendGoal) -> list[str]:
        verdict = "met" if goal.is_met(found) else "missed"
        return [goal.title, number(goal.value(found)), bound_text(goal), verdict]

    return table(["", "measured", "goal", ""], [row(goal) for goal in GOALS])


def tasks(found: dict[str, Figures]) -> str:
    """What tasks cost."""
    rows = [
        [
            server.name,
            f"{number(figure.value)}/s",
            duration(figure.cpu or 0),
            f"{number(figure.p50 or 0)} ms",
            f"{number(figure.p99 or 0)} ms",
        ]
        for server in TASK_SERVERS
        for figure in [found["tasks"][server.name]]
    ]
    return table(["", "tasks/s", "CPU time of a task", "median", "99th percentile"], rows)


def takeover(found: dict[str, Figures]) -> str:
    """How long a task waits after its process was killed."""
    rows = [
        [server.name, *(f"{found[row][server.name].value:.1f} s" for row in TAKEOVERS)]
        for server in TASK_SERVERS
    ]
    return table(["", "defaults", "lease (Docket: redelivery timeout) of 5 s"], rows)


def rates(found: dict[str, Figures], row: str, names: list[str]) -> str:
    """Calls per second, and what one costs."""
    rows = [
        [name, f"{number(found[row][name].value)}/s", duration(found[row][name].cpu or 0)]
        for name in names
    ]
    return table(["", "calls/s", "CPU time of a call"], rows)


def page(kept: dict[str, Any]) -> str:
    """The whole page."""
    found = figures(kept)
    return TEXT.format(
        fastmcp=FASTMCP.name,
        goals=goals(found),
        tasks=tasks(found),
        takeover=takeover(found),
        calls=rates(found, "calls", list(SETTINGS)),
        growth=rates(found, "growth", list(GROWTH.values())),
        machine="\n".join(f"- {name}: {what}" for name, what in kept["machine"].items()),
    )


def write() -> None:
    """Write the page from the figures that were kept."""
    PAGE.write_text(page(json.loads(KEPT.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    write()
