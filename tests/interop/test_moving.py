"""Servers written for the peers answer the same on `dovetail.compat`, with only their import lines
changed."""

import json
from pathlib import Path

import pytest

from .moving import EXPECTED, MOVED, SERVERS, Moved, changed, differences, on_compat

RECORDED = json.loads(EXPECTED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("moved", MOVED, ids=lambda moved: moved.name)
def test_a_moved_server_answers_as_it_did_on_its_peer(moved: Moved, tmp_path: Path) -> None:
    assert differences(RECORDED[moved.name], on_compat(moved, tmp_path)) == []


@pytest.mark.parametrize("moved", MOVED, ids=lambda moved: moved.name)
def test_only_the_import_lines_are_changed(moved: Moved) -> None:
    before = (SERVERS / f"{moved.name}.py").read_text(encoding="utf-8")
    lines = zip(before.splitlines(), changed(before).splitlines(), strict=True)
    differing = [(was, now) for was, now in lines if was != now]
    assert differing
    assert all(
        was.partition(" import ")[2] == now.partition(" import ")[2] for was, now in differing
    )
    assert all(now.startswith("from dovetail.compat import ") for _, now in differing)


def test_every_server_is_asked_something() -> None:
    assert (
        {path.stem for path in SERVERS.glob("*.py")}
        == {moved.name for moved in MOVED}
        == RECORDED.keys()
    )
