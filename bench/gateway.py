"""What `make bench-gateway` runs: Dovetail's gateway beside others, and beside a direct call.

    python -m bench.gateway [--short] [--only NAME]…

A run alternates between the gateways, so that all of them have the same conditions. `--only` takes
the gateways whose names begin so; `--short` takes one short round. Neither writes the page. A full
run leaves its figures in `docs/benchmarks-gateway.json`, from which `gateway_page.py` writes the
page.

CPU time is that of a gateway and its helper processes, without the server behind it and without the
load. The load comes from one thread (`web.py`). A run prints how busy that thread was: near 100%,
the load would be the bottleneck.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from . import machine, web
from .figures import Figure, Figures, best
from .gateways import (
    ALL_GATEWAYS,
    DIRECT,
    DOVETAIL,
    DOVETAIL_HTTP,
    FASTMCP,
    HANDSHAKE,
    MCP_PROXY,
    STATELESS,
    Gateway,
    environment,
    install_gateways,
    open_gateway,
    start_gateway,
    stdio_entry,
    write_config,
)
from .implementations import HERE
from .report import keep
from .words import duration, number

KEPT = HERE.parent / "docs" / "benchmarks-gateway.json"
CONNECTIONS, SERVERS, LONGEST_SECONDS = 32, 10, 90.0
MIB = 1 << 20


class GatewayRow(NamedTuple):
    """One measure of a gateway."""

    name: str
    gateways: list[Gateway]
    take: Callable[[web.Site, float], Figure]
    is_rate: bool = True


def calls(era: str, connections: int) -> Callable[[web.Site, float], Figure]:
    """Calls over so many connections."""
    return (web.stateless if era == STATELESS else web.handshake)(connections)


def memory(site: web.Site, seconds: float) -> Figure:
    """MiB that a gateway holds."""
    return Figure(site.process.memory() / MIB)


ROWS = [
    *(
        GatewayRow(
            f"{era}_{connections}",
            [one for one in ALL_GATEWAYS if era in one.eras],
            calls(era, connections),
        )
        for era in (HANDSHAKE, STATELESS)
        for connections in (1, CONNECTIONS)
    ),
    GatewayRow("memory", ALL_GATEWAYS, memory, is_rate=False),
]
STARTS = {"start_empty": "empty state folder", "start_known": "known state folder"}


class GatewayGoal(NamedTuple):
    """A goal: what is measured, as a function of all figures, and its bound."""

    title: str
    value: Callable[[dict[str, Figures]], float]
    bound: float
    at_least: bool = False

    def is_met(self, found: dict[str, Figures]) -> bool:
        """Whether the goal is met."""
        value = self.value(found)
        return value >= self.bound if self.at_least else value <= self.bound


def _ratio(row: str, part: str, over: Gateway, under: Gateway) -> Callable[..., float]:
    def value(found: dict[str, Figures]) -> float:
        return float(getattr(found[row][over.name], part) / getattr(found[row][under.name], part))

    return value


def _value(row: str, gateway: Gateway) -> Callable[..., float]:
    return lambda found: found[row][gateway.name].value


BUSY = f"{HANDSHAKE}_{CONNECTIONS}"
GOALS = [
    *(
        GatewayGoal(title.format(era=era), _ratio(f"{era}_{n}", part, ours, DIRECT), bound)
        for title, n, part, ours, bound in (
            ("CPU time, {era} era, times a direct call", 32, "cpu", DOVETAIL, 2),
            (
                "CPU time, {era} era, HTTP server, times a direct call",
                32,
                "cpu",
                DOVETAIL_HTTP,
                2.5,
            ),
            ("median, {era} era, times a direct call", 1, "p50", DOVETAIL, 2.5),
        )
        for era in (HANDSHAKE, STATELESS)
    ),
    *(
        GatewayGoal(title.format(peer=peer.name), _ratio(BUSY, part, *pair), bound, True)
        for peer in (FASTMCP, MCP_PROXY)
        for title, part, pair, bound in (
            ("CPU time, times less than {peer}", "cpu", (peer, DOVETAIL), 20),
            ("calls per second, times {peer}", "value", (DOVETAIL, peer), 15),
        )
    ),
    GatewayGoal("memory (MiB)", _value("memory", DOVETAIL), 45),
    *(
        GatewayGoal(f"start and full list of ten servers, {title} (s)", _value(row, DOVETAIL), 1.5)
        for row, title in STARTS.items()
    ),
]


def measured(
    gateways: list[Gateway], rounds: int, seconds: float
) -> Iterator[tuple[GatewayRow, Figures]]:
    """Each row with its figures, as soon as they are there."""
    with ExitStack() as stack:
        sites = {one: stack.enter_context(open_gateway(one)) for one in gateways}
        for row in ROWS:
            taken: dict[str, list[Figure]] = {}
            for _ in range(rounds):
                for gateway in row.gateways:
                    if gateway in sites:
                        taken.setdefault(gateway.name, []).append(row.take(sites[gateway], seconds))
            yield row, {name: best(figures, row.is_rate) for name, figures in taken.items()}


def start_times(gateway: Gateway, rounds: int) -> dict[str, Figure]:
    """Seconds from the start of a gateway until it lists the tools of all servers that answer.
    Nothing if that took too long."""
    found: dict[str, list[Figure]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name in STARTS:
                seconds = _start_and_list(gateway, Path(folder))
                if seconds is None:
                    return {}
                found.setdefault(name, []).append(Figure(seconds))
    return {name: best(figures, more_is_better=False) for name, figures in found.items()}


def _start_and_list(gateway: Gateway, folder: Path) -> float | None:
    silent: dict[str, object] = {"command": sys.executable, "args": ["-c", "input()"]}
    config = write_config(folder / "mcp.json", [*[stdio_entry()] * (SERVERS - 1), silent])
    begun = time.perf_counter()
    with (
        environment(XDG_STATE_HOME=str(folder)),
        start_gateway(gateway, config) as (process, port),
    ):
        while time.perf_counter() - begun < LONGEST_SECONDS:
            try:
                site = web.Site(process, port)
                site.greet(1)
                if site.count_tools() == SERVERS - 1:
                    return time.perf_counter() - begun
            except (OSError, SystemExit):  # it does not listen, or does not answer
                time.sleep(0.01)
    return None


def line(name: str, figures: Figures) -> str:
    """The figures of a row for the terminal."""
    cells = []
    for gateway, one in figures.items():
        parts = [number(one.value)]
        if one.cpu is not None and one.p50 is not None:
            parts = [f"{number(one.value)}/s", duration(one.cpu), f"{number(one.p50)} ms"]
        cells.append(f"\n    {gateway:22}" + "".join(f"{part:>14}" for part in parts))
    return name + "".join(cells)


def bound_text(goal: GatewayGoal) -> str:
    """A goal in words."""
    return f"{'at least' if goal.at_least else 'at most'} {goal.bound:g}"


def verdicts(found: dict[str, Figures]) -> str:
    """The goals for the terminal."""
    rows = []
    for goal in GOALS:
        try:
            value, how = goal.value(found), "met" if goal.is_met(found) else "MISSED"
        except KeyError:
            continue  # it was not measured
        rows.append(f"{goal.title:72}{number(value):>8}  {bound_text(goal):14}{how}")
    return "\n".join(rows)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gateway", description="Measure Dovetail's gateway beside others."
    )
    parser.add_argument("--short", action="store_true", help="one short round of each, and rough")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only gateways whose names begin so"
    )
    parser.add_argument(
        "--no-start", action="store_true", help="leave out the start of ten servers"
    )
    return parser.parse_args()


def main() -> None:
    given = options()
    install_gateways()
    machine.fix_addresses()
    package = str(HERE.parent / "dovetail")
    subprocess.run([sys.executable, "-m", "compileall", "-q", package], check=True)  # as pip does
    chosen = [
        one
        for one in ALL_GATEWAYS
        if not given.only or any(one.name.startswith(name) for name in given.only)
    ]
    rounds, seconds = (1, 0.5) if given.short else (5, 2.0)
    found: dict[str, Figures] = {}
    begun, busy = time.perf_counter(), time.process_time()
    for row, figures in measured(chosen, rounds, seconds):
        found[row.name] = figures
        print(line(row.name, figures), flush=True)
    share = (time.process_time() - busy) / (time.perf_counter() - begun)
    print(f"The load was busy for {share:.0%} of the time.")
    for gateway in () if given.no_start else [one for one in (DOVETAIL, FASTMCP) if one in chosen]:
        for name, figure in start_times(gateway, 1 if given.short else 3).items():
            found.setdefault(name, {})[gateway.name] = figure
            print(line(name, {gateway.name: figure}), flush=True)
    print(f"\n{verdicts(found)}")
    if chosen == ALL_GATEWAYS and not given.short and not given.no_start:
        from . import gateway_page

        keep({"machine": machine.described_gateways(), "figures": found}, KEPT)
        gateway_page.write()


if __name__ == "__main__":
    main()
