"""The recording of an inspected session, which the page switches on and off.

The recording sees every connection, so a restart of the server does not interrupt it. If the disk
is full, the recording ends and the session goes on.
"""

from time import time
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..masking import mask_line, mask_message
from ..mcplog import McplogWriter, new_recording_path

if TYPE_CHECKING:
    from .state import InspectorState


class SessionRecorder:
    """Records what passes on the connections of an inspector.

    Args:
        state: The inspector.
    """

    def __init__(self, state: "InspectorState") -> None:
        self._state = state
        self._writer: McplogWriter | None = None
        """The writer of the current recording, or of the last one."""
        self._is_stopped = True

    @property
    def is_on(self) -> bool:
        """Whether events are being recorded."""
        return not self._is_stopped and self._writer is not None and self._writer.problem is None

    def status(self) -> dict[str, Any]:
        """Return what the page shows: `on`, and `file` and `problem` of the current or the last
        recording, if there are any."""
        writer = self._writer
        fields = {} if writer is None else {"file": str(writer.path), "problem": writer.problem}
        return {"on": self.is_on, **{key: value for key, value in fields.items() if value}}

    def start(self) -> None:
        """Begin a new recording: in the file that the terminal named, or in a new one.

        Raises:
            ConfigError: The file cannot be created.
        """
        if self.is_on:
            return
        self._remove()
        settings = self._state.settings
        writer = self._writer = McplogWriter(
            settings.record_to or new_recording_path(),
            settings.command or settings.target,
            self._state.status.get("revision"),
            mask=bytes if settings.show_secrets else mask_message,
            mask_stderr=str if settings.show_secrets else mask_line,
            on_problem=self._report,
        )
        if writer.problem is not None:
            raise ConfigError(writer.problem)
        self._is_stopped = False
        self._state.recorders.append(writer)
        self._report(f"Recording to {writer.path}")

    def stop(self) -> None:
        """End the recording, if there is one."""
        if not self._is_stopped:
            self._remove()
            self._report()

    def add_stderr(self, line: str) -> None:
        """Record a line that the server wrote to stderr.

        Args:
            line: The line.
        """
        if self.is_on and self._writer is not None:
            self._writer.stderr(line, time())

    def _remove(self) -> None:
        self._is_stopped = True
        if self._writer is not None:
            self._writer.close()
            if self._writer in self._state.recorders:
                self._state.recorders.remove(self._writer)

    def _report(self, notice: str = "") -> None:
        self._state.report_changed("recording", self.status())
        if notice and self._state.settings.on_notice is not None:
            self._state.settings.on_notice(notice)
