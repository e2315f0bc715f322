"""The lowest log level that any caller of a server wants.

In the handshake era, a log level holds for a connection, which several callers may share. So the
server is asked for the lowest level that one of them wants, and the gateway leaves out what is
below the level of a caller. In the stateless era, each request has a level of its own.

A caller with a session that has not chosen a level leaves the choice to the server. As soon as
another caller chooses one, it counts as a caller that wants everything, so that it loses nothing.
"""

from typing import Final, get_args

from ..client.callbacks import LogEntry
from ..ports import Caller
from ..protocol.utilities import SEVERITY, Level, LogParams
from .pool import ActiveCalls

LEVELS: Final[tuple[Level, ...]] = get_args(Level)
"""The levels by their severity, the lowest first."""


class WantedLevels:
    """The log levels that the callers of one server want."""

    def __init__(self) -> None:
        self._severities: dict[str, int | None] = {}
        """The lowest severity for each session, or None if it has not chosen one. All callers
        without a session count as one."""

    @property
    def lowest(self) -> Level | None:
        """The lowest level; None if no caller has chosen one."""
        chosen = [one for one in self._severities.values() if one is not None]
        if not chosen:
            return None
        return LEVELS[min(chosen)] if len(chosen) == len(self._severities) else LEVELS[0]

    def add(self, caller: Caller, *, is_chosen: bool = False) -> bool:
        """Add a caller or change its level. Return whether that changed anything.

        Args:
            caller: The caller.
            is_chosen: Whether the caller has just chosen its level. Otherwise, the lowest level is
                taken for a default.
        """
        session, wanted = caller.session_id, caller.log_level
        if wanted is None:
            return False
        before = self._severities.get(session, -1)
        now: int | None = wanted
        if not session and before is not None and 0 <= before < wanted:
            now = before
        elif session and not is_chosen and not wanted:
            now = None if before == -1 else before
        self._severities[session] = now
        return now != before

    def remove(self, session: str) -> bool:
        """Forget a session. Return whether it was known.

        Args:
            session: The id of the session.
        """
        known = session in self._severities
        self._severities.pop(session, None)
        return known


def level_of(caller: Caller) -> str:
    """Return the level of a caller's log messages, or "off"."""
    return "off" if caller.log_level is None else LEVELS[caller.log_level]


def pass_on_log(calls: ActiveCalls, entry: LogEntry) -> None:
    """Pass on a log message to the caller whose call it belongs to.

    Args:
        calls: The calls that use the connection on which it arrived.
        entry: The message.
    """
    call = entry.parent or calls.likely()
    level = None if call is None else call.caller.log_level
    if call is not None and level is not None and SEVERITY[entry.level] >= level:
        params = LogParams(level=entry.level, data=entry.data, logger=entry.logger)
        call.connection.notify(call, "notifications/message", params)
