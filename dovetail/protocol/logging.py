"""Log messages from server to client, by the eight levels of syslog.
https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/logging"""

from typing import Any, Literal, get_args

from .base import Params

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
SEVERITY: dict[str, int] = {level: rank for rank, level in enumerate(get_args(Level))}
"""The rank of each level; a higher one is worse."""


class SetLevelParams(Params, kw_only=True):
    """From now on, only this level and worse."""

    level: Level


class LogParams(Params, kw_only=True):
    """One log message."""

    level: Level
    data: Any
    logger: str | None = None
