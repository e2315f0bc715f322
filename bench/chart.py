"""The chart of the page: how many times the official SDK, on a logarithmic scale, as a plain SVG.

Its colours are legible on white and on black. Where the viewer says that it is dark, the words turn
lighter still.
"""

import math
from typing import NamedTuple

from .figures import Figure
from .measures import ROWS, Row
from .parties import FASTMCP, FLOOR, OURS, SDK, Party

SHOWN = [
    "import", "first_answer", "stdio_in_turn", "stdio_pipelined", "stdio_progress", "list_1000",
    "http_stateless_32", "http_handshake_32", "in_memory", "client_stdio_64", "client_http_64",
    "client_mib", "session_memory",
]  # fmt: skip
COLOURS = {OURS: "#e07b1f", FASTMCP: "#6f7fd1", FLOOR: "#8f979f"}
LEFT, WIDTH, TOP, BAR, GAP = 285, 560, 54, 9, 14
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
    """One bar: whose, and how many times the SDK."""

    party: Party
    times: float


def place(times: float) -> float:
    """Where on the scale."""
    power = min(max(math.log10(times), LOW), HIGH)
    return LEFT + WIDTH * (power - LOW) / (HIGH - LOW)


def bars(row: Row, figures: dict[str, Figure]) -> list[Bar]:
    """Those of one row, without the SDK, which is 1."""
    sdk = figures[SDK.name].value
    found = ((party, figures[party.name].value) for party in COLOURS if party.name in figures)
    return [
        Bar(party, value / sdk if row.more_is_better else sdk / value) for party, value in found
    ]


def drawn(found: dict[str, dict[str, Figure]]) -> str:
    """The chart."""
    groups = [(row, bars(row, found[row.name])) for row in ROWS if row.name in SHOWN]
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
    """A bar from 1 to where it reaches; ours with its figure at the end."""
    start, end = sorted((place(1), place(bar.times)))
    size = f'width="{max(end - start, 1):.1f}" height="{BAR - 1}"'
    parts = [f'<rect x="{start:.1f}" y="{y:g}" {size} fill="{COLOURS[bar.party]}"/>\n']
    if bar.party is OURS:
        said = f"{bar.times:.0f}" if bar.times >= 10 else f"{bar.times:.1f}"
        parts.append(f'<text class="small" x="{end + 5:.1f}" y="{y + BAR:g}">{said}</text>\n')
    return parts


def legend() -> list[str]:
    """Whose colour is whose."""
    return [
        f'<rect x="{LEFT + 130 * n}" y="8" width="12" height="12" fill="{colour}"/>'
        f'<text x="{LEFT + 130 * n + 18}" y="19">{party.name}</text>\n'
        for n, (party, colour) in enumerate(COLOURS.items())
    ]


def scale(height: float) -> list[str]:
    """The powers of ten; the SDK stands at 1."""
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
