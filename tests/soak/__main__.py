"""python -m tests.soak [--minutes 10] [--seed N]

Rounds of traffic, each followed by a rest in which the processes are read: the HTTP server, a stdio
server that stays, and this one, with all clients and a server in memory. The table grows by a row
for each round; the last line says `flat`, or what grew, or what failed, and so does the exit code.
"""

import argparse
import asyncio
import contextlib
import logging
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator

from dovetail import Client

from .gauges import ALLOWED, Reading, grown, here
from .server import build
from .traffic import ANSWERS, COMMAND, Traffic, transports

ROUNDS, ENOUGH, REST = 24, 6, 4.0
AT_ONCE = 2
"""Conversations at once over each transport."""


@contextlib.asynccontextmanager
async def web() -> AsyncIterator[int]:
    """The server over HTTP, in a process of its own: its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = await asyncio.create_subprocess_exec(
        *COMMAND, str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(0.05)
        writer.close()
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def read(port: int, lasting: Client) -> dict[str, Reading]:
    """All processes, at rest."""
    async with Client(f"http://127.0.0.1:{port}/mcp", revision="stateless") as client:
        found = {"HTTP server": (await client.call_tool("gauges")).data}
    found["stdio server"] = (await lasting.call_tool("gauges")).data
    await asyncio.sleep(0.2)
    return found | {"clients": here()}


def row(since: float, traffic: Traffic, found: dict[str, Reading]) -> str:
    """A row of the table."""
    cells = "".join(f"{found[process][gauge]:>9,}" for process in found for gauge in ALLOWED)
    return (
        f"{time.monotonic() - since:6.0f} "
        f"s{traffic.done.total():>8,}{traffic.failed.total():>7,}{cells}"
    )


def heading(processes: list[str]) -> str:
    """What stands above them."""
    width = 9 * len(ALLOWED)
    above = f"{'':23}" + "".join(f"{process:>{width}}" for process in processes)
    return f"{above}\n{'time':>8}{'done':>8}{'failed':>7}" + "".join(
        f"{gauge:>9}" for _ in processes for gauge in ALLOWED
    )


async def soak(minutes: float, seed: int) -> str:
    """Run it; the verdict."""
    begun, traffic, server = time.monotonic(), Traffic(random.Random(seed)), build()
    readings: list[dict[str, Reading]] = []
    async with web() as port, Client(COMMAND, **ANSWERS) as lasting:
        workers = [
            asyncio.ensure_future(traffic.conversations(name, opened))
            for name, opened in transports(server, port, lasting).items()
            for _ in range(AT_ONCE)
        ]
        workers.append(asyncio.ensure_future(traffic.disturbances(port)))
        try:
            while time.monotonic() - begun < minutes * 60:
                traffic.flow.set()
                await asyncio.sleep(max(minutes * 60 / ROUNDS - REST, 1))
                await traffic.rest(REST)
                readings.append(await read(port, lasting))
                if len(readings) == 1:
                    print(heading(list(readings[0])))
                print(row(begun, traffic, readings[-1]), flush=True)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
    return verdict(traffic, readings)


def verdict(traffic: Traffic, readings: list[dict[str, Reading]]) -> str:
    """`flat`, or what is wrong."""
    print("\n" + ", ".join(f"{name}: {count:,}" for name, count in traffic.done.items()))
    wrong = [f"{count} × {name}" for name, count in traffic.failed.items()]
    for process in readings[0]:
        wrong += [f"{process}: {one}" for one in grown([reading[process] for reading in readings])]
    if len(readings) < ENOUGH:
        wrong.append("too short to tell what grows")
    return "; ".join(wrong) or "flat"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description="Mixed traffic, and whether anything grows."
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.disable()  # what goes wrong on purpose is not worth a line
    said = asyncio.run(soak(given.minutes, given.seed))
    print(said)
    sys.exit(said != "flat")


if __name__ == "__main__":
    main()
