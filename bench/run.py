"""Measures every row of the table, and writes the page. `make bench` runs it.

    python -m bench.run [--short] [--only NAME]…

`--only http` measures the rows whose names begin with `http`. `--short` measures one short round of
each row, and its figures are rough. Neither writes the page. A full run stores its figures in
`docs/` (`report.kept_file`), from which `python -m bench.report` generates the page and the table
in the README.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import groupby
from typing import Any

from . import machine, report, words
from .figures import Figure, Figures, best
from .implementations import PYTHON_VERSION, ROOT, Implementation, install
from .measures import ROWS
from .rows import Fixture, Row

SHORT, FULL = (1, 0.3), (3, 0.8)
"""The number of rounds, and the duration of each measurement in seconds. A full run has to take
less than 12 minutes."""


def measured(rows: Iterable[Row], rounds: int, seconds: float) -> Iterator[tuple[Row, Figures]]:
    """Measure the rows, one group after the other, and yield each with its figures."""
    for _, group in groupby(rows, key=lambda row: row.group or row.fixture):
        yield from measured_group(list(group), rounds, seconds)


def measured_group(rows: list[Row], rounds: int, seconds: float) -> Iterator[tuple[Row, Figures]]:
    """Measure the rows of one group, which take turns, as the implementations do. Each fixture is
    opened once for each implementation."""
    opened: dict[tuple[Fixture, Implementation], Any] = {}
    taken: dict[tuple[str, str], list[Figure]] = {}
    with ExitStack() as stack:
        for row in rows:
            for one in row.implementations:
                if (row.fixture, one) not in opened:
                    opened[row.fixture, one] = stack.enter_context(row.fixture(one))
        for number in range(max(row.rounds or rounds for row in rows)):
            for row in rows:
                for one in row.implementations if number < (row.rounds or rounds) else ():
                    figure = row.measure(opened[row.fixture, one], seconds)
                    taken.setdefault((row.name, one.name), []).append(figure)
    for row in rows:
        figures = {one.name: taken[row.name, one.name] for one in row.implementations}
        yield row, {name: best(found, row.more_is_better) for name, found in figures.items()}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run", description="Compare Dovetail with its peers."
    )
    parser.add_argument("--short", action="store_true", help="measure one short round of each row")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="measure only rows whose names begin with NAME",
    )
    return parser.parse_args()


def main() -> None:
    given = options()
    install()
    machine.fix_addresses()
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", str(ROOT / "dovetail")], check=True
    )  # as pip does
    rows = [
        row
        for row in ROWS
        if not given.only or any(row.name.startswith(name) for name in given.only)
    ]
    begun = time.monotonic()
    found: dict[str, Figures] = {}
    print(words.heading())
    for row, figures in measured(rows, *(SHORT if given.short else FULL)):
        found[row.name] = figures
        print(words.line(row, figures), flush=True)
    print(
        f"\n{words.verdicts(found, PYTHON_VERSION)}\n\nThat took {time.monotonic() - begun:.0f} s."
    )
    if not given.short and not given.only:
        kept = {"machine": machine.described(), "figures": found}
        report.keep(kept, report.kept_file(PYTHON_VERSION))
        report.write()


if __name__ == "__main__":
    main()
