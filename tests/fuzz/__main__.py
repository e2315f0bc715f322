"""`python -m tests.fuzz`: a million inputs and more, in all processors; prints what became of
them."""

import argparse
import os
import secrets
import sys
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from .engine import KEPT, Tally, once
from .targets import TARGETS, part

PART = 10_000
"""Inputs that are made from one seed, in one process: so which ones there are does not depend on
how many processors."""
CRASHES = Path(".fuzz")


def main() -> int:
    """Run, or run again; 1 where anything crashed."""
    options = _options()
    chosen = {name: target for name, target in TARGETS.items() if options.target in name}
    if not chosen:
        print(
            f"There is no target {options.target!r}; there are: {', '.join(TARGETS)}",
            file=sys.stderr,
        )
        return 2
    if options.replay:
        return _replay(Path(options.replay))
    print(f"seed {options.seed}\n")
    print(f"{'target':<24}{'inputs':>10}{'per second':>12}{'rejected':>10}{'crashes':>9}")
    inputs = crashes = 0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        jobs = {name: _begin(pool, name, options) for name in chosen}
        for name, parts in jobs.items():
            tally = _together(name, (job.result() for job in parts))
            inputs, crashes = inputs + tally.inputs, crashes + tally.crashes
            share = f"{tally.rejected / max(1, tally.inputs):.0%}"
            rate = f"{tally.inputs / max(tally.seconds, 1e-9):,.0f}"
            print(
                f"{name:<24}{tally.inputs:>10,}{rate:>12}{share:>10}{tally.crashes:>9}", flush=True
            )
            _keep(tally, options.seed)
    print(f"\n{inputs:,} inputs, {crashes:,} crashes")
    return 1 if crashes else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Feed every reader what nobody should send."
    )
    parser.add_argument(
        "--seed", default=secrets.token_hex(4), help="of a run before: makes the same inputs again"
    )
    parser.add_argument(
        "--inputs", type=float, default=1.0, metavar="N", help="N times as many inputs"
    )
    parser.add_argument(
        "--target", default="", metavar="NAME", help="only those with this in their name"
    )
    parser.add_argument("--replay", metavar="FILE", help="one input that crashed")
    return parser.parse_args()


def _begin(
    pool: ProcessPoolExecutor, name: str, options: argparse.Namespace
) -> list[Future[Tally]]:
    total = max(1, int(TARGETS[name].share * options.inputs))
    starts = range(0, total, PART)
    return [
        pool.submit(part, name, f"{options.seed} {start}", min(PART, total - start))
        for start in starts
    ]


def _together(name: str, parts: Iterable[Tally]) -> Tally:
    whole = Tally(name, 0, 0.0, 0, 0, [])
    for one in parts:
        whole = Tally(name, *(a + b for a, b in zip(whole[1:], one[1:], strict=True)))  # type: ignore[operator]
    return whole


def _keep(tally: Tally, seed: str) -> None:
    """Crashes as files: what was fed, and beside it what it did."""
    for number, crash in enumerate(tally.kept[:KEPT]):
        CRASHES.mkdir(exist_ok=True)
        path = CRASHES / f"{tally.target.replace(' ', '_')}-{seed}-{number}"
        path.with_suffix(".input").write_bytes(crash.input)
        path.with_suffix(".txt").write_text(
            f"seed {seed}, target {tally.target}\n\n{crash.input!r}\n\n{crash.trace}",
            encoding="utf-8",
        )
        print(f"\n{path}.input\n{_last(crash.trace.splitlines())}\n", flush=True)


def _last(lines: list[str]) -> str:
    return "\n".join(lines[-3:])


def _replay(path: Path) -> int:
    name = next(name for name in TARGETS if path.name.startswith(f"{name.replace(' ', '_')}-"))
    crash = once(TARGETS[name], path.read_bytes())
    print(crash.trace if crash else "It is read as it should be.")
    return 1 if crash else 0


if __name__ == "__main__":
    sys.exit(main())
