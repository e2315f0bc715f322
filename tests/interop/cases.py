"""The cases: who with whom, over what, in which revision."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from .peers import NODE, python
from .running import environment, listening
from .steps import HANDSHAKE, REVISIONS, Step, chosen

HERE = Path(__file__).parent
OURS = HERE / "server.py"


class Peer(NamedTuple):
    """A library that has both a client and servers."""

    name: str
    runs: list[Any]
    """What runs its scripts."""
    suffix: str
    revisions: tuple[str, ...]
    script: str = ""
    """The name of its scripts, if that is another."""

    def program(self, folder: str) -> list[Any]:
        """The command that runs its script in a folder."""
        return [*self.runs, HERE / folder / f"{self.script or self.name}.{self.suffix}"]


PEERS = (
    Peer("mcp1", [python("mcp1")], "py", HANDSHAKE),
    Peer("mcp2", [python("mcp2")], "py", REVISIONS),
    Peer("fastmcp3", [python("fastmcp3")], "py", HANDSHAKE, script="fastmcp"),
    Peer("fastmcp4", [python("fastmcp4")], "py", REVISIONS, script="fastmcp"),
    Peer("ts1", [NODE], "mjs", HANDSHAKE),
    Peer("ts2", [NODE], "mjs", REVISIONS),
)
TRANSPORTS = ("stdio", "http", "sse")
CHOSEN = ("tools", "call", "structured", "read", "prompt")
"""The steps that the Inspector is asked to take: each is a process."""


class Case(NamedTuple):
    """One peer in one role over one transport in one revision."""

    peer: str
    role: str
    transport: str
    revision: str
    target: Any
    steps: list[Step]

    env: dict[str, str] = {}

    @property
    def id(self) -> str:
        """Its name."""
        return f"{self.peer} {self.role} {self.transport} {self.revision}"

    def told(self) -> dict[str, Any]:
        """The case as a script is told of it."""
        steps = json.loads(
            json.dumps([step.told() for step in self.steps]).replace(
                "CASE", self.id.replace(" ", "-")
            )
        )
        return {
            "id": self.id,
            "transport": self.transport,
            "revision": self.revision,
            "target": self.target,
            "env": self.env,
            "steps": steps,
        }


def spoken(revisions: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each transport with each revision that is spoken over it: the old SSE pair is for those with
    a handshake."""
    for transport in TRANSPORTS:
        for revision in revisions:
            if transport != "sse" or revision in HANDSHAKE:
                yield transport, revision


def their_clients(peer: Peer, ports: dict[str, int]) -> list[Case]:
    """A peer's client with our server, which is started by the client or listens at a port for each
    revision."""
    return [
        Case(
            peer.name,
            "client",
            transport,
            revision,
            _ours(transport, revision, ports),
            chosen(revision, "client"),
            environment(),
        )
        for transport, revision in spoken(peer.revisions)
    ]


def _ours(transport: str, revision: str, ports: dict[str, int]) -> Any:
    if transport == "stdio":
        return [sys.executable, str(OURS), "--revision", revision]
    return f"http://127.0.0.1:{ports[revision]}/{'sse' if transport == 'sse' else 'mcp'}"


def inspections(ports: dict[str, int]) -> list[Case]:
    """The Inspector with our server."""
    return [
        Case(
            "inspector",
            "client",
            transport,
            revision,
            _ours(transport, revision, ports),
            [step for step in chosen(revision, "client") if step.name in CHOSEN],
            environment(),
        )
        for transport, revision in spoken(REVISIONS)
    ]


def their_servers(peer: Peer, ports: dict[str, int]) -> list[Case]:
    """Our client with a peer's server, which is started by the client or listens at a port for each
    transport."""
    return [
        Case(
            peer.name,
            "server",
            transport,
            revision,
            _theirs(peer, transport, ports),
            chosen(revision, "server"),
            environment(),
        )
        for transport, revision in spoken(peer.revisions)
    ]


def _theirs(peer: Peer, transport: str, ports: dict[str, int]) -> Any:
    if transport == "stdio":
        return [str(part) for part in peer.program("peer_servers")]
    return f"http://127.0.0.1:{ports[transport]}/{'sse' if transport == 'sse' else 'mcp'}"


def served_by(peer: Peer, stack: ExitStack) -> dict[str, int]:
    """A peer's server over HTTP and over the old SSE pair: the ports."""
    return {
        transport: stack.enter_context(
            listening([*peer.program("peer_servers"), transport], f"server {peer.name} {transport}")
        )
        for transport in ("http", "sse")
    }


def serving(stack: ExitStack) -> dict[str, int]:
    """Our server over HTTP, once for each revision: the ports."""
    return {
        revision: stack.enter_context(
            listening([sys.executable, OURS, "--revision", revision, "--port"], f"ours {revision}")
        )
        for revision in REVISIONS
    }
