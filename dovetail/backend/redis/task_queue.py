"""The leases of tasks: two Redis streams with a consumer group. See `task_scripts.py`.

An entry that a process has read stays in the list of pending entries until the task is done. That
list is the only lease: Redis measures how long an entry has been idle, its owner resets the time,
and after the lease another process takes the entry over. The fencing token, a number in the row of
the task, grows with each takeover, so that the former owner can no longer write.

The streams hold digests of task ids. An entry may be delivered twice, or not belong to a task any
more: then it is removed.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from math import ceil
from secrets import token_hex
from typing import Any

from msgspec import Struct

from ...aio import TaskSet
from ...errors import BackendAway
from ...extensions.tasks.store import Lease
from .client import RedisClient
from .scripts import Argument
from .task_scripts import (
    CLAIM_TASK,
    CLOSE_QUEUE,
    COUNT_WAITING_TASKS,
    GIVE_BACK_TASK,
    GROUP,
    OPEN_QUEUE,
    RELEASE_TASK,
    RENEW_TASKS,
    TAKE_OVER_TASKS,
    TAKE_READ_TASKS,
)

BLOCK_SECONDS = 5.0
"""How long `read` waits for tasks."""
START = "0-0"
"""Where a search through a stream begins."""


def task_key(id: str) -> str:
    """Return what names a task in Redis, from which nobody can guess its id."""
    return digest("task", id)


def digest(*parts: str) -> str:
    """Return a digest of some words, for keys. It is not secret if the words can be guessed."""
    return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


class TakenTask(Struct):
    """A task that this process has just taken."""

    key: str
    """The digest of its id."""
    token: int
    """The new fencing token."""
    record: bytes
    """The sealed record."""
    refusals: int
    """How often the task was refused since it last made progress, if all processes have refused
    it; otherwise 0."""
    until: float
    """When the lease ends, by `time.monotonic()`."""
    life: float
    """The number of seconds until the task expires, by the clock of Redis."""


class RedisTaskQueue:
    """The leases of one process.

    Args:
        client: The connections.
        base: What all keys of the tasks begin with.
    """

    def __init__(self, client: RedisClient, base: str) -> None:
        self._client, self.base = client, base
        self.lease_seconds = 10.0
        """How long a lease lasts."""
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Become another process, which has no leases yet."""
        self.consumer = token_hex(8)
        """The name of this process in the consumer groups."""
        self._cursors = [START, START]
        """Where the search for ended leases continues in the two streams."""
        self._is_open = False
        self._returning = TaskSet()
        self._untaken: list[tuple[float, list[Argument]]] = []
        """Entries that this process has read, but perhaps not taken, because Redis did not reply,
        and when nobody else could have them yet (`time.monotonic()`)."""

    async def pull(self, room: int) -> list[TakenTask]:
        """Take tasks that wait. If there are none, wait for some seconds."""
        if room < 1:
            return []
        self._is_open = True
        while self._untaken:
            until, entries = self._untaken.pop()
            if time.monotonic() < until:
                return await self._take_or_release(entries, until)
        reading = asyncio.ensure_future(self._read(room))
        try:
            entries = await asyncio.shield(reading)
        except asyncio.CancelledError:
            # Redis may still deliver tasks, which others would not take over for a while.
            self._returning.start(self._return(reading))
            raise
        return await self._take_or_release(entries, self.lease_end())

    async def _take_or_release(self, entries: list[Argument], until: float) -> list[TakenTask]:
        """Take tasks that were read. If Redis does not reply, they are taken by the next `pull`. If
        this process stops, they wait in the queue again."""
        taking = asyncio.ensure_future(self._take_read(entries))
        try:
            return await asyncio.shield(taking)
        except BackendAway:
            self._untaken.append((until, entries))
            raise
        except asyncio.CancelledError:
            # Otherwise they would count as started, and fail if they cannot be resumed.
            with suppress(BackendAway):
                await self.release_all(await taking)
            raise

    async def take_over(self, room: int) -> list[TakenTask]:
        """Take tasks whose leases have ended."""
        self._is_open = True
        started = time.monotonic()
        idle = ceil(self.lease_seconds * 1000)
        taken, cursors = await self._client.run_script(
            TAKE_OVER_TASKS, [self.base], self.consumer, idle, room, *self._cursors
        )
        self._cursors = [cursor.decode() for cursor in cursors]
        return self._taken(taken, started)

    async def claim(self, key: str) -> list[TakenTask]:
        """Take a task that is released or waits."""
        started = time.monotonic()
        taken = await self._client.run_script(CLAIM_TASK, [self.base], key, self.consumer)
        return self._taken(taken, started)

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Extend leases to their full length, and return those that were not lost."""
        if not leases:
            return []
        until = self.lease_end()
        arguments: list[Argument] = []
        for lease in leases:
            arguments += task_key(lease.id), lease.token
        renewed = await self._client.run_script(RENEW_TASKS, [self.base], self.consumer, *arguments)
        return [
            Lease(lease.id, lease.token, until)
            for lease, is_renewed in zip(leases, renewed, strict=True)
            if is_renewed
        ]

    async def give_back(
        self, key: str, token: int, *, refused: bool = False, unstarted: bool = False
    ) -> None:
        """End a lease, so that another process takes over the task at once.

        Args:
            key: The digest of the id.
            token: The fencing token.
            refused: Whether this process cannot run the task.
            unstarted: Whether the task has not been started. Then it waits in the queue again when
                a process next looks for tasks to take over, so that this process does not read it
                again immediately.
        """
        await self._client.run_script(
            *(GIVE_BACK_TASK, [self.base], key, token, self.consumer),
            *(int(refused), int(unstarted)),
        )

    async def release(self, key: str, token: int, *, queue: bool = False) -> None:
        """End a lease, so that nobody runs the task for now, or that it waits in the queue."""
        await self._client.run_script(
            RELEASE_TASK, [self.base], key, token, int(queue), durable=True
        )

    async def release_all(self, tasks: Sequence[TakenTask]) -> None:
        """Put tasks that were taken, but not started, back into the queue. Without Redis, their
        leases end."""
        with suppress(BackendAway):
            for task in tasks:
                await self.release(task.key, task.token, queue=True)

    async def count_waiting(self) -> int:
        """Return how many tasks wait."""
        waiting: int = await self._client.run_script(COUNT_WAITING_TASKS, [self.base])
        return waiting

    async def close(self) -> None:
        """Leave the queue."""
        if self._is_open:
            self._is_open = False
            with suppress(BackendAway):
                await self._client.run_script(CLOSE_QUEUE, [self.base], self.consumer)

    def lease_end(self) -> float:
        """Return when a lease ends that begins now, or later at Redis."""
        return time.monotonic() + self.lease_seconds

    async def _read(self, room: int) -> list[Argument]:
        """Return entries of the queue and their tasks."""
        await self._client.run_script(OPEN_QUEUE, [self.base], self.consumer)
        found = await self._client.run(
            *("XREADGROUP", "GROUP", GROUP, self.consumer, "COUNT", room),
            *("BLOCK", int(BLOCK_SECONDS * 1000), "STREAMS", f"{self.base}queue", ">"),
            block=BLOCK_SECONDS,
        )
        entries: list[Argument] = []
        for _, stream in found or ():
            for entry, fields in stream:
                entries += entry, fields[1]
        return entries

    async def _take_read(self, entries: list[Argument]) -> list[TakenTask]:
        if not entries:
            return []
        started = time.monotonic()
        taken = await self._client.run_script(TAKE_READ_TASKS, [self.base], self.consumer, *entries)
        return self._taken(taken, started)

    async def _return(self, reading: "asyncio.Future[list[Argument]]") -> None:
        with suppress(BackendAway):
            await self.release_all(await self._take_read(await reading))

    def _taken(self, rows: list[Any], started: float) -> list[TakenTask]:
        until = started + self.lease_seconds
        return [
            TakenTask(key.decode(errors="replace"), token, record, refusals, until, life / 1000)
            for key, token, record, refusals, life in rows
        ]
