"""The text of docs/benchmarks.md."""

PAGE = """# Benchmarks

`make bench` took these measurements and wrote this page. It measures Dovetail, the official SDK (`mcp`), FastMCP and a
floor in turn, in one run. Unless noted otherwise, each server has one trivial tool, `add(a, b)`. Servers receive raw
bytes, so that no client affects the result. The floor decodes, does the work and encodes, without any protocol. On
stdio it is a bare loop, and over HTTP it is a bare ASGI application on uvicorn.

All programs are measured as installed. `dovetail-mcp[http]` includes uvloop and httptools, which the floor uses too;
`mcp` and `fastmcp` do not include them. If you install both into `.venv-bench`, the peers use them too.

Each figure is the best of several rounds, because disturbances can only make a measurement worse. Only the ratios apply
to other machines. Ratios by CPU time of the measured process, in parentheses, vary least.

![How many times better than the official SDK](benchmarks.svg)

## Ratios and goals

{ratios}
Each number states how many times better Dovetail is, by the figure itself and, in parentheses, by CPU time. If a goal
is met by only one of the two, the table says which.

## Missed goals

{missed}

## Growth

This table shows how much of a rate remains when the load grows, by CPU time. 100% means no loss.

{growth}
## The machine

{machine}

## Absolute figures

These figures come from one run on the machine above and say little about yours. Next to each rate is the CPU time of
one call: of the client process in the rows for clients, of the server process in all others. In memory, there is only
one process.

{absolute}
This table shows the latency of a call over HTTP, with all connections busy:

{latencies}
## Method

{how}

`python -m bench.run --only http` measures only the rows whose names begin with `http`. `--short` measures all rows in
less time, but less precisely. `bench/measures.py` defines the rows. CI runs `make bench-check`, which compares four of
the floor ratios with `bench/ratios.json` and fails if one has fallen by half.
"""  # noqa: E501

# Why a goal was missed, by row.
_HTTP = """
About half of the time of a call is spent in uvicorn, as it is for the floor. The rest is spent in Dovetail: on one asyncio
task per call, with a loop iteration before Python 3.12, and on the checks of the head, the params, the arguments and the
result.
"""  # noqa: E501
WHY = {
    "stdio_pipelined": """
A call takes about five times as long as the floor, which only decodes and encodes. Each call is an asyncio task, so that it
can be cancelled individually. Before Python 3.12, which starts tasks eagerly, the task takes more than a quarter of the
time. The rest is spread over many small steps.
""",  # noqa: E501
    "http_stateless_32": _HTTP,
    "http_handshake_32": _HTTP,
    "in_memory": """
In memory, the SDK passes objects and does not encode messages. Dovetail encodes, decodes and lowers messages as on a wire,
so that a test in memory shows what would be sent. One call also takes four loop iterations.
""",  # noqa: E501
}
