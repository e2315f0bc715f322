"""What a process holds, and whether it holds more at the end than at the start.

A process is read at rest, after garbage was collected and what is free was given back. The start is
what it held after the warm-up, when pools and caches were full; of several readings the middle one
counts, as one may fall into some last breath.
"""

import asyncio
import ctypes
import gc
import os
import threading
from pathlib import Path
from statistics import median

Reading = dict[str, int]
KIB = 1024
ALLOWED = {"memory": 3 * KIB, "objects": 3000, "tasks": 2, "files": 2, "threads": 2}
"""How much more of each is no growth; memory in KiB, objects as the garbage collector counts
them."""
WARM = 0.25
"""The part of the readings that is warm-up."""


def here() -> Reading:
    """This process."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return {
        "memory": int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        * os.sysconf("SC_PAGE_SIZE")
        // KIB,
        "objects": len(gc.get_objects()),
        "tasks": len(asyncio.all_tasks()),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


def grown(readings: list[Reading]) -> list[str]:
    """What has grown from the start to the end, in words."""
    settled = readings[int(len(readings) * WARM) :]
    third = max(len(settled) // 3, 1)
    said = []
    for gauge, allowed in ALLOWED.items():
        start = median(reading[gauge] for reading in settled[:third])
        end = median(reading[gauge] for reading in settled[-third:])
        if end - start > allowed:
            said.append(f"{gauge} from {start:,.0f} to {end:,.0f}")
    return said
