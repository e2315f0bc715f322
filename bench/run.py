"""What `make bench` runs: Dovetail, the official SDK and the floor, side by side in one run. Only the ratios mean anything.

The official SDK is installed into an environment of its own (`.venv-bench`). The best of several rounds is shown, since
everything that disturbs a measurement makes it worse.
"""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import over_http  # noqa: E402
from stdio import measure  # noqa: E402

PEERS = HERE.parent / ".venv-bench"
ROUNDS = 3
IMPORT = {
    "dovetail": "from dovetail import Server",
    "official SDK": "from mcp.server import MCPServer",
}


def peer_python() -> str | None:
    python = PEERS / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
        installed = subprocess.run([str(python), "-m", "pip", "install", "--quiet", "mcp>=2"], check=False)
        if installed.returncode:
            return None
    return str(python)


def import_time(python: str, statement: str) -> float:
    """Milliseconds on top of an interpreter that imports nothing."""

    def best(code: str) -> float:
        times = []
        for _ in range(7):
            begun = time.perf_counter()
            subprocess.run([python, "-c", code], check=True)
            times.append(time.perf_counter() - begun)
        return min(times)

    return 1000 * (best(statement) - best("pass"))


async def in_memory(count: int) -> float:
    from dovetail import Server
    from dovetail.testing import pair

    server = Server("bench")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with pair(server) as client:
        begun = time.perf_counter()
        for n in range(count):
            await client.call_tool("add", {"a": n, "b": 2})
        return count / (time.perf_counter() - begun)


def best_of(command: list[str], count: int) -> dict[str, float]:
    rounds = [measure(command, count) for _ in range(ROUNDS)]
    better = {"ready_s": min, "memory_mib": min, "in_turn_per_s": max, "at_once_per_s": max}
    return {name: choose(figures[name] for figures in rounds) for name, choose in better.items()}


def http_figures(commands: dict[str, list[str]], stateless: bool) -> dict[str, dict[str, float]]:
    """The best round of each server at 1 and at 32 connections, taken in turn so that all have the same weather."""
    found: dict[str, dict[str, float]] = {name: {} for name in commands}
    era = "stateless" if stateless else "handshake"
    for connections in (1, 32):
        for _ in range(ROUNDS):
            for name, command in commands.items():
                figures = over_http.measure([*command, era] if name == "official SDK" else command, connections, stateless)
                for figure, better in (("per_s", max), ("p50_ms", min), ("p99_ms", min)):
                    key = f"http_{era}_{connections}_{figure}"
                    found[name][key] = better(found[name].get(key, figures[figure]), figures[figure])
    return found


def main() -> None:
    python = sys.executable
    subprocess.run([python, "-m", "compileall", "-q", str(HERE.parent / "dovetail")], check=True)  # as an installation does
    peer = peer_python()
    servers = {"dovetail": ([python, str(HERE / "servers/add.py")], 10_000)}
    if peer:
        servers["official SDK"] = ([peer, str(HERE / "servers/sdk.py")], 1_000)
    servers["floor"] = ([python, str(HERE / "servers/floor.py")], 10_000)
    figures = {name: best_of(*server) for name, server in servers.items()}
    figures["dovetail"]["import_ms"] = import_time(python, IMPORT["dovetail"])
    if peer:
        figures["official SDK"]["import_ms"] = import_time(peer, IMPORT["official SDK"])
    figures["dovetail"]["in_memory_per_s"] = max(asyncio.run(in_memory(5_000)) for _ in range(ROUNDS))
    over = {name: command for name, (command, _) in servers.items()}
    for stateless in (True, False):
        for name, row in http_figures(over, stateless).items():
            figures[name] |= row
    rows = ["import_ms", "ready_s", "in_turn_per_s", "at_once_per_s", "in_memory_per_s", "memory_mib"]
    rows += [row for row in figures["dovetail"] if row.startswith("http_")]
    print(f"{'':26}" + "".join(f"{name:>16}" for name in figures))
    for row in rows:
        cells = (f"{figures[name][row]:>16,.2f}" if row in figures[name] else f"{'-':>16}" for name in figures)
        print(f"{row:26}" + "".join(cells))


if __name__ == "__main__":
    main()
