"""The same server on FastMCP, with Docket: its Redis is in FASTMCP_DOCKET_URL."""

import asyncio
import os
import sys
from pathlib import Path

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

server = FastMCP("bench")
server.add_extension(TasksExtension())


def note_run(file: Path) -> None:
    with file.open("a", encoding="utf-8") as runs:
        runs.write(f"{os.getpid()}\n")


async def work(number: int) -> int:
    """Return a number."""
    return number


async def hold(file: str) -> str:
    """Write down who runs this, and run for a long time."""
    note_run(Path(file))
    await asyncio.sleep(3600)
    return "done"


for function in (work, hold):
    server.tool(function, task=True)

if __name__ == "__main__":
    server.run(
        transport="http",
        port=int(sys.argv[1]),
        show_banner=False,
        log_level="ERROR",
        json_response=True,
    )
