"""The goals for servers on a shared backend."""

import json
import re

import pytest

from bench import backend, backend_page
from bench.backend_sites import DOVETAIL, FASTMCP
from bench.figures import Figure


@pytest.mark.parametrize(("cpu", "is_met"), [(200.0, True), (201.0, False)])
def test_a_goal_is_a_ratio_of_one_run(cpu: float, is_met: bool) -> None:
    goal = backend.GOALS[0]
    row = {DOVETAIL.name: Figure(1, cpu), FASTMCP.name: Figure(1, 1000.0)}
    assert goal.is_met({"tasks": row}) is is_met
    assert backend.bound_text(goal) == "at least 5"


@pytest.mark.skipif(not backend.KEPT.exists(), reason="there was no full run yet")
def test_the_page_is_made_of_the_figures_that_were_kept() -> None:
    kept = json.loads(backend.KEPT.read_text(encoding="utf-8"))
    assert backend_page.PAGE.read_text(encoding="utf-8") == backend_page.page(kept)
    assert not re.search(r"/(home|root|tmp|work)\b", json.dumps(kept))
