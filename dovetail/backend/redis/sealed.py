"""Values in Redis that only this server can read and make.

A value is sealed for its place: the full key in Redis and, if the key holds several values, which
of them it is. It opens at no other place.
"""

from collections.abc import Awaitable, Callable
from hmac import compare_digest

from ...logs import get_logger
from ...sealing import Forged, KeyRing

MAX_TRIES = 16
"""How often `change` tries again if others write the same data at the same time."""

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

    async def change(
        self,
        place: str,
        old: bytes,
        new: bytes,
        read: Callable[[], Awaitable[bytes | None]],
        replace: Callable[[bytes, bytes], Awaitable[bool]],
    ) -> bool:
        """Replace a value if its data is `old`. Return False if it is not.

        Two sealed values of the same data differ, so Redis cannot compare data. It is compared
        here, and replaced in Redis if nobody has written the value in the meantime.

        Args:
            place: The place of the value.
            old: The data to replace.
            new: The new data.
            read: Reads the sealed value from Redis.
            replace: Replaces the first sealed value with the second one. Returns False if the value
                in Redis is not the first one.
        """
        sealed = self.seal(place, new)
        for _ in range(MAX_TRIES):
            found = await read()
            data = self.open(place, found)
            if found is None or data is None or not compare_digest(data, old):
                return False
            if await replace(found, sealed):
                return True
        return False
