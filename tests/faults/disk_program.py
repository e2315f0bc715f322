"""A server whose disk may be full: `python -m tests.faults.disk_program PORT`, which keeps what it
keeps in folder $DISK.

`fill(True)` takes its room away: from then on no file of this process may grow beyond what the
largest has now.
"""

import os
import resource
import sys
from pathlib import Path

from dovetail import Server
from dovetail.auth import FileStore
from dovetail.server.audit import AuditRecord, audit

DISK = Path(os.environ["DISK"])
LOG = (DISK / "audit.log").open("ab", buffering=0)


def note(record: AuditRecord) -> None:
    LOG.write(f"{record.target} {'.' * 2000}\n".encode())


server = Server("disk", tasks=str(DISK / "tasks.db"), middleware=[audit(note)])
store = FileStore(DISK / "logins")


@server.tool(task="required")
async def write(text: str, times: int) -> str:
    """A long answer, which is kept."""
    return text * times


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def fill(full: bool) -> int:
    """Take the room away, or give it back; says how much each file has."""
    largest = max(path.stat().st_size for path in DISK.iterdir() if path.is_file())
    most = largest if full else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    return most


@server.tool
async def log_in(user: str, token: str, times: int) -> None:
    await store.save(user, (token * times).encode())


@server.tool
async def logged_in(user: str) -> str:
    found = await store.load(user)
    return "" if found is None else found[:8].decode()


@server.tool
async def files() -> list[str]:
    return sorted(path.name for path in DISK.iterdir())


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]))
