"""What holds for every example: its imports, its row in the table. Its types: tests/typing."""

import ast
import re
from pathlib import Path

import pytest

from .conftest import EXAMPLES, ROOT

FILES = sorted(path for path in EXAMPLES.rglob("*.py") if path.name != "__init__.py")
README = (EXAMPLES / "README.md").read_text(encoding="utf-8")
GUIDES = "".join(
    page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "guides").glob("*.md"))
)
each_file = pytest.mark.parametrize(
    "path", FILES, ids=lambda path: path.relative_to(EXAMPLES).as_posix()
)


@each_file
def test_an_example_imports_what_the_guides_explain(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dovetail"):
            assert re.search(rf"\b{re.escape(node.module or '')}\b", GUIDES), node.module
            for name in node.names:
                assert re.search(rf"\b{name.name}\b", GUIDES), f"{node.module}.{name.name}"


@each_file
def test_an_example_begins_with_what_it_shows(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert text is not None
    assert text.partition("\n")[0], path


@each_file
def test_an_example_is_in_the_table(path: Path) -> None:
    name = path.relative_to(EXAMPLES).as_posix()
    folder = name.partition("/")[0]
    assert re.search(rf"\]\({re.escape(name)}\)|\]\({re.escape(folder)}/", README), name
