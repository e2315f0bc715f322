"""Tables and progress bars on a terminal, drawn by `rich` if the extra `[cli]` is installed.

This is the only module that imports rich. If rich is not installed, its functions return None and
the caller prints plain text. Callers must escape texts first; rich never interprets them as markup.
"""

import io
from typing import Any


def render_table(rows: list[tuple[str, str, str]], columns: int) -> str | None:
    """Return a coloured table of names, types and descriptions that fits the width."""
    try:
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", ratio=1)
    for name, type_, description in rows:
        table.add_row(Text(name), Text(type_, style="cyan"), Text(description))
    return _render(table, columns)


def render_bar(share: float, columns: int) -> str | None:
    """Return a coloured progress bar of this width."""
    try:
        from rich.progress_bar import ProgressBar
    except ImportError:
        return None
    bar = ProgressBar(
        total=1.0,
        completed=share,
        width=columns,
        style="bright_black",
        complete_style="green",
        finished_style="green",
    )
    return _render(bar, columns).rstrip("\n")


def _render(item: Any, columns: int) -> str:
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out,
        width=columns,
        force_terminal=True,
        color_system="standard",
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(item)
    return out.getvalue()
