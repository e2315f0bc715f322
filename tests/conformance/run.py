"""Run the official conformance suite against our server, our client and our authorization server:
`make conformance`.

    python -m tests.conformance.run                  everything
    python -m tests.conformance.run server           one side
    python -m tests.conformance.run server ping      one scenario of it

The suite and the Node it needs come from npm, once (`tests/node`). It then runs seven times: server
and client by both sets of requirements and by all it has, and the authorization server, where it
wants somebody to log in. Its exit codes hide too much, so what counts is what it wrote,
`checks.json` by `checks.json`, and the rule of `verdict.py`.
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..node import MODULES, NODE, Trouble, ended, install
from ..person import Person
from .authorization import CALLBACK_PORT, CLIENT, PASSWORD, USER
from .verdict import FAILED, Table, Verdict, judge, read_skips, report, scenario_of, summary

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / ".conformance"
SUITE = MODULES / "@modelcontextprotocol/conformance/dist/index.js"

RUNS = {
    "2025-11-25": ["--requirements", "2025-11-25"],
    "2026-07-28": ["--requirements", "2026-07-28"],
    "all": ["--suite", "all"],
}
WHOLE: dict[str, list[str]] = {"all": []}
SELECTED = ("server", "client")
"""The sides that a run can be chosen for; the other one knows only all."""
START_SECONDS, RUN_SECONDS = 60, 600
SERVER_SECONDS, CLIENT_SECONDS = 60, 120
"""What one scenario may take. The suite starts dozens of clients at once, which takes a while on a
busy machine."""


@contextmanager
def listening(program: str) -> Iterator[str]:
    """A program of ours on a free port; its origin."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = RESULTS / f"{program}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, HERE / program, "--port", str(port)], stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not accepts(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"{program} does not listen:\n{log.read_text()}")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def serving() -> Iterator[list[str]]:
    """How to tell the suite of our server."""
    with listening("server.py") as origin:
        yield ["--url", f"{origin}/mcp", "--timeout", str(SERVER_SECONDS * 1000)]


@contextmanager
def authorizing() -> Iterator[list[str]]:
    """How to tell the suite of our authorization server."""
    with listening("authorization.py") as origin:
        yield ["--url", origin, "--client-id", CLIENT, "--port", str(CALLBACK_PORT)]


def accepts(port: int) -> bool:
    """Whether somebody listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def calling() -> Iterator[list[str]]:
    """How the suite is to start our client. It cuts the command at spaces, hence the relative
    paths."""
    command = " ".join(os.path.relpath(path, ROOT) for path in (sys.executable, HERE / "client.py"))
    yield ["--command", command, "--timeout", str(CLIENT_SECONDS * 1000)]


SIDES = {"server": serving, "client": calling, "authorization": authorizing}


def run_suite(side: str, name: str, arguments: list[str]) -> Iterator[tuple[str, Path]]:
    """Run the suite once: each scenario, and the folder with what was found."""
    results = RESULTS / side / name
    results.mkdir(parents=True)
    log = results / "log.txt"
    print(f"Running the {side} scenarios: {name}", flush=True)
    with log.open("wb") as output:
        command: list[str | Path] = [NODE, SUITE, side, *arguments, "-o", results]
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
        )
    if side == "authorization":
        try:
            log_in(log, process)
        except (AssertionError, OSError) as problem:
            print(f"Nobody could log in: {problem}")
    ended(process, RUN_SECONDS, f"The suite (see {log})")
    folders = list(results.rglob("*-*Z"))
    if not folders or (name in RUNS and "SUMMARY" not in log.read_text()):
        raise Trouble(f"The suite broke off (see {log})")
    for folder in folders:
        yield scenario_of(folder.relative_to(results).as_posix(), side), folder


def log_in(log: Path, process: "subprocess.Popen[bytes]") -> None:
    """Do what the suite asks its reader for: visit the page that it names, log in there, and
    consent."""
    deadline = time.monotonic() + START_SECONDS
    while not (found := re.search(r"^http\S+/authorize\?\S+$", log.read_text(), re.MULTILINE)):
        if process.poll() is not None or time.monotonic() > deadline:
            return  # which it will have noted
        time.sleep(0.05)
    while not accepts(CALLBACK_PORT) and time.monotonic() < deadline:
        time.sleep(0.05)
    Person(username=USER, password=PASSWORD).visit(found[0], f"http://127.0.0.1:{CALLBACK_PORT}/")


def verdict_on(folder: Path, excused: Iterable[str]) -> Verdict:
    """The verdict on a scenario, from its folder; where it failed, with the last words of our
    client."""
    checks, stderr = folder / "checks.json", folder / "stderr.txt"
    if not checks.is_file():
        return Verdict(FAILED, ("It did not come to its end",))
    verdict = judge(json.loads(checks.read_text()), excused)
    words = (
        stderr.read_text().splitlines() if verdict.outcome == FAILED and stderr.is_file() else []
    )
    return Verdict(
        verdict.outcome, (*verdict.complaints, *(f"client.py: {word}" for word in words[-1:]))
    )


def verdicts(sides: list[str], runs: dict[str, list[str]]) -> Table:
    """Run all that was asked for, and judge it."""
    skips = read_skips((HERE / "skips.txt").read_text())
    table: Table = {}
    for side in sides:
        with SIDES[side]() as target:
            for name, selection in (runs if side in SELECTED else WHOLE).items():
                for scenario, folder in run_suite(side, name, [*target, *selection]):
                    key = side, scenario
                    table.setdefault(key, {})[name] = verdict_on(folder, skips.get(key, ()))
    return dict(sorted(table.items(), key=lambda row: (sides.index(row[0][0]), row[0][1])))


def main() -> int:
    """Run the suite; 0 where all is as it should be."""
    options = argparse.ArgumentParser(
        prog="python -m tests.conformance.run", description="Run the conformance suite."
    )
    options.add_argument("side", nargs="?", choices=SIDES, help="only this side")
    options.add_argument("scenario", nargs="?", help="only this scenario of it")
    chosen = options.parse_args()
    sides = [chosen.side] if chosen.side else list(SIDES)
    runs = {"alone": ["--scenario", chosen.scenario]} if chosen.scenario else RUNS

    install()
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir()
    table = verdicts(sides, runs)
    print("\n".join(report(table)))
    return 1 if summary(table).failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        sys.exit(f"conformance: {trouble}")
