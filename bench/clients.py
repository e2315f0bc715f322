"""A client that is measured: `python clients.py SCRIPT TARGET…`, a process of its own that reads
orders on its stdin.

SCRIPT is the server script of the same implementation. TARGET is `memory` (a server in the same
process), a URL, or a command. Each line of input is an order and a number. Each line of output is a
figure: the rate, and the CPU time (µs) of one call. This program imports no other part of the
benchmark, because the peers' interpreter also runs it.
"""

import asyncio
import json
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SERVERS = Path(__file__).parent / "servers"
WINDOW = 64


def in_memory(script: str) -> dict[str, Any]:
    sys.argv = [script, "memory", "0", "1"]
    return runpy.run_path(str(SERVERS / script))


def ours(target: list[str]) -> Any:
    from dovetail import Client

    if target == ["memory"]:
        return Client(in_memory("ours.py")["server"])
    return Client(target if len(target) > 1 else target[0], timeout=120)


def sdk(target: list[str]) -> Any:
    from mcp import Client, StdioServerParameters

    if target == ["memory"]:
        return Client(in_memory("sdk.py")["server"])
    return Client(
        StdioServerParameters(command=target[0], args=target[1:]) if len(target) > 1 else target[0]
    )


def fast(target: list[str]) -> Any:
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    if target == ["memory"]:
        return Client(in_memory("fast.py")["server"])
    return Client(StdioTransport(target[0], target[1:]) if len(target) > 1 else target[0])


class Floor:
    """Encodes, decodes, adds, encodes and decodes, without any protocol."""

    def __init__(self, target: list[str]) -> None:
        self.names = in_memory("floor.py")

    async def __aenter__(self) -> "Floor":
        return self

    async def __aexit__(self, *raised: object) -> None:
        pass

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        request = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": name, "arguments": arguments},
        }
        (answer,) = self.names["answer"](self.names["encode"](request))
        return self.names["decode"](answer)


async def in_turn(client: Any, seconds: float) -> int:
    """Call repeatedly, each time after the previous call has been answered."""
    count, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        await client.call_tool("add", {"a": count, "b": 2})
        count += 1
    return count


async def at_once(client: Any, seconds: float) -> int:
    """Call repeatedly from 64 tasks."""
    return sum(await asyncio.gather(*(in_turn(client, seconds) for _ in range(WINDOW))))


async def big(client: Any, size: float) -> int:
    """Call once, for an answer of this many bytes."""
    answer = await client.call_tool("big", {"size": int(size)})
    assert len(answer.content[0].text) == size
    return 1


CLIENTS: dict[str, Callable[[list[str]], Any]] = {
    "ours.py": ours,
    "sdk.py": sdk,
    "fast.py": fast,
    "floor.py": Floor,
}
ORDERS = {"in_turn": in_turn, "at_once": at_once, "big": big}


async def main(script: str, *target: str) -> None:
    async with CLIENTS[script](list(target)) as client:
        await in_turn(client, 0.2)
        while order := await asyncio.to_thread(sys.stdin.readline):
            name, number = order.split()
            cpu, begun = time.process_time(), time.perf_counter()
            count = await ORDERS[name](client, float(number))
            took = time.perf_counter() - begun
            print(json.dumps([count / took, (time.process_time() - cpu) / count * 1e6]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
