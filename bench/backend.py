"""What `make bench-backend` runs: a server on a shared backend, and FastMCP with Docket on the same
Redis.

    python -m bench.backend [--short]

A run alternates between the two, so that both have the same conditions. `--short` takes one short
round, leaves out what takes minutes, and does not write the page. A full run leaves its figures in
`docs/benchmarks-backend.json`, from which `backend_page.py` writes the page.
"""

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from . import machine, web
from .backend_sites import (
    DOVETAIL,
    FASTMCP,
    TASK_SERVERS,
    Redis,
    TaskClient,
    install_task_servers,
    question,
    redis,
    replicas,
    run_tasks,
    serving,
    takeover,
)
from .figures import Figure, Figures, best
from .implementations import HERE
from .report import keep
from .words import duration, number

KEPT = HERE.parent / "docs" / "benchmarks-backend.json"
CONNECTIONS, LEASE, RATE = 32, 5.0, 1_000_000
PLAIN, WITH_BACKEND, WITH_RATES = "without a backend", "with a backend", "with shared rates"
SETTINGS = {PLAIN: {}, WITH_BACKEND: {}, WITH_RATES: {"RATE": str(RATE)}}
GROWTH = {1: "1 replica", 2: "2 replicas", 4: "4 replicas"}
IMPORT = (
    "import sys; from dovetail import Server; "
    "print(sum(name.startswith('dovetail') for name in sys.modules), 'redis' in sys.modules, "
    "len(sys.modules))"
)


class BackendGoal(NamedTuple):
    """A goal: what is measured, as a function of all figures, and its bound."""

    title: str
    value: Callable[[dict[str, Figures]], float]
    bound: float
    at_least: bool = False

    def is_met(self, found: dict[str, Figures]) -> bool:
        """Whether the goal is met."""
        value = self.value(found)
        return value >= self.bound if self.at_least else value <= self.bound


def _ours(row: str) -> Callable[[dict[str, Figures]], float]:
    return lambda found: found[row][DOVETAIL.name].value


def _cpu(row: str, over: str, under: str) -> Callable[[dict[str, Figures]], float]:
    return lambda found: (found[row][over].cpu or 0) / (found[row][under].cpu or 1)


def _rate(found: dict[str, Figures]) -> float:
    return found["tasks"][DOVETAIL.name].value / found["tasks"][FASTMCP.name].value


GOALS = [
    BackendGoal(
        "CPU time of a task (server and Redis), times less than FastMCP with Docket",
        _cpu("tasks", FASTMCP.name, DOVETAIL.name),
        5,
        True,
    ),
    BackendGoal("tasks per second, 16 at once, times FastMCP with Docket", _rate, 3, True),
    BackendGoal("takeover after kill -9, defaults (s)", _ours("takeover"), 20),
    BackendGoal("takeover after kill -9, lease of 5 s (s)", _ours("takeover_5"), 8),
    BackendGoal(
        "longest time from an answer at another replica until the task goes on (ms)",
        _ours("question"),
        300,
    ),
    BackendGoal("commands to Redis per plain stateless call", _ours("commands"), 0),
    BackendGoal(
        "CPU time of a plain call with shared rates, times a call without a backend",
        _cpu("calls", WITH_RATES, PLAIN),
        1.3,
    ),
    BackendGoal("longest plain call while Redis is stopped (s)", _ours("stopped"), 1.5),
    BackendGoal("back to normal after a restart of Redis (s)", _ours("restarted"), 5),
    BackendGoal("commands to Redis per second of an idle replica", _ours("idle"), 10),
    BackendGoal("whether `from dovetail import Server` imports redis-py", _ours("redis"), 0),
]


# tasks


def tasks(at: Redis, rounds: int, seconds: float) -> Figures:
    """Tasks, alternating between the servers."""
    taken: dict[str, list[Figure]] = {}
    with ExitStack() as stack:
        sites = {one: stack.enter_context(serving(one, at.url)) for one in TASK_SERVERS}
        for site in sites.values():
            run_tasks(site, at, min(seconds, 1))  # until caches are full
        for _ in range(rounds):
            for server, site in sites.items():
                taken.setdefault(server.name, []).append(run_tasks(site, at, seconds))
    return {name: best(figures, more_is_better=True) for name, figures in taken.items()}


# calls


def calls(at: Redis, rounds: int, seconds: float) -> Figures:
    """Plain stateless calls of a server without a backend, with one, and with rates that count."""
    taken: dict[str, list[Figure]] = {}
    with ExitStack() as stack:
        sites = {
            name: stack.enter_context(serving(DOVETAIL, None if name == PLAIN else at.url, **more))
            for name, more in SETTINGS.items()
        }
        measure = web.stateless(CONNECTIONS)
        for _ in range(rounds):
            for name, site in sites.items():
                taken.setdefault(name, []).append(measure(site, seconds))
    return {name: best(figures, more_is_better=True) for name, figures in taken.items()}


def commands(at: Redis, seconds: float) -> tuple[Figure, Figure]:
    """Commands to Redis per plain call, beyond those of an idle replica; and those per second."""
    with serving(DOVETAIL, at.url) as site:
        time.sleep(1)
        before, begun = at.commands(), time.perf_counter()
        time.sleep(max(seconds, 4))
        idle = (at.commands() - before) / (time.perf_counter() - begun)
        before, begun = at.commands(), time.perf_counter()
        figure = web.stateless(CONNECTIONS)(site, seconds)
        lasted = time.perf_counter() - begun
        more = max(0.0, at.commands() - before - idle * (lasted + 4))
    return Figure(round(more / (figure.value * lasted), 3)), Figure(idle)


