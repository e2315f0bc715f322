"""Run each server twice on its own library and once on Dovetail. What the libraries say is kept
below `.moving/peers`, so that a second measurement is faster."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .compare import find_differences, list_names, unstable_answers
from .environments import (
    FOLDER,
    ServerFailed,
    make_environment,
    package_path,
    start,
)
from .examples import Example, Library, find_examples
from .servers import PublishedServer

LAUNCH = Path(__file__).with_name("launch.py")
Start = Callable[[], dict[str, Any]]


class Outcome(NamedTuple):
    """The result of one server."""

    name: str
    excluded: str = ""
    """Why it is not counted."""
    difference: str = ""
    """The first difference, or why it does not start; empty if it passed."""
    differences: int = 0
    unstable: int = 0
    """The answers that differ between two runs of the library."""
    note: str = ""


def measure_server(server: PublishedServer) -> Outcome:
    """Compare the lists of a published server.

    Args:
        server: The server.
    """
    note = ", ".join(server.peer) + (", pinned" if server.pinned else "")
    try:
        python = make_environment(server.name, (server.requirement, *server.peer))
    except RuntimeError as error:
        return Outcome(server.name, excluded=f"cannot be installed: {error}", note=note)
    script = python.parent / server.script

    def on_peer() -> dict[str, Any]:
        return start([script, *server.arguments], server.environment)

    def on_dovetail() -> dict[str, Any]:
        words = ("-m", "dovetail", "run", "--compat", server.script, "--", *server.arguments)
        return start([python, *words], server.environment, path=[package_path()])

    outcome = _compare(server.requirement, on_peer, on_dovetail, runs=1, names_only=True)
    return outcome._replace(name=server.requirement, note=note)


def measure_library(library: Library, selection: str = "") -> Iterator[Outcome]:
    """Compare the examples of a library.

    Args:
        library: The library.
        selection: Part of the names of the examples to run.
    """
    python = make_environment(library.key, library.extras)
    for example in find_examples(library):
        if selection in example.name:
            yield _measure_example(example, python)


def _measure_example(example: Example, python: Path) -> Outcome:
    path, words = example.search_path, (LAUNCH, example.path)
    compat = ("-m", "dovetail", "run", "--compat", LAUNCH, "--", example.path)

    def on_peer() -> dict[str, Any]:
        return start([python, *words], {}, path=path, calls=True, timeout=15)

    def on_dovetail() -> dict[str, Any]:
        return start([python, *compat], {}, path=[package_path(), *path], calls=True, timeout=15)

    key = f"{example.library.requirement}/{example.name}"
    return _compare(key, on_peer, on_dovetail, runs=2)._replace(name=example.name)


def _compare(
    key: str, on_peer: Start, on_dovetail: Start, runs: int, names_only: bool = False
) -> Outcome:
    peers = _remember(key, on_peer, runs)
    if isinstance(peers, str):
        return Outcome(key, excluded=f"does not start on its own library: {peers}")
    try:
        ours = on_dovetail()
    except ServerFailed as error:
        return Outcome(key, difference=_last_line(str(error)), differences=1)
    if names_only:
        names = [{**each, "answers": {}} | _bare_lists(each) for each in (peers[0], ours)]
        found = list(find_differences(names[0], names[1], set()))
        return Outcome(key, difference=next(iter(found), ""), differences=len(found))
    unstable = unstable_answers(peers[0], peers[-1])
    found = list(find_differences(peers[0], ours, unstable))
    first = next(iter(found), "")
    return Outcome(key, difference=first, differences=len(found), unstable=len(unstable))


def _bare_lists(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the lists with nothing but names."""
    keys = {"tools": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
    return {
        kind: [{keys.get(kind, "name"): name} for name in names]
        for kind, names in list_names(snapshot).items()
    }


def _remember(key: str, on_peer: Start, runs: int) -> list[dict[str, Any]] | str:
    """Return what the library says in each run, or why it does not start."""
    path = FOLDER / "peers" / f"{re.sub('[^A-Za-z0-9.=_-]+', '_', key)}.json"
    if not path.exists():
        said: list[dict[str, Any]] | str
        try:
            said = [on_peer() for _ in range(runs)]
        except ServerFailed as error:
            said = _last_line(str(error))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(said), encoding="utf-8")
    remembered: list[dict[str, Any]] | str = json.loads(path.read_text(encoding="utf-8"))
    return remembered


def _last_line(error: str) -> str:
    """Return what happened and the last line that the program printed."""
    what, *lines = error.splitlines() or [""]
    useful = [line.strip(" │|╯╰") for line in lines]
    useful = [line for line in useful if re.search(r"\w{3}", line)]
    last = next((line for line in reversed(useful) if "rror" in line), (useful or [""])[-1])
    text = re.sub(r"(/\S+)?/(site-packages|\.moving)/", "…/", last)
    return f"{what}: {text[:300]}" if text else what


def log(text: str) -> None:
    """Show progress."""
    print(text, file=sys.stderr, flush=True)
