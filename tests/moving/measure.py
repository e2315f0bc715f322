"""Run each server on its own library and on Dovetail. If they differ, it runs on its library again,
to leave out answers that are never the same. What the libraries say is kept below `.moving/peers`,
so that a second measurement is faster."""

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
        return start([script, *server.arguments], server.environment, server.name)

    def on_dovetail() -> dict[str, Any]:
        words = ("-m", "dovetail", "run", "--compat", server.script, "--", *server.arguments)
        return start([python, *words], server.environment, server.name, path=[package_path()])

    outcome = _compare(server.requirement, on_peer, on_dovetail, names_only=True)
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
    path, home, words = example.search_path, example.library.key, (LAUNCH, example.path)
    compat = ("-m", "dovetail", "run", "--compat", LAUNCH, "--", example.path)

    def on_peer() -> dict[str, Any]:
        return start([python, *words], {}, home, path=path, calls=True, timeout=15)

    def on_dovetail() -> dict[str, Any]:
        return start(
            [python, *compat], {}, home, path=[package_path(), *path], calls=True, timeout=15
        )

    key = f"{example.library.requirement}/{example.name}"
    return _compare(key, on_peer, on_dovetail)._replace(name=example.name)


def _compare(key: str, on_peer: Start, on_dovetail: Start, names_only: bool = False) -> Outcome:
    peer = _remember(key, on_peer)
    if isinstance(peer, str):
        return Outcome(key, excluded=f"does not start on its own library: {peer}")
    try:
        ours = on_dovetail()
    except ServerFailed as error:
        return Outcome(key, difference=_last_line(str(error)), differences=1)
    if names_only:
        peer, ours = ({**each, **_bare_lists(each)} for each in (peer, ours))
    found = list(find_differences(peer, ours, set()))
    unstable: set[str] = set()
    if found and peer["answers"]:  # does the library itself give another answer the next time?
        again = _remember(f"{key}.again", on_peer)
        unstable = set() if isinstance(again, str) else unstable_answers(peer, again)
        found = list(find_differences(peer, ours, unstable))
    first = next(iter(found), "")
    return Outcome(key, difference=first, differences=len(found), unstable=len(unstable))


def _bare_lists(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the lists with nothing but names."""
    keys = {"tools": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
    return {
        kind: [{keys.get(kind, "name"): name} for name in names]
        for kind, names in list_names(snapshot).items()
    }


def _remember(key: str, on_peer: Start) -> dict[str, Any] | str:
    """Return what the server says on its own library, or why it does not start."""
    path = FOLDER / "peers" / f"{re.sub('[^A-Za-z0-9.=_-]+', '_', key)}.json"
    if not path.exists():
        said: dict[str, Any] | str
        try:
            said = on_peer()
        except ServerFailed as error:
            said = _last_line(str(error))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(said), encoding="utf-8")
    remembered: dict[str, Any] | str = json.loads(path.read_text(encoding="utf-8"))
    return remembered


def _last_line(error: str) -> str:
    """Return what happened and the last line that the program printed."""
    what, *lines = error.splitlines() or [""]
    if any("Uvicorn running" in line for line in lines):
        return "it serves only HTTP"
    useful = [line.strip(" │|╯╰") for line in lines]
    useful = [line for line in useful if re.search(r"\w{3}", line)]
    last = next((line for line in reversed(useful) if "rror" in line), (useful or [""])[-1])
    text = re.sub(r"(/\S+)?/(site-packages|\.moving)/", "…/", last)
    return f"{what}: {text[:300]}" if text else what


def log(text: str) -> None:
    """Show progress."""
    print(text, file=sys.stderr, flush=True)
