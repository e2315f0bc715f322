"""Values in Redis that only this server can read and make.

A value is sealed for its place: the full key in Redis and, if the key holds several values, which
of them it is. It opens at no other place.
"""

from ...logs import get_logger
from ...sealing import Forged, KeyRing

log = get_logger("backend")


class SealedValues:
    """Seals and opens the values of one kind.

    Args:
        ring: The keys.
        purpose: What the values are for, a fixed word in the program.
    """

    def __init__(self, ring: KeyRing, purpose: str) -> None:
        self._ring, self._purpose = ring, purpose
        self._warned = False

    def seal(self, place: str, data: bytes) -> bytes:
        """Return what to write at a place."""
        return self._ring.seal_bytes(self._purpose, data, bound=place.encode())

    def open(self, place: str, sealed: bytes | None) -> bytes | None:
        """Return the data of what was read at a place, or None if there was nothing. A value that
        was made up, changed or moved counts as nothing, too; the first one is logged."""
        if sealed is None:
            return None
        try:
            return self._ring.open_bytes(self._purpose, sealed, bound=place.encode())
        except Forged:
            if not self._warned:
                self._warned = True
                log.warning(
                    "A value in Redis is ignored, because this server's keys did not seal it: %s. "
                    "Do all processes have the same DOVETAIL_KEYS?",
                    place,
                )
            return None
