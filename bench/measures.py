"""What is measured: one row each, in the order of the page.

A row names its scene and what is taken there. A scene is opened once for each party and serves all
the rows below it that name it too; the parties take turns within a round, so that all have the same
weather.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from . import programs, stdio, web
from .figures import Figure
from .parties import ALL, FASTMCP, FLOOR, OURS, SDK, Party

Scene = Callable[[Party], AbstractContextManager[Any]]
THREE = [OURS, SDK, FASTMCP]
PER_SECOND = "/s"


class Goal(NamedTuple):
    """To be so many times better than a party, or to stay below a figure."""

    than: Party | None
    bound: float


class Row(NamedTuple):
    """One measure."""

    name: str
    title: str
    unit: str
    scene: Scene
    take: Callable[[Any, float], Figure]
    how: str
    parties: list[Party] = ALL
    goals: tuple[Goal, ...] = ()
    rounds: int | None = None

    @property
    def more_is_better(self) -> bool:
        """Whether it is a rate."""
        return self.unit == PER_SECOND


_one, _more = stdio.opened, partial(stdio.opened, tools=1, more="more")
_few, _thousand, _many = (partial(stdio.opened, tools=tools) for tools in (10, 1_000, 10_000))
_web, _web_more, _web_sessions = (
    web.opened,
    partial(web.opened, more="more"),
    partial(web.opened, tools=1),
)
_memory, _client, _web_client = programs.in_memory, programs.on_stdio, programs.on_http
_IN_TURN, _AT_ONCE = programs.told("in_turn"), programs.told("at_once")

ROWS = [
    Row(
        "import",
        "importing the server class",
        "ms",
        programs.alone,
        programs.imported,
        "the run time of an interpreter that imports the class, minus the run time of one that "
        "imports nothing",
        THREE,
        (Goal(SDK, 10),),
    ),
    Row(
        "installed",
        "distributions installed",
        "",
        programs.alone,
        programs.distributions,
        "the distribution and all its dependencies, direct and indirect, without extras",
        THREE,
        (),
        1,
    ),
    Row(
        "first_answer",
        "start to first answer, stdio",
        "s",
        programs.alone,
        stdio.first_answer,
        "the time from the start of the process to the answer to `initialize`",
        goals=(Goal(SDK, 6),),
        rounds=8,
    ),
    Row(
        "stdio_in_turn",
        "stdio, one call at a time",
        PER_SECOND,
        _one,
        stdio.in_turn,
        "each call is sent after the previous call has been answered",
        goals=(Goal(SDK, 15),),
    ),
    Row(
        "stdio_pipelined",
        "stdio, 64 calls in flight",
        PER_SECOND,
        _one,
        stdio.pipelined,
        "each answer triggers the next call, so that 64 calls are always in flight",
        goals=(Goal(SDK, 100),),
    ),
    Row(
        "stdio_memory",
        "memory of a server with one tool",
        "MiB",
        _one,
        stdio.memory,
        "the resident memory after the two measurements above",
        goals=(Goal(None, 30),),
        rounds=1,
    ),
    Row(
        "stdio_progress",
        "stdio, progress notifications",
        PER_SECOND,
        _more,
        stdio.progress,
        "each call sends 1,000 notifications (Dovetail runs with `progress_interval=0`; by "
        "default, it sends one every 20 ms)",
    ),
    Row(
        "stdio_mib",
        "stdio, calls with 1 MiB both ways",
        PER_SECOND,
        _more,
        stdio.echo,
        "the tool returns its argument as text and as structured content",
    ),
    Row(
        "tools_10",
        "calls to a server with 10 tools",
        PER_SECOND,
        _few,
        stdio.pipelined,
        "on stdio, with 64 calls in flight",
    ),
    Row(
        "list_10",
        "listing 10 tools",
        PER_SECOND,
        _few,
        stdio.lists,
        "on stdio, one request at a time",
    ),
    Row(
        "list_1000",
        "listing 1,000 tools",
        PER_SECOND,
        _thousand,
        stdio.lists,
        "on stdio, one request at a time; the floor encodes the list for each request",
    ),
    Row(
        "tools_10000",
        "calls to a server with 10,000 tools",
        PER_SECOND,
        _many,
        stdio.pipelined,
        "on stdio, with 64 calls in flight",
    ),
    Row(
        "list_10000",
        "listing 10,000 tools",
        PER_SECOND,
        _many,
        stdio.lists,
        "on stdio, one request at a time",
    ),
    *(
        Row(
            f"http_{era}_{n}",
            f"HTTP, {era} era, {n} connection{'s' * (n > 1)}",
            PER_SECOND,
            _web,
            take(n),
            "each connection sends a call after the previous call has been answered",
            goals=tuple(goals),
        )
        for era, take, ours in (
            ("stateless", web.stateless, [Goal(SDK, 10), Goal(FLOOR, 0.75)]),
            ("handshake", web.handshake, [Goal(SDK, 9)]),
        )
        for n, goals in ((1, []), (32, ours), (256, []))
    ),
    Row(
        "http_progress",
        "HTTP, progress notifications",
        PER_SECOND,
        _web_more,
        web.progress,
        "each call, in the handshake era, sends 1,000 notifications in an event stream",
    ),
    Row(
        "http_mib",
        "HTTP, calls with 1 MiB both ways",
        PER_SECOND,
        _web_more,
        web.echo,
        "the tool is the same as on stdio",
    ),
    Row(
        "session_memory",
        "memory of an idle session",
        "KiB",
        _web_sessions,
        web.session_memory,
        "10,000 handshake-era sessions are opened and left idle (FastMCP is not measured because "
        "the measurement would take minutes)",
        [OURS, SDK],
        (Goal(None, 4),),
        1,
    ),
    Row(
        "sessions_10000",
        "HTTP, calls in 10,000 sessions",
        PER_SECOND,
        _web_sessions,
        web.many_sessions,
        "32 connections send calls, each in a different session",
        [OURS, SDK],
    ),
    Row(
        "in_memory",
        "client to server in memory",
        PER_SECOND,
        _memory,
        _IN_TURN,
        "in one process, one call at a time; the floor encodes and decodes both messages",
        goals=(Goal(SDK, 15),),
    ),
    Row(
        "in_memory_64",
        "client to server in memory, 64 tasks",
        PER_SECOND,
        _memory,
        _AT_ONCE,
        "in one process, from 64 tasks; the floor is not measured because it never waits",
        THREE,
    ),
    Row(
        "client_stdio",
        "client on stdio, one call at a time",
        PER_SECOND,
        _client,
        _IN_TURN,
        "the client calls the floor's server",
        THREE,
    ),
    Row(
        "client_stdio_64",
        "client on stdio, 64 tasks",
        PER_SECOND,
        _client,
        _AT_ONCE,
        "the client calls the floor's server",
        THREE,
    ),
    Row(
        "client_mib",
        "client CPU time for a 64 MiB answer",
        "s",
        _client,
        programs.big,
        "the client receives one answer from the floor's server on stdio (FastMCP uses the SDK's "
        "client)",
        [OURS, SDK],
        (Goal(None, 1),),
        1,
    ),
    Row(
        "client_http",
        "client over HTTP, one call at a time",
        PER_SECOND,
        _web_client,
        _IN_TURN,
        "the client calls the floor's server",
        THREE,
    ),
    Row(
        "client_http_64",
        "client over HTTP, 64 tasks",
        PER_SECOND,
        _web_client,
        _AT_ONCE,
        "the client calls the floor's server",
        THREE,
    ),
]
GROWTH = [
    ("calls, from 10 tools to 10,000", "tools_10", "tools_10000", 1),
    ("listing one tool, from 10 tools to 10,000", "list_10", "list_10000", 1000),
    ("HTTP calls, from 1 session to 10,000", "http_handshake_32", "sessions_10000", 1),
]
