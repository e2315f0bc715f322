"""Operations that change what the inspector tells the server."""

import asyncio
from pathlib import Path

from ...protocol.utilities import Level
from ..refusal import Refused
from ..state import InspectorState
from .registry import operation


@operation
async def set_level(state: InspectorState, *, level: Level) -> None:
    """Set the lowest level of the log messages that the server sends."""
    await state.client.set_log_level(level)
    state.level = level
    state.report_changed("level", level)


@operation
async def set_roots(state: InspectorState, *, roots: list[str]) -> None:
    """Set the roots, which must be at or below the folders of `--root`."""
    state.roots = found = await asyncio.to_thread(_resolve_roots, roots, state.settings.roots)
    if state.session is not None and state.session.client is not None:
        await state.session.client.set_roots(state.session.on_roots)
    state.report_changed("roots", [str(root) for root in found])


def _resolve_roots(given: list[str], allowed: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the folders, with symbolic links resolved before they are compared."""
    found = tuple(Path(root).resolve() for root in given)
    for text, root in zip(given, found, strict=True):
        if not any(root.is_relative_to(folder) for folder in allowed):
            raise Refused(
                f"{text} is not in a folder of --root.", "Start the command with --root DIR."
            )
        if not root.is_dir():
            raise Refused(f"{text} is not a folder.")
    return found
