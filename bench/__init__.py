"""Compares Dovetail with the official SDK, FastMCP and a floor. `make bench` runs it; only the
ratios apply to other machines.

    implementations   what is compared, and its environments and processes
    rows              the form of a row and of its goals
    measures          the table of rows; features is its second part
    stdio, web, open_loop, streams, auth, isolation, programs
                      start servers and clients, and measure them
    servers, clients  the programs that are measured
    run               measures all rows
    words, report, chart, notes
                      write the page
    check             the short form for CI
    profiled          profiles a row
    tasks, costs      measure tasks, and the cost of each part around a call, in one process
    gateway_start     measures the start of a gateway

`make bench-gateway` compares gateways: `gateways.py` says who takes part, `gateway.py` what is
measured, and `gateway_page.py` what came out.
"""
