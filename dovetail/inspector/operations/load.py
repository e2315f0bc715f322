"""The operation that runs a saved call many times."""

from typing import Annotated

from msgspec import Meta

from ..events import to_fields
from ..load import MAX_AT_ONCE, MAX_RUNS, LoadRun
from ..state import InspectorState
from .registry import operation
from .saved import choose_saved, start_run


@operation
async def load(
    state: InspectorState,
    *,
    name: str,
    runs: Annotated[int, Meta(ge=1, le=MAX_RUNS)] = 1000,
    at_once: Annotated[int, Meta(ge=1, le=MAX_AT_ONCE)] = 8,
) -> None:
    """Run a saved call many times, several at a time. `load` events report the outcome, and
    `stop_run` stops it."""
    [call] = choose_saved([name])
    many = LoadRun(
        state.client,
        call,
        runs,
        at_once,
        lambda report: state.events.add("load", **to_fields(report)),
    )
    start_run(state, many.run)
