"""What the suite's checks amount to, by a rule stricter than its own.

A scenario passes when at least one check succeeded, none failed and none warned, and nothing was skipped but what the suite
skips whatever one does (`skips.txt`, with reasons). It must pass in every run that includes it. Those not built yet are
listed in `baseline.txt`, which may only shrink: a line whose scenario passes has to go.
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
    """All verdicts, held against the baseline."""

    passed: list[Key]
    failed: list[Key]
    known: list[Key]
    not_run: list[Key]
    stale: list[Key]
    """What the baseline lists for no reason: it passes by now, or there is no such scenario."""

    @property
    def good(self) -> bool:
        """Whether all is as it should be."""
        return not self.failed and not self.stale


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
            said = check.get("errorMessage") or (check.get("details") or {}).get("message") or check.get("description", "")
            complaints.append(f"{status} {name}: {said}")
    if complaints:
        return Verdict(FAILED, tuple(complaints))
    if statuses["SUCCESS"]:
        return Verdict(PASSED)
    return Verdict(NOT_RUN) if statuses["EXCUSED"] else Verdict(FAILED, ("No check succeeded",))


def summary(table: Table, baseline: Iterable[Key]) -> Summary:
    """Sort all scenarios by what became of them."""
    found = Summary([], [], [], [], [key for key in baseline if key not in table])
    for key, verdicts in table.items():
        outcomes = {verdict.outcome for verdict in verdicts.values()}
        if key in baseline:
            (found.known if FAILED in outcomes else found.stale).append(key)
        else:
            outcome = next(one for one in (FAILED, PASSED, NOT_RUN) if one in outcomes)
            {FAILED: found.failed, PASSED: found.passed, NOT_RUN: found.not_run}[outcome].append(key)
    return found


def report(table: Table, baseline: Mapping[Key, str]) -> list[str]:
    """The lines to print: a table, what was wrong, and how many."""
    found = summary(table, baseline)
    runs = sorted({run for verdicts in table.values() for run in verdicts})
    width = max((len(name) for _, name in table), default=0)
    lines = []
    for side in dict.fromkeys(side for side, _ in table):
        lines += ["", f"{side:<{width}}  {'  '.join(runs)}"]
        for key, verdicts in table.items():
            if key[0] == side:
                signs = [SIGNS[verdicts[run].outcome] if run in verdicts else "" for run in runs]
                cells = "  ".join(f"{sign:^{len(run)}}" for sign, run in zip(signs, runs, strict=True))
                lines.append(f"{key[1]:<{width}}  {cells}  {baseline.get(key, '')}".rstrip())
    for key in found.failed:
        lines += ["", f"{' '.join(key)} failed:"]
        said: dict[str, list[str]] = {}
        for run, verdict in table[key].items():
            for text in dict.fromkeys(verdict.complaints):
                said.setdefault(text, []).append(run)
        lines += [f"  {', '.join(where)}: {text}" for text, where in said.items()]
    if found.stale:
        lines += [
            "",
            "Remove from baseline.txt, for these pass or are gone:",
            *(f"  {' '.join(key)}" for key in found.stale),
        ]
    reasons = Counter(baseline[key] for key in found.known)
    told = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    lines += ["", f"{len(found.known)} known" + (f" ({told})" if told else "")]
    if found.not_run:
        lines += [f"{len(found.not_run)} that the suite never runs"]
    return [*lines, f"{len(found.passed)} passed, {len(found.failed)} failed"]


def read_baseline(text: str) -> dict[Key, str]:
    """The scenarios known to fail, and the word that says what is missing."""
    return {(side, scenario): reason for side, scenario, reason in _rows(text)}


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
