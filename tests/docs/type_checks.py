"""The Python blocks of the documentation as modules that type checkers can read.

The blocks of a page without a file name become one module; the blocks of one file name become
another. A page can import the modules of the pages that it continues. A block has the same line
numbers in its module as on its page, so an error names the line of the page. The modules of all
pages are written into one folder, so that each checker runs once.
`<!-- fragment: reason -->` on the line before a block exempts it.
"""

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.docs.pages import ROOT, blocks, earlier_pages
from tests.typing.checkers import TypeProblem, run_mypy, run_pyright

# A page runs like a notebook: `await` may be used at the top level, and a later block may define a
# name again.
_TOP_LEVEL_AWAIT = re.compile(
    r'"(?:await|async with|async for)" (?:outside|allowed only within)'
    r"|[Uu]se of \"async\" not allowed outside|asynchronous comprehension outside"
)
_MYPY_OPTIONS = (
    f"--cache-dir={ROOT / '.mypy_cache' / 'docs'}",
    "--allow-redefinition",
    "--disable-error-code=no-redef",
    "--disable-error-code=top-level-await",
    "--disable-error-code=import-untyped",  # libraries without types
    "--implicit-reexport",  # a page that goes on with a file of an earlier page sees its imports
)
_PYRIGHT_SETTINGS = {
    "typeCheckingMode": "strict",
    "reportRedeclaration": False,
    "reportMissingTypeStubs": False,
    # The type stubs want a generator for `@asynccontextmanager`; everyone writes an iterator.
    "reportDeprecated": False,
    "extraPaths": [str(ROOT)],
}


def write_modules(pages: Iterable[Path], folder: Path) -> dict[str, str]:
    """Write the modules of these pages. Return the name of the page of each file."""
    for example in (ROOT / "examples").glob("*.py"):
        if example.name != "__init__.py":  # which would make the folder a package
            shutil.copy(example, folder)
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


def check_with_mypy(pages: Iterable[Path], folder: Path) -> dict[str, list[str]]:
    """Return the errors of mypy in these pages as `page.md:line: message`, by page."""
    origins = write_modules(pages, folder)
    files = [folder / name for name in origins]
    return _by_page(origins, run_mypy(files, *_MYPY_OPTIONS, path=folder))


def check_with_pyright(pages: Iterable[Path], folder: Path) -> dict[str, list[str]]:
    """Return the errors of pyright in these pages as `page.md:line: message`, by page."""
    origins = write_modules(pages, folder)
    (folder / "pyrightconfig.json").write_text(json.dumps(_PYRIGHT_SETTINGS), encoding="utf-8")
    return _by_page(origins, run_pyright("--project", folder))


def _by_page(origins: dict[str, str], problems: list[TypeProblem]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for file, line, message in problems:
        if file in origins and not _TOP_LEVEL_AWAIT.search(message):
            found[origins[file]].append(f"{origins[file]}:{line}: {message}")
    return found
