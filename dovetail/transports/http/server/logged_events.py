"""An event store whose streams outlive their process, because unread messages are written to a log.

A message is written to the log of its stream when it has been unread for up to a second. So a
stream that is read promptly is never written, and a process that is killed loses at most the unread
messages of the last second. A process that is told to stop writes everything that is unread.

A message is unread until it has been sent. If the reader of a stream leaves before the stream is
finished, nobody knows what has arrived, so all its messages count as unread again. For the same
reason, a process that is told to stop writes the streams that it has sent in the last seconds.

An entry of a log holds a message and the scopes that a token needs to read it. The last entry of a
finished stream holds no message. A log is deleted with its stream, so the logs of a process need
about as much room in the backend as its streams need in memory.

Messages that wait for a poll are not written while their process runs, because any process can ask
it for them. A process that is told to stop stores them for the process that receives the next poll.
"""

import asyncio
import re
from collections.abc import Collection, Coroutine
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.msgpack import Decoder, Encoder

from ....aio import Sweeper
from ....errors import BackendAway
from ....limits import Limits
from ....logs import get_logger
from .event_store import POLL, STANDALONE, EventStream, MemoryEventStore

if TYPE_CHECKING:
    from ....backend.protocols import EventLog, Rows

SCAN_SECONDS = 0.5
"""The time between two scans for unread messages. What was unread at two of them is written."""
HANDOVER_LIFE_SECONDS = 60.0
"""How long another process has time to read the messages that were handed over to it."""
ARRIVAL_SECONDS = 10.0
"""How long it may take until this process notices that what it has sent did not arrive."""
MAX_WRITES = 256
"""The number of streams that are written at the same time."""
UNBOUNDED = 2**53
"""The bound of a log that has none, in bytes."""

StreamPart: TypeAlias = tuple[int, list[bytes], bool]
"""The number of a stream's last message, its last messages, and whether the stream is finished."""

_encode = Encoder().encode
_decode = Decoder(tuple[bytes | None, list[str]]).decode
_decode_poll = Decoder(list[tuple[bytes, list[str]]]).decode
_is_stream_id = re.compile(r"[a-z]?[0-9a-f]{16}").fullmatch

log = get_logger("http")


