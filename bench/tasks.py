"""How fast tasks are begun, looked at and finished, and what they take: in memory, and in a file.

    python bench/tasks.py [--tasks 10000] [--at-once 100]

One process, a client and a server in memory, so that what is measured is the tasks and not a
transport. Each task is begun, looked at once while it works, let go, and looked at when it is over.
Rates are per second of processor time, of client and server together. Memory is what the process
has grown by, with all tasks still kept; the file is the database after its last checkpoint. Then
all of them are forgotten, and as many done again: neither memory nor file may grow by that
("again").
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dovetail import Client, Server
from dovetail.limits import Limits

MODERN, CORE = "2026-07-28", "2025-11-25"


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def run(count: int, at_once: int, revision: str, path: str | None) -> dict[str, Any]:
    """The figures of one run."""
    server, go = (
        Server("bench", tasks=path, limits=Limits(tasks=count, tasks_each=count)),
        asyncio.Event(),
    )

    @server.tool(task="optional")
    async def work(number: int) -> str:
        """Wait until all were begun."""
        await go.wait()
        return f"task {number} is done"

    figures: dict[str, Any] = {}
    before = resident()
    slots = asyncio.Semaphore(at_once)

    async def each(name: str, make: Any) -> list[Any]:
        async def one(item: Any) -> Any:
            async with slots:
                return await make(item)

        begun = time.process_time()
        results = await asyncio.gather(*(one(item) for item in items))
        figures[name] = round(count / (time.process_time() - begun))
        return results

    async with Client(server, revision=revision) as client:

        async def begin(number: int) -> str:
            return (await client.start_tool("work", {"number": number})).id

        async def look(id: str) -> str:
            return str((await client.request("tasks/get", {"taskId": id})).status)

        assert server.tasks is not None
        manager = server.tasks.manager
        for again in ("", " again"):
            items: Any = range(count)
            items = await each("begun/s", begin)
            assert set(await each("looked at/s", look)) == {"working"}
            began = time.process_time()
            go.set()
            while manager.running:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            figures["finished/s"] = round(count / (time.process_time() - began))
            assert set(await each("results/s", look)) == {"completed"}
            figures[f"MiB{again}"] = round((resident() - before) / 2**20, 1)
            if path is not None:
                await manager.store.close()
                figures[f"file MiB{again}"] = round(os.stat(path).st_size / 2**20, 1)
            for id in items:
                await manager.store.remove(id)
            go.clear()
    return figures


def main() -> None:
    """Both forms, both stores; each in a process of its own, so that the memory is its own."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--tasks", type=int, default=10_000)
    options.add_argument("--at-once", type=int, default=100)
    options.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        revision, store = given.one
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/tasks.db" if store == "file" else None
            print(asyncio.run(run(given.tasks, given.at_once, revision, path)))
        return
    import subprocess

    for revision in (MODERN, CORE):
        for store in ("memory", "file"):
            command = [
                sys.executable,
                __file__,
                "--tasks",
                str(given.tasks),
                "--at-once",
                str(given.at_once),
            ]
            done = subprocess.run(
                [*command, "--one", revision, store], capture_output=True, text=True, check=True
            )
            print(f"{revision} {store:6} {done.stdout.strip()}")


if __name__ == "__main__":
    main()
