"""Agent frameworks on `dovetail.compat` in place of `mcp`, with our server.

Each framework has an environment of its own (`peers.py`), in which `mcp` is installed, because it
depends on it. Its program (`NAME_program.py`) does not import it: `dovetail.compat.imports` gives
it `dovetail.compat` under that name.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..peers import python
from ..running import environment, listening

FOLDER = Path(__file__).parent
SERVER = [sys.executable, str(FOLDER / "server.py")]
SECONDS = 120
WANTED = {
    "tools": ["add", "fail"],
    "result": "5",
    "failed": "no luck",
    "resource": "Buy milk",
    "prompt": "Greet Ada.",
    "progress": [1.0],
    "real": [],
}
"""What a program that looks for it sees; `real` are modules of the real `mcp`."""


def framework_problems(name: str) -> Iterator[tuple[str, int, list[str]]]:
    """Run a framework over each transport: the case, how many checks passed, and what is wrong."""
    with listening(SERVER, f"framework-{name}") as port:
        targets = {
            "stdio": SERVER,
            "http": [f"http://127.0.0.1:{port}/mcp"],
            "sse": [f"http://127.0.0.1:{port}/sse"],
        }
        for transport, target in targets.items():
            seen, error = _run(name, [transport, *target])
            wrong = [
                f"{key}: {value!r}, not {WANTED[key]!r}"
                for key, value in seen.items()
                if value != WANTED[key]
            ]
            problems = [error] if error else wrong
            yield f"{name} framework {transport}", len(seen) - len(wrong), problems


def _run(name: str, target: list[str]) -> tuple[dict[str, Any], str]:
    """Return what a program saw, or why it ended."""
    program = FOLDER / f"{name.rstrip('1')}_program.py"
    command = [str(python(name)), str(program), *target]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, env=environment()
        )
        return json.loads(done.stdout.splitlines()[-1]), ""
    except subprocess.TimeoutExpired:
        return {}, f"no answer in {SECONDS} s"
    except (IndexError, ValueError):
        return {}, done.stderr[-600:] or "it printed nothing"
