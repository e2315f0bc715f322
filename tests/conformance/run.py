"""Run the official conformance suite against our server and our client: what `make conformance` does.

    python -m tests.conformance.run                  everything
    python -m tests.conformance.run server           one side
    python -m tests.conformance.run server ping      one scenario of it

The suite and the Node it needs come from npm (`package.json` pins them) into `.conformance/`, once. The suite then runs six
times: each side by both sets of requirements and by all it has. Its exit codes hide too much, so what counts is what it
wrote, `checks.json` by `checks.json`, and the rule of `verdict.py`.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .verdict import FAILED, Table, Verdict, judge, read_baseline, read_skips, report, scenario_of, summary

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".conformance"
RESULTS = CACHE / "results"
NODE = CACHE / "node_modules/node/bin/node"
SUITE = CACHE / "node_modules/@modelcontextprotocol/conformance/dist/index.js"

RUNS = {
    "2025-11-25": ["--requirements", "2025-11-25"],
    "2026-07-28": ["--requirements", "2026-07-28"],
    "all": ["--suite", "all"],
}
INSTALL_SECONDS, START_SECONDS, RUN_SECONDS = 300, 20, 120
SERVER_SECONDS, CLIENT_SECONDS = 20, 60
"""What one scenario may take. The suite starts dozens of clients at once."""


class Trouble(Exception):
    """Why the suite could not be run; the text says what to do."""


def install() -> None:
    """Bring the suite and its Node from npm, unless they are there."""
    wanted = (HERE / "package.json").read_bytes()
    stamp = CACHE / "installed.json"
    if stamp.is_file() and stamp.read_bytes() == wanted:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise Trouble("npm is needed to install the conformance suite; it comes with Node")
    print("Installing the conformance suite", flush=True)
    CACHE.mkdir(exist_ok=True)
    (CACHE / "package.json").write_bytes(wanted)
    options = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    ended(subprocess.Popen([npm, "install", *options], cwd=CACHE, start_new_session=True), INSTALL_SECONDS, "npm install")
    if not (NODE.is_file() and SUITE.is_file()):
        raise Trouble(f"npm install did not bring {NODE} and {SUITE}")
    stamp.write_bytes(wanted)


def ended(process: "subprocess.Popen[bytes]", seconds: float, what: str) -> None:
    """Wait for a process that leads a group of its own; where it takes too long, the group ends with it."""
    try:
        process.wait(seconds)
    except BaseException as problem:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(problem, subprocess.TimeoutExpired):
            raise Trouble(f"{what} took longer than {seconds} s") from None
        raise


@contextmanager
def serving() -> Iterator[list[str]]:
    """Our server on a free port, and how to tell the suite of it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = RESULTS / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, HERE / "server.py", "--port", str(port)], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not accepts(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"server.py does not listen:\n{log.read_text()}")
            time.sleep(0.05)
        yield ["--url", f"http://127.0.0.1:{port}/mcp", "--timeout", str(SERVER_SECONDS * 1000)]
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def accepts(port: int) -> bool:
    """Whether somebody listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def calling() -> Iterator[list[str]]:
    """How the suite is to start our client. It cuts the command at spaces, hence the relative paths."""
    command = " ".join(os.path.relpath(path, ROOT) for path in (sys.executable, HERE / "client.py"))
    yield ["--command", command, "--timeout", str(CLIENT_SECONDS * 1000)]


SIDES = {"server": serving, "client": calling}


def run_suite(side: str, name: str, arguments: list[str]) -> Iterator[tuple[str, Path]]:
    """Run the suite once: each scenario, and the folder with what was found."""
    results = RESULTS / side / name
    results.mkdir(parents=True)
    log = results / "log.txt"
    print(f"Running the {side} scenarios: {name}", flush=True)
    with log.open("wb") as output:
        command: list[str | Path] = [NODE, SUITE, side, *arguments, "-o", results]
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
    ended(process, RUN_SECONDS, f"The suite (see {log})")
    folders = list(results.rglob("*-*Z"))
    if not folders or (name in RUNS and "SUMMARY ===" not in log.read_text()):
        raise Trouble(f"The suite broke off (see {log})")
    for folder in folders:
        yield scenario_of(folder.relative_to(results).as_posix(), side), folder


def verdict_on(folder: Path, excused: Iterable[str]) -> Verdict:
    """The verdict on a scenario, from its folder; where it failed, with the last words of our client."""
    checks, stderr = folder / "checks.json", folder / "stderr.txt"
    if not checks.is_file():
        return Verdict(FAILED, ("It did not come to its end",))
    verdict = judge(json.loads(checks.read_text()), excused)
    words = stderr.read_text().splitlines() if verdict.outcome == FAILED and stderr.is_file() else []
    return Verdict(verdict.outcome, (*verdict.complaints, *(f"client.py: {word}" for word in words[-1:])))


def verdicts(sides: list[str], runs: dict[str, list[str]]) -> Table:
    """Run all that was asked for, and judge it."""
    skips = read_skips((HERE / "skips.txt").read_text())
    table: Table = {}
    for side in sides:
        with SIDES[side]() as target:
            for name, selection in runs.items():
                for scenario, folder in run_suite(side, name, [*target, *selection]):
                    key = side, scenario
                    table.setdefault(key, {})[name] = verdict_on(folder, skips.get(key, ()))
    return dict(sorted(table.items(), key=lambda row: (sides.index(row[0][0]), row[0][1])))


def main() -> int:
    """Run the suite; 0 where all is as it should be."""
    options = argparse.ArgumentParser(prog="python -m tests.conformance.run", description="Run the conformance suite.")
    options.add_argument("side", nargs="?", choices=SIDES, help="only this side")
    options.add_argument("scenario", nargs="?", help="only this scenario of it")
    chosen = options.parse_args()
    sides = [chosen.side] if chosen.side else list(SIDES)
    runs = {"alone": ["--scenario", chosen.scenario]} if chosen.scenario else RUNS

    install()
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir()
    table = verdicts(sides, runs)
    baseline = read_baseline((HERE / "baseline.txt").read_text())
    baseline = {key: why for key, why in baseline.items() if key in table or (key[0] in sides and runs is RUNS)}
    print("\n".join(report(table, baseline)))
    return 0 if summary(table, baseline).good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        sys.exit(f"conformance: {trouble}")
