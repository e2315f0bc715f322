"""What is measured by starting programs: imports, installations, tasks and clients."""

import ast
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from .figures import Figure, best, ended
from .implementations import FLOOR, HERE, Implementation, Process, listening, started
from .stdio import MIB
from .tasks import MODERN

BIG = 64 * MIB
TASKS = 2_000
# Counts the dependencies of a distribution, direct and indirect. pip contains the parser.
REQUIRED = """
import sys
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
seen, left = set(), [(sys.argv[1], "")]
while left:
    name, extra = left.pop()
    if (name, extra) not in seen:
        seen.add((name, extra))
        for one in map(Requirement, requires(name) or []):
            if not one.marker or one.marker.evaluate({"extra": extra}):
                left += [(one.name.lower().replace("_", "-"), wanted) for wanted in ("", *one.extras)]
print(len({name for name, _ in seen}))
"""  # noqa: E501


@contextmanager
def alone(implementation: Implementation) -> Iterator[Implementation]:
    """The fixture of a measurement that starts its own processes."""
    yield implementation


def imported(implementation: Implementation, seconds: float) -> Figure:
    """Return the milliseconds for the import, in addition to those of an interpreter that imports
    nothing; the best of three."""

    def run(code: str) -> Figure:
        return ended(lambda: subprocess.run([implementation.python, "-c", code], check=True))

    whole, bare = (
        best([run(code) for _ in range(3)], more_is_better=False)
        for code in (implementation.imports, "pass")
    )
    return Figure(1000 * (whole.value - bare.value), (whole.cpu or 0) - (bare.cpu or 0))


def distributions(implementation: Implementation, seconds: float) -> Figure:
    """Return the number of distributions that are installed."""
    command = [implementation.python, "-c", REQUIRED, implementation.distribution]
    return Figure(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


@contextmanager
def client(implementation: Implementation, *target: str) -> Iterator[Process]:
    """A client that connects to a target."""
    python = [implementation.python, *implementation.flags]
    with started(
        [*python, str(HERE / "clients.py"), implementation.script, *target], stdio=True
    ) as process:
        yield process


def in_memory(implementation: Implementation) -> AbstractContextManager[Process]:
    """A client and a server in one process."""
    return client(implementation, "memory")


def on_stdio(implementation: Implementation) -> AbstractContextManager[Process]:
    """A client that has started the floor."""
    return client(implementation, *FLOOR.command("stdio", 0, 1))


@contextmanager
def on_http(implementation: Implementation) -> Iterator[Process]:
    """A client of the floor over HTTP."""
    with (
        listening(FLOOR) as (_, port),
        client(implementation, f"http://127.0.0.1:{port}/mcp") as process,
    ):
        yield process


def on_http_again(implementation: Implementation) -> AbstractContextManager[Process]:
    """Another client of the floor over HTTP, for measurements that need a new process."""
    return on_http(implementation)


def told(order: str) -> Callable[[Process, float], Figure]:
    """Give an order to a client, and return the figure that it reports."""

    def take(process: Process, seconds: float) -> Figure:
        assert process.popen.stdin and process.popen.stdout
        process.popen.stdin.write(f"{order} {seconds}\n".encode())
        process.popen.stdin.flush()
        line = process.popen.stdout.readline()
        if not line:
            raise SystemExit(f"the client ended while it was told {order}")
        return Figure(*json.loads(line))

    return take


def big(process: Process, seconds: float) -> Figure:
    """Return the client's CPU time for an answer of 64 MiB, in seconds."""
    return Figure((told("big")(process, BIG).cpu or 0) / 1e6)


def peak_memory(process: Process, seconds: float) -> Figure:
    """Return the memory that the client needs for a result of 64 MiB, in MiB."""
    told("in_turn")(process, 0.2)
    proc = Path(f"/proc/{process.popen.pid}")
    (proc / "clear_refs").write_text("5", encoding="ascii")  # the peak is now the current size
    before = process.memory()
    told("big")(process, BIG)
    found = re.search(r"VmHWM:\s+(\d+) kB", (proc / "status").read_text(encoding="utf-8"))
    assert found
    return Figure((int(found[1]) * 1024 - before) / MIB)


def tasks(store: str) -> Callable[[Implementation, float], Figure]:
    """Measure the CPU time of a task, in milliseconds, with a store: "memory" or "file"."""

    def measure(implementation: Implementation, seconds: float) -> Figure:
        python = [implementation.python, *implementation.flags]
        command = [*python, str(HERE / "tasks.py"), "--tasks", str(TASKS)]
        done = subprocess.run(
            [*command, "--one", MODERN, store], check=True, capture_output=True, text=True
        )
        rates = ast.literal_eval(done.stdout)
        steps = ("begun/s", "looked at/s", "finished/s", "results/s")
        return Figure(sum(1000 / rates[step] for step in steps))

    return measure
