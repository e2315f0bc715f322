"""Ports for servers that a test starts, or starts again."""

import random
import socket

RANGE = range(12_000, 32_000)
"""Below the ports that the system gives to others: to outgoing connections, and to servers that ask
for any port. So nobody takes a port while its server is restarted."""


def free_port() -> int:
    """A port that nobody listens on."""
    while True:
        port = random.SystemRandom().choice(RANGE)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
