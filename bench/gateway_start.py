"""How long a gateway with many servers takes to start, and the memory that it uses.

    python -m bench.gateway_start [--rounds N]

Each case runs `dovetail gateway` over HTTP in front of servers that it starts itself, first with an
empty state folder, and then again with what it remembers. The fastest of all rounds counts; the
memory is that of the gateway's process alone.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from dovetail import Client

from .implementations import OURS, Process, free_port

SILENT = [sys.executable, "-c", "import time; time.sleep(600)"]
"""A server that never answers."""
FULL_SECONDS = 60.0


class Case(NamedTuple):
    """A number of servers with a number of tools each."""

    title: str
    servers: int
    tools: int
    silent: int = 0
    """The number of servers that never answer."""

    def write_config(self, folder: Path) -> Path:
        """Write the configuration file, and return its path."""
        command = OURS.command("stdio", 0, self.tools)
        commands = {f"s{number}": command for number in range(self.servers)}
        commands |= {f"silent{number}": SILENT for number in range(self.silent)}
        entries = {
            name: {"command": program, "args": arguments}
            for name, (program, *arguments) in commands.items()
        }
        path = folder / "mcp.json"
        path.write_text(json.dumps({"mcpServers": entries}))
        return path


CASES = [
    Case("1 server, 25 tools", 1, 25),
    Case("10 servers, 250 tools", 10, 25),
    Case("10 servers, 250 tools, and one that never answers", 10, 25, silent=1),
    Case("20 servers, 500 tools", 20, 25),
    Case("20 servers, 500 tools, and one that never answers", 20, 25, silent=1),
]


class Start(NamedTuple):
    """One start of a gateway. Times are in seconds since its process was started."""

    connected: float
    """When it had answered its first caller."""
    listed: float
    """When it had answered the first request for its tools."""
    tools: int
    """The number of tools in that answer."""
    complete: float
    """When it listed all tools."""
    memory: float
    """The memory of its process after that, in MiB."""


def start_gateway(case: Case, folder: Path) -> Start:
    """Start a gateway with this state folder, list its tools until all are there, and stop it."""
    port = free_port()
    command = [sys.executable, "-m", "dovetail", "gateway", str(case.write_config(folder))]
    env = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    began = time.monotonic()
    with subprocess.Popen(
        [*command, "--http", "--port", str(port)], env=env, stderr=subprocess.DEVNULL
    ) as popen:
        try:
            return asyncio.run(_observe(case, port, Process(popen), began))
        finally:
            popen.terminate()


async def _observe(case: Case, port: int, process: Process, began: float) -> Start:
    wanted = case.servers * case.tools
    async with asyncio.timeout(FULL_SECONDS):
        await _wait_until_open(port, process)
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            connected = time.monotonic() - began
            tools = first = len(await client.list_tools(fresh=True))
            listed = time.monotonic() - began
            while tools < wanted:
                await asyncio.sleep(0.02)
                tools = len(await client.list_tools(fresh=True))
            complete = time.monotonic() - began
            memory = process.memory() / (1 << 20)
    return Start(connected, listed, first, complete, memory)


async def _wait_until_open(port: int, process: Process) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if process.popen.poll() is not None:
                raise SystemExit("the gateway ended") from None
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return


def measure(case: Case) -> tuple[Start, Start]:
    """Return a start with an empty state folder, and one with what the gateway remembers."""
    with tempfile.TemporaryDirectory() as folder:
        return start_gateway(case, Path(folder)), start_gateway(case, Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway_start")
    parser.add_argument("--rounds", type=int, default=3, help="starts of each case (default: 3)")
    rounds = parser.parse_args().rounds
    found: dict[str, list[tuple[Start, Start]]] = {}
    for _ in range(rounds):
        for case in CASES:
            found.setdefault(case.title, []).append(measure(case))
    heads = ("connected", "first list", "tools in it", "all tools", "memory")
    print(" " * 72 + "".join(f"{head:>13}" for head in heads))
    for title, starts in found.items():
        for index, state in enumerate(("empty state folder", "known")):
            best = min((one[index] for one in starts), key=lambda start: start.complete)
            print(f"{f'{title}, {state}':72}" + "".join(f"{one:>13}" for one in _cells(best)))


def _cells(start: Start) -> list[Any]:
    times = [f"{seconds:.2f} s" for seconds in (start.connected, start.listed, start.complete)]
    return [times[0], times[1], start.tools, times[2], f"{start.memory:.0f} MiB"]


if __name__ == "__main__":
    main()
