"""`dovetail check`."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ROOT, WEATHER, dovetail, handshake, tool

EXAMPLES = [
    "weather.py", "notes.py", "booking.py", "extension.py",
    "apps/server.py", "skills/server.py", "scale-out/server.py",
]  # fmt: skip
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202eRead it."


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def broken(**more: Any) -> dict[str, Any]:
    return tool("go", **{"description": "Go.", "title": None, **more})


@pytest.mark.parametrize("example", EXAMPLES)
def test_our_examples_have_neither_errors_nor_warnings(example: str) -> None:
    done = dovetail("check", str(ROOT / "examples" / example), "--strict", cwd=ROOT)
    assert (done.code, done.err) == (0, ""), done.out


def test_errors_lead_to_exit_status_1_and_the_worst_item_comes_first(
    scripted: Callable[..., str],
) -> None:
    tools = [
        {"name": "good", "description": "Good.", "inputSchema": {"type": "object"}},
        {"name": "long" * 13, "description": "Long.", "inputSchema": {"type": "object"}},
        {"name": "bad one", "description": "Bad.", "inputSchema": {"type": "object"}},
    ]
    done = dovetail("check", scripted({"tools/list": {"result": {"tools": tools}}}))
    assert done.code == 1
    assert done.failure == "the check found 3 errors, 1 warning"
    heads = [line.split("  ")[0] for line in done.out.splitlines() if line[:1].strip()]
    assert heads[:2] == ["server", "bad one"]  # the other lists failed
    assert "longlong" in heads[2]
    assert "good" not in heads


def test_warnings_fail_only_if_the_check_is_strict(scripted: Callable[..., str]) -> None:
    only = {"capabilities": {"tools": {}}}
    path = scripted(handshake(**only), tool("a" * 50, description="Go."))
    assert dovetail("check", path).code == 0
    done = dovetail("check", path, "--strict")
    assert (done.code, done.failure) == (1, "the check found 1 warning")


def test_json_holds_every_finding(scripted: Callable[..., str]) -> None:
    only = {"capabilities": {"tools": {}}}
    done = dovetail("check", scripted(handshake(**only), broken()), "--json")
    assert done.code == 1
    (finding,) = (one for one in done.json["findings"] if one["level"] == "error")
    assert finding["rule"] == "null-field"
    assert finding["where"] == {"kind": "tool", "name": "go", "path": "title"}
    assert {"message", "why", "fix"} <= finding.keys()
    assert done.json["server"]["name"] == "scripted"


def test_ignored_findings_are_counted_and_unused_entries_named(
    scripted: Callable[..., str], tmp_path: Path
) -> None:
    path = scripted(handshake(capabilities={"tools": {}}), broken())
    file = tmp_path / ".dovetail" / "check.toml"
    file.parent.mkdir()
    file.write_text("[[ignore]]\nrule = 'null-field'\ntool = 'go'\n[[ignore]]\nrule = 'name-dot'\n")
    done = dovetail("check", path, cwd=tmp_path)
    assert done.code == 0
    assert "(1 ignored)" in done.out
    assert "check.toml ignores name-dot, which was not found" in done.out


def test_a_wrong_file_of_ignores_is_an_error_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / ".dovetail" / "check.toml"
    file.parent.mkdir()
    file.write_text("[[ignore]]\nrule = 'name-dots'\n")
    done = dovetail("check", WEATHER, cwd=tmp_path)
    shown = os.path.join(".dovetail", "check.toml")
    assert done.code == 2
    assert (
        done.failure == f"{shown}, line 2: there is no rule 'name-dots'; did you mean 'name-dot'?"
    )


def test_a_description_that_changed_is_reported(scripted: Callable[..., str]) -> None:
    def rules(description: str) -> list[str]:
        path = scripted(handshake(capabilities={"tools": {}}), tool(description=description))
        return [one["rule"] for one in dovetail("check", path, "--json").json["findings"]]

    assert "description-changed" not in rules("Go there.")
    assert "description-changed" in rules("Go elsewhere.")


@pytest.mark.parametrize("field", ["name", "description", "title"])
def test_the_text_of_a_server_never_controls_the_terminal(
    scripted: Callable[..., str], field: str
) -> None:
    schema = {"type": "object", "properties": {HOSTILE: {"default": f"https://a.b/{HOSTILE}"}}}
    listed = tool(**{"name": "go", "inputSchema": schema, field: HOSTILE})
    path = scripted(handshake({"name": HOSTILE, "version": HOSTILE}), listed)
    done = dovetail("check", path)
    assert done.code == 1
    assert not {"\x1b", "\x07", "\u202e"} & {*done.out, *done.err}
    assert not {"\x1b", "\u202e"} & {*dovetail("check", path, "--json").out}
    assert json.loads(dovetail("check", path, "--json").out)["server"]["name"] == HOSTILE


def test_a_server_that_does_not_start_is_reported_in_one_line(tmp_path: Path) -> None:
    done = dovetail("check", str(tmp_path / "nowhere.py"))
    assert done.code in (1, 2)
    assert "nowhere.py" in done.failure
