"""The Python blocks of the documentation as modules that type checkers can read.

The blocks of a page without a file name become one module; the blocks of one file name become
another. A page can import the modules of the pages that it continues. A block has the same line
numbers in its module as on its page, so an error names the line of the page.
`<!-- fragment: reason -->` on the line before a block exempts it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.docs.pages import ROOT, blocks, earlier_pages


def write_modules(pages: Iterable[Path], folder: Path) -> dict[str, str]:
    """Write the modules of these pages. Return the name of the page of each file."""
    origins: dict[str, str] = {}
    for page in pages:
        before = _module_names(earlier_pages(page))
        names = before | _module_names([page])
        for module, lines in read_modules(page).items():
            if module and module in before:  # it goes on with a file of an earlier page
                lines[0] = f"from {before[module]} import *"
            text = "\n".join(lines) + "\n"
            for other in filter(None, names):
                text = _rename_imports(text, other, names[other])
            file = f"{names[module]}.py"
            (folder / file).write_text(text, encoding="utf-8")
            origins[file] = _page_name(page)
    return origins


def _page_name(page: Path) -> str:
    return page.relative_to(ROOT if page.is_relative_to(ROOT) else page.parent).as_posix()


def _module_names(pages: Iterable[Path]) -> dict[str, str]:
    """Return the name that each module of these pages has in the folder. A later page wins."""
    names: dict[str, str] = {}
    for page in pages:
        stem = re.sub(r"\W", "_", _page_name(page).removesuffix(".md"))
        names |= {module: f"{stem}__{module}" if module else stem for module in read_modules(page)}
    return names


def read_modules(page: Path) -> dict[str, list[str]]:
    """Return the lines of each module of a page, under the module's name, or "" for the page's."""
    modules: dict[str, list[str]] = defaultdict(list)
    for block in blocks(page):
        if block.language == "python" and not block.is_fragment:
            lines = modules[block.note.partition(" ")[0].removesuffix(".py")]
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.text.splitlines()
    return modules


def _rename_imports(text: str, old: str, new: str) -> str:
    """Import the file that this page shows, since other pages have files of the same name."""
    text = re.sub(rf"^(\s*)from {old} import", rf"\1from {new} import", text, flags=re.MULTILINE)
    return re.sub(rf"^(\s*)import {old}$", rf"\1import {new} as {old}", text, flags=re.MULTILINE)