class LoggedEventStore(MemoryEventStore):
    """An in-memory event store that writes unread messages to a log.

    Args:
        limits: The limits of the server.
        event_log: The log.
        polls: The messages that wait for a session's next poll.
    """

    def __init__(self, limits: Limits, event_log: "EventLog", polls: "Rows") -> None:
        super().__init__(limits)
        self._log, self._polls = event_log, polls
        self._scanner = Sweeper(SCAN_SECONDS, self._scan)
        self._writing: asyncio.Task[int] | None = None
        self._deleted: set[str] = set()
        """The logs to delete."""
        self._closed = False

    def keep(self, stream: EventStream) -> None:
        """Keep a stream that another process has kept so far."""
        super().keep(stream)
        self._scanner.start()

    def drop(self, stream: EventStream) -> None:
        """Drop a stream that is no longer needed, and its log, unless the stream has moved to
        another process."""
        is_moved = stream.id.startswith(STANDALONE) and stream.on_push is not None
        if stream.logged and not is_moved:
            self._deleted.add(_key(stream.owner, stream.id))
        super().drop(stream)

    # writing

    def _scan(self) -> bool:
        """Write the messages that were already unread at the last scan."""
        is_busy = self._writing is not None and not self._writing.done()
        streams = self._streams.values()
        due = [] if is_busy else [one for one in streams if one.scanned > _last_safe_number(one)]
        for stream in streams:
            stream.scanned = _last_number(stream)
        if due or (self._deleted and not is_busy):
            writes = [self._write_stream(one, _last_safe_number(one)) for one in due]
            self._writing = asyncio.get_running_loop().create_task(self._write(writes))
        return bool(self._streams or self._deleted) and not self._closed

    async def _write(self, writes: list[Coroutine[Any, Any, bool]]) -> int:
        """Write streams, and delete logs. Return the number of streams that were not written."""
        failed = 0
        for start in range(0, len(writes), MAX_WRITES):
            written = await asyncio.gather(*writes[start : start + MAX_WRITES])
            failed += written.count(False)
        if deleted := list(self._deleted):
            try:
                await self._log.delete(*deleted)
                self._deleted.difference_update(deleted)
            except BackendAway:
                pass  # the next scan tries again
        return failed

    async def _write_stream(self, stream: EventStream, after: int) -> bool:
        """Write the messages of a stream after this number. Return whether that was possible."""
        last = _last_number(stream)
        scopes = _scopes(stream)
        messages: list[bytes | None] = [*stream.since(max(after, stream.dropped))]
        if last > stream.count:
            messages.append(None)
        entries = [_encode((data, scopes)) for data in messages]
        try:
            # The scopes count, too, so twice the limit of a stream always has room for it.
            await self._log.append(
                _key(stream.owner, stream.id),
                list(enumerate(entries, last - len(entries) + 1)),
                2 * self._limits.events,
                self._limits.event_life,
            )
        except BackendAway:
            return False
        stream.logged = max(stream.logged, last)
        return True

    async def flush(self) -> None:
        """Write everything that is unread, because this process ends."""
        self._closed = True
        self._scanner.cancel()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        recent = asyncio.get_running_loop().time() - ARRIVAL_SECONDS
        writes = []
        for stream in self._streams.values():
            safe = _last_safe_number(stream)
            is_call = not stream.id.startswith((STANDALONE, POLL))
            if is_call and (stream.detached_at is None or stream.detached_at > recent):
                safe = max(stream.dropped, stream.logged)
            if stream.id.startswith(POLL) and stream.held and not stream.attached:
                writes.append(self._store_poll(stream))
            elif _last_number(stream) > safe:
                writes.append(self._write_stream(stream, safe))
        if lost := await self._write(writes):
            log.warning(
                "The unread messages of %d event streams are lost, because Redis is away", lost
            )

    async def _store_poll(self, stream: EventStream) -> bool:
        """Store the messages that wait for a poll. Return whether that was possible."""
        try:
            earlier = await self._polls.take(stream.owner)
            messages = [(data, _scopes(stream)) for data in stream.held]
            if earlier is not None:
                messages = [*_decode_poll(earlier), *messages]
            await self._polls.put(stream.owner, _encode(messages), self._limits.event_life)
        except BackendAway:
            return False
        return True

    # reading

    async def read(
        self, owner: str, id: str, after: int, scopes: Collection[str]
    ) -> StreamPart | None:
        """Return what the log has of a stream after this number, if its process has gone. Return
        None if something is missing, or if these scopes do not allow the client to read it.

        Args:
            owner: The key of the session.
            id: The id of the stream.
            after: The number of the last message that the client has.
            scopes: The scopes of the client's token.

        Raises:
            BackendAway: The backend is away.
        """
        if not _is_stream_id(id):
            return None
        entries = await self._log.read(_key(owner, id), after)
        found = [_decode(data) for _, data in entries or ()]
        if not found or any(not set(needed).issubset(scopes) for _, needed in found):
            return None
        messages = [data for data, _ in found if data is not None]
        # A call's stream has no more messages: its process has gone. The client resumes it, and is
        # told so if the stream was not finished.
        return after + len(messages), messages, not id.startswith(STANDALONE)

    async def take_poll(self, owner: str, scopes: Collection[str]) -> list[bytes]:
        """Return the messages that a process left for a session's next poll, as far as these scopes
        allow the client to read them.

        Raises:
            BackendAway: The backend is away.
        """
        found = await self._polls.take(owner)
        messages = [] if found is None else _decode_poll(found)
        return [data for data, needed in messages if set(needed).issubset(scopes)]

    async def hand_over(self, part: StreamPart) -> tuple[int, str, bool] | None:
        """Write messages to a log of their own, for a process that asks for them. Return the same
        part with the key of this log instead of the messages, or None if the backend is away."""
        count, messages, done = part
        key = f"handover:{token_hex(16)}"
        numbered = list(enumerate(messages, 1))
        try:
            await self._log.append(key, numbered, UNBOUNDED, HANDOVER_LIFE_SECONDS)
        except BackendAway:
            return None
        return count, key, done

    async def take_handover(self, key: str) -> list[bytes] | None:
        """Return the messages that another process handed over, or None if they have expired.

        Args:
            key: The key that `hand_over` returned to the other process.

        Raises:
            BackendAway: The backend is away.
        """
        found = await self._log.read(key, 0)
        await self._log.delete(key)
        return None if found is None else [data for _, data in found]


def _key(owner: str, id: str) -> str:
    return f"{owner}:{id}"


def _scopes(stream: EventStream) -> list[str]:
    """Return the scopes that a token needs to read a stream."""
    return [] if stream.principal is None else list(stream.principal.scopes)


def _last_number(stream: EventStream) -> int:
    """Return the number of the last entry of a stream. The end of a call's stream is an entry, too;
    another stream goes on in another process."""
    return stream.count + (stream.done and not stream.id.startswith(STANDALONE))


def _last_safe_number(stream: EventStream) -> int:
    """Return the number of the last entry that was read or is in the log."""
    is_read = stream.sent >= stream.count and (stream.attached or stream.done)
    if is_read or stream.id.startswith(POLL):
        return _last_number(stream)
    return max(stream.sent if stream.attached else 0, stream.dropped, stream.logged)
