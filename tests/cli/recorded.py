"""A server for recordings, a session with it, and the commands that record it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection

from dovetail import Client
from dovetail.protocol.client_features import ElicitResult
from tests.cli.conftest import ROOT, SECONDS, command, environment
from tests.ports import free_port

SHOP = """
import asyncio, sys, time, uuid
from dovetail import Context, Server
server = Server("shop", version="1", page_size=2)

@server.tool
def stock(item: str) -> dict[str, str]:
    return {"item": item, "price": "5", "at": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "order": str(uuid.uuid4())}

@server.tool
async def pay(amount: int, ctx: Context) -> str:
    answer = await ctx.elicit("Pay?", bool)
    return f"{amount}: {answer.action}"

@server.tool
async def slow(ctx: Context) -> str:
    for step in range(1, 31):  # updates that follow each other quickly are joined
        await ctx.progress(step, 30)
        await asyncio.sleep(0.002)
    return "done"

@server.resource("shop://a")
def a() -> str: return "A"

if __name__ == "__main__":
    server.run()
"""  # noqa: E501


def write_shop(folder: Path, **changes: str) -> str:
    """Write the server, with some words changed."""
    source = SHOP
    for word, other in changes.items():
        assert word in source
        source = source.replace(word, other)
    path = folder / "shop.py"
    path.write_text(source)
    return str(path)


async def use_shop(client: Client, asks: bool = True) -> None:
    """Do with the server what a host would do."""
    assert {tool.name for tool in await client.list_tools()} == {"stock", "pay", "slow"}
    await client.call_tool("stock", {"item": "milk"})
    if asks:
        paid = await client.call_tool("pay", {"amount": 3})
        assert paid.text == "3: accept"
    await client.call_tool("slow", on_progress=lambda update: None)
    await client.read_resource("shop://a")


async def accept(_: object) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": True})


async def record_shop(target: str, path: Path, revision: str) -> None:
    """Record a session in a revision."""
    words = [sys.executable, "-m", "dovetail", "record", target, "-o", str(path)]
    asks = revision not in ("2024-11-05", "2025-03-26")
    async with Client(
        words,
        revision=revision,
        env={"PYTHONPATH": str(ROOT)},
        on_elicit=accept if asks else None,
    ) as client:
        assert client.revision == revision
        await use_shop(client, asks)


@contextmanager
def served_over_http(path: str) -> Iterator[str]:
    """Serve a script over HTTP, and give its URL."""
    port = free_port()
    with subprocess.Popen(
        command("run", path, "--http", "--port", str(port)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    ) as process:
        try:
            wait_for_port(port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
