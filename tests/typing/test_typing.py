"""mypy and pyright accept what the documentation and the examples show, and reject common mistakes.

A file `*_accepted.py` must have no errors. In a file `*_rejected.py` exactly the lines that end
with `# error` must have one. All pages and examples must have none; a page with errors shows that
they are found, and where.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.page_modules import write_modules
from tests.docs.pages import PAGES, ROOT
from tests.typing.checkers import Rules, TypeProblem, run_mypy, run_pyright

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*_accepted.py")) + sorted(HERE.glob("*_rejected.py"))
EXAMPLES = ROOT / "examples"
NOT_STRICT = frozenset(
    {
        "reportMissingTypeStubs",
        "reportDeprecated",  # wants a generator for `@asynccontextmanager`
    }
)
OF_USERS = Rules()
OF_EXAMPLES = Rules(("disable_error_code = import-untyped",), True, NOT_STRICT)
# A page runs like a notebook: `await` may be used at the top level, and a later block may define a
# name again.
OF_PAGES = Rules(
    (
        "allow_redefinition = true",
        "disable_error_code = import-untyped,no-redef,top-level-await",
        "implicit_reexport = true",  # a page that goes on with a file of an earlier page
    ),
    True,
    NOT_STRICT | {"reportRedeclaration"},
)
TOP_LEVEL_AWAIT = re.compile(
    r'"(?:await|async with|async for)" (?:outside|allowed only within)'
    r"|[Uu]se of \"async\" not allowed outside|asynchronous comprehension outside"
)
BROKEN_PAGE = """\
```python title="server.py"
from dovetail import Server

server = Server("broken")

server.tool(7)
```

```python title="server.py +"
def greet() -> str:
    return 7
```

```python
from server import server
from dovetail import Client

async with Client(server) as client:
    client.nonsense
    await client.list_tools()
```

<!-- fragment: it cannot stand alone -->
```python
server.run(nonsense)
```
"""
NEXT_PAGE = """\
<!-- continues: broken.md -->
```python title="server.py +"
def count() -> int:
    return greet()
```

```python
from server import count, server

server.tool(count())
```
"""


def write_examples(folder: Path) -> dict[str, str]:
    """Copy all examples into one folder, where those that import each other find each other."""
    paths = (path for path in sorted(EXAMPLES.rglob("*.py")) if path.name != "__init__.py")
    origins = {"_".join(path.relative_to(EXAMPLES).parts): path for path in paths}
    for name, path in origins.items():
        shutil.copy(path, folder / name)
    return {name: path.relative_to(ROOT).as_posix() for name, path in origins.items()}


def expected_errors() -> set[tuple[str, int]]:
    return {
        (path.name, number)
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.endswith("# error")
    }


@pytest.mark.parametrize("checker", [run_mypy, run_pyright])
def test_a_type_checker_accepts_what_is_right_and_rejects_what_is_wrong(
    checker: Callable[[Path, dict[str, Rules]], list[TypeProblem]], tmp_path: Path
) -> None:
    broken, next_page = tmp_path / "broken.md", tmp_path / "next.md"
    broken.write_text(BROKEN_PAGE, encoding="utf-8")
    next_page.write_text(NEXT_PAGE, encoding="utf-8")
    folder = tmp_path / "modules"
    folder.mkdir()
    pages = write_modules([*PAGES, broken, next_page], folder)
    origins = {**write_examples(folder), **pages}
    files = {name: OF_PAGES if name in pages else OF_EXAMPLES for name in origins}
    files |= {Path(shutil.copy(path, folder)).name: OF_USERS for path in FILES}
    found = [
        (origins.get(file, file), line, message)
        for file, line, message in checker(folder, files)
        if file not in pages or not TOP_LEVEL_AWAIT.search(message)
    ]
    on_pages = {
        ("broken.md", 6),
        ("broken.md", 11),
        ("broken.md", 19),
        ("next.md", 4),
        ("next.md", 10),
    }
    expected = on_pages | expected_errors()
    assert [problem for problem in found if problem[:2] not in expected] == []
    assert expected - {problem[:2] for problem in found} == set()
