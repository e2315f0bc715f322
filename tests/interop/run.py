"""Ours with theirs, and theirs with ours: `make interop`.

    python -m tests.interop.run                 everything
    python -m tests.interop.run mcp2 ts1        these peers only
    python -m tests.interop.run gateway         the gateway only

The peers are real and come from the registries, pinned (`peers.py`). A case is one peer in one role
over one transport in one revision; in each, the same steps are taken (`steps.py`). Our side pins
the revision: our server offers no other, our client asks for no other. `gateway.py` puts servers
from the registries behind one gateway, and the peers' clients in front of it. Then the servers of
`servers/` are asked the same on the peer that they were written for and on `dovetail.compat`
(`moving.py`). Agent frameworks load tools through `dovetail.compat` (`frameworks/`). What is no
mistake of ours is named in `defects.py`, with what shows it, and not counted.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from ..node import Trouble
from .cases import PEERS, Case, Peer, inspections, served_by, serving, their_clients, their_servers
from .defects import Defect, excuse
from .frameworks import framework_problems
from .gateway import CALLERS, Scene, callers, inspections as gateway_inspections, prepare_scene
from .inspecting import inspected
from .moving import MOVED, moved
from .ours import Seen, seen
from .peers import AS_PINNED, FRAMEWORKS, install
from .reference import REFERENCES, Reference, prepare, referred
from .running import told
from .steps import problem

SECONDS = 180
"""What the cases of one peer in one role may take together."""
AT_ONCE = 3
"""How many peers are busy at a time."""


class Row(NamedTuple):
    """What came of a case."""

    case: str
    passed: int
    failures: tuple[str, ...]
    excused: tuple[tuple[Defect, str], ...]


def judged(case: Case, found: dict[str, Seen]) -> Row:
    """Hold what was seen in a case against what is wanted."""
    failures, excused = list[str](), list[tuple[Defect, str]]()
    for step in case.steps:
        got = found.get(step.name)
        complaint = "nothing came" if got is None else problem(step.wanted, got)
        if complaint is None:
            continue
        reason = (found.get("open", {}) if got is None else got).get("error")
        if reason:
            complaint += f": {reason.get('message')}"
        defect = excuse(case.id, step.name, complaint)
        if defect is None:
            failures.append(f"{step.name}: {complaint}")
        else:
            excused.append((defect, complaint))
    return Row(
        case.id, len(case.steps) - len(failures) - len(excused), tuple(failures), tuple(excused)
    )


def with_their_client(peer: Peer, ports: dict[str, int]) -> list[Row]:
    """A peer's client with our server."""
    return _scripted(peer, their_clients(peer, ports), f"client {peer.name}")


def _scripted(peer: Peer, cases: list[Case], name: str) -> list[Row]:
    found: dict[str, dict[str, Seen]] = {}
    for line in told(peer.program("clients"), [case.told() for case in cases], name, SECONDS):
        found.setdefault(line["case"], {})[line["step"]] = line["got"]
    return [judged(case, found.get(case.id, {})) for case in cases]


def with_their_server(peer: Peer) -> list[Row]:
    """Our client with a peer's server."""
    with ExitStack() as stack:
        return _driven(their_servers(peer, served_by(peer, stack)))


def with_a_reference(reference: Reference) -> list[Row]:
    """Our client with a reference server."""
    with ExitStack() as stack:
        return _driven(referred(reference, stack))


def _driven(cases: list[Case]) -> list[Row]:
    return [judged(case, asyncio.run(seen(case))) for case in cases]


def with_the_inspector(ports: dict[str, int]) -> list[Row]:
    """The Inspector with our server."""
    return [judged(case, inspected(case)) for case in inspections(ports)]


def with_the_gateway(peer: Peer, scene: Scene) -> list[Row]:
    """A peer's client with the gateway."""
    return _scripted(peer, callers(peer, scene), f"gateway {peer.name}")


def with_the_inspector_and_the_gateway(scene: Scene) -> list[Row]:
    """The Inspector with the gateway."""
    return [judged(case, inspected(case)) for case in gateway_inspections(scene)]


