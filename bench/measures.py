"""What is measured: one row each, in the order of the page.

The fixture of a row is opened once for each implementation, and shared by the adjacent rows that
name it too. The implementations take turns within a round, so that machine conditions are the same
for all. Rows that only concern Dovetail's own features are in `features.py`.
"""

from collections.abc import Callable
from functools import partial

from . import auth, features, open_loop, programs, stdio, web
from .figures import Figure
from .implementations import FASTMCP, FLOOR, OURS, OURS_CORE, SDK
from .rows import PER_SECOND, AtMost, AtMostTimesRow, Goal, Row, TimesBetter

THREE = [OURS, SDK, FASTMCP]
INSTALLED = [OURS_CORE, SDK, FASTMCP]
_HTTP = "http"
_one, _more = stdio.opened, partial(stdio.opened, variant="more")
_few, _thousand, _many = (partial(stdio.opened, tools=tools) for tools in (10, 1_000, 10_000))
_web, _web_more, _web_large, _web_sessions = (
    web.opened,
    partial(web.opened, variant="more"),
    partial(web.opened, variant="large"),
    partial(web.opened, tools=1),
)
_memory, _client, _web_client = programs.in_memory, programs.on_stdio, programs.on_http
_IN_TURN, _AT_ONCE = programs.told("in_turn"), programs.told("at_once")


def _http_rows(
    era: str, measure: Callable[[int], Callable[[web.Site, float], Figure]], *goals: Goal
) -> list[Row]:
    """Return the rows of one era, for 1, 32 and 256 connections; the goals are those of 32."""
    return [
        Row(
            f"http_{era}_{count}",
            f"HTTP, {era} era, {count} connection{'s' * (count > 1)}",
            PER_SECOND,
            _web,
            measure(count),
            "each connection sends a call after the previous call has been answered",
            goals=goals if count == 32 else (),
            group=_HTTP,
        )
        for count in (1, 32, 256)
    ]


