"""The folder for what the commands remember between two runs on this machine."""

import os
import sys
from pathlib import Path

from ..errors import ConfigError


def state_folder() -> Path:
    """Return `$XDG_STATE_HOME/dovetail`, or the folder that the system has instead. It may not
    exist yet; create it with mode 0700.

    Raises:
        ConfigError: There is no home folder.
    """
    folder = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(folder):  # relative paths are invalid there, and must be ignored
        home = {
            "win32": os.environ.get("LOCALAPPDATA") or "~/AppData/Local",
            "darwin": "~/Library/Application Support",
        }.get(sys.platform, "~/.local/state")
        folder = os.path.expanduser(home)
        if folder.startswith("~"):
            raise ConfigError("There is no home folder. Set XDG_STATE_HOME.")
    return Path(folder, "dovetail")