def works(
    ports: dict[str, int], scene: Scene, chosen: list[str]
) -> dict[str, Callable[[], list[Row]]]:
    """All there is to do, by name; those that are chosen, if any are."""
    every: dict[str, Callable[[], list[Row]]] = {
        "inspector client": partial(with_the_inspector, ports)
    }
    for peer in PEERS:
        every[f"{peer.name} client"] = partial(with_their_client, peer, ports)
        every[f"{peer.name} server"] = partial(with_their_server, peer)
    every |= {
        f"{reference.name} server": partial(with_a_reference, reference) for reference in REFERENCES
    }
    every |= {f"gateway {peer.name}": partial(with_the_gateway, peer, scene) for peer in CALLERS}
    every["gateway inspector"] = partial(with_the_inspector_and_the_gateway, scene)
    every |= {f"{one.peer} moved {one.name}": partial(_moved, one.name) for one in MOVED}
    every |= {f"{name} framework": partial(with_a_framework, name) for name in FRAMEWORKS}
    return {name: work for name, work in every.items() if not chosen or name.split()[0] in chosen}


def with_a_framework(name: str) -> list[Row]:
    """An agent framework on `dovetail.compat`, with our server."""
    return [
        Row(case, passed, tuple(failures), ())
        for case, passed, failures in framework_problems(name)
    ]


def _moved(name: str) -> list[Row]:
    case, count, failures = moved(name)
    return [Row(case, count - len(failures), tuple(failures), ())]


def attempted(name: str, work: Callable[[], list[Row]]) -> list[Row]:
    """Do it; where it cannot be done at all, that is a failure like any other."""
    try:
        return work()
    except Trouble as trouble:
        return [Row(name, 0, (str(trouble),), ())]


def report(rows: list[Row]) -> list[str]:
    """The table, what failed, what is excused, and the sum."""
    pins = [f"{name:<18} {', '.join(packages)}" for name, packages in AS_PINNED.items()]
    lines = [
        "",
        *pins,
        "",
        f"{'peer':<18} {'role':<7} {'transport':<10} {'revision':<11} checks",
        "-" * 60,
    ]
    for row in rows:
        peer, role, transport, revision = [*row.case.split(" ", 3), "", "", ""][:4]
        total = row.passed + len(row.failures) + len(row.excused)
        notes = (
            f"{len(row.failures)} FAILED" if row.failures else "",
            f"{len(row.excused)} peer's" if row.excused else "",
        )
        checks = "  ".join(filter(None, (f"{row.passed}/{total}", *notes)))
        lines.append(f"{peer:<18} {role:<7} {transport:<10} {revision:<11} {checks}")
    named: dict[tuple[str, Defect], list[str]] = {}
    for row in rows:
        for defect, complaint in row.excused:
            named.setdefault((row.case.split()[0], defect), []).append(f"{row.case}: {complaint}")
    if named:
        lines += ["", "Defects of peers, not counted:"]
    for (peer, defect), places in named.items():
        lines += [
            f"  {peer}, {defect.step}: {defect.reason} ({len(places)} times)",
            f"    {places[0][:200]}",
        ]
    failures = [f"  {row.case}: {failure}"[:600] for row in rows for failure in row.failures]
    lines += ["", "Failures:", *failures] if failures else []
    passed, failed = sum(row.passed for row in rows), len(failures)
    return [*lines, "", f"{passed} passed, {failed} failed"]


def main() -> int:
    """Do all, or what the arguments name; 0 where nothing failed."""
    install()
    prepare()
    began = time.monotonic()
    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:
        todo = works(serving(stack), prepare_scene(stack), sys.argv[1:])
        if not todo:
            raise Trouble(f"There is no peer {' or '.join(sys.argv[1:])}")
        begun = {name: pool.submit(attempted, name, work) for name, work in todo.items()}
        rows: list[Row] = []
        for name, future in begun.items():
            rows += future.result()
            print(f"{time.monotonic() - began:5.0f} s  {name}", flush=True)
    print("\n".join(report(rows)))
    return 1 if any(row.failures for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        sys.exit(f"interop: {trouble}")