ROWS = [
    Row(
        "import",
        "importing the server class",
        "ms",
        programs.alone,
        programs.imported,
        "the run time of an interpreter that imports the class, until it has ended, minus the run "
        "time of one that imports nothing; Dovetail is installed without extras",
        INSTALLED,
        (TimesBetter(SDK, 10), AtMost(50)),
    ),
    Row(
        "installed",
        "distributions installed",
        "",
        programs.alone,
        programs.distributions,
        "the distribution and all its dependencies, direct and indirect, without extras",
        INSTALLED,
        rounds=1,
    ),
    Row(
        "first_answer",
        "start to first answer, stdio",
        "s",
        programs.alone,
        stdio.first_answer,
        "the time from the start of the process to the answer to `initialize`; the CPU time also "
        "includes the shutdown of the process; Dovetail is installed without extras",
        implementations=[*INSTALLED, FLOOR],
        goals=(TimesBetter(SDK, 6),),
        rounds=8,
    ),
    Row(
        "stdio_in_turn",
        "stdio, one call at a time",
        PER_SECOND,
        _one,
        stdio.in_turn,
        "each call is sent after the previous call has been answered",
        goals=(TimesBetter(SDK, 18),),
    ),
    Row(
        "stdio_pipelined",
        "stdio, 64 calls in flight",
        PER_SECOND,
        _one,
        stdio.pipelined,
        "each answer triggers the next call, so that 64 calls are always in flight",
        goals=(AtMost(11.5, cpu=True, python="3.11"), AtMost(9, cpu=True, python="3.13")),
    ),
    Row(
        "stdio_memory",
        "memory of a server with one tool",
        "MiB",
        _one,
        stdio.memory,
        "the resident memory after a round of the two measurements above",
        goals=(AtMost(30),),
        rounds=1,
    ),
    Row(
        "stdio_progress",
        "stdio, progress notifications",
        PER_SECOND,
        _more,
        stdio.progress,
        "each call sends 1,000 notifications, and the rate counts notifications",
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
    *_http_rows("stateless", web.stateless, TimesBetter(SDK, 10), TimesBetter(FLOOR, 0.75)),
    *(
        Row(
            f"http_{scheme}",
            f"HTTP behind {title}",
            PER_SECOND,
            partial(auth.opened, scheme=scheme),
            web.stateless(32),
            "32 connections, stateless era; each request carries the same token, which was "
            f"obtained before the measurement; {how}; Dovetail counts the calls for a rate limit "
            "that is never reached",
            implementations,
            (AtMostTimesRow("http_stateless_32", 1.25),),
            group=_HTTP,
        )
        for scheme, title, how, implementations in (
            (
                "api_key",
                "an API key",
                "the server knows the key (`ApiKeys`; in the SDK, a `token_verifier` that compares "
                "it; in FastMCP, `StaticTokenVerifier`)",
                THREE,
            ),
            (
                "jwt",
                "a JWT",
                "the server has the public key of its RS256 signature (`Bearer` with `jwt`, which "
                "checks the signature once and then recognizes the token by its digest; in "
                "FastMCP, `JWTVerifier`; the SDK has no verifier for JWTs)",
                [OURS, FASTMCP],
            ),
            (
                "provider",
                "its own authorization server",
                "the server has issued the token (`Provider` with its default storage, a SQLite "
                "file)",
                [OURS],
            ),
        )
    ),
    Row(
        "http_p99",
        "HTTP, stateless era, at 80% of the highest rate of each program",
        "ms",
        _web,
        open_loop.p99_at_80_percent,
        "2,000 requests of the stateless era are sent on a schedule, at 80% of the rate that the "
        "same program reached with 32 connections just before, so a faster program receives more "
        "requests per second; the latency of a request counts from the time at which it was due",
        group=_HTTP,
    ),
    *_http_rows("handshake", web.handshake, TimesBetter(SDK, 9)),
    Row(
        "http_progress",
        "HTTP, progress notifications",
        PER_SECOND,
        _web_more,
        web.progress,
        "each call, in the handshake era, sends 1,000 notifications in an event stream, and the "
        "rate counts notifications",
    ),
    Row(
        "http_mib",
        "HTTP, calls with 1 MiB both ways",
        PER_SECOND,
        _web_large,
        web.echo,
        "one connection, handshake era; the tool is the same as on stdio",
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
        (AtMost(4),),
        1,
    ),
    Row(
        "sessions_1",
        "HTTP, calls in one of 10,000 sessions",
        PER_SECOND,
        _web_sessions,
        web.one_session,
        "32 connections send calls, all in the same session",
        [OURS, SDK],
    ),
    Row(
        "sessions_10000",
        "HTTP, calls in 10,000 sessions",
        PER_SECOND,
        _web_sessions,
        web.many_sessions,
        "32 connections send calls, each in a different session",
        [OURS, SDK],
        (AtMost(40, cpu=True),),
    ),
    Row(
        "in_memory",
        "client to server in memory",
        PER_SECOND,
        _memory,
        _IN_TURN,
        "in one process, one call at a time; the floor encodes and decodes both messages",
        goals=(TimesBetter(SDK, 15),),
    ),
    Row(
        "in_memory_64",
        "client to server in memory, 64 calls at once",
        PER_SECOND,
        _memory,
        _AT_ONCE,
        "in one process, from 64 asyncio tasks; the floor is not measured because it never waits",
        THREE,
        (TimesBetter(SDK, 12),),
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
        "client on stdio, 64 calls at once",
        PER_SECOND,
        _client,
        _AT_ONCE,
        "the client calls the floor's server",
        THREE,
    ),
    Row(
        "client_mib",
        "client CPU time for a 64 MiB result on stdio",
        "s",
        _client,
        programs.big,
        "the client receives one result from the floor's server on stdio (FastMCP uses the SDK's "
        "client)",
        [OURS, SDK],
        (AtMost(1),),
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
        (TimesBetter(SDK, 10),),
    ),
    Row(
        "client_http_64",
        "client over HTTP, 64 calls at once",
        PER_SECOND,
        _web_client,
        _AT_ONCE,
        "the client calls the floor's server",
        THREE,
        (TimesBetter(SDK, 30),),
    ),
    Row(
        "client_peak",
        "peak memory of a client for a 64 MiB result over HTTP",
        "MiB",
        programs.on_http_again,
        programs.peak_memory,
        "the highest resident memory of the client process during one call of the floor's server, "
        "minus the resident memory before that call (FastMCP uses the SDK's client)",
        [OURS, SDK],
        (AtMost(3 * 64),),
        1,
    ),
    *features.ROWS,
]
GROWTH = [
    ("a call, with 10,000 tools instead of 10", "tools_10", "tools_10000", 1),
    ("a list of tools, per listed tool, with 10,000 instead of 10", "list_10", "list_10000", 1000),
    ("an HTTP call, in all of 10,000 sessions instead of one", "sessions_1", "sessions_10000", 1),
]
"""Titles, the rows that are compared, and how many times more the second one does."""
