"""The text of docs/benchmarks.md."""

PAGE = """# Benchmarks

`make bench` performs these measurements and generates this page. A run alternates between Dovetail, the official SDK
(`mcp`), FastMCP and a floor. Unless noted otherwise, each server has one trivial tool, `add(a, b)`, and the figures are
from Python {python}. The benchmark sends raw bytes to the servers, so that no client affects the result.

**The floor** is a program that decodes each message, does the work and encodes the answer, without implementing the
protocol. On stdio, it is a bare loop; over HTTP, it is a bare ASGI application on uvicorn. The floor is a reference, not
a limit: Dovetail answers most HTTP calls without ASGI, and it stores encoded lists, which the floor encodes each time.

**The eras** are two groups of protocol revisions. In the *handshake era*, up to 2025-11-25, a client opens a session
with `initialize`. In the *stateless era*, from 2026-07-28, there are no sessions. The rows for stdio and the handshake
era use revision 2025-06-18, which all of these programs support.

**Rounds.** Each figure is the best of three rounds of 0.8 s, because interference can only make a measurement worse. The
start is measured eight times; memory, installed distributions and 64 MiB results are measured once. All processes start
without address space layout randomization if the system allows it, because an unlucky layout can cost a third more CPU
time. Ratios of different runs can still differ by a third or more, so do not rely on small differences.

## Ratios and goals

Each number says how many times better Dovetail is, by the figure itself and, in parentheses, by the CPU time of the
measured processes, which varies least. A number above 1 means that Dovetail is faster or smaller, and a number below 1
that it is slower or larger. An empty cell in a column of ratios means that the program was
not measured in this row. If only one of the two ratios meets a goal, the table says which.

Goals in milliseconds or microseconds were set for an x86 server processor from 2024. On the machine of these runs, the
same code takes one and a half to two times as long, so some of these goals are out of reach here.

![How many times better than the official SDK](benchmarks.svg)

{ratios}
### Features of Dovetail

These features were measured with Dovetail only, although some of the others have similar features. After a rate,
the table shows the CPU time of one call or one list. A goal either compares this CPU time with that of another row, or
sets a bound.

{costs}{others}
## Missed goals

{missed}

## Growth

This table shows how the CPU time of a request changes as a server grows: the CPU time with the larger number divided by
the CPU time with the smaller number. 1.00 means that nothing changes, and less is better. Differences of some percent
are noise.

{growth}
## The machine

{machine}

## Absolute figures

These figures come from one run on the machine above and do not predict the performance of other machines. The CPU time
follows the figure. For a rate, it is the CPU time of one call, one list or one notification; otherwise, it is that of
the whole process. In the client rows, it is the CPU time of the client, and in all other rows that of the server. The
in-memory rows use a single process.

{absolute}
This table shows the latency of a call over HTTP. All connections are busy, except in the row at 80% of the highest rate,
where requests are sent on a schedule. If all connections are busy, the mean latency is the number of connections divided
by the rate. At 80% of the highest rate, the 99th percentile depends on a few pauses, for example for garbage
collection, and varies greatly between runs. A faster program receives more requests per second:

{latencies}
## Method

You need Linux, two cores and about ten minutes. `make bench` uses `python3`, and
`make bench PYTHON=python3.13 VENV=.venv-3.13` uses another version of Python. The page shows the newest runs with Python
3.11 and 3.13. Delete `.venv-bench-*` first to measure the newest versions of the SDK and FastMCP.

All programs are measured as installed, with these exceptions:

- The SDK and FastMCP run with `json_response=True`, except for progress notifications, and with the log level `ERROR`.
  The SDK runs with `max_sessions=None`, because its limit is 10,000 sessions.
- Dovetail runs with `progress_interval=0`. By default, it sends a progress notification at most every 20 ms.
- For many tools, the SDK and FastMCP get copies of one tool, because they take milliseconds to create each tool.

`dovetail-mcp[http]` installs uvloop and httptools, and the floor uses both; `mcp` and `fastmcp` do not install them. If
you install uvloop and httptools into `.venv-bench-{python}`, the SDK and FastMCP use them too.

{how}

`python -m bench.run --only http` measures only the rows whose names begin with `http`. With `--short`, a run finishes
sooner but is less precise. `bench/measures.py` and `bench/features.py` define the rows. `python -m bench.profiled ROW`
profiles Dovetail under the load of one row. Use the Python of `.venv` for these commands. CI runs `make bench-check`,
which compares four of the floor ratios with `bench/ratios.json` and fails if a ratio is less than half of the recorded
one.
"""  # noqa: E501

OTHER_PYTHON = """
### Python {python}

These figures are from a separate run: {machine}.

{ratios}
Features that were measured with Dovetail only:

{costs}"""

