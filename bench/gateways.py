"""The gateways that are compared, and how they are started.

Each peer is installed in a folder of its own below `.bench/`, in the version named here. All
gateways have the same server behind them, `servers/ours.py`, over stdio unless the name says HTTP.
The direct server is what callers would use without a gateway.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from .implementations import (
    HERE,
    OURS,
    PAGE,
    TICK,
    Process,
    free_port,
    listening,
    started,
    wait_until_open,
)
from .web import Site, check_call

FOLDER = HERE.parent / ".bench"
HANDSHAKE, STATELESS = "handshake", "stateless"
FASTMCP_VERSION, MCP_PROXY_VERSION, SUPERGATEWAY_VERSION = "4.1.2", "0.13.0", "4.0.0"
UPSTREAM = str(HERE / "servers" / OURS.script)


class Gateway(NamedTuple):
    """A gateway: its name in the tables, how it is started for a configuration file and a port, the
    name of the tool that is called, the eras in which callers can use it, and how the server behind
    it is reached."""

    name: str
    command: Callable[[Path, int], list[str]]
    tool: str = "add"
    eras: tuple[str, ...] = (HANDSHAKE, STATELESS)
    upstream: str = "stdio"


def _ours(config: Path, port: int) -> list[str]:
    return [sys.executable, "-m", "dovetail", "gateway", str(config), "--http", "--port", str(port)]


def _fastmcp(config: Path, port: int) -> list[str]:
    program = str(FOLDER / "fastmcp" / "bin" / "fastmcp")
    options = ["--transport", "http", "--port", str(port), "--no-banner", "--log-level", "ERROR"]
    return [program, "run", str(config), *options]


def _mcp_proxy(config: Path, port: int) -> list[str]:
    program = str(FOLDER / "mcp-proxy" / "bin" / "mcp-proxy")
    return [program, "--port", str(port), "--log-level", "ERROR", "--", *_command_in(config)]


def _supergateway(config: Path, port: int) -> list[str]:
    program = str(FOLDER / "supergateway" / "node_modules" / ".bin" / "supergateway")
    options = ["--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none"]
    return [program, "--stdio", shlex.join(_command_in(config)), "--port", str(port), *options]


def _command_in(config: Path) -> list[str]:
    (entry,) = json.loads(config.read_text(encoding="utf-8"))["mcpServers"].values()
    return [entry["command"], *entry["args"]]


DIRECT = Gateway("no gateway", lambda config, port: OURS.command("http", port, 1))
DOVETAIL = Gateway("Dovetail", _ours, "server0__add")
DOVETAIL_HTTP = Gateway("Dovetail, HTTP", _ours, "server0__add", upstream="http")
FASTMCP = Gateway(f"FastMCP {FASTMCP_VERSION}", _fastmcp)
MCP_PROXY = Gateway(f"mcp-proxy {MCP_PROXY_VERSION}", _mcp_proxy, eras=(HANDSHAKE,))
SUPERGATEWAY = Gateway(f"supergateway {SUPERGATEWAY_VERSION}", _supergateway, eras=(HANDSHAKE,))
ALL_GATEWAYS = [DIRECT, DOVETAIL, DOVETAIL_HTTP, FASTMCP, MCP_PROXY, SUPERGATEWAY]


def install_gateways() -> None:
    """Install the peers, once."""
    install_python("fastmcp", f"fastmcp=={FASTMCP_VERSION}")
    install_python("mcp-proxy", f"mcp-proxy=={MCP_PROXY_VERSION}")
    folder = FOLDER / "supergateway"
    if not (folder / "node_modules" / "supergateway").exists():
        folder.mkdir(parents=True, exist_ok=True)
        package = f"supergateway@{SUPERGATEWAY_VERSION}"
        npm = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent"]
        subprocess.run([*npm, package], check=True)


def install_python(name: str, requirement: str) -> None:
    folder = FOLDER / name
    done = folder / ".installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", requirement], check=True)
        done.touch()


class GatewayProcess(Process):
    """A gateway with its helper processes, but without the servers behind it."""

    def cpu(self) -> float | None:
        """Seconds of processor time so far."""
        return sum(_cpu(pid) for pid in self._tree())

    def memory(self) -> int:
        """Bytes that are resident."""
        statm = (Path(f"/proc/{pid}/statm").read_text(encoding="ascii") for pid in self._tree())
        return sum(int(text.split()[1]) for text in statm) * PAGE

    def _tree(self) -> list[int]:
        pids, found = [self.popen.pid], list[int]()
        while pids:
            pid = pids.pop()
            if pid != self.popen.pid and UPSTREAM.encode() in _read(pid, "cmdline"):
                continue
            found.append(pid)
            pids += [int(child) for child in _read(pid, f"task/{pid}/children").split()]
        return found


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""  # it has ended


def _cpu(pid: int) -> float:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK if fields else 0.0


def write_config(path: Path, entries: list[dict[str, object]]) -> Path:
    """Write a configuration file with these servers."""
    servers = {f"server{number}": entry for number, entry in enumerate(entries)}
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return path


def stdio_entry() -> dict[str, object]:
    """An entry that starts our server."""
    command, *arguments = OURS.command("stdio", 0, 1)
    return {"command": command, "args": arguments}


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Environment variables for the processes that are started now."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def open_gateway(gateway: Gateway) -> Iterator[Site]:
    """A gateway with one server, which has answered a call in each of its eras."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        entry = stdio_entry()
        if gateway.upstream == "http":
            _, port = stack.enter_context(listening(OURS))
            entry = {"url": f"http://127.0.0.1:{port}/mcp"}
        config = write_config(folder / "mcp.json", [entry])
        with environment(XDG_STATE_HOME=str(folder)):
            process, port = stack.enter_context(start_gateway(gateway, config))
        wait_until_open(process, port, gateway.name)
        site = Site(process, port, gateway.tool)
        site.greet(1)
        for era in gateway.eras:
            check_call(site, None if era == STATELESS else site.sessions[0])
        yield site


@contextmanager
def start_gateway(gateway: Gateway, config: Path) -> Iterator[tuple[GatewayProcess, int]]:
    """A gateway that was started, and its port."""
    port = free_port()
    with started(gateway.command(config, port)) as process:
        yield GatewayProcess(process.popen), port
