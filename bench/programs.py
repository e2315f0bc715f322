"""What is measured by starting programs: what an import costs, what an installation brings, and
clients."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from .figures import Figure, best, ended
from .parties import FLOOR, HERE, Party, Process, listening, started

# What a distribution requires, and what that requires. pip brings the parser of such requirements.
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


def alone(party: Party) -> AbstractContextManager[Party]:
    """The scene of a measurement that starts its own processes."""

    @contextmanager
    def scene() -> Iterator[Party]:
        yield party

    return scene()


def imported(party: Party, seconds: float) -> Figure:
    """Milliseconds for the import, on top of an interpreter that imports nothing; the best of
    three."""

    def run(code: str) -> Figure:
        return ended(lambda: subprocess.run([party.python, "-c", code], check=True))

    whole, bare = (
        best([run(code) for _ in range(3)], more_is_better=False)
        for code in (party.imports, "pass")
    )
    return Figure(1000 * (whole.value - bare.value), (whole.cpu or 0) - (bare.cpu or 0))


def distributions(party: Party, seconds: float) -> Figure:
    """How many distributions an installation brings."""
    command = [party.python, "-c", REQUIRED, party.distribution]
    return Figure(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


@contextmanager
def client(party: Party, *target: str) -> Iterator[Process]:
    """The party's client, once it has opened its target."""
    with started(
        [party.python, *party.flags, str(HERE / "clients.py"), party.script, *target], stdio=True
    ) as process:
        yield process


def in_memory(party: Party) -> AbstractContextManager[Process]:
    """A client and a server of one party in one process."""
    return client(party, "memory")


def on_stdio(party: Party) -> AbstractContextManager[Process]:
    """A client that started the floor."""
    return client(party, *FLOOR.command("stdio", 0, 1))


@contextmanager
def on_http(party: Party) -> Iterator[Process]:
    """A client of the floor over HTTP."""
    with listening(FLOOR) as (_, port), client(party, f"http://127.0.0.1:{port}/mcp") as process:
        yield process


def told(order: str) -> Callable[[Process, float], Figure]:
    """What a client that is told this says that it did."""

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
    """Seconds of the client's processor for an answer of 64 MiB."""
    return Figure((told("big")(process, 64 << 20).cpu or 0) / 1e6)
