"""What every HTTP server of this library does before it serves: check the packages, open the port,
and tune the garbage collector."""

import gc
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from ..errors import ConfigError, missing_extra


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ConfigError if the port cannot be used."""
    if not isinstance(port, int) or not 0 <= port <= 65535:
        raise ConfigError(f"port={port!r}: a port must be a number from 0 to 65535")
    try:
        family = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = (
            os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        )
        raise ConfigError(f"Cannot listen on {host} port {port}: {reason}") from None


@contextmanager
def tuned_gc() -> Iterator[None]:
    """Collect garbage less often, and skip all objects that already exist. A request creates
    hundreds of objects that are freed when it ends, and hardly any cycles. In a measurement, a call
    used 42 µs of CPU time instead of 49.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def find_packages() -> None:
    """Raise ConfigError if the packages that serve HTTP cannot be found. This loads nothing, so it
    is much faster than `check_installed`."""
    if not all(map(find_spec, ("uvicorn", "httptools"))):
        raise missing_extra("Serving HTTP", "http")


def check_installed() -> None:
    """Raise ConfigError if the packages that serve HTTP are not installed."""
    try:
        from . import uvicorn_server  # noqa: F401
    except ImportError:
        raise missing_extra("Serving HTTP", "http") from None
