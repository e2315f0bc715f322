"""Operations on the connection. `open` and `restart` start again what the terminal named; all that
the page can choose is a revision."""

from typing import Any

from ...revisions import BY_NAME
from ..refusal import Refused
from ..state import InspectorState
from .registry import operation


@operation
async def snapshot(state: InspectorState) -> dict[str, Any]:
    """Return everything that the page shows."""
    return state.snapshot()


@operation
async def open(state: InspectorState, *, revision: str | None = None) -> None:
    """Open the target in a revision (default: what the terminal chose)."""
    state.open(_check_revision(revision))


@operation
async def restart(state: InspectorState, *, revision: str | None = None) -> None:
    """Start the target again (default: in the same revision)."""
    state.restart(_check_revision(revision))


@operation
async def close(state: InspectorState) -> None:
    """Close the connection."""
    state.close_session()


@operation
async def list(state: InspectorState) -> None:
    """Read the lists again."""
    state.client  # noqa: B018 (refuses, if nothing is open)
    assert state.session is not None
    state.tasks.start(state.session.read_lists())


def _check_revision(revision: str | None) -> str | None:
    if revision is not None and revision not in BY_NAME:
        raise Refused(f"{revision!r} is not a revision.", f"Use one of {', '.join(BY_NAME)}.")
    return revision