def growth(at: Redis, seconds: float) -> Figures:
    """CPU time of a plain call if 1, 2 and 4 replicas share the calls."""
    found: Figures = {}
    for count, name in GROWTH.items():
        with replicas(DOVETAIL, count, at.url) as sites:
            measure = web.stateless(CONNECTIONS // count)
            with ThreadPoolExecutor(count) as threads:
                taken = list(threads.map(measure, sites, [seconds] * count))
        found[name] = Figure(
            sum(one.value for one in taken), statistics.fmean(one.cpu or 0 for one in taken)
        )
    return found


# faults


@contextmanager
def calling(site: web.Site) -> Iterator[list[tuple[float, float]]]:
    """Calls, one after the other, in the background: when each was made, and how long it took."""
    took: list[tuple[float, float]] = []
    over = threading.Event()

    def work() -> None:
        request = site.request(None, site.add)
        with socket.create_connection(("127.0.0.1", site.port)) as connection:
            while not over.wait(0.005):
                begun = time.perf_counter()
                web.exchange(connection, request)
                took.append((begun, time.perf_counter() - begun))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield took
    finally:
        over.set()
        thread.join()


def stopped(at: Redis, seconds: float = 10.0) -> Figure:
    """The longest plain call while Redis is stopped (SIGSTOP), with rates that are counted for each
    call."""
    with serving(DOVETAIL, at.url, RATE="15") as site, calling(site) as took:
        time.sleep(1)
        os.kill(at.process.popen.pid, signal.SIGSTOP)
        begun = time.perf_counter()
        try:
            time.sleep(seconds)
        finally:
            os.kill(at.process.popen.pid, signal.SIGCONT)
    times = sorted((one for when, one in took if when >= begun - 2), reverse=True)
    return Figure(times[0], p50=times[1], p99=times[len(times) // 2])


def restarted(at: Redis) -> Figure:
    """Seconds from the start of a Redis that was killed until a replica finds it, and a task
    completes."""
    with serving(DOVETAIL, at.url) as site:
        client = TaskClient(site)
        client.wait(client.start("work", number=1), "completed")
        at.stop()
        time.sleep(5)
        at.start()
        begun = time.perf_counter()
        while True:
            try:
                client.wait(client.start("work", number=2), "completed")
                break
            except SystemExit:  # 503: it does not know yet
                time.sleep(0.02)
        client.close()
        return Figure(time.perf_counter() - begun)


def imports() -> tuple[Figure, Figure]:
    """The number of modules that `from dovetail import Server` imports, and whether redis-py is one
    of them."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True
    )
    ours, redis_py, _ = done.stdout.split()
    return Figure(float(ours)), Figure(float(redis_py == "True"))


# the run


def measured(short: bool) -> Iterator[tuple[str, Figures]]:
    """Each row with its figures, as soon as they are there."""
    rounds, seconds = (1, 1.0) if short else (5, 5.0)
    with redis() as at:
        yield "tasks", tasks(at, rounds, seconds)
        yield "calls", calls(at, rounds, seconds)
        found, idle = commands(at, seconds)
        yield "commands", {DOVETAIL.name: found}
        yield "idle", {DOVETAIL.name: idle}
        yield "growth", growth(at, seconds)
        yield "question", {DOVETAIL.name: question(at, 5 if short else 50)}
        yield "stopped", {DOVETAIL.name: stopped(at, 3.0 if short else 10.0)}
        yield "restarted", {DOVETAIL.name: restarted(at)}
        modules, redis_py = imports()
        yield "modules", {DOVETAIL.name: modules}
        yield "redis", {DOVETAIL.name: redis_py}
        yield "takeover_5", takeovers(at, LEASE, 1 if short else 3)
        if not short:
            yield "takeover", takeovers(at, None, 1)  # minutes


def takeovers(at: Redis, lease: float | None, rounds: int) -> Figures:
    """How long each server takes to take a task over."""
    taken: dict[str, list[Figure]] = {}
    for _ in range(rounds):
        for server in TASK_SERVERS:
            taken.setdefault(server.name, []).append(takeover(server, at, lease))
    return {name: best(figures, more_is_better=False) for name, figures in taken.items()}


def line(name: str, figures: Figures) -> str:
    """The figures of a row for the terminal."""
    cells = []
    for who, one in figures.items():
        parts = [number(one.value), duration(one.cpu) if one.cpu else ""]
        parts += [f"{number(part)}" for part in (one.p50, one.p99) if part is not None]
        cells.append(f"\n    {who:28}" + "".join(f"{part:>14}" for part in parts))
    return name + "".join(cells)


def bound_text(goal: BackendGoal) -> str:
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
        rows.append(f"{goal.title:78}{number(value):>8}  {bound_text(goal):14}{how}")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.backend", description="Measure a server on a shared backend."
    )
    parser.add_argument("--short", action="store_true", help="one short round of each, and rough")
    given = parser.parse_args()
    install_task_servers()
    machine.fix_addresses()
    package = str(HERE.parent / "dovetail")
    subprocess.run([sys.executable, "-m", "compileall", "-q", package], check=True)  # as pip does
    found: dict[str, Figures] = {}
    for name, figures in measured(given.short):
        found[name] = figures
        print(line(name, figures), flush=True)
    print(f"\n{verdicts(found)}")
    if not given.short:
        from . import backend_page

        keep({"machine": machine.described_backend(), "figures": found}, KEPT)
        backend_page.write()


if __name__ == "__main__":
    main()
