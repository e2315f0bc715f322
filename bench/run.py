"""What `make bench` runs: every row of the table, then the page.

    python -m bench.run [--short] [--only NAME]…

`--only http` takes the rows whose names begin so; `--short` takes one short round of each, and its
figures are rough. Neither writes the page. A full run leaves its figures in `docs/benchmarks.json`,
from which `python -m bench.report` writes the page and the README's table again.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import groupby

from . import machine, report, words
from .figures import Figure, Figures, best
from .measures import ROWS, Row, Scene
from .parties import HERE, Party, install_peers


def measured(rows: Iterable[Row], rounds: int, seconds: float) -> Iterator[tuple[Row, Figures]]:
    """Each row with its figures, as soon as they are there."""
    for scene, together in groupby(rows, key=lambda row: row.scene):
        yield from staged(scene, list(together), rounds, seconds)


def staged(
    scene: Scene, rows: list[Row], rounds: int, seconds: float
) -> Iterator[tuple[Row, Figures]]:
    """The rows of one scene, which is opened once for each party."""
    parties = list(dict.fromkeys(party for row in rows for party in row.parties))
    with ExitStack() as stack:
        stages = {party: stack.enter_context(scene(party)) for party in parties}
        for row in rows:
            taken: dict[Party, list[Figure]] = {party: [] for party in row.parties}
            for _ in range(row.rounds or rounds):
                for party in row.parties:
                    taken[party].append(row.take(stages[party], seconds))
            yield (
                row,
                {party.name: best(figures, row.more_is_better) for party, figures in taken.items()},
            )


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run", description="Measure Dovetail beside its peers."
    )
    parser.add_argument("--short", action="store_true", help="one short round of each, and rough")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only rows whose names begin so"
    )
    return parser.parse_args()


def main() -> None:
    given = options()
    install_peers()
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", str(HERE.parent / "dovetail")], check=True
    )  # as pip does
    rows = [
        row
        for row in ROWS
        if not given.only or any(row.name.startswith(name) for name in given.only)
    ]
    begun = time.monotonic()
    found: dict[str, Figures] = {}
    print(words.heading())
    for row, figures in measured(rows, *((1, 0.3) if given.short else (3, 1.0))):
        found[row.name] = figures
        print(words.line(row, figures), flush=True)
    print(f"\n{words.verdicts(found)}\n\nThat took {time.monotonic() - begun:.0f} s.")
    if not given.short and not given.only:
        report.keep({"machine": machine.described(), "figures": found})
        report.write()


if __name__ == "__main__":
    main()
