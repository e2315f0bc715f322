"""All tests, in two processes side by side: `python -m tests`, with any options of pytest.

Most tests wait for a process or a socket more than they compute, so two halves take little more
than half the time. Each is a plain pytest: one takes the folders that are named here, the other all
the rest, whatever there may come to be. What they print comes line by line as `1|` and `2|`; at the
end it is said once more what failed and how each of them went. A half in which nothing was selected
is fine as long as the other had something.
"""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Sequence

NAMED = [f"tests/{folder}" for folder in ("auth", "behaviour", "faults", "server")]
HALVES = (NAMED, ["tests", *(f"--ignore={folder}" for folder in NAMED)])
INTERRUPTED, NOTHING_SELECTED = 2, 5
"""What pytest ends with then."""
FAILED = ("FAILED ", "ERROR ")
"""How the lines of its summary begin that name what failed."""
LONGEST = 2**26
"""Bytes of one line: a difference may be long."""


async def run(commands: Sequence[Sequence[str]]) -> int:
    """Run these side by side; the exit code for all of them."""
    ended = await asyncio.gather(
        *(_half(number, command) for number, command in enumerate(commands, 1))
    )
    print()
    for number, (_, lines) in enumerate(ended, 1):
        for line in lines:
            print(f"{number}| {line}")
    codes = [abs(code) for code, _ in ended if code != NOTHING_SELECTED]  # one below 0 is a signal
    return max(codes, default=NOTHING_SELECTED)


async def _half(number: int, command: Sequence[str]) -> tuple[int, list[str]]:
    """The exit code, and what is worth saying again: what failed, and the last line."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, limit=LONGEST
    )
    assert process.stdout is not None
    failed, last = [], ""
    async for data in process.stdout:
        line = data.decode(errors="replace").rstrip()
        last = line or last
        failed += [line] if line.startswith(FAILED) else []
        print(f"{number}| {line}", flush=True)
    return await process.wait(), [*failed, last]


def commands(options: Sequence[str]) -> list[list[str]]:
    """Both halves. Each remembers by itself what failed, so that `--last-failed` means something to
    both."""
    kept = [
        [] if "no:cacheprovider" in options else ["-o", f"cache_dir=.pytest_cache/{half}"]
        for half in (1, 2)
    ]
    return [
        [sys.executable, "-m", "pytest", *cache, *half, *options]
        for cache, half in zip(kept, HALVES, strict=True)
    ]


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # a failure may say anything, on any terminal
    try:
        sys.exit(asyncio.run(run(commands(sys.argv[1:]))))
    except KeyboardInterrupt:  # which both halves have heard too
        sys.exit(INTERRUPTED)
