"""The short form for CI: compares a few ratios to the floor with recorded ones.

    python -m bench.check [--record]

The check fails only if a ratio has fallen by half, because machines differ and run other jobs. A
ratio is the floor's CPU time for one call divided by ours, each the best of several rounds that
take turns. CPU time varies less than a rate; if the system does not report it, the rates are
compared. `--record` records the ratios.
"""

import json
import sys

from . import machine
from .figures import Figure
from .implementations import FLOOR, HERE, OURS
from .measures import ROWS
from .run import measured

CHECKED = ["stdio_pipelined", "http_stateless_32", "http_handshake_32", "in_memory"]
ROUNDS, SECONDS, FALLEN = 4, 0.5, 0.5
WRITTEN = HERE / "ratios.json"


def ratio(ours: Figure, floor: Figure) -> float:
    """Return the share of the floor that we reach."""
    return floor.cpu / ours.cpu if ours.cpu and floor.cpu else ours.value / floor.value


def fallen(found: dict[str, float], written: dict[str, float]) -> list[str]:
    """Return the rows that reach less than half of the recorded ratio."""
    return [name for name in CHECKED if found[name] < written[name] * FALLEN]


def main() -> None:
    machine.fix_addresses()
    rows = [
        row._replace(implementations=[OURS, FLOOR], group=None)
        for row in ROWS
        if row.name in CHECKED
    ]
    found = {
        row.name: round(ratio(figures[OURS.name], figures[FLOOR.name]), 3)
        for row, figures in measured(rows, ROUNDS, SECONDS)
    }
    if "--record" in sys.argv:
        WRITTEN.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    written = json.loads(WRITTEN.read_text(encoding="utf-8"))
    for name in CHECKED:
        print(f"{name:20}{found[name]:6.1%} of the floor, recorded {written[name]:6.1%}")
    if slow := fallen(found, written):
        sys.exit(f"{', '.join(slow)}: less than half of the recorded ratio")


if __name__ == "__main__":
    main()
