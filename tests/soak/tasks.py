"""python -m tests.soak.tasks [--tasks 100000] [--workers 4]

Tasks on a shared backend: they are started at a replica that runs none, run by workers, and
requested until they have completed. The table grows by a row for each tenth: tasks per second, and
the memory of each process. In the end, nothing of the tasks may be left in Redis, and nothing may
have grown. The last line says `flat`, or what is wrong, and so does the exit code.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dovetail import Client
from tests.backend.redis_server import RedisServer, redis_server
from tests.replicas.cluster import Cluster, Member, running

from .gauges import ALLOWED, KIB, WARM

AT_ONCE = 64
LIFE_SECONDS = 20
"""How long a task is kept."""
EMPTY_SECONDS = 120
"""How long to wait until expired tasks are gone from Redis."""
ROUNDS = 10


def resident(pid: int) -> int:
    """The memory of a process in KiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0])


class TaskSoak:
    """Tasks through workers.

    Args:
        redis: The Redis.
        cluster: A replica, and workers.
    """

    def __init__(self, redis: RedisServer, cluster: Cluster) -> None:
        self._redis, self._cluster = redis, cluster
        self.readings: list[dict[str, int]] = []
        self.rates: list[float] = []

    async def run(self, count: int) -> None:
        """Run so many tasks, in rounds, and read the processes after each."""
        url, each = self._cluster.replicas[0].url, count // ROUNDS
        async with Client(url, revision="2026-07-28") as client:
            for _ in range(ROUNDS):
                began, numbers = time.monotonic(), iter(range(each))
                await asyncio.gather(*(self._work(client, numbers) for _ in range(AT_ONCE)))
                self.rates.append(each / (time.monotonic() - began))
                self.readings.append(self._read())
                print(self._row(), flush=True)

    async def _work(self, client: Client, numbers: Iterator[int]) -> None:
        for number in numbers:
            handle = await client.start_tool("quick", {"number": number})
            assert (await handle.result(60)).data == number

    def _read(self) -> dict[str, int]:
        def name(member: Member, index: int) -> str:
            return f"{'worker' if member in self._cluster.workers else 'replica'} {index}"

        members = {name(one, at): one.pid for at, one in enumerate(self._cluster.members)}
        return {name: resident(pid) for name, pid in members.items()} | {
            "Redis": self._redis.run("INFO", "memory")["used_memory"] // KIB
        }

    def _row(self) -> str:
        cells = "".join(f"{kib:>10,}" for kib in self.readings[-1].values())
        return f"{len(self.rates):>3}{self.rates[-1]:>8.0f}/s{cells}"

    def heading(self) -> str:
        return f"{'':3}{'tasks':>8}  " + "".join(f"{name:>10}" for name in self._read())

    def grown(self) -> list[str]:
        """What has grown after the warm-up. Redis holds the tasks of the last seconds, so it is
        not compared here."""
        settled = self.readings[int(len(self.readings) * WARM) :]
        found = []
        for name in settled[0]:
            start, end = settled[0][name], settled[-1][name]
            if name != "Redis" and end - start > 2 * ALLOWED["memory"]:
                found.append(f"{name}: memory from {start:,} to {end:,} KiB")
        return found

    def leave(self) -> list[str]:
        """End all processes, after the tasks have expired. Returns what is left in Redis."""
        self._wait_until(lambda: not self._tasks_left())
        for member in self._cluster.members:
            member.terminate()
        self._wait_until(lambda: not self._cluster.redis_keys())
        return self._cluster.redis_keys()

    def _tasks_left(self) -> bool:
        return any(key.startswith("tasks:task:") for key in self._cluster.redis_keys())

    @staticmethod
    def _wait_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + EMPTY_SECONDS
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.2)


@contextmanager
def started(workers: int) -> Iterator[TaskSoak]:
    limits = {
        "tasks": 1_000_000,
        "tasks_each": 1_000_000,
        "task_life": LIFE_SECONDS,
        "task_poll": 0.05,
        "task_lease": 10,
    }
    with tempfile.TemporaryDirectory() as folder, redis_server(Path(folder) / "redis") as redis:
        with running(redis, Path(folder), 1, workers, replica_slots=0, **limits) as cluster:
            yield TaskSoak(redis, cluster)


def soak(count: int, workers: int) -> tuple[str, float]:
    """Run it. Returns the verdict, and the tasks per second."""
    with started(workers) as it:
        print(it.heading())
        asyncio.run(it.run(count))
        wrong = it.grown()
        if left := it.leave():
            wrong.append(f"{len(left)} keys are left in Redis: {', '.join(left[:5])}")
        rate = len(it.rates) / sum(1 / one for one in it.rates)
        print(f"{rate:.0f} tasks per second")
    return "; ".join(wrong) or "flat", rate


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.tasks", description="Tasks through workers on one Redis."
    )
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=4)
    given = parser.parse_args()
    verdict, _ = soak(given.tasks, given.workers)
    print(verdict)
    sys.exit(verdict != "flat")


if __name__ == "__main__":
    main()
