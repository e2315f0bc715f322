"""`dovetail run --compat`: programs that were written for other libraries, unedited."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Done, dovetail
from tests.cli.test_run import GREETING

SERVER = """
import sys
from mcp.server.fastmcp import FastMCP

mcp = FastMCP(" ".join(sys.argv[1:]) or "none")

def main():
    mcp.run()

async def serve():
    await mcp.run_stdio_async()

def fail():
    return 3

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a package and a console script, as pip installs them."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "__init__.py").touch()
    (tmp_path / "notes" / "server.py").write_text(SERVER)
    info = tmp_path / "notes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: notes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[console_scripts]\nnotes-mcp = notes.server:main\n")
    return tmp_path


def run(project: Path, *words: str) -> Done:
    greeting = json.dumps(GREETING) + "\n"
    return dovetail("run", "--compat", *words, stdin=greeting, cwd=project)


@pytest.mark.parametrize(
    "target",
    [
        "notes/server.py",
        "notes/server.py:mcp",
        "notes.server",
        "notes.server:main",
        "notes.server:serve",
        "notes.server:mcp",
        "notes-mcp",
    ],
)
def test_a_program_is_named_by_its_file_module_function_server_or_script(
    project: Path, target: str
) -> None:
    done = run(project, target, "--", "--own", "name")
    assert done.code == 0, done.err
    assert done.json["result"]["serverInfo"]["name"] == "--own name"


def test_the_exit_code_is_that_of_the_program(project: Path) -> None:
    assert run(project, "notes.server:fail").code == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.py"], "The file missing.py does not exist"),
        (["missing.module"], "missing.module is not a file, a module or a console script"),
        (["notes-mcpp"], "did you mean notes-mcp?"),
        (["notes.server:nope"], "notes.server has no function or server named 'nope'"),
        (["notes-mcp", "word"], "word does not apply to --compat"),
        (["notes-mcp", "--http"], "--http does not apply to --compat"),
        (["notes-mcp", "--own"], "put the program's own arguments after --"),
    ],
)
def test_a_mistake_is_explained(project: Path, words: list[str], message: str) -> None:
    done = run(project, *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_a_name_that_dovetail_lacks_is_reported_with_the_line_that_imports_it(
    project: Path,
) -> None:
    path = project / "other.py"
    path.write_text("import json\nfrom mcp.server.fastmcp import Nonsense\n")
    done = run(project, "other.py")
    assert done.code == 2
    assert f"{path.name}:2: cannot import Nonsense from mcp.server.fastmcp" in done.err


def test_an_option_that_dovetail_lacks_is_reported_with_the_line_that_uses_it(
    project: Path,
) -> None:
    (project / "other.py").write_text(
        "from fastmcp import FastMCP\nimport json\nFastMCP('x', nonsense=1)\n"
    )
    done = run(project, "other.py")
    assert "other.py:3: FastMCP has no option nonsense=" in done.err
