"""The package as a whole: no class name is defined twice, and no modules import each other."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from scripts.count import duplicate_classes

from .test_imports import FILES, PACKAGE, find_imports


def test_no_class_name_is_defined_twice() -> None:
    assert duplicate_classes(PACKAGE) == {}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path, modules: set[str]) -> set[str]:
    """Return the modules of the package that a file imports, inside functions too, but not for
    type checkers only."""
    name = module_name(path)
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found: set[str] = set()
    for node in find_imports(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            # `from package import module` imports the module; anything else is in the source.
            found |= {
                f"{source}.{alias.name}" if f"{source}.{alias.name}" in modules else source
                for alias in node.names
            }
    return (found & modules) - {name}


@cache
def import_graph() -> dict[str, set[str]]:
    paths = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    return {name: imported_modules(path, set(paths)) for name, path in paths.items()}


def parts_graph(package: str) -> dict[str, set[str]]:
    """Return what the folders of a package, and the modules beside them, import of each other."""

    def part(module: str) -> str:
        return ".".join(module.split(".")[: package.count(".") + 2])

    graph: dict[str, set[str]] = {}
    for name, found in import_graph().items():
        if name.startswith(f"{package}."):
            inside = {part(one) for one in found if one.startswith(f"{package}.")}
            graph.setdefault(part(name), set()).update(inside - {part(name)})
    return graph


def import_cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the groups of modules or parts that import each other, directly or through others."""
    reached = {name: _reachable(graph, name) for name in graph}
    groups: list[set[str]] = []
    for name in sorted(graph):
        group = {other for other in reached[name] if name in reached[other]}
        if group and group not in groups:
            groups.append(group)
    return groups


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph[waiting.pop()] - seen:
            seen.add(name)
            waiting.append(name)
    return seen


def test_no_modules_import_each_other() -> None:
    assert [sorted(group) for group in import_cycles(import_graph())] == []


def test_the_folders_of_a_package_import_each_other_in_one_direction() -> None:
    for package in ("auth", "extensions", "gateway", "transports"):
        assert [sorted(group) for group in import_cycles(parts_graph(f"dovetail.{package}"))] == []


def possessive_groups(parsed: Any) -> Iterator[Any]:
    """Yield the parts of a parsed pattern that repeat a group possessively."""
    for operation, argument in parsed:
        if str(operation) == "POSSESSIVE_REPEAT" and str(argument[2][0][0]) != "IN":
            yield argument
        for inner in argument if isinstance(argument, tuple | list) else ():
            for one in inner if isinstance(inner, list) else [inner]:
                if hasattr(one, "getwidth"):
                    yield from possessive_groups(one)


def test_every_logger_escapes_what_peers_wrote() -> None:
    pattern = re.compile(r'getLogger\(f?"dovetail\.([^"]+)"\)')
    names = {name for path in FILES for name in pattern.findall(path.read_text())}
    assert names == {"{name}", "audit", "requests"}  # the last two have formats of their own


def test_no_regular_expression_has_a_possessive_group() -> None:
    """Before Python 3.11.3, `(…)*+` fails to match; `(?>(…)*)` means the same and works."""
    parse = importlib.import_module("re._parser").parse
    assert [*possessive_groups(parse(r"x(?:a(?:bc|d)*+)?"))]
    patterns = {
        (path.name, value.pattern)
        for path in PACKAGE.rglob("*.py")
        if path.name not in ("__main__.py", "_windows.py")
        for value in vars(importlib.import_module(module_name(path))).values()
        if isinstance(value, re.Pattern) and isinstance(value.pattern, str)
    }
    assert len(patterns) > 30
    assert [one for one in patterns if [*possessive_groups(parse(one[1]))]] == []
