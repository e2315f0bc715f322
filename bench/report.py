"""What came out, written down: `docs/benchmarks.md` with its chart, and the table in the README.

`python -m bench.report` writes them again from `docs/benchmarks.json`, where the last full run left
its figures.
"""

import json
import re
from itertools import groupby
from pathlib import Path
from textwrap import TextWrapper
from typing import Any

from . import chart, notes
from .figures import Figure, Figures
from .measures import GROWTH, ROWS, Row
from .parties import ALL, FASTMCP, FLOOR, HERE, SDK
from .words import duration, gain, goals, number, quantity, verdict, wanted

DOCS, README = HERE.parent / "docs", HERE.parent / "README.md"
KEPT, PAGE, CHART = DOCS / "benchmarks.json", DOCS / "benchmarks.md", DOCS / "benchmarks.svg"
IN_README = [
    "import", "installed", "first_answer", "stdio_in_turn", "stdio_memory", "http_stateless_32",
    "session_memory", "client_stdio",
]  # fmt: skip
_BETWEEN = re.compile(r"(?<=<!-- bench -->\n).*?(?=<!-- /bench -->)", re.DOTALL)
_WRAP = TextWrapper(120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [
        "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|\n"
        for cells in (head, *rows)
    ]
    return "".join([lines[0], "|" + "---|" * len(head) + "\n", *lines[1:]])


def ratios(found: dict[str, Figures]) -> str:
    rows = []
    for row in ROWS:
        figures = found[row.name]
        aims = "; ".join(
            f"{wanted(row, goal)}: {verdict(row, goal, figures)}" for goal in row.goals
        )
        rows.append(
            [
                row.title,
                *(str(gain(row, figures, than) or "") for than in (SDK, FASTMCP, FLOOR)),
                aims,
            ]
        )
    return table(["", "times the SDK", "times FastMCP", "times the floor", "goal"], rows)


def absolute(found: dict[str, Figures]) -> str:
    def cell(row: Row, figure: Figure | None) -> str:
        return quantity(row, figure) + (
            f", {duration(figure.cpu)}" if figure and figure.cpu else ""
        )

    return table(
        ["", *(party.name for party in ALL)],
        [
            [row.title, *(cell(row, found[row.name].get(party.name)) for party in ALL)]
            for row in ROWS
        ],
    )


def latencies(found: dict[str, Figures]) -> str:
    rows = [row for row in ROWS if row.name.startswith(("http_stateless", "http_handshake"))]

    def cell(figure: Figure) -> str:
        return f"{number(figure.p50 or 0)} / {number(figure.p99 or 0)}"

    return table(
        ["ms, median / 99th percentile", *(party.name for party in ALL)],
        [[row.title, *(cell(found[row.name][party.name]) for party in ALL)] for row in rows],
    )


def growth(found: dict[str, Figures]) -> str:
    rows = []
    for title, few, many, factor in GROWTH:
        pairs = ((found[few].get(party.name), found[many].get(party.name)) for party in ALL)
        rows.append(
            [
                title,
                *(
                    f"{a.cpu / b.cpu * factor:.0%}" if a and b and a.cpu and b.cpu else ""
                    for a, b in pairs
                ),
            ]
        )
    return table(["remaining rate", *(party.name for party in ALL)], rows)


def item(head: str, text: str) -> str:
    """An item of a list."""
    return _WRAP.fill(" ".join(f"- {head} {text}".split()))


def missed(found: dict[str, Figures]) -> str:
    """The goals that were, with what stands in the way."""
    rows = groupby(
        ((row, goal) for row, goal, how in goals(found) if how == "missed"),
        key=lambda pair: pair[0],
    )
    items = [
        item(
            f"**{row.title}, {' and '.join(wanted(row, goal) for _, goal in pairs)}.**",
            notes.WHY.get(row.name, ""),
        )
        for row, pairs in rows
    ]
    return "\n".join(items) or "None in this run."


def titles(rows: list[Row]) -> str:
    """The titles of adjacent rows: one, two, or the first and the last."""
    names = [f"**{row.title}**" for row in rows]
    return " and ".join(names) if len(names) <= 2 else f"{names[0]} to {names[-1]}"


def explained() -> str:
    """How each row is measured; adjacent rows with the same method share an item."""
    alike = groupby(ROWS, key=lambda row: row.how)
    return "\n".join(item(f"{titles([*rows])}:", f"{how}.") for how, rows in alike)


def page(kept: dict[str, Any], found: dict[str, Figures]) -> str:
    """The whole page."""
    return notes.PAGE.format(
        machine="\n".join(f"- {name}: {what}" for name, what in kept["machine"].items()),
        ratios=ratios(found),
        absolute=absolute(found),
        latencies=latencies(found),
        growth=growth(found),
        how=explained(),
        missed=missed(found),
    )


def readme(found: dict[str, Figures]) -> str:
    """The table in the README."""
    rows = [row for row in ROWS if row.name in IN_README]
    return table(
        ["", *(party.name for party in ALL)],
        [
            [row.title, *(quantity(row, found[row.name].get(party.name)) for party in ALL)]
            for row in rows
        ],
    )


def keep(kept: dict[str, Any], path: Path = KEPT) -> None:
    """Leave the figures of a full run."""
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def figures(kept: dict[str, Any]) -> dict[str, Figures]:
    """The figures of what was kept."""
    return {
        name: {party: Figure(*one) for party, one in row.items()}
        for name, row in kept["figures"].items()
    }


def write() -> None:
    """Write the page, its chart and the table in the README from the figures that were kept."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    found = figures(kept)
    PAGE.write_text(page(kept, found), encoding="utf-8")
    CHART.write_text(chart.drawn(found), encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    README.write_text(_BETWEEN.sub(lambda _: readme(found), text), encoding="utf-8")


if __name__ == "__main__":
    write()
