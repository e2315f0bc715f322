"""The machine on which a host runs, and the folders that hosts use on it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from ..errors import ConfigError

_MOVED = {
    "claude": ("CLAUDE_CONFIG_DIR", ""),
    "codex": ("CODEX_HOME", ".codex"),
    "copilot": ("COPILOT_HOME", ".copilot"),
    "cline": ("CLINE_DIR", ".cline"),
}
"""The variable that moves the folder of a host, and where the folder is without it."""


class Machine(Struct, frozen=True):
    """The machine on which a host runs."""

    system: str
    """`linux`, `darwin` or `win32`, as in `sys.platform`."""
    environ: Mapping[str, str]
    home: Path
    project: Path
    """The folder whose project files are meant."""

    @classmethod
    def current(cls, project: Path | None = None) -> "Machine":
        """Describe this machine.

        Args:
            project: The folder of the project; by default, the current folder.
        """
        home = Path(os.path.expanduser("~"))
        if not home.is_absolute():
            raise ConfigError("There is no home folder. Set HOME.")
        return cls(sys.platform, os.environ, home, project or Path.cwd())

    def folders(self) -> dict[str, str]:
        """Return the folders that the paths in `HOSTS` name. Some programs use `XDG_CONFIG_HOME` on
        every system (`any_config`), others on Linux only (`config`)."""
        windows = {
            name: self.environ.get(name) or str(self.home / "AppData" / below)
            for name, below in (("APPDATA", "Roaming"), ("LOCALAPPDATA", "Local"))
        }
        config = self.environ.get("XDG_CONFIG_HOME") or str(self.home / ".config")
        moved = {
            folder: self.environ.get(variable) or str(self.home / below)
            for folder, (variable, below) in _MOVED.items()
        }
        support = str(self.home / "Library" / "Application Support")
        application = {"darwin": support, "win32": windows["APPDATA"]}.get(self.system, config)
        return {
            "home": str(self.home),
            "config": config if self.system == "linux" else str(self.home / ".config"),
            "any_config": config,
            "application": application,
            "local": windows["LOCALAPPDATA"],
            **moved,
        }
