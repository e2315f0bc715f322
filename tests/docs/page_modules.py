"""The Python blocks of the documentation as modules that type checkers can read.

The blocks of a page without a file name become one module; the blocks of one file name become
another. A block has the same line numbers in its module as on its page, so an error names the line
of the page. `<!-- fragment: reason -->` on the line before a block exempts it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.docs.pages import ROOT, blocks


def write_modules(pages: Iterable[Path], folder: Path) -> dict[str, str]:
    """Write the modules of these pages. Return the name of the page of each file."""
    origins: dict[str, str] = {}
    for page in pages:
        name = page.relative_to(ROOT if page.is_relative_to(ROOT) else page.parent).as_posix()
        stem = re.sub(r"\W", "_", name.removesuffix(".md"))
        modules = read_modules(page)
        for module, lines in modules.items():
            text = "\n".join(lines) + "\n"
            for other in filter(None, modules):
                text = _rename_imports(text, other, f"{stem}__{other}")
            file = f"{stem}__{module}.py" if module else f"{stem}.py"
            (folder / file).write_text(text, encoding="utf-8")
            origins[file] = name
    return origins


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
