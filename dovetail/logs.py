"""The loggers of the package.

Many log messages repeat what a peer wrote. A message that could control a terminal or look like
several lines of the log is escaped, and a very long one is cut.
"""

import logging
from typing import Final

from .text import escape_unsafe

MAX_LOGGED_CHARS: Final = 16 * 1024
"""The length of a message. The last lines of a server's stderr are shorter."""


def get_logger(name: str) -> logging.Logger:
    """Return the logger `dovetail.NAME`."""
    logger = logging.getLogger(f"dovetail.{name}")
    logger.addFilter(_escape)  # has no effect if it was added before
    return logger


def _escape(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    more = "…" if len(text) > MAX_LOGGED_CHARS else ""
    escaped = escape_unsafe(text[:MAX_LOGGED_CHARS]) + more
    if escaped != text:
        record.msg, record.args = escaped, None
    return True
