"""Dovetail, the official SDK, FastMCP and the floor, measured side by side. `make bench` runs it;
only ratios mean anything.

`parties.py` says who takes part, `measures.py` what is measured: each a table. `stdio.py`, `web.py`
and `programs.py` measure, `servers/` and `clients.py` are what is measured. `run.py` goes through
the table, `words.py`, `report.py`, `chart.py` and `notes.py` say what came out, `check.py` is the
short form for CI, `profiled.py` shows where the time goes, `tasks.py` is about tasks alone, and
`gateway_start.py` about the start of a gateway.

`make bench-gateway` compares gateways: `gateways.py` says who takes part, `gateway.py` what is
measured, and `gateway_page.py` what came out.
"""
