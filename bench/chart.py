"""The chart of the page: how many times better than the official SDK, on a logarithmic scale.

The chart is a plain SVG. Its colours are legible on white and on black; in dark mode, the text is
lighter.
"""

import math
from typing import NamedTuple

from .figures import Figure
from .implementations import FASTMCP, FLOOR, OURS, SDK, Implementation
from .measures import ROWS
from .rows import Row

SHOWN = [
    "import", "first_answer", "stdio_in_turn", "stdio_pipelined", "stdio_progress", "list_1000",
    "http_stateless_32", "http_handshake_32", "in_memory", "client_stdio_64", "client_http_64",
    "client_mib", "session_memory",
]  # fmt: skip
COLOURS = {OURS: "#e07b1f", FASTMCP: "#6f7fd1", FLOOR: "#8f979f"}
LEFT, WIDTH, TOP, BAR, GAP = 300, 560, 54, 9, 14
LOW, HIGH = -1, 3  # powers of ten

HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">
<title>How many times better than the official SDK</title>
<style>
text {{ fill: #626d79 }} .small {{ font-size: 11px }}
line {{ stroke: #8f979f; stroke-opacity: 0.35 }} .one {{ stroke-opacity: 1 }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #c9d1d9 }} }}
</style>
"""  # noqa: E501


class Bar(NamedTuple):
    """One bar: the implementation, and how many times better than the SDK it is."""

    implementation: Implementation
    times: float


def place(times: float) -> float:
    """Return the position on the scale."""
    power = min(max(math.log10(times), LOW), HIGH)
    return LEFT + WIDTH * (power - LOW) / (HIGH - LOW)


def bars(row: Row, figures: dict[str, Figure]) -> list[Bar]:
    """Return the bars of one row, without the SDK, which is 1."""
    sdk = figures[SDK.name].value
    found = ((one, figures[one.name].value) for one in COLOURS if one.name in figures)
    return [Bar(one, value / sdk if row.more_is_better else sdk / value) for one, value in found]


def drawn(found: dict[str, dict[str, Figure]]) -> str:
    """Return the chart."""
    groups = [
        (row, bars(row, found[row.name])) for row in ROWS if row.name in SHOWN and row.name in found
    ]
    height = TOP + sum(GAP + BAR * len(group) for _, group in groups) + 12
    parts = [HEAD.format(width=LEFT + WIDTH + 70, height=height), *legend(), *scale(height)]
    y = TOP
    for row, group in groups:
        middle = y + BAR * len(group) / 2 + 4.5
        parts.append(f'<text x="{LEFT - 12}" y="{middle:g}" text-anchor="end">{row.title}</text>\n')
        for bar in group:
            parts += one(bar, y)
            y += BAR
        y += GAP
    return "".join(parts) + "</svg>\n"


def one(bar: Bar, y: float) -> list[str]:
    """Draw a bar from 1 to its value; ours has its figure at the end."""
    start, end = sorted((place(1), place(bar.times)))
    size = f'width="{max(end - start, 1):.1f}" height="{BAR - 1}"'
    parts = [f'<rect x="{start:.1f}" y="{y:g}" {size} fill="{COLOURS[bar.implementation]}"/>\n']
    if bar.implementation is OURS:
        said = f"{bar.times:.0f}" if bar.times >= 10 else f"{bar.times:.1f}"
        parts.append(f'<text class="small" x="{end + 5:.1f}" y="{y + BAR:g}">{said}</text>\n')
    return parts


def legend() -> list[str]:
    """Draw the names and colours of the implementations."""
    return [
        f'<rect x="{LEFT + 130 * n}" y="8" width="12" height="12" fill="{colour}"/>'
        f'<text x="{LEFT + 130 * n + 18}" y="19">{implementation.name}</text>\n'
        for n, (implementation, colour) in enumerate(COLOURS.items())
    ]


def scale(height: float) -> list[str]:
    """Draw the powers of ten; the SDK is at 1."""
    parts = []
    for power in range(LOW, HIGH + 1):
        x, said, kind = place(10.0**power), f"{10.0**power:g}×", "tenfold"
        if power == 0:
            said, kind = "the SDK", "one"
        parts.append(
            f'<line class="{kind}" x1="{x:g}" x2="{x:g}" y1="{TOP - 8}" y2="{height - 12:g}"/>'
        )
        parts.append(
            f'<text class="small" x="{x:g}" y="{TOP - 13}" text-anchor="middle">{said}</text>\n'
        )
    return parts
