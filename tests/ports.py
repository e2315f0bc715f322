"""Ports for servers that a test starts, or starts again."""

import random
import socket
from collections import deque

RANGE = range(12_000, 32_000)
"""Below the ports that the system gives to others: to outgoing connections, and to servers that ask
for any port. So nobody takes a port while its server is restarted."""
MAX_RESERVED = 200
"""How many ports a process reserves at most: the ones that it chose last."""
_reserved: deque[socket.socket] = deque()


def free_port() -> int:
    """Return a TCP port that nobody listens on, and that no other test process chooses.

    The UDP port of the same number is the reservation. It is free for one process at a time, does
    not disturb a TCP server, and ends with the process.
    """
    while True:
        port = random.SystemRandom().choice(RANGE)
        reservation = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as probe:
            try:
                reservation.bind(("127.0.0.1", port))
                probe.bind(("127.0.0.1", port))
            except OSError:
                reservation.close()
                continue
        _reserved.append(reservation)
        if len(_reserved) > MAX_RESERVED:
            _reserved.popleft().close()
        return port
