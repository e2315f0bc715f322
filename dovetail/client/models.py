"""Which model a sampling request gets. A server does not know what models there are; it can only
say what it would like.

Hints come first, in the order the server gave them: a hint is part of a name, in any case, and the
first one that any model answers to decides which models are left. Without a hint that fits, all
are. Among those left the priorities weigh: how much a low price, speed and intelligence matter,
each from 0 to 1, against what is known of each model. The best one is taken, and of equals the one
listed first; so the order of the list is the client's own preference, and the same question always
gets the same model.
https://modelcontextprotocol.io/specification/2026-07-28/client/sampling#model-preferences
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import ConfigError
from ..protocol.client_features import ModelPreferences


class Model(Struct, frozen=True):
    """A model that can be asked, and what is known of it: each trait from 0 to 1, a half where
    nothing is."""

    name: str
    cost: float = 0.5
    """1 is the dearest."""
    speed: float = 0.5
    intelligence: float = 0.5
    aliases: tuple[str, ...] = ()
    """Other names that a hint may mean it by: of its family, or of another vendor's model that it
    stands in for."""


def choose_model(
    preferences: ModelPreferences | Mapping[str, Any] | None, models: Iterable[Model | str]
) -> str:
    """The name of the model that suits the preferences best."""
    left = known(models)
    wishes = _wishes(preferences)
    for hint in wishes.hints or ():
        part = (hint.name or "").strip().lower()
        meant = tuple(
            model for model in left if part and any(part in name for name in _names(model))
        )
        if meant:
            left = meant
            break
    return max(left, key=lambda model: _suits(model, wishes)).name  # of equals, max takes the first


def known(models: Iterable[Model | str]) -> tuple[Model, ...]:
    """The models as values; there must be one."""
    given = (models,) if isinstance(models, str | Model) else tuple(models)
    if not given:
        raise ConfigError("models= is empty: name at least one model")
    return tuple(model if isinstance(model, Model) else Model(model) for model in given)


def _names(model: Model) -> list[str]:
    return [name.lower() for name in (model.name, *model.aliases)]


def _wishes(preferences: ModelPreferences | Mapping[str, Any] | None) -> ModelPreferences:
    if isinstance(preferences, ModelPreferences):
        return preferences
    try:
        return msgspec.convert(dict(preferences or {}), ModelPreferences)
    except msgspec.ValidationError as problem:
        raise ConfigError(f"These are no model preferences: {problem}") from None


def _suits(model: Model, wishes: ModelPreferences) -> float:
    return (
        _weight(wishes.cost_priority) * (1 - model.cost)
        + _weight(wishes.speed_priority) * model.speed
        + _weight(wishes.intelligence_priority) * model.intelligence
    )


def _weight(priority: float | None) -> float:
    """A priority within its bounds; what is no number weighs nothing."""
    return min(1.0, max(0.0, priority)) if priority is not None and priority == priority else 0.0
