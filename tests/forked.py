"""The `dovetail` command in a fork of a process that has loaded it already.

Most commands of the tests do little, and to start Python and import the package would take most of
their time. A fork has streams, variables, a folder and an exit code of its own, as any process has.
What is about how Python starts needs a process that does: `subprocess`.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import DupFd
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

ROOT = Path(__file__).parents[1]
IS_POSSIBLE = os.name == "posix" and "COVERAGE_PROCESS_CONFIG" not in os.environ
"""Whether there are forks, and coverage need not be measured in them."""
LOADED = ("cli", "client", "config", "host_configs", "python_target", "terminal")
"""The packages that a command may need."""
PIPE_BYTES = 60_000
"""What a pipe holds without a reader."""


@cache
def _context() -> ForkServerContext:
    context = get_context("forkserver")
    package = ROOT / "dovetail"
    files = (path for name in LOADED for path in sorted((package / name).rglob("[a-z]*.py")))
    modules = (path.relative_to(ROOT).with_suffix("").parts for path in files)
    context.set_forkserver_preload(["tests.forked", *(".".join(parts) for parts in modules)])
    return context


def run_forked(
    words: Sequence[str],
    *,
    prepare: str,
    input: bytes,
    cwd: Path | None,
    env: Mapping[str, str],
    timeout: float,
) -> tuple[int, bytes, bytes]:
    """Run the command to its end, and return its exit code and what it printed.

    Args:
        words: what follows `dovetail` on the command line.
        prepare: Python code to execute before.
        input, cwd, env, timeout: as for `subprocess.run`.
    """
    assert len(input) < PIPE_BYTES
    theirs, ours = os.pipe()
    with os.fdopen(theirs, "rb") as read, TemporaryFile() as out, TemporaryFile() as err:
        with os.fdopen(ours, "wb") as write:
            write.write(input)
        streams = [DupFd(stream.fileno()) for stream in (read, out, err)]
        process = _context().Process(
            target=_run, args=(words, prepare, streams, str(cwd or Path.cwd()), dict(env))
        )
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"dovetail {' '.join(words)} took more than {timeout} seconds")
        out.seek(0)
        err.seek(0)
        return process.exitcode, out.read(), err.read()


def _run(
    words: Sequence[str], prepare: str, streams: list[Any], folder: str, variables: dict[str, str]
) -> None:
    """Become the command."""
    for number, stream in enumerate(streams):
        os.dup2(stream.detach(), number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.path.insert(0, folder)
    sys.argv = [str(ROOT / "dovetail" / "__main__.py"), *words]
    exec(prepare, {})
    from dovetail.cli.main import main

    sys.exit(main())
