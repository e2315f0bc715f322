"""Processes of a run: servers that listen, scripts that are given their cases."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ports import free_port

from ..node import Trouble
from .peers import HOME, MODULES, ROOT

START_SECONDS = 30


def environment() -> dict[str, str]:
    """What a process gets: this package on its path, and nothing that says where to report to."""
    quiet = {
        "FASTMCP_CHECK_FOR_UPDATES": "off",
        "FASTMCP_SHOW_SERVER_BANNER": "false",
        "FASTMCP_LOG_LEVEL": "ERROR",
    }
    return {**os.environ, **quiet, "PYTHONPATH": str(ROOT), "INTEROP_MODULES": str(MODULES.parent)}


def accepts(port: int) -> bool:
    """Whether somebody listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def listening(command: list[Any], name: str, variable: str = "") -> Iterator[int]:
    """A server on a port of its own, which it is told as the last argument, or in a variable."""
    port = free_port()
    told = [] if variable else [str(port)]
    log = HOME / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*map(str, command), *told],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment() | ({variable: str(port)} if variable else {}),
            cwd=HOME,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not accepts(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"{name} does not listen:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield port
    finally:
        end(process)


def end(process: "subprocess.Popen[Any]") -> None:
    """End a process that leads a group of its own, and whatever it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def told(
    command: list[Any], cases: list[dict[str, Any]], name: str, seconds: float
) -> list[dict[str, Any]]:
    """Give a script its cases; what it saw, line by line. What does not come in time is missing."""
    log = HOME / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            env=environment(), cwd=Path(command[1]).parent, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(json.dumps(cases).encode(), seconds)
        except subprocess.TimeoutExpired as late:
            output = late.stdout or b""
        finally:
            end(process)
    return [json.loads(line) for line in output.splitlines() if line.startswith(b'{"case"')]
