"""Who may import whom, and how much an import costs.

The table is the one of docs/design/layers.md; a line says which parts a part may import from the
package. Imports inside functions count too: they are for weight, never a way around the table. `if
TYPE_CHECKING` imports do not.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "dovetail"
STDLIB = set(sys.stdlib_module_names) | {"annotationlib"}  # new in 3.14
EVERYWHERE = {"errors", "limits", "lazy", "logs", "net", "text", "aio", "masking", "file_lock"}
LOW = {"protocol", "jsonrpc"}
VALUES = LOW | {"revisions", "ports", "schema"}

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "limits": set(),
    "lazy": set(),
    "logs": set(),
    "net": set(),
    "text": set(),
    "aio": set(),
    "masking": set(),
    "file_lock": set(),
    "schema": set(),
    "config": {"jsonc", "yaml_loader"},
    "host_configs": {"config", "jsonc", "yaml_loader"},
    "jsonc": set(),
    "jsonrpc": set(),
    "protocol": set(),
    "sealing": set(),
    "databases": set(),
    "terminal": LOW | {"schema"},
    "python_target": {"server"},
    "backend": LOW | {"ports", "sealing", "connection", "extensions", "transports", "auth"},
    "yaml_loader": set(),
    "tool_index": LOW,
    "openapi": LOW | {"ports", "schema", "tool_index", "transports", "yaml_loader"},
    "revisions": LOW,
    "ports": LOW | {"revisions"},
    "connection": LOW | {"revisions", "ports", "sealing"},
    "extensions": LOW
    | {"revisions", "ports", "sealing", "databases", "connection", "__init__", "yaml_loader"},
    "transports": LOW | {"revisions", "ports", "sealing"},
    "serve": VALUES | {"transports", "connection", "sealing"},
    "auth": {"ports", "sealing", "databases"},
    "server": VALUES | {"serve", "extensions", "connection", "sealing", "python_target", "backend"},
    "client": VALUES
    | {
        "mcplog",
        "backend",
        "transports",
        "extensions",
        "connection",
        "config",
        "auth",
        "terminal",
        "python_target",
        "__init__",
    },
    "gateway": VALUES
    | {
        "tool_index",
        "backend",
        "server",
        "client",
        "connection",
        "extensions",
        "config",
        "auth",
        "sealing",
        "databases",
        "terminal",
        "__init__",
    },
    "testing": VALUES | {"server", "client", "transports", "connection", "serve", "auth", "mcplog"},
    "mcplog": {"ports", "__init__"},
    "compat": LOW
    | {"ports", "revisions", "schema", "extensions", "server", "client", "transports", "auth"},
    "inspector": VALUES
    | {
        "__init__",
        "auth",
        "client",
        "config",
        "extensions",
        "jsonc",
        "mcplog",
        "python_target",
        "serve",
        "server",
    },
    "cli": VALUES
    | {
        "compat",
        "host_configs",
        "inspector",
        "mcplog",
        "serve",
        "backend",
        "server",
        "client",
        "gateway",
        "config",
        "auth",
        "terminal",
        "python_target",
        "__init__",
    },
    "__main__": {"cli"},
    "__init__": {"server", "client", "protocol", "ports"},
}
DOORS = {
    "msgspec": set(MAY_IMPORT),  # the material that everything is made of
    "jsonschema_rs": {"schema"},
    "pydantic": {"schema"},
    "pydantic_core": {"compat", "schema"},
    "attrs": {"schema"},
    "attr": {"schema"},
    "annotated_types": {"schema"},
    "colorama": {"cli"},
    "rich": {"cli"},
    "aiohttp": {"transports"},
    "websockets": {"transports"},
    "uvicorn": {"serve"},
    "httptools": {"serve", "transports"},  # parses requests in one, responses in the other
    "uvloop": {"serve"},
    "starlette": {"compat"},
    "prefab_ui": {"compat"},
    "anyio": {"compat"},
    "cryptography": {"sealing"},
    "joserfc": {"auth"},
    "keyring": {"auth"},
    "redis": {"backend"},
    "opentelemetry": {"extensions"},
    "ruamel": {"yaml_loader"},
}
"""Each third-party library is imported in one place."""
ONE_FILE = {
    "aiohttp": {"transports/http/client/aiohttp_client.py"},
    "httptools": {"transports/http/client/http1.py", "serve/uvicorn_server.py"},
    "redis": {"backend/redis/client.py"},
}
"""The only files that import these libraries: one, or one on each side."""


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def is_for_type_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def find_imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports among statements and inside them, but not those for type checkers only.
    Expressions contain none, so they are not searched."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        names = ["orelse"] if is_for_type_checkers(node) else ["body", "orelse", "finalbody"]
        for name in names:
            yield from find_imports(getattr(node, name, []))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from find_imports(part.body)


@cache
def imports_of(path: Path) -> set[str]:
    """The parts of the package, and the libraries (as `name!`), that a file imports."""
    depth = len(path.relative_to(PACKAGE).parts) - 1
    found: set[str] = set()
    for node in find_imports(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            found |= {f"{alias.name.split('.')[0]}!" for alias in node.names}
        elif node.level == 0:
            found.add(f"{(node.module or '').split('.')[0]}!")
        elif node.level > depth:
            names = (
                [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            )
            found |= {
                name
                if (PACKAGE / name).exists() or (PACKAGE / f"{name}.py").exists()
                else "__init__"
                for name in names
            }
        elif node.level == depth and depth == 0:
            found.add((node.module or "").split(".")[0])
    return found


FILES = sorted(PACKAGE.rglob("*.py"))


def test_a_file_imports_only_what_the_table_allows() -> None:
    for path in FILES:
        part = part_of(path)
        ours = {name for name in imports_of(path) if not name.endswith("!")} - {part}
        assert ours <= MAY_IMPORT[part] | EVERYWHERE, (
            f"{path}: {part} may not import {ours - MAY_IMPORT[part] - EVERYWHERE}"
        )


def test_a_library_has_one_door() -> None:
    for path in FILES:
        outside = {name[:-1] for name in imports_of(path) if name.endswith("!")} - STDLIB
        for library in outside - {"dovetail"}:
            assert part_of(path) in DOORS.get(library, set()), (
                f"{path}: {library} is not to be imported in {part_of(path)}"
            )


@pytest.mark.parametrize("library", ONE_FILE)
def test_a_library_that_may_be_replaced_is_imported_in_one_file(library: str) -> None:
    named = (path for path in FILES if library in path.read_text(encoding="utf-8"))
    importers = {path for path in named if f"{library}!" in imports_of(path)}
    assert {path.relative_to(PACKAGE).as_posix() for path in importers} == ONE_FILE[library]


@cache
def loaded_by(statement: str) -> frozenset[str]:
    code = f"{statement}\nimport sys; print('\\n'.join(sys.modules))"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    return frozenset(output.split())


HEAVY = {
    "asyncio",
    "logging",
    "jsonschema_rs",
    "pydantic",
    "importlib.metadata",
    "dataclasses",
    "http",
    "ssl",
    "socket",
    "base64",
    "threading",
    "dovetail.net",
    "dovetail.server.options",
}
NOT_FOR_STDIO = {"dovetail.net", "random", "secrets", "tempfile", "urllib.parse"}
"""What a server on stdio needs only for rare requests, if at all."""


@pytest.mark.bare_interpreter
def test_importing_server_loads_nothing_heavy() -> None:
    assert HEAVY & loaded_by("from dovetail import Server") == set()


@pytest.mark.bare_interpreter
def test_a_server_on_stdio_loads_only_what_it_needs_to_start() -> None:
    start = "import dovetail.serve.channel, dovetail.server.signature"
    assert NOT_FOR_STDIO & loaded_by(f"from dovetail import Server; {start}") == set()


@pytest.mark.bare_interpreter
def test_the_command_line_loads_nothing_heavy_before_a_command_runs() -> None:
    heavy = {"asyncio", "importlib.metadata", "inspect", "msgspec", "ssl"}
    assert heavy & loaded_by("import dovetail.cli.main") == set()


def test_an_http_client_does_not_load_the_library_for_proxies() -> None:
    client = "dovetail.transports.http.client"
    loaded = loaded_by(f"import {client}.channel, {client}.fetch, {client}.http1_client")
    assert "httptools" in loaded and "aiohttp" not in loaded


def test_importing_server_stays_within_its_budget_of_modules() -> None:
    ours = loaded_by("from dovetail import Server") - loaded_by("pass")
    assert len(ours) <= 128, sorted(ours)


def test_importing_the_package_alone_loads_nothing_else_of_it() -> None:
    assert {name for name in loaded_by("import dovetail") if name.startswith("dovetail.")} == {
        "dovetail.lazy"
    }


def test_no_date_is_known_outside_of_revisions() -> None:
    import re

    for path in FILES:
        if part_of(path) != "revisions":
            assert not re.search(r"""["']20\d\d-\d\d-\d\d["']""", path.read_text()), path


def test_the_public_names_are_sorted_and_all_exist() -> None:
    import dovetail

    lazy = " ".join(dovetail._NAMES.values()).split()
    assert dovetail.__all__ == sorted(dovetail.__all__) == sorted(lazy)
    for name in dovetail.__all__:
        assert getattr(dovetail, name) is not None


def test_a_package_lists_each_of_its_names_once() -> None:
    import dovetail

    assert dovetail.Server is not None  # which is loaded now, and so is there twice
    assert len(dir(dovetail)) == len(set(dir(dovetail)))
    assert "Client" in dir(dovetail)


PURE = [f"gateway.{name}" for name in ("naming", "health", "consent.policy", "consent.pins")]


@pytest.mark.bare_interpreter
def test_pure_modules_do_not_load_asyncio() -> None:
    modules = (f"dovetail.{module}" for module in (*PURE, "client.function_calling", "config"))
    assert "asyncio" not in loaded_by(f"import {', '.join(modules)}")
