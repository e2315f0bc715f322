"""What a shared backend can do, besides `ports.Bus`.

These protocols are as small as their users allow. Every method may raise `BackendAway`; then it is
unknown whether a change was made. Times are in seconds and measured by the clock of the backend,
because the clocks of two processes may differ.

Keys appear in the backend as they are, so a caller passes a digest of anything private. Data is
opaque bytes; a backend that other programs can read encrypts it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

BackendState: TypeAlias = Literal["connected", "away", "none"]
"""Whether a server reaches its backend; "none" if it has no backend."""


class Rows(Protocol):
    """Rows of bytes that expire. `add`, `change` and `take` are atomic across processes. A row with
    an infinite life (`math.inf`) does not expire."""

    async def get(self, key: str) -> bytes | None:
        """Return the data of a row, or None if the row does not exist or has expired."""

    async def put(self, key: str, data: bytes, life: float) -> None:
        """Write a row that expires after `life` seconds, whether or not it exists."""

    async def add(self, key: str, data: bytes, life: float) -> bool:
        """Write a row that expires after `life` seconds. Return False, and change nothing, if it
        exists."""

    async def change(self, key: str, old: bytes, new: bytes, life: float) -> bool:
        """Replace the data of a row, and let it expire after `life` seconds. Return False, and
        change nothing, if its data is not `old`."""

    async def take(self, key: str) -> bytes | None:
        """Delete a row and return its data. Only one of several concurrent callers receives it."""

    async def delete(self, *keys: str) -> None:
        """Delete rows. A row that does not exist is ignored."""

    async def keys(self) -> list[str]:
        """Return the keys of all rows. This takes long if the backend contains much else, so it is
        for commands of an operator."""


class Bucket(Struct, frozen=True):
    """A bucket of tokens that fills up at a constant rate."""

    key: str
    token_seconds: float
    """How long it takes to add one token."""
    bucket_seconds: float
    """How long it takes to fill the empty bucket: `token_seconds` times its size."""


class Admitted(Struct, frozen=True):
    """The result of `Counters.take`."""

    granted: int
    """How many tokens were taken from each bucket; 0 if a bucket is empty."""
    wait: float = 0.0
    """The number of seconds until the next token, if fewer were granted than requested."""
    refused_by: int = -1
    """The index of the bucket that granted the fewest tokens; -1 if all granted the request."""


class Counters(Protocol):
    """Buckets that limit how often something happens (GCRA)."""

    async def take(self, buckets: Sequence[Bucket], cost: int = 1) -> Admitted:
        """Take the same number of tokens from each bucket: `cost`, or as many as all of them have.

        Args:
            buckets: The buckets. A bucket that was not used before is full.
            cost: The number of tokens. A negative number gives tokens back.
        """


class CachedEntry(Struct, frozen=True):
    """A response that was found."""

    data: bytes
    life: float
    """The number of seconds until it expires."""


class CacheEntries(Protocol):
    """Responses that clients share, in groups. Each group has a version, which every drop changes.
    An entry is found only while the version with which it was written is the current one, so an
    entry that is written after a drop, by a client that does not know of the drop, is not found."""

    async def version(self, group: str) -> bytes:
        """Return the version of a group."""

    async def read(self, group: str, *keys: str) -> tuple[bytes, list[CachedEntry | None]]:
        """Return the version of a group, and what is stored under each key."""

    async def write(self, group: str, key: str, data: bytes, life: float, version: bytes) -> None:
        """Store a response that expires after `life` seconds.

        Args:
            group: The group.
            key: The key.
            data: The response.
            life: The number of seconds until it expires.
            version: The version of the group before the response was requested.
        """

    async def delete(self, group: str, *keys: str) -> None:
        """Delete responses."""

    async def drop(self, group: str) -> tuple[bytes, bytes]:
        """Drop all responses of a group. Return its version before and after."""


class EventLog(Protocol):
    """Logs of numbered messages, each bounded in size and time."""

    async def append(
        self, key: str, messages: Sequence[tuple[int, bytes]], bound: int, life: float
    ) -> None:
        """Append messages to a log. A message whose number is not higher than the last one in the
        log is already there, and is skipped.

        Args:
            key: The log. Its first message creates it.
            messages: The messages with their numbers, lowest first.
            bound: The maximum size of the log in bytes, without its newest message. Beyond it, the
                oldest messages are dropped.
            life: The number of seconds after which the log is dropped, unless it is appended to.
        """

    async def read(self, key: str, after: int) -> list[tuple[int, bytes]] | None:
        """Return the messages after this number, oldest first. Return None if the log ends before
        this number, or if some of the messages are not in the log."""

    async def delete(self, *keys: str) -> None:
        """Delete logs. A log that does not exist is ignored."""


class SessionRecords(Protocol):
    """What the processes of a server have to know about each session that is in use."""

    async def load(self, key: str, started: float, idle: float) -> dict[str, bytes] | None:
        """Return the settings of a session, and mark it as used. Return None if it has ended:
        somebody ended it, or it was not used for `idle` seconds.

        Args:
            key: The key of the session, a digest of its id.
            started: When the session began, in seconds since the epoch.
            idle: How many seconds a session may go unused.
        """

    async def mark_used(self, keys: Collection[str], idle: float) -> None:
        """Mark sessions as used. See `load`.

        Args:
            keys: The keys of the sessions.
            idle: How many seconds a session may go unused.
        """

    async def change(self, key: str, settings: Mapping[str, bytes | None], idle: float) -> None:
        """Change settings of a session. Other settings are not affected.

        Args:
            key: The key of the session.
            settings: The new values, by name. None deletes a setting.
            idle: How many seconds a session may go unused.
        """

    async def end(self, key: str, life: float) -> None:
        """End a session.

        Args:
            key: The key of the session.
            life: The number of seconds until its id expires and its end can be forgotten.
        """
