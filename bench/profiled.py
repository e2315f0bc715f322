"""Profiles our server or client under the load of one row.

    python -m bench.profiled ROW [--by tottime] [--lines 30]

The profiler makes small functions look expensive, and it measures time on the clock, which includes
waiting and other jobs of the machine. Its shares are only hints. To find out what a change is
worth, run `python -m bench.run --only ROW`. Only the first process of a server is profiled, and not
its workers.
"""

import argparse
import pstats
import tempfile

from .implementations import OURS
from .measures import ROWS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profiled")
    parser.add_argument("row", choices=[row.name for row in ROWS])
    parser.add_argument(
        "--by",
        default="tottime",
        help="the order of the functions: tottime (default), cumtime or ncalls",
    )
    parser.add_argument("--lines", type=int, default=30)
    given = parser.parse_args()
    (row,) = (row for row in ROWS if row.name == given.row)
    with tempfile.NamedTemporaryFile(suffix=".prof") as file:
        with row.fixture(OURS._replace(flags=("-m", "cProfile", "-o", file.name))) as opened:
            row.measure(opened, 3.0)
        pstats.Stats(file.name).strip_dirs().sort_stats(given.by).print_stats(given.lines)


if __name__ == "__main__":
    main()
