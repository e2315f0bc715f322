"""The operation that switches recording on and off. The terminal decides on the file."""

from ..state import InspectorState
from .registry import operation


@operation
async def record(state: InspectorState, *, on: bool) -> None:
    """Begin a new recording, or end the current one."""
    if on:
        state.start_recording()
    else:
        state.recorder.stop()
