"""Count what the size targets are about: `make count`, or `python3 scripts/count.py [FOLDER]`.

- Files, and tokens as `tokenize` gives them: names (with keywords), operators, strings and numbers.
  Only on Python 3.11, where an f-string is one token; on other versions the figure is marked.
- Functions over 60 lines and files over 500. Docstrings, and the signatures of functions, do not
  count; everything else does, comments and blank lines too.
- Class names that are defined more than once.

`tests/architecture` uses the same functions.
"""

import ast
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MAX_FUNCTION_LINES, MAX_FILE_LINES = 60, 500
COUNTED = {tokenize.NAME, tokenize.OP, tokenize.STRING, tokenize.NUMBER}
ROOT = Path(__file__).parent.parent
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Long(NamedTuple):
    """A function or a file over its limit."""

    place: str
    lines: int


def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def count_tokens(path: Path) -> int:
    with path.open("rb") as file:
        return sum(token.type in COUNTED for token in tokenize.tokenize(file.readline))


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def docstring_lines(node: ast.AST) -> int:
    """Return how many lines the node's strings that stand alone take: its docstring, and the
    descriptions below its fields."""
    strings = (
        child
        for child in getattr(node, "body", [])
        if isinstance(child, ast.Expr)
        and isinstance(child.value, ast.Constant)
        and isinstance(child.value.value, str)
    )
    return sum(last_line(child) - child.lineno + 1 for child in strings)


def signature_lines(function: Function) -> int:
    return function.body[0].lineno - function.lineno


def last_line(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno


def function_lines(function: Function) -> int:
    """Return the length of the body, without docstrings and the signatures of inner functions."""
    first = function.body[0].lineno
    inner = [node for node in functions(function) if node is not function]
    signatures = sum(map(signature_lines, inner))
    strings = sum(map(docstring_lines, [function, *inner]))
    return last_line(function) - first + 1 - signatures - strings


def file_lines(path: Path) -> int:
    """Return the length of the file without docstrings and signatures."""
    tree = parse(path)
    total = len(path.read_text(encoding="utf-8").splitlines())
    scopes = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef)]
    strings = sum(map(docstring_lines, [*scopes, *functions(tree)]))
    return total - strings - sum(map(signature_lines, functions(tree)))


def long_functions(folder: Path) -> list[Long]:
    found = [
        Long(f"{path.relative_to(folder.parent)}:{function.lineno} {function.name}", length)
        for path in python_files(folder)
        for function in functions(parse(path))
        if (length := function_lines(function)) > MAX_FUNCTION_LINES
    ]
    return sorted(found, key=lambda long: -long.lines)


def long_files(folder: Path) -> list[Long]:
    found = [
        Long(str(path.relative_to(folder.parent)), length)
        for path in python_files(folder)
        if (length := file_lines(path)) > MAX_FILE_LINES
    ]
    return sorted(found, key=lambda long: -long.lines)


def duplicate_classes(folder: Path) -> dict[str, list[str]]:
    """Return each class name that is defined more than once, nested classes included, with the
    places."""
    places: dict[str, list[str]] = {}
    for path in python_files(folder):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                place = f"{path.relative_to(folder.parent)}:{node.lineno}"
                places.setdefault(node.name, []).append(place)
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else ROOT / "dovetail"
    files = python_files(folder)
    tokens = sum(map(count_tokens, files))
    exact = sys.version_info[:2] == (3, 11)
    note = "" if exact else "  (not comparable: count with Python 3.11)"
    print(f"files                  {len(files):>9,}")
    print(f"tokens                 {tokens:>9,}{note}")
    for title, found in (
        (f"functions over {MAX_FUNCTION_LINES} lines", long_functions(folder)),
        (f"files over {MAX_FILE_LINES} lines", long_files(folder)),
    ):
        print(f"{title:<23}{len(found):>9}")
        for long in found:
            print(f"    {long.lines:>5}  {long.place}")
    duplicates = duplicate_classes(folder)
    print(f"class names used twice {len(duplicates):>9}")
    for name, where in duplicates.items():
        print(f"    {name}: {', '.join(where)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
