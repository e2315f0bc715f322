"""The page `docs/benchmarks-inspector.md`, from the figures of the last full run of
`python -m bench.inspector`.

`python -m bench.inspector_page` writes it again.
"""

import json
from typing import Any

from .figures import Figures
from .gateway import bound_text
from .inspector import GOALS, KEPT, SITES
from .report import figures, table
from .words import number

PAGE = KEPT.with_suffix(".md")
ROWS = {
    "bytes": "page, bytes over the wire, empty cache",
    "requests": "requests",
    "foreign": "other hosts",
    "first_paint": "first contentful paint (ms)",
    "first_tool": "command to first tool (s)",
    "installed": "installed size (bytes)",
}
TEXT = """# Inspector benchmarks

`make bench-inspector` performs these measurements and generates this page. A run alternates between Dovetail's inspector
and the official MCP Inspector. Each load has a new process, a new browser window with an empty cache, and the same
server: Dovetail, over stdio, with the tool `add(a, b)`. Each figure is the best of several rounds, because interference
can only make a measurement worse. Only the ratios apply to other machines.

## Goals

{goals}
## Beside the official Inspector

The official Inspector shows its tools after two clicks, which the benchmark makes as soon as they are possible. Its
installed size is that of its `node_modules`, without Node. That of Dovetail is `dovetail/inspector`, without Python and
the rest of the library.

{rows}
## The machine

{machine}

## Method

- **20,000 messages**: 10,000 runs of a saved call of `add`, as the Load panel makes them, 32 at a time, with a page open
  and a recording. Then four characters are typed into the filter. The figure is the longest time from a key press until
  the browser paints.
- **2,000 tools**: the page is reloaded. The figure is the time from the end of the reply that contains the tool list until
  the browser paints the first rows of the list.
- **growth of the wheel**: the files of `dovetail/inspector`, each compressed as in a wheel.

`python -m bench.inspector --short` takes one round and does not write this page.
"""  # noqa: E501


def goals(found: dict[str, Figures]) -> str:
    """The goals, with what was measured."""
    rows = [
        [
            goal.title,
            number(goal.value(found)),
            bound_text(goal),
            "met" if goal.is_met(found) else "missed",
        ]
        for goal in GOALS
    ]
    return table(["", "measured", "goal", ""], rows)


def beside(found: dict[str, Figures]) -> str:
    """Both inspectors."""
    rows = [
        [title, *(number(found[row][site.name].value) for site in SITES)]
        for row, title in ROWS.items()
    ]
    return table(["", *(site.name for site in SITES)], rows)


def page(kept: dict[str, Any]) -> str:
    """The whole page."""
    found = figures(kept)
    return TEXT.format(
        goals=goals(found),
        rows=beside(found),
        machine="\n".join(f"- {name}: {what}" for name, what in kept["machine"].items()),
    )


def write() -> None:
    """Write the page from the figures that were kept."""
    PAGE.write_text(page(json.loads(KEPT.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    write()
