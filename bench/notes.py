"""The prose of the page."""

PAGE = """# Benchmarks

`make bench` measured this and wrote it down: Dovetail beside the official SDK (`mcp`), FastMCP and the floor, in one
run, taking turns. One trivial tool, `add(a, b)`, serves where nothing else is said. Servers are driven with raw bytes,
so that it is they who are measured and not a client. The floor decodes, does the work and encodes, and knows nothing of
any protocol: on stdio a bare loop, over HTTP a bare ASGI application on uvicorn.

Everybody is measured as installed: `dovetail-mcp[http]` brings uvloop and httptools, which the floor uses too; `mcp` and
`fastmcp` bring neither. Installed into `.venv-bench` by hand, they are used.

Each figure is the best of several rounds, as whatever disturbs a measurement makes it worse. Only ratios carry over to
another machine, and of these, the ones by processor time of the process that is measured are the steadier: they stand in
brackets.

![How many times the official SDK](benchmarks.svg)

## Ratios and goals

{ratios}
A number is how many times better Dovetail is, by the figure itself (and by processor time). A goal that is met by one of
them only says by which.

## Goals that were missed

{missed}

## Growth

What is left of a rate when there is so much more, by processor time; 100 % is all of it.

{growth}
## The machine

{machine}

## Absolute figures

These are of the machine above, in one run; they say little about yours. Beside a rate stands the processor time that one
takes: of the server's process; in memory of the only one; in the rows of clients, of the client's.

{absolute}
How long a call takes over HTTP, with every connection busy:

{latencies}
## What is measured how

{how}

`python -m bench.run --only http` measures only the rows whose names begin so, `--short` all of them roughly;
`bench/measures.py` is the table of them. `make bench-check`, which CI runs, compares four ratios to the floor with those
in `bench/ratios.json`, and fails where one has fallen by half.
"""  # noqa: E501

# What stands in the way, by row.
_HTTP = """
About half of the time of a call is uvicorn's, and the floor's too. The rest is ours: the task that each call is, with the
turn of the loop that it takes before Python 3.12, the checks of the head, the params, the arguments and the result.
"""  # noqa: E501
WHY = {
    "stdio_pipelined": """
A call takes about five times what the floor takes for decoding and encoding alone. It is a task of its own, so that it can
be cancelled and takes nobody along; before Python 3.12, which starts tasks eagerly, that is over a quarter of it. The rest
is spread thin.
""",  # noqa: E501
    "http_stateless_32": _HTTP,
    "http_handshake_32": _HTTP,
    "in_memory": """
In memory the SDK hands objects over, without messages. Ours are encoded, decoded and lowered to the revision as on a wire,
so that a test in memory shows what would be sent; and for one call at a time the loop turns four times.
""",  # noqa: E501
}
