"""The parts of the pictures in docs/pictures: boxes, arrows, texts and sequences, as SVG.

A part is a string of SVG. Sizes are in pixels, and y grows downwards. A picture follows the light
or dark scheme of the reader. It has a background of its own, so that it is legible on any page.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, EDGE = 760, 16
TITLE, LINE, CHARACTER = 18, 16, 7.0
"""The heights of a title and of a line, and the width of a character in a wide font."""
STYLE = """\
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; fill: #4b5563 }
.title { font-size: 14px; font-weight: 600; fill: #1f2937 }
.code { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2937 }
.middle { text-anchor: middle }
.halo { stroke: #ffffff; stroke-width: 5; paint-order: stroke }
.paper { fill: #ffffff; stroke: #d5dae1 }
.box { fill: #eef1f5; stroke: #8a94a3 }
.ours { fill: #fdeedd; stroke: #c8690f }
.peer { fill: #e8ebfb; stroke: #5f6fc4 }
.frame { fill: none; stroke: #8a94a3 }
.screen { fill: #f6f8fa; stroke: #8a94a3 }
.line { fill: none; stroke: #4b5563; stroke-width: 1.4 }
.dashed { stroke-dasharray: 5 4 }
.lane { stroke: #8a94a3; stroke-dasharray: 2 3 }
.tip { fill: #4b5563 }
@media (prefers-color-scheme: dark) {
  text { fill: #b6c0cc } .title, .code { fill: #e8edf3 }
  .paper { fill: #14181d; stroke: #30363d } .halo { stroke: #14181d }
  .box { fill: #252b33; stroke: #7d8794 } .frame, .lane { stroke: #7d8794 }
  .ours { fill: #40290f; stroke: #e58a33 } .peer { fill: #262c4d; stroke: #8c9bec }
  .screen { fill: #0b0e12; stroke: #7d8794 }
  .line { stroke: #b6c0cc } .tip { fill: #b6c0cc }
}
"""  # noqa: E501
TIP = """\
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
<path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>
"""  # noqa: E501


class Picture(NamedTuple):
    """A picture, with what it is called and what a reader who cannot see it is told."""

    title: str
    description: str
    height: float
    parts: Sequence[str]


class Step(NamedTuple):
    """A message between two lanes of a sequence, or what happens in one lane if they are equal."""

    source: int
    target: int
    label: str
    note: str = ""


def text(x: float, y: float, words: str, kind: str = "middle") -> str:
    """A line of text, centred at x if its kind contains `middle`."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" xml:space="preserve">{escape(words)}</text>'


def box(
    x: float, y: float, width: float, height: float, title: str, *lines: str, kind: str = "box"
) -> str:
    """A box with a title and lines in its middle."""
    top = y + (height - (TITLE if title else 0) - LINE * len(lines)) / 2
    middle = x + width / 2
    parts = [rectangle(x, y, width, height, kind)]
    if title:
        parts.append(text(middle, top + 14, title, "title middle"))
        top += TITLE
    parts += [text(middle, top + 12 + LINE * at, words) for at, words in enumerate(lines)]
    return f"<g>{''.join(parts)}</g>"


def frame(
    x: float, y: float, width: float, height: float, title: str, *lines: str, kind: str = "frame"
) -> str:
    """A box around others, with a title and lines in its upper left corner."""
    parts = [rectangle(x, y, width, height, kind), text(x + 14, y + 24, title, "title")]
    parts += [text(x + 14, y + 43 + LINE * at, words, "") for at, words in enumerate(lines)]
    return f"<g>{''.join(parts)}</g>"


def rectangle(x: float, y: float, width: float, height: float, kind: str) -> str:
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect class="{kind}" {size} rx="6"/>'


def arrow(x1: float, y1: float, x2: float, y2: float, kind: str = "", both: bool = False) -> str:
    """An arrow, with a tip at both ends if it is for both directions."""
    ends = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
    tips = 'marker-start="url(#tip)" ' * both + 'marker-end="url(#tip)"'
    return f'<line class="line {kind}" {ends} {tips}/>'


def sequence(places: Sequence[float], y: float, steps: Sequence[Step]) -> tuple[list[str], float]:
    """The messages between lanes at these places. Return the parts and where they end."""
    parts = []
    for source, target, label, note in steps:
        if source == target:
            lines = [label, *filter(None, note.split("\n"))]
            height = LINE * len(lines) + 14
            width = CHARACTER * max(map(len, lines)) + 16
            left = max(places[source] - width / 2, EDGE + 10)
            left = min(left, WIDTH - EDGE - 10 - width)
            kind = "ours" if source else "peer"
            parts.append(box(left, y + 4, width, height, "", *lines, kind=kind))
            y += height + 12
            continue
        start, end = places[source], places[target]
        middle = (start + end) / 2
        parts += [text(middle, y + 16, label, "code middle halo")]
        parts += [arrow(start, y + 24, end, y + 24), text(middle, y + 40, note, "middle halo")]
        y += 50 if note else 36
    return parts, y


def lanes(places: Sequence[float], names: Sequence[str], y: float, end: float) -> list[str]:
    """The heads of lanes, and their lines down to where the sequence ends."""
    parts = []
    for at, (x, name) in enumerate(zip(places, names, strict=True)):
        parts.append(f'<line class="lane" x1="{x:g}" y1="{y + 34:g}" x2="{x:g}" y2="{end:g}"/>')
        parts.append(box(x - 52, y, 104, 34, name, kind="ours" if at else "peer"))
    return parts


def write_svg(picture: Picture) -> str:
    """The text of the file of a picture."""
    title, description, height, parts = picture
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    paper = f'x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="t d">',
        f'<title id="t">{escape(title)}</title>',
        f'<desc id="d">{escape(description)}</desc>',
        f"<style>\n{STYLE}</style>",
        f'{TIP}<rect class="paper" {paper}/>',
        *parts,
        "</svg>\n",
    ])  # fmt: skip
