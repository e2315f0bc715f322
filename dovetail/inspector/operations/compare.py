"""Operations that compare: one request in many revisions, and two calls."""

from typing import Any

from ...revisions import BY_NAME
from ..compare import SECONDS, ComparedRequest, Comparison
from ..json_text import raw_object
from ..refusal import Refused
from ..state import InspectorState
from .registry import operation

MAX_SECONDS = 600.0


@operation
async def compare(
    state: InspectorState,
    *,
    method: str,
    params: str = "{}",
    revisions: list[str] | None = None,
    timeout: float = SECONDS,
) -> dict[str, Any]:
    """Send one request in many revisions, each on a connection of its own. `changed` events report
    that outcomes are known."""
    chosen = state.revisions.names if revisions is None else list(dict.fromkeys(revisions))
    if unknown := [name for name in chosen if name not in BY_NAME]:
        raise Refused(f"{unknown[0]!r} is not a revision.", f"Use one of {', '.join(BY_NAME)}.")
    if not chosen or not method:
        raise Refused("Choose a method and at least one revision.")
    if not 0 < timeout <= MAX_SECONDS:
        raise Refused(f"timeout must be between 0 and {MAX_SECONDS:g} seconds.")
    newest_first = sorted(chosen, key=list(BY_NAME).index, reverse=True)
    request = ComparedRequest(method, raw_object(params), timeout)
    return state.comparisons.start(request, newest_first).fields()


@operation
async def comparison(state: InspectorState) -> Comparison:
    """Return what is known of the comparison that runs, or of the last one."""
    return await state.comparisons.read()


@operation
async def cancel_compare(state: InspectorState) -> None:
    """Cancel the comparison that runs."""
    state.comparisons.cancel()


@operation
async def diff(state: InspectorState, *, before: str, after: str | None = None) -> Comparison:
    """Compare the outcomes of two calls, such as before and after a restart."""
    return await state.comparisons.compare_calls(before, after)


@operation
async def find_revisions(state: InspectorState) -> None:
    """Find out in which revisions the server answers. A `changed` event tells the result."""
    state.revisions.find()
