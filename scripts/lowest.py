"""Print the lowest version that pyproject.toml allows of each dependency, as constraints for pip:
`make test-lowest` runs the tests with exactly these.

A requirement without a lower bound is an error: nobody could say what it was tested with.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"


def lowest_versions(pyproject: Path = PYPROJECT) -> Iterator[str]:
    """Yield constraints such as `uvicorn==0.40`."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    for requirement in {*project["dependencies"], *(each for extra in extras for each in extra)}:
        specifier, _, marker = requirement.partition(";")
        name = re.match(r"[\w.-]+", specifier)
        assert name is not None, requirement
        if name[0] == project["name"]:  # an extra that includes another
            continue
        bound = re.search(r">=\s*([\w.]+)", specifier)
        if bound is None:
            raise SystemExit(f"pyproject.toml: {requirement!r} has no lower bound (>=)")
        yield f"{name[0]}=={bound[1]}" + (f" ;{marker}" if marker else "")


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in sorted(lowest_versions()))
