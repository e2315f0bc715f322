"""Operations of the Apps panel. The page passes on the messages of a view, and cannot name a
document: it is the one that the server's tool refers to."""

from typing import Any

from ..json_text import parse_json, raw_object
from ..state import InspectorState
from .registry import operation


@operation
async def app_open(
    state: InspectorState,
    *,
    tool: str,
    arguments: str = "{}",
    context: str = "{}",
    again: bool = False,
) -> dict[str, Any]:
    """Show the view of a tool with a new call, or with the result of the last one."""
    return await state.apps.show(tool, _object(arguments), _object(context), again)


@operation
async def app_post(state: InspectorState, *, app: int, message: str) -> None:
    """Pass on a message from the view. The reply is an `app` event."""
    await state.apps.receive(app, message)


@operation
async def app_context(state: InspectorState, *, app: int, context: str) -> None:
    """Change the host context of the view."""
    state.apps.change_context(app, _object(context))


@operation
async def app_close(state: InspectorState, *, app: int) -> None:
    """Close the view."""
    state.apps.hide(app)


def _object(text: str) -> dict[str, Any]:
    raw_object(text)
    found: dict[str, Any] = parse_json(text)
    return found
