"""A proxy that does to a connection what bad networks do: it corrupts, delays, duplicates and cuts,
and counts what it did.

It knows nothing of what passes through; each chunk, in either direction, meets one fault or none.
Which one, and where in the chunk, comes from a seeded generator for each connection and direction.
(When bytes arrive is up to the machine, so a seed makes a run alike, not equal.) `Proxy.faults`
says how often each fault is to happen; without any it just passes on.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Literal

Fault = Literal["corrupt", "delay", "duplicate", "cut"]
Way = Literal["up", "down"]
"""Up is from the client to the server."""
CHUNK = 16 * 1024
PAUSE = 0.05
"""Seconds of the longest delay of one chunk."""


class Proxy:
    """One door to one server. `injected` counts faults by their kind and way."""

    def __init__(self, port: int, seed: int, faults: Mapping[tuple[Way, Fault], float]) -> None:
        self.faults = dict(faults)
        """How likely each fault is to meet a chunk."""
        self.injected: Counter[tuple[Way, Fault]] = Counter()
        self.connections = 0
        self._target, self._seed = port, seed
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it or it is cut."""
        self.connections += 1
        seed = f"{self._seed} {self.connections}"
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        ends = [writer]
        ways: list[asyncio.Task[None]] = []
        try:
            upstream, forward = await asyncio.open_connection("127.0.0.1", self._target)
            ends.append(forward)
            ways.append(
                asyncio.create_task(self._pass(reader, forward, "up", Random(f"{seed} up")))
            )
            ways.append(
                asyncio.create_task(self._pass(upstream, writer, "down", Random(f"{seed} down")))
            )
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for way in ways:
                way.cancel()
            for end in ends:
                end.transport.abort()
            self._open.discard(task)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way, rng: Random
    ) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                fault = self._fault(way, rng)
                if fault == "corrupt":
                    at = rng.randrange(len(chunk))
                    chunk = (
                        chunk[:at] + bytes((chunk[at] ^ 1 << rng.randrange(8),)) + chunk[at + 1 :]
                    )
                elif fault == "duplicate":
                    chunk += chunk
                elif fault == "delay":
                    await asyncio.sleep(rng.random() * PAUSE)
                elif fault == "cut":
                    writer.write(chunk[: rng.randrange(len(chunk))])
                    return
                writer.write(chunk)
                await writer.drain()

    def _fault(self, way: Way, rng: Random) -> Fault | None:
        for (where, fault), share in self.faults.items():
            if where == way and rng.random() < share:
                self.injected[where, fault] += 1
                return fault
        return None

    async def close(self) -> None:
        """Cut all that is open."""
        for task in list(self._open):
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)


@asynccontextmanager
async def proxied(
    port: int, seed: int, faults: Mapping[tuple[Way, Fault], float]
) -> AsyncIterator[tuple[Proxy, int]]:
    """A proxy in front of this port, for as long as the block lasts, and its own port."""
    proxy = Proxy(port, seed, faults)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield proxy, listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        await proxy.close()
