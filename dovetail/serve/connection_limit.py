"""The limit on how many connections one process accepts.

The limit is `Limits.connections`, or less if the process may not open that many files. A new file
descriptor always has the lowest free number. A connection with a high number therefore shows that
few descriptors are left, whether connections, tools or child processes use the others. Some
descriptors are kept free, because a process that has run out of them can neither open a file nor
start a program.
"""

import errno
import time
from typing import Any

from ..limits import Limits
from ..logs import get_logger

log = get_logger("http")

RESERVED_FILES = 64
"""The number of file descriptors that are kept free for tools, log files and databases."""
LOG_INTERVAL_SECONDS = 60.0
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 64\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
    b"The server has too many connections at the moment. Retry later.\n"
)
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)


class ConnectionLimit:
    """The limit on the connections to one process. A message is logged when the limit is
    reached."""

    def __init__(self, limits: Limits) -> None:
        self._maximum = limits.connections
        self._files = _file_limit()
        self._highest_file = self._files and max(self._files - RESERVED_FILES, self._files // 2)
        self._logged_at = float("-inf")

    def is_exceeded(self, connections: int, transport: Any) -> bool:
        """Return whether a new connection exceeds the limit.

        Args:
            connections: The number of open connections, including the new one.
            transport: The transport of the new connection.
        """
        if connections > self._maximum:
            self._log(f"{self._maximum} connections are open (Limits.connections)")
            return True
        sock = transport.get_extra_info("socket")
        if self._highest_file and sock is not None and sock.fileno() >= self._highest_file:
            self._log_files()
            return True
        return False

    def on_loop_error(self, context: dict[str, Any]) -> bool:
        """Handle an error that the event loop reports while it accepts connections. Returns False
        for any other error. Without this handler, asyncio logs a traceback for each connection that
        it cannot accept."""
        if "._start_serving(" in context.get("message", ""):
            return True  # asyncio wanted to accept again, but the server has stopped
        error = context.get("exception")
        if "socket" not in context or getattr(error, "errno", None) not in _OUT_OF_FILES:
            return False
        self._log_files()
        return True

    def _log_files(self) -> None:
        reason = (
            f"the process has almost reached its limit of {self._files} file descriptors"
            if self._files
            else "the system has almost run out of file descriptors"
        )
        self._log(f"{reason}. Raise the limit with `ulimit -n`, or lower Limits.connections")

    def _log(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._logged_at >= LOG_INTERVAL_SECONDS:
            self._logged_at = now
            log.warning("Refusing new connections: %s", reason)


def _file_limit() -> int | None:
    """Return how many files this process may open, or None if the number is unlimited or
    unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
