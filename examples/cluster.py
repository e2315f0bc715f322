"""A cluster on one machine: two replicas of a server and a worker, which share one Redis.

    redis-server --appendonly yes &
    python examples/cluster.py

The replicas answer calls, and the worker runs tasks. A task that was started at one replica goes on
after that replica has stopped, and the other one returns its result. DOVETAIL_BACKEND names another
Redis. On several machines, start the same commands on each of them; examples/scale-out has the
files for Docker Compose and Kubernetes.
"""

import asyncio
import os
import secrets
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from dovetail import Client

SERVER = Path(__file__).parent / "scale-out" / "server.py"
VARIABLES = {
    "DOVETAIL_BACKEND": os.environ.get("DOVETAIL_BACKEND", "redis://localhost:6379"),
    "DOVETAIL_KEYS": secrets.token_urlsafe(32),  # everything in Redis is encrypted
}
REPLICA = ["run", str(SERVER), "--http", "--port", "0", "--tasks", "0"]
WORKER = ["worker", str(SERVER)]


@asynccontextmanager
async def start(words: list[str]) -> AsyncIterator[tuple[Process, str]]:
    """Start a `dovetail` command. Yield the process and the line that says that it is ready, and
    stop it afterwards."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dovetail", *words),
        env={**os.environ, **VARIABLES},
        stdin=DEVNULL,
        stderr=PIPE,
    )
    assert process.stderr is not None
    try:
        line = ""
        while not line.startswith(("Serving ", "Running ")):  # warnings may come first
            previous, line = line, (await process.stderr.readline()).decode()
            if not line:
                raise SystemExit(f"A process did not start: {previous.strip()}")
        yield process, line.strip()
    finally:
        await stop(process)


async def stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.communicate()


async def main() -> None:
    async with AsyncExitStack() as stack:
        print((await stack.enter_async_context(start(WORKER)))[1])
        replicas = [await stack.enter_async_context(start(REPLICA)) for _ in range(2)]
        urls = [line.split()[3] for _, line in replicas]
        for url in urls:
            async with Client(url) as client:
                print(f"{url} is {(await client.call_tool('replica')).text}")

        async with Client(urls[0]) as client:
            task = await client.start_tool("restock", {"item": "tea", "boxes": 3})
        await stop(replicas[0][0])
        print(f"{urls[0]} started a task, and has stopped")
        async with Client(urls[1]) as client:
            print(f"{urls[1]} says: {(await client.task(task.id).result()).text}")


if __name__ == "__main__":
    asyncio.run(main())
