"""`dovetail record` and `dovetail replay`: record what a host and a server say, and say it again.

Both move messages without a `Client`. `dovetail/mcplog.py` writes and reads the file.
"""

from ...mcplog import McplogWriter, Recording, new_recording_path, read_mcplog

__all__ = ["McplogWriter", "Recording", "new_recording_path", "read_mcplog"]
