"""Where the time goes: our server under the load of one row, in the profiler.

    python -m bench.profiled ROW [--by tottime] [--lines 30]

The profiler makes small functions dear, so that its shares are hints; what a change is worth is
told by `python -m bench.run --only ROW`.
"""

import argparse
import pstats
import tempfile

from .measures import ROWS
from .parties import OURS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profiled")
    parser.add_argument("row", choices=[row.name for row in ROWS if OURS in row.parties])
    parser.add_argument(
        "--by", default="tottime", help="how the functions are sorted (tottime, cumtime, ncalls)"
    )
    parser.add_argument("--lines", type=int, default=30)
    given = parser.parse_args()
    (row,) = (row for row in ROWS if row.name == given.row)
    with tempfile.NamedTemporaryFile(suffix=".prof") as file:
        with row.scene(OURS._replace(flags=("-m", "cProfile", "-o", file.name))) as stage:
            row.take(stage, 3.0)
        pstats.Stats(file.name).strip_dirs().sort_stats(given.by).print_stats(given.lines)


if __name__ == "__main__":
    main()
