"""Fetch the libraries of the inspector's page from npm, and put them into sdist and wheel.

    python hatch_build.py                 fetch what is missing (`make assets`)
    python hatch_build.py --optional      the same; without npm or its registry, only warn
    python hatch_build.py --check WHEEL   fail if the wheel lacks a library

Each row of `dovetail/inspector/static/vendor.json` is one file: the npm package, its version, the
file in that package, the name under which it is saved, and its SHA-512. A file that is there and
has its hash is not fetched again, so a wheel can be built from an sdist without npm and offline.

If npm or its registry cannot be reached, the build warns and makes a wheel without the page. A file
with the wrong hash fails the build.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
STATIC = "dovetail/inspector/static"
NPM_SECONDS = 120
NPM_OPTIONS = ["--ignore-scripts", "--loglevel=error", "--fetch-retries=1", "--fetch-timeout=20000"]
HOW_TO_GET_IT = (
    "The inspector's page (`dovetail inspect --web`, `dovetail dev`) will be missing; everything "
    "else works. To get it, install npm (it comes with Node), connect to its registry, and run: "
    "python hatch_build.py"
)


class CannotFetch(Exception):
    """npm is not installed, or its registry did not answer."""


class WrongHash(Exception):
    """A file is not the one that `vendor.json` names, or does not exist."""


def read_rows(root: Path) -> list[dict[str, str]]:
    """Return the rows of `vendor.json`, one per file."""
    rows: list[dict[str, str]] = json.loads((root / STATIC / "vendor.json").read_text("utf-8"))
    return rows


def fetch_missing(root: Path) -> list[str]:
    """Fetch the files that are missing or are not the ones that `vendor.json` names; return the
    paths of all files, relative to `root`.

    Raises:
        CannotFetch: npm is not installed, or its registry did not answer.
        WrongHash: the published file, or one that is there and cannot be fetched again, differs.
    """
    rows = read_rows(root)
    folder = root / STATIC / "vendor"
    missing = [row for row in rows if not _is_present(folder, row)]
    if missing:
        try:
            _fetch(folder, missing)
        except CannotFetch:
            _refuse_altered(folder, missing)
            raise
    return [f"{STATIC}/vendor/{row['saved_as']}" for row in rows]


def _is_present(folder: Path, row: dict[str, str]) -> bool:
    path = folder / row["saved_as"]
    return path.is_file() and _sha512(path.read_bytes()) == row["sha512"]


def _refuse_altered(folder: Path, missing: Sequence[dict[str, str]]) -> None:
    for row in missing:
        if (folder / row["saved_as"]).is_file():
            raise WrongHash(
                f"{folder / row['saved_as']} does not have the SHA-512 that vendor.json gives it, "
                f"and cannot be fetched again. Delete it, or fix vendor.json."
            )


def _fetch(folder: Path, rows: Sequence[dict[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        _pack(sorted({f"{row['name']}@{row['version']}" for row in rows}), scratch)
        for row in rows:
            archive = f"{row['name'].lstrip('@').replace('/', '-')}-{row['version']}.tgz"
            with tarfile.open(Path(scratch) / archive) as tar:
                if f"package/{row['file']}" not in tar.getnames():
                    raise WrongHash(f"{row['name']} {row['version']} has no file {row['file']}.")
                member = tar.extractfile(f"package/{row['file']}")
                _save(folder / row["saved_as"], member.read() if member else b"", row)


def _pack(packages: Sequence[str], folder: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise CannotFetch(f"npm is not installed, so {', '.join(packages)} cannot be fetched.")
    command = [npm, "pack", *NPM_OPTIONS, f"--pack-destination={folder}", *packages]
    try:
        # In the checkout, so that a project's .npmrc names the registry.
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=NPM_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise CannotFetch(f"npm pack took longer than {NPM_SECONDS} s.") from None
    if done.returncode:
        raise CannotFetch(f"npm pack failed: {_first_error(done.stderr)}")


def _first_error(stderr: str) -> str:
    """Return npm's first line that says what is wrong, without the address of its registry."""
    lines = (line.strip() for line in stderr.splitlines() if "://" not in line)
    return next((line for line in lines if line), "it did not say why.")


def _save(path: Path, data: bytes, row: dict[str, str]) -> None:
    if _sha512(data) != row["sha512"]:
        raise WrongHash(
            f"{row['file']} of {row['name']} {row['version']} does not have the SHA-512 that "
            f"vendor.json gives it. Expected {row['sha512']}, got {_sha512(data)}."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)  # at once: two builds may fetch at the same time


def _sha512(data: bytes) -> str:
    return hashlib.sha512(data).hexdigest()


def find_lacking(wheel: Path) -> list[str]:
    """Return the files of `vendor.json` that a wheel lacks or has in another version."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        return [
            path
            for row in read_rows(ROOT)
            if (path := f"{STATIC}/vendor/{row['saved_as']}") not in names
            or _sha512(archive.read(path)) != row["sha512"]
        ]


def get_build_hook() -> Any:
    """Return the class that hatchling calls. hatchling is imported here because `make assets` runs
    without it."""
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class VendorHook(BuildHookInterface[Any]):
        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            try:
                # Git ignores them; hatchling includes ignored files only if they are artifacts.
                build_data["artifacts"] += fetch_missing(Path(self.root))
            except CannotFetch as problem:
                self.app.display_warning(f"{problem} {HOW_TO_GET_IT}")

    return VendorHook


def main(arguments: Sequence[str]) -> str | None:
    if arguments[:1] == ["--check"]:
        lacking = [path for wheel in arguments[1:] for path in find_lacking(Path(wheel))]
        return f"The wheel lacks {', '.join(lacking)}" if lacking else None
    try:
        fetch_missing(ROOT)
    except CannotFetch as problem:
        text = f"{problem} {HOW_TO_GET_IT}"
        if "--optional" not in arguments:
            return text
        print(text, file=sys.stderr)
    except WrongHash as problem:
        return str(problem)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
