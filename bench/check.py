"""The short form for CI: a few ratios to the floor, against those that were written down.

    python -m bench.check [--record]

It fails only where a ratio has fallen by half: machines differ, and have neighbours. A ratio is the
floor's processor time for one call over ours, at the best of several rounds that take turns, which
is steadier than a rate; where the system does not tell processor times, it is that of the rates.
`--record` writes the ratios down.
"""

import json
import sys

from .figures import Figure
from .measures import ROWS
from .parties import FLOOR, HERE, OURS
from .run import measured

CHECKED = ["stdio_pipelined", "http_stateless_32", "http_handshake_32", "in_memory"]
ROUNDS, SECONDS, FALLEN = 4, 0.5, 0.5
WRITTEN = HERE / "ratios.json"


def ratio(ours: Figure, floor: Figure) -> float:
    """How much of the floor we reach."""
    return floor.cpu / ours.cpu if ours.cpu and floor.cpu else ours.value / floor.value


def fallen(found: dict[str, float], written: dict[str, float]) -> list[str]:
    """What is less than half of what it was."""
    return [name for name in CHECKED if found[name] < written[name] * FALLEN]


def main() -> None:
    rows = [row._replace(parties=[OURS, FLOOR]) for row in ROWS if row.name in CHECKED]
    found = {
        row.name: round(ratio(figures[OURS.name], figures[FLOOR.name]), 3)
        for row, figures in measured(rows, ROUNDS, SECONDS)
    }
    if "--record" in sys.argv:
        WRITTEN.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    written = json.loads(WRITTEN.read_text(encoding="utf-8"))
    for name in CHECKED:
        print(f"{name:20}{found[name]:6.1%} of the floor, written down {written[name]:6.1%}")
    if slow := fallen(found, written):
        sys.exit(f"{', '.join(slow)}: less than half of what was written down")


if __name__ == "__main__":
    main()
