"""The second part of the table: features that only Dovetail has, and those that are compared with
Dovetail's own plain server."""

from functools import partial

from . import isolation, programs, stdio, streams
from .implementations import OURS
from .rows import PER_SECOND, AtMost, AtMostTimesRow, Row

_OURS = [OURS]
_REQUESTS = {
    "list": ("listing 10 tools", stdio.LIST),
    "call": ("calls", stdio.CALL),
    "table": ("calls that return 50 rows", stdio.TABLE),
}
_VARIANTS = {
    "plain": "plain server",
    "redact": "server with `redact=`",
    "middleware": "server with middleware",
}
_SERVERS = {variant: partial(stdio.opened, tools=10, variant=variant) for variant in _VARIANTS}
_WORKERS = {count: partial(streams.opened_with_workers, count=count) for count in (1, 2)}

ROWS = [
    *(
        Row(
            f"{variant}_{request}",
            f"{server}, {title}",
            PER_SECOND,
            _SERVERS[variant],
            partial(stdio.pipelined, request=line),
            "on stdio, with 64 requests in flight; the server has `redact=redact_secrets`, which "
            "removes credentials from results, or middleware that counts the errors and content "
            "blocks of calls and the tools of lists",
            _OURS,
            () if variant == "plain" else (AtMostTimesRow(f"plain_{request}", 1.2),),
            group="variants",
        )
        for request, (title, line) in _REQUESTS.items()
        for variant, server in _VARIANTS.items()
    ),
    Row(
        "isolated_call",
        '`isolate="process"`, one call',
        "ms",
        isolation.opened,
        isolation.call,
        "the time from sending a call to its answer, on stdio, with a spare process ready; the "
        "median of several calls",
        _OURS,
        (AtMost(5),),
    ),
    Row(
        "isolated_memory",
        '`isolate="process"`, memory of a spare process',
        "MiB",
        isolation.opened,
        isolation.spare_memory,
        "the mean resident memory of the child processes of an idle server",
        _OURS,
        rounds=1,
    ),
    Row(
        "isolated_rate",
        '`isolate="process"`, sustained calls',
        PER_SECOND,
        isolation.opened,
        stdio.pipelined,
        "on stdio, with 64 calls in flight, of which 8 run at the same time; the CPU time is that "
        "of all processes",
        _OURS,
    ),
    *(
        Row(
            f"tasks_{store}",
            f"CPU time of an MCP task, {title}",
            "ms",
            programs.alone,
            programs.tasks(store),
            "each task is started, polled, finished and polled again; client and server are in one "
            "process",
            _OURS,
            (AtMost(bound),),
        )
        for store, title, bound in (("memory", "in memory", 0.40), ("file", "in SQLite", 0.70))
    ),
    *(
        Row(
            f"workers_{era}_{count}",
            f"HTTP, {era} era, {count} worker{'s' * (count > 1)}",
            PER_SECOND,
            fixture,
            partial(streams.calls, era=era),
            "32 connections send calls while 50 event streams are open; the CPU time is that of "
            "all processes of the server",
            _OURS,
            () if count == 1 else (AtMostTimesRow(f"workers_{era}_1", 1.1),),
            group="workers",
        )
        for era in ("stateless", "handshake")
        for count, fixture in _WORKERS.items()
    ),
    *(
        Row(
            f"subscribers_{count}",
            f"CPU time per subscriber and change, {count} subscriber{'s' * (count > 1)}",
            "µs",
            streams.opened_with_resource,
            partial(streams.notify_subscribers, count=count),
            "a tool changes a resource 100 times, and each subscriber receives each change on a "
            "`subscriptions/listen` stream",
            _OURS,
            (AtMost(10),),
        )
        for count in (1, 10, 100)
    ),
]
