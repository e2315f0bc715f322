"""Operations of the Login panel. All that the page can choose is a step: the server is the one that
the terminal named."""

from typing import Literal

from ..state import InspectorState
from .registry import operation

LastStep = Literal[
    "challenge",
    "resource_metadata",
    "server_metadata",
    "registration",
    "authorize",
    "token",
    "call",
]


@operation
async def login(state: InspectorState) -> None:
    """Report the saved login and the steps of the last login as a `changed` event."""
    await state.login.read()


@operation
async def login_step(
    state: InspectorState, *, last: LastStep = "call", again: bool = False
) -> None:
    """Log in up to and including a step, or go on with a login that is paused."""
    await state.login.run(last, again)


@operation
async def login_cancel(state: InspectorState) -> None:
    """End the login that is running."""
    await state.login.cancel()


@operation
async def login_forget(state: InspectorState) -> None:
    """Delete the saved login, which `dovetail login` and all other commands share."""
    await state.login.forget()
