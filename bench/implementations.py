"""The implementations that are measured, their environments, and their processes.

The peers are installed into an environment of their own, as `pip install` does it. So is the core
of Dovetail, because an environment for development starts more slowly. There is one of each for
every version of Python. Each server is a process of its own; its costs are read from the system.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent
PYTHON_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PEERS = ROOT / f".venv-bench-{PYTHON_VERSION}"
CORE = ROOT / f".venv-bench-core-{PYTHON_VERSION}"
ENVIRONMENTS = {PEERS: ["mcp>=2", "fastmcp>=4"], CORE: ["--editable", str(ROOT)]}
"""What is installed into each environment."""
PAGE, TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


class Implementation(NamedTuple):
    """An implementation that is measured."""

    name: str
    """Its name in the tables."""
    python: str
    """The interpreter that runs its programs."""
    script: str
    """The script of its server, in `servers/`."""
    imports: str = "pass"
    """The statement that imports its server class."""
    distribution: str = ""
    """The name under which it is installed."""
    flags: tuple[str, ...] = ()
    """Additional options for the interpreter."""

    def command(self, *arguments: object) -> list[str]:
        """Return the command that starts its server."""
        return [
            self.python,
            *self.flags,
            str(HERE / "servers" / self.script),
            *(str(one) for one in arguments if one != ""),
        ]


_PEER = str(PEERS / "bin" / "python")
OURS = Implementation(
    "Dovetail", sys.executable, "ours.py", "from dovetail import Server", "dovetail-mcp"
)
OURS_CORE = OURS._replace(python=str(CORE / "bin" / "python"))
"""Dovetail without extras, for what a new process costs."""
SDK = Implementation("official SDK", _PEER, "sdk.py", "from mcp.server import MCPServer", "mcp")
FASTMCP = Implementation("FastMCP", _PEER, "fast.py", "from fastmcp import FastMCP", "fastmcp")
FLOOR = Implementation("floor", sys.executable, "floor.py")
ALL = [OURS, SDK, FASTMCP, FLOOR]


def install() -> None:
    """Create the environments that do not exist yet."""
    for folder, requirements in ENVIRONMENTS.items():
        done = folder / ".installed"
        if done.exists():
            continue
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", *requirements], check=True)
        done.touch()


class Process:
    """A running server, and what it has cost."""

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self.popen = popen

    def cpu(self) -> float | None:
        """Return the CPU time of the process so far, in seconds, or None if the system does not
        report it."""
        return _cpu_of(self.popen.pid, 2)

    def cpu_of_all(self) -> float | None:
        """Return the CPU time of the process and all its descendants, including those that have
        ended."""
        times = [_cpu_of(pid, 4) for pid in (self.popen.pid, *self.descendants())]
        return None if times[0] is None else sum(one or 0 for one in times)

    def memory(self) -> int:
        """Return the resident memory, in bytes."""
        return memory_of(self.popen.pid)

    def descendants(self) -> list[int]:
        """Return the ids of the processes that this process and its children have started."""
        found, parents = list[int](), [self.popen.pid]
        while parents:
            children = _children_of(parents.pop())
            found += children
            parents += children
        return found


def _cpu_of(pid: int, fields: int) -> float | None:
    """Return the sum of the first CPU times in `stat`: user and system time of the process (2), and
    of its children that have ended (4)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return None
    return sum(int(one) for one in stat.rpartition(")")[2].split()[11 : 11 + fields]) / TICK


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(one) for one in file.read_text(encoding="ascii").split()]
        except OSError:
            continue  # the thread has ended
    return found


def memory_of(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE


@contextmanager
def started(
    command: list[str], stdio: bool = False, environment: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """A process that is stopped at the end, by closing its input or by SIGTERM."""
    pipe = subprocess.PIPE if stdio else subprocess.DEVNULL
    env = {**os.environ, **environment} if environment else None
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=env
    ) as popen:
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
    """Return a port on which nothing listens."""
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
def listening(
    implementation: Implementation,
    tools: int = 1,
    variant: str = "",
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[Process, int]]:
    """A server that listens on HTTP, and its port."""
    port = free_port()
    command = implementation.command("http", port, tools, variant)
    with started(command, environment=environment) as process:
        wait_until_open(process, port, implementation.name)
        yield process, port
