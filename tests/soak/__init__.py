"""Mixed traffic over all transports for as long as one likes, and whether anything grows with it.

`server.py` is the server, `traffic.py` what its clients do, `gauges.py` what is read off both and
when that counts as grown, `__main__.py` runs it: `make soak`, or `python -m tests.soak --minutes
10`. `tasks.py` runs many tasks through workers on a shared backend.
"""
