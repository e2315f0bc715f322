"""A page of the documentation as something that runs.

A page runs in a folder of its own, from top to bottom, in one namespace and one event loop:

    ```python                      is executed; `await` and `async with` may stand at the top level. If a line ends with
                                   `# → text`, the block must print these texts, a line each and nothing else.
    ```python title="server.py"    is written into that file, and the file executed (not as `__main__`).
    ```python title="server.py +"  goes into that file above its `if __name__ == "__main__":`.
    ```json title="mcp.json"       is written into that file; any other JSON must at least be JSON.
    ```markdown title="notes.md"   is written into that file, and so is HTML.
    ```console                     lines that start with `$ dovetail` or `$ python` are run; what follows must be what
                                   they print, with `…` for anything. Other commands are left alone.

A page with `<!-- continues: first-server.md -->` starts with the files that the other page writes, and with those that
the other page continues.

`<!-- not run: reason -->` on the line before a block exempts it, and so does
`<!-- fragment: reason -->`, which exempts it from type checking too. The folder holds a copy of each
example and a link to all of them, and a link to the package, so that servers started from there
find it whether it is installed or not.
"""  # noqa: E501

import ast
import asyncio
import contextlib
import io
import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"]
)
SECONDS = 60

_FENCE = re.compile(r"(\s*)(```+|~~~+)\s*(\S*)\s*(.*?)\s*")
_TITLE = re.compile(r'(?:title="([^"]+)")?')
_CONTINUES = re.compile(r"^<!-- continues: (\S+) -->$", re.MULTILINE)
_EXEMPT = re.compile(r"\s*<!-- (not run|fragment): .+ -->\s*")
_ARROW = re.compile(r"(?:^|  )# → (.*)$", re.MULTILINE)
_GUARD = 'if __name__ == "__main__":'
_COMMANDS = {"dovetail": [sys.executable, "-m", "dovetail"], "python": [sys.executable]}


class Block(NamedTuple):
    """A fenced block: what it is written in, the title of its fence, where its text begins."""

    language: str
    note: str
    line: int
    text: str
    run: bool
    is_fragment: bool


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        opened = _FENCE.fullmatch(lines[at])
        at += 1
        if opened is None:
            continue
        start = at
        while lines[at].strip() != opened[2]:
            at += 1
        text = "\n".join(line.removeprefix(opened[1]) for line in lines[start:at]) + "\n"
        title = _TITLE.fullmatch(opened[4])
        assert title, f'{page.name}:{start}: write title="{opened[4]}", which the site shows'
        exempt = _EXEMPT.fullmatch(lines[start - 2]) if start >= 2 else None
        is_fragment = exempt is not None and exempt[1] == "fragment"
        yield Block(opened[3], title[1] or "", start + 1, text, exempt is None, is_fragment)
        at += 1


def earlier_pages(page: Path) -> list[Path]:
    """The pages that a page continues, first page first."""
    found = _CONTINUES.search(page.read_text(encoding="utf-8"))
    if found is None:
        return []
    before = page.parent / found[1]
    return [*earlier_pages(before), before]


class Page:
    """One run of a page."""

    def __init__(self, path: Path, folder: Path, runner: asyncio.Runner) -> None:
        self.path, self.folder, self.runner = path, folder, runner
        self.names: dict[str, Any] = {"__name__": f"page_{path.stem}"}

    def run(self) -> None:
        for page in earlier_pages(self.path):
            for block in blocks(page):
                if block.run and block.note:
                    self._write(block)
        for block in blocks(self.path):
            if block.run and (handle := getattr(self, f"_{block.language}", None)):
                handle(block)

    def _python(self, block: Block) -> None:
        if block.note:
            self._write(block)
            runpy.run_path(block.note.split()[0], run_name="page")
            return
        # With as many empty lines before it as the page has, a traceback names the line of the
        # page.
        source = "\n" * (block.line - 1) + block.text
        code = compile(
            source, str(self.path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self._execute(code)
        expected = _ARROW.findall(block.text)
        if expected:
            assert printed.getvalue().splitlines() == expected, f"{self.path.name}:{block.line}"

    def _execute(self, code: CodeType) -> None:
        outcome = eval(code, self.names)
        if asyncio.iscoroutine(outcome):
            self.runner.run(_bounded(outcome))

    def _json(self, block: Block) -> None:
        json.loads(block.text)
        if block.note:
            self._write(block)

    def _markdown(self, block: Block) -> None:
        if block.note:
            self._write(block)

    _html = _markdown

    def _write(self, block: Block) -> None:
        name, _, more = block.note.partition(" ")
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not more:
            path.write_text(block.text, encoding="utf-8")
            return
        assert more == "+", f"{self.path.name}:{block.line}: {block.note}"
        before, guard, after = path.read_text(encoding="utf-8").partition(_GUARD)
        path.write_text(f"{before.rstrip()}\n\n\n{block.text}\n\n{guard}{after}", encoding="utf-8")

    def _console(self, block: Block) -> None:
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            words = shlex.split(command)
            if words and words[0] in _COMMANDS:
                self._run(f"{self.path.name}:{block.line}: $ {command}", words, expected.strip())

    def _run(self, where: str, words: list[str], expected: str) -> None:
        done = subprocess.run(
            [*_COMMANDS[words[0]], *words[1:]],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=SECONDS,
        )
        printed = done.stdout.strip()
        assert (done.returncode != 0) == ("dovetail: error:" in expected), f"{where}\n{printed}"
        pattern = ".*".join(re.escape(piece) for piece in expected.split("…"))
        assert not expected or re.fullmatch(pattern, printed, re.DOTALL), (
            f"{where}\n--- printed\n{printed}\n--- shown\n{expected}"
        )


async def _bounded(work: Any) -> None:
    async with asyncio.timeout(SECONDS):
        await work
