"""What the suite's checks amount to, by a rule stricter than its own.

A scenario passes when at least one check succeeded, none failed and none warned, and nothing was
skipped but what the suite skips whatever one does (`skips.txt`, with reasons). It must pass in
every run that includes it. There are no exceptions.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Key = tuple[str, str]
"""The side that is tested, `server` or `client`, and the scenario."""
Table = dict[Key, dict[str, "Verdict"]]
"""The verdicts of each scenario, by run."""

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
SIGNS = {PASSED: "✓", FAILED: "✗", NOT_RUN: "–"}


class Verdict(NamedTuple):
    """What became of a scenario in a run, and what was wrong."""

    outcome: str
    complaints: tuple[str, ...] = ()


class Summary(NamedTuple):
    """All scenarios, by what became of them."""

    passed: list[Key]
    failed: list[Key]
    not_run: list[Key]


def judge(checks: Iterable[Mapping[str, Any]], excused: Iterable[str] = ()) -> Verdict:
    """The verdict on one scenario."""
    statuses = Counter[str]()
    complaints = []
    for check in checks:
        status, name = check["status"], check["name"]
        if status == "SKIPPED" and name in excused:
            status = "EXCUSED"
        statuses[status] += 1
        if status in ("FAILURE", "WARNING", "SKIPPED"):
            said = (
                check.get("errorMessage")
                or (check.get("details") or {}).get("message")
                or check.get("description", "")
            )
            complaints.append(f"{status} {name}: {said}")
    if complaints:
        return Verdict(FAILED, tuple(complaints))
    if statuses["SUCCESS"]:
        return Verdict(PASSED)
    return Verdict(NOT_RUN) if statuses["EXCUSED"] else Verdict(FAILED, ("No check succeeded",))


def summary(table: Table) -> Summary:
    """Sort all scenarios by what became of them."""
    found = Summary([], [], [])
    for key, verdicts in table.items():
        outcomes = {verdict.outcome for verdict in verdicts.values()}
        outcome = next(one for one in (FAILED, PASSED, NOT_RUN) if one in outcomes)
        {FAILED: found.failed, PASSED: found.passed, NOT_RUN: found.not_run}[outcome].append(key)
    return found


def report(table: Table) -> list[str]:
    """The lines to print: a table, what was wrong, and how many."""
    found = summary(table)
    runs = sorted({run for verdicts in table.values() for run in verdicts})
    width = max((len(name) for _, name in table), default=0)
    lines = []
    for side in dict.fromkeys(side for side, _ in table):
        lines += ["", f"{side:<{width}}  {'  '.join(runs)}"]
        for key, verdicts in table.items():
            if key[0] == side:
                signs = [SIGNS[verdicts[run].outcome] if run in verdicts else "" for run in runs]
                cells = "  ".join(
                    f"{sign:^{len(run)}}" for sign, run in zip(signs, runs, strict=True)
                )
                lines.append(f"{key[1]:<{width}}  {cells}".rstrip())
    for key in found.failed:
        lines += ["", f"{' '.join(key)} failed:"]
        said: dict[str, list[str]] = {}
        for run, verdict in table[key].items():
            for text in dict.fromkeys(verdict.complaints):
                said.setdefault(text, []).append(run)
        lines += [f"  {', '.join(where)}: {text}" for text, where in said.items()]
    lines += [""]
    if found.not_run:
        lines += [f"{len(found.not_run)} that the suite never runs"]
    return [*lines, f"{len(found.passed)} passed, {len(found.failed)} failed"]


def read_skips(text: str) -> dict[Key, set[str]]:
    """The checks that may be skipped, by scenario."""
    skips: dict[Key, set[str]] = {}
    for side, scenario, rest in _rows(text):
        skips.setdefault((side, scenario), set()).add(rest.split()[0])
    return skips


PREFIXES = {"server": "server-", "authorization": "authorization-server-"}
"""What the suite puts before a scenario's name, by side."""


def scenario_of(folder: str, side: str) -> str:
    """The scenario whose results are in a folder: `server-tools-list-2026-11-15T05-20-56-665Z`."""
    name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", folder)
    return name.removeprefix(PREFIXES.get(side, ""))


def _rows(text: str) -> Iterable[tuple[str, str, str]]:
    for line in text.splitlines():
        words = line.partition("#")[0].split(None, 2)
        if words:
            side, scenario, rest = words
            yield side, scenario, rest.strip()
