"""What operators see of the servers (health check, metrics), and what callers see of a failure.

Why a server failed may contain its command line, its URL and the last lines of its stderr. People
who may see these get them: in the log, and as callers on stdio, who started the gateway themselves.
Callers over a network get the name of the server and how its process ended, or how long it did not
answer.
"""

import re
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, get_args

from msgspec import Struct

from .health import State

if TYPE_CHECKING:
    from .upstreams import UpstreamSet

SERVER: Final = "mcp.upstream.name"
"""The attribute that names a server in metrics."""
_END: Final = re.compile(
    r"exited with code \d+|was killed by (?:SIG[A-Z0-9]+|signal \d+)|closed its (?:in|out)put"
    r"|no (?:answer|connection) (within [\d.e+]+ s)"
)
"""What callers from a network may see of an error."""


class UpstreamCounts(Struct, eq=False):
    """What is counted for one server."""

    calls: int = 0
    """Calls that were relayed to it."""
    errors: int = 0
    """Calls that ended with an error, of the server or of the connection."""
    seconds_added: float = 0.0
    """The time that calls spent in this process, without the time in which the server had them."""


def explain_failure(name: str, error: object, *, masked: bool) -> str:
    """Return what a caller sees of a server that failed.

    Args:
        name: The name of the server in the configuration.
        error: What happened.
        masked: Whether the caller may see only how the process ended.
    """
    text = str(error)
    if not masked:
        return text if text.startswith(f"{name}:") else f"{name}: {text}"
    found = _END.search(text.partition("; last lines of stderr")[0])
    if found is None:
        return f"{name}: the server is not available"
    return f"{name}: the server {f'did not answer {found[1]}' if found[1] else found[0]}"


def describe_servers(upstreams: "UpstreamSet", *, masked: bool) -> dict[str, Any]:
    """Return the health report: a status, and the state of each server.

    Args:
        upstreams: The servers.
        masked: Whether to leave out why servers failed.
    """
    left_out = upstreams.left_out()
    servers: dict[str, Any] = {}
    for name, server in upstreams.servers.items():
        one = servers[name] = {"state": server.state, "revision": server.revision}
        if server.error is not None:
            one["error"] = explain_failure(name, server.error, masked=masked)
        if server.health.next_attempt is not None:
            one["nextAttemptSeconds"] = round(server.health.wait(monotonic()), 1)
        names = [
            {"kind": each.kind, "name": each.name, "reason": each.reason}
            for each in left_out
            if each.server == name
        ]
        if names:
            one["leftOut"] = names
    is_whole = not {"failed", "refused"} & {one["state"] for one in servers.values()}
    return {"status": "ok" if is_whole else "degraded", "servers": servers}


def measure_servers(upstreams: "UpstreamSet") -> dict[str, Mapping[Any, float]]:
    """Return the metrics of all servers: for each instrument, a value by attributes."""
    servers = upstreams.servers.values()
    rows: dict[str, dict[Any, float]] = {
        name: {((SERVER, server.name),): value(server) for server in servers}
        for name, value in _VALUES.items()
    }
    rows["mcp.upstream.state"] = {
        ((SERVER, server.name), ("state", state)): float(server.state == state)
        for server in servers
        for state in get_args(State)
    }
    return dict(rows)


_VALUES: Final[Mapping[str, Any]] = {
    "mcp.upstream.calls": lambda server: server.counts.calls,
    "mcp.upstream.errors": lambda server: server.counts.errors,
    "mcp.upstream.added": lambda server: server.counts.seconds_added,
    "mcp.upstream.connections": lambda server: server.connections,
    # In the stateless era, a question is the result of a call: the gateway does not wait.
    "mcp.upstream.input_requests": lambda server: len(server.questions),
}
