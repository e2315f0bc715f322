"""Programs that import the other libraries get `dovetail.compat`; each is a process."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dovetail.compat import imports


def run(source: str, path: Path | None = None) -> str:
    """What a program prints after `install()`."""
    program = "from dovetail.compat.imports import install; install()\n" + textwrap.dedent(source)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=path)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("statement", "expression", "expected"),
    [
        ("from mcp.server.fastmcp import FastMCP", "FastMCP", "SDKFastMCP"),
        ("from fastmcp import FastMCP", "FastMCP", "FastMCP"),
        ("import fastmcp", "fastmcp.FastMCP", "FastMCP"),
        ("from mcp.server.mcpserver import MCPServer", "MCPServer", "MCPServer"),
        ("import mcp.server.fastmcp.server", "mcp.server.fastmcp.server.FastMCP", "SDKFastMCP"),
        ("import mcp", "mcp.server.fastmcp.FastMCP", "SDKFastMCP"),
        ("from mcp.server import fastmcp as other", "other.FastMCP", "SDKFastMCP"),
        ("from mcp.server.fastmcp import *", "FastMCP", "SDKFastMCP"),
        ("from mcp import types", "types.Tool", "types.Tool"),
        ("from mcp import Tool", "Tool", "types.Tool"),
        ("from fastmcp.tools import Tool", "Tool", "Tool"),
    ],
)
def test_a_name_is_found_however_it_is_imported(
    statement: str, expression: str, expected: str
) -> None:
    print_it = f"import dovetail.compat\nprint({expression} is dovetail.compat.{expected})"
    assert run(f"{statement}\n{print_it}") == "True"


def test_the_installed_library_is_not_imported(tmp_path: Path) -> None:
    for name in ("mcp", "fastmcp", "mcp_types"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the real library')")
    assert run("import mcp, fastmcp, mcp_types; print('ours')", tmp_path) == "ours"


def test_a_library_that_was_imported_before_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("FastMCP = None")
    source = """
    import sys
    sys.meta_path.pop(0)
    import mcp
    install()
    import mcp.server.fastmcp
    print(mcp.server.fastmcp.FastMCP.__module__)
    """
    assert run(source, tmp_path) == "dovetail.compat.server"


def test_a_missing_name_is_an_import_error_that_says_what_to_use_instead() -> None:
    source = """
    try:
        from mcp.server.fastmcp import Nonsense
    except ImportError as error:
        print(error)
    """
    assert run(source) == (
        "cannot import Nonsense from mcp.server.fastmcp on dovetail.compat: see "
        "docs/guides/moving.md for what Dovetail has"
    )


def test_the_hints_for_missing_names_are_those_of_the_package() -> None:
    name, hint = next(iter(imports.ELSEWHERE.items()))
    assert hint in imports._explain("mcp", name)


def test_a_missing_module_is_an_import_error() -> None:
    source = """
    try:
        import mcp.server.nonsense.more
    except ImportError as error:
        print(error)
    """
    assert run(source).startswith("cannot import nonsense from mcp.server on dovetail.compat")


def test_a_missing_attribute_has_a_default_as_usual() -> None:
    assert run("import mcp; print(getattr(mcp, 'Nonsense', 7), hasattr(mcp, 'other'))") == "7 False"


def test_modules_have_the_version_that_is_installed_or_the_one_they_imitate(
    tmp_path: Path,
) -> None:
    info = tmp_path / "fastmcp-2.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fastmcp\nVersion: 2.9\n")
    print_it = "import fastmcp; print(fastmcp.__version__)"
    assert run(print_it, tmp_path) == "2.9"


def test_fastmcp_has_settings() -> None:
    source = "import fastmcp; fastmcp.settings.port = 9; print(fastmcp.settings.port)"
    assert run(source) == "9"


def test_other_libraries_are_found_as_before() -> None:
    assert run("import json, fastmcp; print(json.dumps(1))") == "1"
