"""Find every Python from 3.11 on that is installed, and run a command with each.

    python3 scripts/pythons.py                  list them: version and path
    python3 scripts/pythons.py 3.13             print the path of this one; exit code 1 if absent
    python3 scripts/pythons.py --each make test run the command with each

It looks on PATH and in pyenv's folder, and takes only interpreters that start: a shim of pyenv on
PATH fails unless its version is selected. `--each` sets PYTHON to the interpreter and VENV to
`.venv-3.12` and so on, which the Makefile takes over; the Python that runs this script keeps
`.venv`. All of them run, even if one fails.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

LOWEST, HIGHEST = (3, 11), (3, 19)
START_SECONDS = 20


def candidates(minor: int) -> Iterator[str]:
    """Yield the paths that may be this Python, best first."""
    name = f"python3.{minor}"
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if found := shutil.which(name, path=folder):
            yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for home in sorted((pyenv / "versions").glob(f"3.{minor}.*"), reverse=True):
        yield str(home / "bin" / name)


def starts(python: str, version: tuple[int, int]) -> bool:
    """Return whether the interpreter runs, is this version, and can make a virtual environment."""
    code = f"import sys, ensurepip, venv; sys.exit(sys.version_info[:2] != {version})"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, timeout=START_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def find_pythons() -> dict[str, str]:
    """Return version to path, such as "3.12": "/usr/bin/python3.12"."""
    found = {"{}.{}".format(*sys.version_info[:2]): sys.executable}
    for minor in range(LOWEST[1], HIGHEST[1] + 1):
        for python in candidates(minor):
            if f"3.{minor}" not in found and starts(python, (3, minor)):
                found[f"3.{minor}"] = python
    return dict(sorted(found.items(), key=lambda item: int(item[0].split(".")[1])))


def run_each(command: Sequence[str]) -> int:
    current = "{}.{}".format(*sys.version_info[:2])
    codes: dict[str, int] = {}
    for version, python in find_pythons().items():
        venv = ".venv" if version == current else f".venv-{version}"
        print(f"\n=== Python {version}: {' '.join(command)}", flush=True)
        environment = {**os.environ, "PYTHON": python, "VENV": venv}
        codes[version] = subprocess.run(command, env=environment).returncode
    print()
    for version, code in codes.items():
        print(f"Python {version}: {'passed' if code == 0 else f'FAILED (exit code {code})'}")
    return max(codes.values())


def main(arguments: Sequence[str]) -> int:
    if sys.version_info < LOWEST:
        print("Python 3.11 or newer is needed to run this script", file=sys.stderr)
        return 1
    if arguments[:1] == ["--each"]:
        return run_each(arguments[1:])
    found = find_pythons()
    if arguments:
        if arguments[0] not in found:
            return 1
        print(found[arguments[0]])
        return 0
    for version, python in found.items():
        print(version, python)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
