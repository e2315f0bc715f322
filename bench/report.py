"""Writes `docs/benchmarks.md` with its chart, and the table in the README.

`python -m bench.report` writes them again from the stored figures. A full run on Python 3.11 stores
its figures in `docs/benchmarks.json`, and a run on another version in `docs/benchmarks-X.Y.json`. A
row that was added after the last full run has no figures yet, and is left out.
"""

import json
import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from textwrap import TextWrapper
from typing import Any

from . import chart, notes
from .figures import Figure, Figures
from .implementations import ALL, FASTMCP, FLOOR, OURS, ROOT, SDK
from .measures import GROWTH, ROWS
from .rows import Row
from .words import duration, gain, goals, number, outcome, quantity, wanted

DOCS, README = ROOT / "docs", ROOT / "README.md"
PAGE, CHART = DOCS / "benchmarks.md", DOCS / "benchmarks.svg"
MAIN_PYTHON, OTHER_PYTHONS = "3.11", ("3.13",)
"""The page has all tables for the first version, and the ratios for the others."""
IN_README = [
    "import", "installed", "first_answer", "stdio_in_turn", "stdio_memory", "http_stateless_32",
    "session_memory", "client_stdio",
]  # fmt: skip
NOT_COMPARED = {"http_p99"}
"""Rows without ratios, because each program receives another load."""
_BETWEEN = re.compile(r"(?<=<!-- bench -->\n).*?(?=<!-- /bench -->)", re.DOTALL)
_WRAP = TextWrapper(120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def kept_file(python: str) -> Path:
    """Return the file with the figures of a version of Python."""
    return DOCS / f"benchmarks{'' if python == MAIN_PYTHON else f'-{python}'}.json"


KEPT = kept_file(MAIN_PYTHON)


def table(head: list[str], rows: list[list[str]]) -> str:
    """Format a table in Markdown."""
    lines = [
        "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|\n"
        for cells in (head, *rows)
    ]
    return "".join([lines[0], "|" + "---|" * len(head) + "\n", *lines[1:]])


def measured_rows(found: dict[str, Figures]) -> list[Row]:
    """Return the rows that have figures."""
    return [row for row in ROWS if row.name in found]


def ratios(found: dict[str, Figures], python: str) -> str:
    """Compare Dovetail with each of the others, and list the goals."""
    aims = outcomes(found, python)
    rows = [
        [row.title, *(str(one or "") for one in gains), aims.get(row.name, "")]
        for row in measured_rows(found)
        if row.name not in NOT_COMPARED
        and any(gains := [gain(row, found[row.name], than) for than in (SDK, FASTMCP, FLOOR)])
    ]
    return table(["", "times the SDK", "times FastMCP", "times the floor", "goal"], rows)


def costs(found: dict[str, Figures], python: str) -> str:
    """List the features that only Dovetail was measured with, and their goals."""
    aims = outcomes(found, python)
    rows = [
        [row.title, absolute_figure(row, found[row.name].get(OURS.name)), aims.get(row.name, "")]
        for row in measured_rows(found)
        if found[row.name].keys() == {OURS.name}
    ]
    return table(["", "measured", "goal"], rows)


def outcomes(found: dict[str, Figures], python: str) -> dict[str, str]:
    """Return the goals of each row, and whether they are met."""
    said: dict[str, list[str]] = {}
    for row, goal, how in goals(found, python):
        text = f"{wanted(row, goal)}: {outcome(row, goal, found, how)}"
        said.setdefault(row.name, []).append(text)
    return {name: "; ".join(texts) for name, texts in said.items()}


def absolute(found: dict[str, Figures]) -> str:
    return table(
        ["", *(one.name for one in ALL)],
        [
            [row.title, *(absolute_figure(row, found[row.name].get(one.name)) for one in ALL)]
            for row in measured_rows(found)
            if found[row.name].keys() != {OURS.name} and row.name not in NOT_COMPARED
        ],
    )


def absolute_figure(row: Row, figure: Figure | None) -> str:
    """Return a figure, with the CPU time, if it was measured."""
    return quantity(row, figure) + (f", {duration(figure.cpu)}" if figure and figure.cpu else "")


def latencies(found: dict[str, Figures]) -> str:
    def cell(figure: Figure | None) -> str:
        return f"{number(figure.p50 or 0)} / {number(figure.p99 or 0)}" if figure else ""

    return table(
        ["ms, median / 99th percentile", *(one.name for one in ALL)],
        [
            [row.title, *(cell(found[row.name].get(one.name)) for one in ALL)]
            for row in measured_rows(found)
            if row.name.startswith(("http_stateless", "http_handshake", "http_p99"))
        ],
    )


def growth(found: dict[str, Figures]) -> str:
    rows = []
    for title, few, many, factor in GROWTH:
        if not {few, many} <= found.keys():
            continue
        pairs = ((found[few].get(one.name), found[many].get(one.name)) for one in ALL)
        rows.append(
            [
                title,
                *(
                    number(b.cpu / a.cpu / factor) if a and b and a.cpu and b.cpu else ""
                    for a, b in pairs
                ),
            ]
        )
    return table(["CPU time of", *(one.name for one in ALL)], rows)


def item(head: str, text: str) -> str:
    """Format an item of a list."""
    return _WRAP.fill(" ".join(f"- {head} {text}".split()))


def missed(found_by_python: dict[str, dict[str, Figures]]) -> str:
    """List the goals that were missed with any version of Python, and explain them."""
    pythons: dict[str, dict[str, list[str]]] = {}
    for python, found in found_by_python.items():
        for row, goal, how in goals(found, python):
            if how == "missed":
                of_row = pythons.setdefault(row.name, {})
                of_row.setdefault(wanted(row, goal), []).append(python)

    def said(row: Row) -> str:
        aims = (
            f"{goal} (Python {' and '.join(versions)})"
            for goal, versions in pythons[row.name].items()
        )
        return f"**{row.title}**, {' and '.join(aims)}"

    alike: dict[str, list[Row]] = {}
    for row in ROWS:
        if row.name in pythons:
            alike.setdefault(notes.why(row.name), []).append(row)
    items = [
        item("; ".join(map(said, rows)) + ".", f"{why} {notes.hint(rows[0].name)}")
        for why, rows in alike.items()
    ]
    return "\n".join(items) or "None in these runs."


def titles(rows: list[Row]) -> str:
    """Return the titles of adjacent rows: one, two, or the first and the last."""
    names = [f"**{row.title}**" for row in rows]
    return " and ".join(names) if len(names) <= 2 else f"{names[0]} to {names[-1]}"


def explained(rows: Iterable[Row]) -> str:
    """Explain how each row is measured; adjacent rows with the same method share an item."""
    alike = groupby(rows, key=lambda row: row.how)
    return "\n".join(item(f"{titles([*some])}:", f"{how}.") for how, some in alike)


def page(kept_by_python: dict[str, dict[str, Any]]) -> str:
    """Return the whole page."""
    found_by_python = {python: figures(kept) for python, kept in kept_by_python.items()}
    found = found_by_python[MAIN_PYTHON]
    others = (
        notes.OTHER_PYTHON.format(
            python=python,
            machine=", ".join(
                kept_by_python[python]["machine"][name] for name in ("processor", "system")
            ),
            ratios=ratios(found_by_python[python], python),
            costs=costs(found_by_python[python], python),
        )
        for python in found_by_python
        if python != MAIN_PYTHON
    )
    machine = kept_by_python[MAIN_PYTHON]["machine"]
    return notes.PAGE.format(
        python=MAIN_PYTHON,
        machine="\n".join(f"- {name}: {what}" for name, what in machine.items()),
        ratios=ratios(found, MAIN_PYTHON),
        costs=costs(found, MAIN_PYTHON),
        others="".join(others),
        absolute=absolute(found),
        latencies=latencies(found),
        growth=growth(found),
        how=explained(measured_rows(found)),
        missed=missed(found_by_python),
    )


def readme(found: dict[str, Figures]) -> str:
    """Return the table in the README."""
    return table(
        ["", *(one.name for one in ALL)],
        [
            [row.title, *(quantity(row, found[row.name].get(one.name)) for one in ALL)]
            for row in measured_rows(found)
            if row.name in IN_README
        ],
    )


def keep(kept: dict[str, Any], path: Path = KEPT) -> None:
    """Store the figures of a full run."""
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def kept_runs() -> dict[str, dict[str, Any]]:
    """Return what full runs have stored, by version of Python."""
    files = {python: kept_file(python) for python in (MAIN_PYTHON, *OTHER_PYTHONS)}
    return {
        python: json.loads(file.read_text(encoding="utf-8"))
        for python, file in files.items()
        if file.exists()
    }


def figures(kept: dict[str, Any]) -> dict[str, Figures]:
    """Return the figures of a full run."""
    return {
        name: {implementation: Figure(*one) for implementation, one in row.items()}
        for name, row in kept["figures"].items()
    }


def write() -> None:
    """Write the page, its chart and the table in the README from the stored figures."""
    kept = kept_runs()
    found = figures(kept[MAIN_PYTHON])
    PAGE.write_text(page(kept), encoding="utf-8")
    CHART.write_text(chart.drawn(found), encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    README.write_text(_BETWEEN.sub(lambda _: readme(found), text), encoding="utf-8")


if __name__ == "__main__":
    write()
