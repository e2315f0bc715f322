"""The choice of a model: hints first, in order, then priorities, then the order of the list."""

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dovetail.client.samplers import Model, choose_model
from dovetail.errors import ConfigError
from dovetail.protocol.client_features import ModelHint, ModelPreferences

LARGE = Model("vendor-large-3", cost=0.9, speed=0.2, intelligence=0.9, aliases=("claude-3-opus",))
MIDDLE = Model("vendor-middle-3", cost=0.5, speed=0.5, intelligence=0.6)
SMALL = Model(
    "vendor-small-3", cost=0.1, speed=0.9, intelligence=0.3, aliases=("claude-3-haiku", "gpt-mini")
)
ALL = [MIDDLE, LARGE, SMALL]


def hints(*names: str | None) -> ModelPreferences:
    return ModelPreferences(hints=[ModelHint(name) for name in names])


@pytest.mark.requirement("sampling-model-hints")
@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        (None, "vendor-middle-3"),
        ({}, "vendor-middle-3"),
        (hints("large"), "vendor-large-3"),
        (hints("LARGE"), "vendor-large-3"),
        (hints("nobody's", "small", "large"), "vendor-small-3"),
        (hints("haiku"), "vendor-small-3"),
        (hints("", None, "  ", "large"), "vendor-large-3"),
        (hints("nobody's"), "vendor-middle-3"),
        (hints("vendor"), "vendor-middle-3"),
        (hints("vendor", "small"), "vendor-middle-3"),
        (ModelPreferences(cost_priority=1), "vendor-small-3"),
        (ModelPreferences(speed_priority=1), "vendor-small-3"),
        (ModelPreferences(intelligence_priority=1), "vendor-large-3"),
        (ModelPreferences(cost_priority=0.3, intelligence_priority=1), "vendor-large-3"),
        (ModelPreferences(cost_priority=1, intelligence_priority=0.3), "vendor-small-3"),
        (ModelPreferences(hints=[ModelHint("claude")], cost_priority=1), "vendor-small-3"),
        (ModelPreferences(hints=[ModelHint("claude")], intelligence_priority=1), "vendor-large-3"),
        ({"hints": [{"name": "claude"}], "intelligencePriority": 1}, "vendor-large-3"),
        (ModelPreferences(cost_priority=math.nan, intelligence_priority=99), "vendor-large-3"),
    ],
)
def test_the_model_that_suits_best_is_chosen(preferences: Any, chosen: str) -> None:
    assert choose_model(preferences, ALL) == chosen


def test_plain_names_will_do_and_their_order_is_the_preference() -> None:
    assert choose_model(None, ["first", "second"]) == "first"
    assert choose_model(hints("second"), ["first", "second"]) == "second"
    assert choose_model(hints("s"), ["first", "second"]) == "first"
    assert choose_model(hints("x"), "only") == "only"


def test_no_models_and_no_preferences_are_told_apart() -> None:
    with pytest.raises(ConfigError, match="at least one model"):
        choose_model(None, [])
    with pytest.raises(ConfigError, match="model preferences are not valid"):
        choose_model({"hints": 5}, ALL)


traits = st.floats(0, 1)
wishes = st.builds(
    ModelPreferences,
    hints=st.none()
    | st.lists(st.builds(ModelHint, st.none() | st.sampled_from(["a", "B", "ab", ""]))),
    cost_priority=st.none() | st.floats(),
    speed_priority=st.none() | st.floats(),
    intelligence_priority=st.none() | st.floats(),
)


@given(
    wishes,
    st.lists(
        st.builds(Model, st.sampled_from(["a", "b", "AB", "c"]), traits, traits, traits), min_size=1
    ),
)
def test_whatever_is_wished_for_the_same_model_of_the_list_comes_out(
    preferences: Any, models: list[Model]
) -> None:
    chosen = choose_model(preferences, models)
    assert chosen in [model.name for model in models]
    assert chosen == choose_model(preferences, models)
