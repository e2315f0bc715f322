"""Restart the server when one of its files changes.

Every `POLL_SECONDS` the files are compared with what they were when the server loaded them. If some
changed, the loop waits until saving has ended, because editors and formatters write several times,
and then restarts the server. It does not wait for the restart: a file that is saved meanwhile
causes another one. Each restart is reported when the server answers, or when it turns out that its
code cannot be loaded.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct

from .list_changes import describe_changes
from .lists import decode_lists
from .loaded_files import LoadedFiles
from .watch import Watch

if TYPE_CHECKING:
    from .lists import RawLists
    from .session import Session
    from .state import InspectorState

POLL_SECONDS = 0.25
MAX_LOAD = 0.1
"""The share of the time that may be spent on looking at files, if they are many."""
SETTLE_SECONDS = 0.05
"""How long no file may change before the restart."""
MAX_SETTLE_SECONDS = 0.5
"""How long to wait for that."""

CORRECT = "Correct the file and save it, or restart the server."


class ReloadReport(Struct, frozen=True, kw_only=True):
    """How a restart ended."""

    files: list[str]
    """The files that changed; empty for the first start, and for a restart by the user."""
    seconds: float
    """How long the restart took."""
    changes: list[str] | None
    """What changed in the lists, in words; None if they were read for the first time."""
    problem: str | None = None
    """Why the server cannot be used, in one line."""
    traceback: str | None = None
    """The traceback of the server's code, if that is the reason."""

    @property
    def message(self) -> str:
        """The report in one line."""
        if self.problem is not None:
            return self.problem
        if self.changes is None:
            return f"Started in {self.seconds:.1f} s"
        changes = ", ".join(self.changes) or "the lists are the same"
        return f"Restarted in {self.seconds:.1f} s: {changes}"


class ServerReloader:
    """The loop that restarts a server.

    Args:
        state: The inspector.
        watch: The files that are watched in addition to those that the server loads.
        loaded: The files that the server loads; None if it is not written in Python.
        on_reload: Called when a restart has ended.
        folder: The folder relative to which files are named.
    """

    def __init__(
        self,
        state: "InspectorState",
        watch: Watch,
        loaded: LoadedFiles | None,
        on_reload: Callable[[ReloadReport], None],
        folder: Path,
    ) -> None:
        self._state, self._watch, self._loaded = state, watch, loaded
        self._on_reload, self._folder = on_reload, folder
        state.how_to_open = CORRECT
        self._reported: Session | None = None
        self._restarted: list[str] = []
        """The files because of which the current session was started."""

    async def run(self) -> None:
        """Restart the server on every change, until cancelled."""
        while True:
            self._report_new_session()
            changed = await self._wait_for_change()
            if changed:
                self._restart(changed)

    # changes

    async def _wait_for_change(self) -> list[Path]:
        """Wait for a while; return what changed meanwhile, once no more changes follow."""
        began = monotonic()
        changed = await self._look()
        pause = max(POLL_SECONDS, (monotonic() - began) / MAX_LOAD)
        if not changed:
            await asyncio.sleep(pause)
            return []
        deadline = monotonic() + MAX_SETTLE_SECONDS
        while monotonic() < deadline:
            before = self._watch.state
            await asyncio.sleep(SETTLE_SECONDS)
            changed = await self._look()
            if self._watch.state == before:
                break
        return changed

    async def _look(self) -> list[Path]:
        if self._loaded is not None:
            self._loaded.read()
            self._watch.set_loaded(self._loaded.files)
        return await asyncio.to_thread(self._watch.changed)

    # restarts

    def _restart(self, changed: Sequence[Path]) -> None:
        self._restarted = [self._show(path) for path in changed]
        if self._loaded is not None:
            self._loaded.begin()
            self._watch.set_loaded(self._loaded.files)
        self._watch.begin()
        self._state.restart()

    def _report_new_session(self) -> None:
        """If the server was started, report how that ends."""
        session = self._state.session
        if session is not None and session is not self._reported:
            self._reported = session
            files, self._restarted = self._restarted, []
            self._state.tasks.start(self._report(session, files, self._state.lists))

    async def _report(self, session: "Session", files: list[str], before: "RawLists") -> None:
        began = monotonic()
        if files:
            self._state.events.add("reload", files=files, message="Restarting…")
        await session.wait()
        if not session.is_current or session.is_closed:
            return  # another restart has replaced it, or the user closed it
        report = self._describe(session, files, monotonic() - began, before)
        if files or report.problem is not None or session.number > 1:
            mask = self._state.settings.mask
            self._state.events.add(
                "reload",
                files=files,
                message=mask(report.message),
                traceback=None if report.traceback is None else mask(report.traceback),
            )
            self._on_reload(report)

    def _describe(
        self, session: "Session", files: list[str], seconds: float, before: "RawLists"
    ) -> ReloadReport:
        if session.status.get("status") == "open":
            after = decode_lists(self._state.lists)
            changes = describe_changes(decode_lists(before), after) if before else None
            return ReloadReport(files=files, seconds=seconds, changes=changes)
        traceback = None
        problem: str = session.status.get("message", "The server could not be started.")
        if self._loaded is not None:
            self._loaded.read()
            traceback = self._loaded.failure
        if traceback is not None:
            problem = f"The server could not be loaded: {traceback.splitlines()[-1]}"
        return ReloadReport(
            files=files, seconds=seconds, changes=[], problem=problem, traceback=traceback
        )

    def _show(self, path: Path) -> str:
        try:
            return os.path.relpath(path, self._folder)
        except ValueError:  # on another drive
            return str(path)
