"""The goals for gateways."""

import json
import re

import pytest

from bench import gateway, gateway_page
from bench.figures import Figure
from bench.gateways import DIRECT, DOVETAIL


@pytest.mark.parametrize(("cpu", "is_met"), [(200.0, True), (201.0, False)])
def test_a_goal_is_a_ratio_of_one_run(cpu: float, is_met: bool) -> None:
    goal = gateway.GOALS[0]
    row = {DOVETAIL.name: Figure(1, cpu, 1), DIRECT.name: Figure(1, 100.0, 1)}
    assert goal.is_met({gateway.BUSY: row}) is is_met
    assert gateway.bound_text(goal) == "at most 2"


def test_the_page_is_made_of_the_figures_that_were_kept() -> None:
    kept = json.loads(gateway.KEPT.read_text(encoding="utf-8"))
    assert gateway_page.PAGE.read_text(encoding="utf-8") == gateway_page.page(kept)
    assert not re.search(r"/(home|root|tmp|work)\b", json.dumps(kept))