# Why a goal was missed, by row.
_HTTP = """
About half of the time of a call is spent in uvicorn, as it is for the floor. The rest is spent in Dovetail: on one asyncio
task per call, which takes an extra loop iteration before Python 3.12, and on checking the headers, the params, the
arguments and the result.
"""  # noqa: E501
_TOKEN = """
In addition to the work of a server without authentication, the server computes the digest of the token, looks it up, and
counts the call for the rate limit of its owner. Without a token, callers on the same machine are not counted.
"""  # noqa: E501
_IN_MEMORY = """
In memory, the SDK passes objects and does not encode messages. Dovetail adapts messages to the protocol revision, encodes
and decodes them as it does on other transports, so that an in-memory test shows exactly what would be sent. Each call
also takes four iterations of the event loop.
"""  # noqa: E501
_CLIENT_HTTP = """
Each call is one HTTP request. About a fifth of the client's CPU time is spent in system calls. The rest is spread over
many small steps: encoding, parsing the response, and waking up the task that waits.
"""  # noqa: E501
_REDACT = """
The server searches each encoded result for signs of credentials. A result that has none is sent as it is. The extra CPU
time is spent on this search, which scans the result about twenty times.
"""  # noqa: E501
_MIDDLEWARE = """
Without middleware, the server sends a list as bytes that it has encoded once. Middleware may change a list, so the server
builds the list, adapts it to the protocol revision and encodes it for each request.
"""  # noqa: E501
_MIDDLEWARE_TABLE = """
Without middleware, the structured content of a result is sent as it was encoded to check it. Middleware may read it or
change it, so the server decodes and encodes it again.
"""  # noqa: E501
_WORKERS = """
The load generator and two workers share the two cores of this machine, whereas a single worker has a core to itself, so
its data stays in the caches. The workers exchange no messages for a call.
"""  # noqa: E501
_TASK = """
A task takes three requests (start it, poll it, and poll it again for its result). Each request passes through the client
and the server, which are in the same process. A third of the figure is about twice the CPU time of an in-memory call,
because the task must also be created, stored, run and finished.
"""  # noqa: E501
_SUBSCRIBERS = """
Each event of each stream is sent separately: its message is encoded with the id of the subscription, and sending it takes
an ASGI message and a write to the socket. The write alone, a system call, takes about 10 µs on this machine, so the goal
would require that several events are written at once. With one subscriber, the figure also contains the work of the tool
that makes the change.
"""  # noqa: E501
WHY = {
    "import": """
More than half of the time is spent on the modules of Dovetail, which define the types of the protocol, and most of the
rest on modules of the standard library.
""",  # noqa: E501
    "stdio_in_turn": """
Each call takes two iterations of the event loop. With many calls in flight, one iteration serves many calls. About a
tenth of the CPU time is spent in system calls.
""",  # noqa: E501
    "stdio_pipelined": """
A call takes about five times as long as in the floor, which only decodes and encodes. Dovetail also validates the request,
its arguments and the result. Each call is an asyncio task, so that it can be cancelled individually. From Python 3.12 on,
Dovetail starts these tasks eagerly; before, the task accounts for more than a quarter of the CPU time.
""",  # noqa: E501
    "http_stateless_32": _HTTP,
    "http_handshake_32": _HTTP,
    "http_api_key": _TOKEN,
    "http_jwt": _TOKEN,
    "http_provider": """
The server asks SQLite for each request whether any process has changed the file (`PRAGMA data_version`), so that a token
that another process revokes is refused at once. With `storage=":memory:"`, this is not needed.
""",  # noqa: E501
    "sessions_10000": """
The goal is lower than the CPU time of any HTTP call on this machine, including that of the floor. Calls that are spread
over 10,000 sessions take slightly more CPU time than calls in one of them (see [Growth](#growth)).
""",  # noqa: E501
    "in_memory": _IN_MEMORY,
    "in_memory_64": _IN_MEMORY,
    "client_http": _CLIENT_HTTP,
    "client_http_64": _CLIENT_HTTP,
    "redact_call": _REDACT,
    "redact_table": _REDACT,
    "middleware_list": _MIDDLEWARE,
    "middleware_table": _MIDDLEWARE_TABLE,
    "workers_stateless_2": _WORKERS,
    "workers_handshake_2": _WORKERS,
    "isolated_call": """
While a call runs, the server also starts the next spare process.
""",
    "tasks_memory": _TASK,
    "tasks_file": """
In addition to the work of a task in memory, each task takes several SQL statements.
""",
    **dict.fromkeys(("subscribers_1", "subscribers_10", "subscribers_100"), _SUBSCRIBERS),
}
HINTS = {
    "import": "To see where the time goes, run `python -X importtime -c 'from dovetail import "
    "Server'`.",
    **dict.fromkeys(
        ("workers_stateless_2", "workers_handshake_2"),
        "To see the effect, run `python -m bench.run --only workers` on a machine with more cores.",
    ),
}
"""How to see the reason, if `bench.profiled` cannot show it."""


def why(row: str) -> str:
    """Say why the goal of a row was missed."""
    return WHY.get(row, "We have not found the reason yet.")


def hint(row: str) -> str:
    """Say how to see the reason why the goal of a row was missed."""
    default = f"To see where the time goes, run `python -m bench.profiled {row}`."
    return HINTS.get(row, default)
