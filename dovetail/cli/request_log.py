"""`dovetail run --verbose`: print one line per request and Dovetail's log messages to stderr.

14:03:07 INFO     tools/call forecast: ok, 1.3 ms
14:03:09 WARNING  tools/call forecast: tool-error, 0.4 ms
"""

import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..server.audit import AuditRecord, audit
from ..text import escape_json, escape_unsafe
from .output import use_colour

if TYPE_CHECKING:
    from ..server.runnable import RunnableService

LEVELS = {
    **dict.fromkeys(("tool-error", "refused", "denied"), logging.WARNING),
    "error": logging.ERROR,
}
"""The log level for each outcome of a request; any other outcome is logged at INFO."""
COLOURS = {logging.INFO: "32", logging.WARNING: "33", logging.ERROR: "31"}
log = logging.getLogger("dovetail.requests")


def log_requests(server: "RunnableService") -> None:
    """Print a line for each request to this server, and Dovetail's log messages."""
    print_log(logging.INFO)
    server.observe(audit(_log_request))


def print_log(level: int, *, as_json: bool = False) -> None:
    """Print Dovetail's log messages to stderr.

    Args:
        level: The lowest level to print.
        as_json: Whether to print one JSON object per line.
    """
    ours = logging.getLogger("dovetail")
    if not ours.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
        ours.addHandler(handler)
    ours.setLevel(level)
    ours.propagate = False  # the user's handlers would print each line again


def _log_request(record: AuditRecord) -> None:
    subject = record.method if record.target is None else f"{record.method} {record.target}"
    outcome = record.outcome if record.error is None else f"{record.outcome} ({record.error})"
    level = LEVELS.get(record.outcome, logging.INFO)
    log.log(level, "%s: %s, %.1f ms", subject, outcome, record.duration * 1000)


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for a record."""
        import msgspec

        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _encodable(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = _encodable(self.formatException(record.exc_info))
        return escape_json(msgspec.json.encode(entry).decode())


class LineFormatter(logging.Formatter):
    """Formats the time, level and message; the level is coloured on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for a record, followed by its traceback."""
        level = f"{record.levelname:8}"
        if use_colour(sys.stderr):
            level = f"\x1b[{COLOURS.get(record.levelno, '0')}m{level}\x1b[0m"
        text = escape_unsafe(record.getMessage())
        if record.exc_info:
            traceback = self.formatException(record.exc_info)
            text += "\n" + escape_unsafe(traceback, keep_newlines=True)
        return f"{self.formatTime(record, '%H:%M:%S')} {level} {text}"
