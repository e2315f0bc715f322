"""The rule by which the suite's checks are judged."""

import json
from pathlib import Path
from typing import Any

import pytest

from .run import HERE, verdict_on
from .verdict import (
    FAILED,
    NOT_RUN,
    PASSED,
    Table,
    Verdict,
    judge,
    read_skips,
    report,
    scenario_of,
    summary,
)


def check(status: str, name: str = "Thing", **more: Any) -> dict[str, Any]:
    return {"name": name, "status": status, "description": "The thing is done", **more}


def test_success_without_complaint_passes() -> None:
    assert judge([check("SUCCESS"), check("INFO")]) == Verdict(PASSED)


@pytest.mark.parametrize("checks", [[], [check("INFO")]])
def test_a_scenario_in_which_nothing_succeeded_fails(checks: list[Any]) -> None:
    assert judge(checks) == Verdict(FAILED, ("No check succeeded",))


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED"])
def test_one_complaint_is_enough_to_fail_and_is_told(status: str) -> None:
    verdict = judge([check("SUCCESS"), check(status, "Other", errorMessage="it was not")])
    assert verdict == Verdict(FAILED, (f"{status} Other: it was not",))


def test_a_check_that_the_suite_never_runs_may_be_skipped() -> None:
    assert judge([check("SUCCESS"), check("SKIPPED", "Never")], {"Never"}) == Verdict(PASSED)


def test_an_excuse_covers_a_skip_only() -> None:
    assert judge([check("SUCCESS"), check("FAILURE", "Never")], {"Never"}).outcome == FAILED


def test_a_scenario_of_nothing_but_excused_skips_neither_passes_nor_fails() -> None:
    assert judge([check("SKIPPED", "Never")], {"Never"}) == Verdict(NOT_RUN)


PING, LOGIN = ("server", "ping"), ("client", "auth/login")
GOOD, BAD = Verdict(PASSED), Verdict(FAILED, ("FAILURE Pong: none came",))


def test_a_scenario_passes_only_if_it_passes_in_every_run() -> None:
    assert summary({PING: {"one": GOOD, "two": GOOD}}).passed == [PING]
    assert summary({PING: {"one": GOOD, "two": BAD}}).failed == [PING]


def test_the_report_shows_a_table_the_complaints_and_ends_with_the_counts() -> None:
    table: Table = {
        PING: {"2025": BAD, "2026": GOOD},
        LOGIN: {"2026": BAD},
        ("server", "list"): {"2026": GOOD},
    }
    text = "\n".join(report(table))
    assert text == "\n".join([
        "",
        "server      2025  2026",
        "ping         ✗     ✓",
        "list               ✓",
        "",
        "client      2025  2026",
        "auth/login         ✗",
        "",
        "server ping failed:",
        "  2025: FAILURE Pong: none came",
        "",
        "client auth/login failed:",
        "  2026: FAILURE Pong: none came",
        "",
        "1 passed, 2 failed",
    ])  # fmt: skip


def test_a_complaint_of_several_runs_is_told_once() -> None:
    assert "  2025, 2026: FAILURE Pong: none came" in report({PING: {"2025": BAD, "2026": BAD}})


@pytest.mark.parametrize(
    ("folder", "side", "scenario"),
    [
        ("server-ping-2026-11-15T05-20-56-665Z", "server", "ping"),
        ("server-server-initialize-2026-11-15T05-20-56-665Z", "server", "server-initialize"),
        ("auth/scope-step-up-2026-11-15T05-20-56-665Z", "client", "auth/scope-step-up"),
        ("auth/2025-03-26-fallback-2026-11-15T05-20-56-665Z", "client", "auth/2025-03-26-fallback"),
    ],
)  # fmt: skip
def test_a_result_folder_names_its_scenario(folder: str, side: str, scenario: str) -> None:
    assert scenario_of(folder, side) == scenario


def test_a_scenario_without_results_did_not_come_to_its_end(tmp_path: Path) -> None:
    assert verdict_on(tmp_path, ()) == Verdict(FAILED, ("It did not come to its end",))


def test_where_our_client_failed_its_last_words_are_told(tmp_path: Path) -> None:
    (tmp_path / "checks.json").write_text(json.dumps([check("FAILURE", errorMessage="it was not")]))
    (tmp_path / "stderr.txt").write_text("Traceback\n  …\nTimedOut: no answer\n")
    assert verdict_on(tmp_path, ()).complaints == (
        "FAILURE Thing: it was not",
        "client.py: TimedOut: no answer",
    )


def test_comments_and_empty_lines_of_the_files_are_passed_over() -> None:
    assert read_skips(
        "# why\n\nserver ping Pong  nobody sends it  # really\nserver ping Ping  nor this\n"
    ) == {PING: {"Pong", "Ping"}}


def test_the_file_here_can_be_read() -> None:
    assert read_skips((HERE / "skips.txt").read_text())
