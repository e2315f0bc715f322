"""The text of docs/benchmarks.md."""

PAGE = """# Benchmarks

`make bench` performs these measurements and generates this page. `make bench PYTHON=python3.13 VENV=.venv-3.13`
measures with another version of Python. Unless noted otherwise, the figures are from Python {python}. A run alternates
between Dovetail, the official SDK (`mcp`), FastMCP and a floor. Unless noted otherwise, each server has one trivial
tool, `add(a, b)`. The benchmark sends raw bytes to the servers, so that no client affects the result. The floor is a
program that decodes each message, does the work and encodes the answer, without implementing the protocol. On stdio,
the floor is a bare loop; over HTTP, it is a bare ASGI application on uvicorn.

All programs are measured as installed. `dovetail-mcp[http]` installs uvloop and httptools, and the floor uses both;
`mcp` and `fastmcp` do not install them. If you install uvloop and httptools into `.venv-bench-{python}`, the peers use them
too.

Each figure is the best of several rounds, because interference can only make a measurement worse. Only the ratios apply
to other machines. The ratios in parentheses, which compare the CPU time of the measured processes, vary least.

![How many times better than the official SDK](benchmarks.svg)

## Ratios and goals

{ratios}
Each number states how many times better Dovetail is, by the figure itself and, in parentheses, by CPU time. If only
one of the two ratios meets a goal, the table says which. For a goal that compares two rows of Dovetail, the number in
parentheses after the result is the ratio of their CPU times.

Goals in milliseconds or microseconds are for an x86 machine from 2024. On another machine, compare the ratios.
{others}
## Missed goals

{missed}

## Growth

This table shows how much of the rate remains as the load grows, measured by CPU time. 100% means no loss.

{growth}
## The machine

{machine}

## Absolute figures

These figures come from one run on the machine above and do not predict the performance of other machines. Each rate is
followed by the CPU time of one call: in the client process for the client rows, and in the server process for all other
rows. The in-memory rows use a single process. Some rows count all processes of the server; the section
[Method](#method) says which.

{absolute}
This table shows the latency of a call over HTTP. All connections are busy, except in the row at 80% load, where requests
are sent on a schedule:

{latencies}
## Method

{how}

`python -m bench.run --only http` measures only the rows whose names begin with `http`. With `--short`, a run finishes
sooner but is less precise. `bench/measures.py` and `bench/features.py` define the rows. `python -m bench.profiled ROW`
profiles Dovetail under the load of one row. CI runs `make bench-check`, which compares four of the floor ratios with
`bench/ratios.json` and fails if a ratio has fallen by half.
"""  # noqa: E501

OTHER_PYTHON = """
### Python {python}

These ratios are from a second run on the same machine, with {system}.

{ratios}"""

# Why a goal was missed, by row. `why` appends the command of a profile.
_HTTP = """
About half of the time of a call is spent in uvicorn, as it is for the floor. The rest is spent in Dovetail: on one asyncio
task per call, which takes an extra loop iteration before Python 3.12, and on checking the headers, the params, the
arguments and the result.
"""  # noqa: E501
_TOKEN = """
In addition to the work of the open server, the server computes the digest of the token, looks it up, and counts the call
for the rate limit of its owner. Without a token, callers on the same machine are not counted.
"""  # noqa: E501
_IN_MEMORY = """
In memory, the SDK passes objects and does not encode messages. Dovetail lowers, encodes and decodes messages as it does on
other transports, so that an in-memory test shows exactly what would be sent. Each call also takes four loop iterations.
"""  # noqa: E501
_CLIENT_HTTP = """
Each call is one HTTP request. About a fifth of the client's CPU time is spent in system calls. The rest is spread over
many small steps: encoding, parsing the response, and waking up the task that waits.
"""  # noqa: E501
_REDACT = """
The server searches each encoded result for signs of credentials. A result that has none is sent as it is. The time is
that of the search, which reads the result about twenty times.
"""  # noqa: E501
_MIDDLEWARE = """
Without middleware, the server sends a list as bytes that it has encoded once. Middleware may change a list, so that the
list is built, lowered to the revision and encoded for each request. An extension with `around=` for one method does not
affect the other methods.
"""  # noqa: E501
_MIDDLEWARE_TABLE = """
Without middleware, the structured content of a result is sent as it was encoded to check it. Middleware may look at it or
change it, so that it is decoded and encoded again.
"""  # noqa: E501
_WORKERS = """
The load generator and two workers share the two cores of this machine. One worker has a core to itself, so that its data
stays in the caches. The workers exchange no messages for a call.
"""  # noqa: E501
_TASK = """
The three requests of a task (start, look, result) pass through the client and the server in the same process. The time is
spread over many small steps.
"""  # noqa: E501
_SUBSCRIBERS = """
Each event of each stream is sent separately: its message is encoded with the id of the subscription, and sending it takes
an ASGI message and a write to the socket. The write alone, a system call, takes about 10 µs.
"""  # noqa: E501
WHY = {
    "import": """
The time is spread over the modules of Dovetail, which define the types of the protocol, and modules of the standard
library.
""",  # noqa: E501
    "stdio_in_turn": """
Each call takes two iterations of the event loop. With many calls in flight, one iteration serves many calls. About a
tenth of the CPU time is spent in system calls.
""",  # noqa: E501
    "stdio_pipelined": """
A call takes about five times as long as in the floor, which only decodes and encodes. Each call is an asyncio task, so that
it can be cancelled individually. Python 3.12 starts tasks eagerly; on earlier versions, the task accounts for more than a
quarter of the time. The rest is spread over many small steps.
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
A call in another session costs a few microseconds more than a call in the same session, because its headers are not among
those that the server remembers. The rest is what a call over HTTP costs.
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
PROFILES = {"import": "python -X importtime -c 'from dovetail import Server'"}
"""The commands that profile a row, if `bench.profiled` cannot."""


def why(row: str) -> str:
    """Explain why the goal of a row was missed, and how to see it."""
    profile = PROFILES.get(row, f"python -m bench.profiled {row}")
    return f"{WHY.get(row, '')} To see where the time goes, run `{profile}`."
