"""Who takes part, and how they are started.

The peers are installed into an environment of their own, as `pip install` does it. Each server is a
process of its own; what it costs is read from the system.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-bench"
REQUIRED = ["mcp>=2", "fastmcp>=4"]
PAGE, TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


class Party(NamedTuple):
    """One that is measured: its name in the tables, its interpreter, its server's script, how the
    class of that is imported, what is installed for it, and flags for the interpreter."""

    name: str
    python: str
    script: str
    imports: str = "pass"
    distribution: str = ""
    flags: tuple[str, ...] = ()

    def command(self, *arguments: object) -> list[str]:
        """How its server is started."""
        return [
            self.python,
            *self.flags,
            str(HERE / "servers" / self.script),
            *(str(one) for one in arguments if one != ""),
        ]


_PEER = str(PEERS / "bin" / "python")
OURS = Party("Dovetail", sys.executable, "ours.py", "from dovetail import Server", "dovetail")
SDK = Party("official SDK", _PEER, "sdk.py", "from mcp.server import MCPServer", "mcp")
FASTMCP = Party("FastMCP", _PEER, "fast.py", "from fastmcp import FastMCP", "fastmcp")
FLOOR = Party("floor", sys.executable, "floor.py")
ALL = [OURS, SDK, FASTMCP, FLOOR]


def install_peers() -> None:
    """Make the environment of the peers, once."""
    done = PEERS / ".installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
        pip = [_PEER, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *REQUIRED], check=True)
        done.touch()


class Process:
    """A running server, and what it has cost."""

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self.popen = popen

    def cpu(self) -> float | None:
        """Seconds of processor time so far; None where the system does not tell."""
        try:
            fields = (
                Path(f"/proc/{self.popen.pid}/stat")
                .read_text(encoding="ascii")
                .rpartition(")")[2]
                .split()
            )
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / TICK

    def memory(self) -> int:
        """Bytes that are resident."""
        return (
            int(Path(f"/proc/{self.popen.pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE
        )


@contextmanager
def started(command: list[str], stdio: bool = False) -> Iterator[Process]:
    """A process that is stopped at the end, by closing its input or by SIGTERM."""
    pipe = subprocess.PIPE if stdio else subprocess.DEVNULL
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as popen:
        try:
            yield Process(popen)
        finally:
            if popen.stdin:
                popen.stdin.close()
            else:
                popen.terminate()
            try:
                popen.wait(5)
            except subprocess.TimeoutExpired:
                popen.kill()


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_open(process: Process, port: int, name: str) -> None:
    """Wait until a server listens."""
    for _ in range(1200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if process.popen.poll() is not None:
                raise SystemExit(
                    f"the server of {name} ended with {process.popen.returncode}"
                ) from None
            time.sleep(0.05)


@contextmanager
def listening(party: Party, tools: int = 1, more: str = "") -> Iterator[tuple[Process, int]]:
    """Its server on HTTP, once it listens, and the port."""
    port = free_port()
    with started(party.command("http", port, tools, more)) as process:
        wait_until_open(process, port, party.name)
        yield process, port
