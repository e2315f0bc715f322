"""The former name of `implementations.py`, which the benchmarks of gateways, backends and
inspectors still use."""

from .implementations import (
    HERE as HERE,
    OURS as OURS,
    PAGE as PAGE,
    TICK as TICK,
    Process as Process,
    free_port as free_port,
    listening as listening,
    started as started,
    wait_until_open as wait_until_open,
)
