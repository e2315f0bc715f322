"""The files that a server's process reports: each test runs such a process to its end."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dovetail.inspector.loaded_files import LoadedFiles, find_project, is_project_file
from dovetail.inspector.watch import read_state
from dovetail.python_target.parse import parse_python_target
from dovetail.python_target.report import REPORT_VARIABLE
from tests.cli.conftest import ROOT

SERVER = "from dovetail import Server\nserver = Server('small')\n"
Serve = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[LoadedFiles]:
    found = LoadedFiles(tmp_path)
    yield found
    found.close()


@pytest.fixture
def serve(tmp_path: Path, loaded: LoadedFiles) -> Serve:
    """Serve a target until its stdin, which is empty, has ended."""

    def serve(target: str, **files: str) -> "subprocess.CompletedProcess[bytes]":
        for name, source in files.items():
            write(tmp_path / f"{name.replace('__', '/')}.py", source)
        parsed = parse_python_target(target)
        assert parsed
        if parsed.is_file:
            parsed = parsed._replace(source=str(tmp_path / parsed.source))
        done = subprocess.run(
            parsed.command(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **loaded.environment},
            timeout=30,
            check=False,
        )
        loaded.read()
        return done

    return serve


def write(path: Path, source: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(source))


def names(loaded: LoadedFiles, folder: Path, *, missing: bool = False) -> set[str]:
    return {
        os.path.relpath(path, folder)
        for path, state in loaded.files.items()
        if (state is None) == missing
    }


def test_the_file_and_what_it_imports_are_reported(
    serve: Serve, loaded: LoadedFiles, tmp_path: Path
) -> None:
    done = serve("server.py", server=f"import prices\n{SERVER}", prices="import taxes", taxes="")
    assert done.returncode == 0, done.stderr
    assert names(loaded, tmp_path) == {"server.py", "prices.py", "taxes.py"}
    assert loaded.failure is None
    assert all(read_state(path) == state for path, state in loaded.files.items() if state)


@pytest.mark.parametrize("target", ["shop.servers:orders", "shop/servers.py:orders"])
def test_a_target_with_an_object_reports_its_module(
    serve: Serve, loaded: LoadedFiles, tmp_path: Path, target: str
) -> None:
    source = "from .prices import PRICE\nfrom dovetail import Server\norders = Server('orders')\n"
    write(tmp_path / "shop" / "__init__.py", "")
    done = serve(target, shop__servers=source, shop__prices="PRICE = 1")
    assert done.returncode == 0, done.stderr
    found = names(loaded, tmp_path)
    assert found >= {"shop/servers.py", "shop/prices.py"}


def test_a_module_that_is_imported_while_the_server_runs_is_reported(
    serve: Serve, loaded: LoadedFiles, tmp_path: Path
) -> None:
    source = """
        from contextlib import asynccontextmanager
        from dovetail import Server

        @asynccontextmanager
        async def lifespan(server):
            import late
            yield

        server = Server("small", lifespan=lifespan)
    """
    done = serve("server.py", server=source, late="")
    assert done.returncode == 0, done.stderr
    assert "late.py" in names(loaded, tmp_path)


def test_code_that_is_not_imported_but_executed_is_reported(
    serve: Serve, loaded: LoadedFiles, tmp_path: Path
) -> None:
    source = f"import runpy\nrunpy.run_path('plugin.py')\n{SERVER}"
    done = serve("server.py", server=source, plugin="")
    assert done.returncode == 0, done.stderr
    assert "plugin.py" in names(loaded, tmp_path)


@pytest.mark.parametrize("target", ["server.py", "server.py:server", "server:server"])
@pytest.mark.parametrize(
    ("helper", "words"),
    [
        ("1 +", ["helper.py", "line 1", "SyntaxError"]),
        ("import os\n1 / 0", ["helper.py", "line 2", "ZeroDivisionError"]),
    ],
)
def test_the_file_of_a_failed_import_is_reported_with_its_traceback(
    serve: Serve, loaded: LoadedFiles, tmp_path: Path, target: str, helper: str, words: list[str]
) -> None:
    done = serve(target, server=f"import helper\n{SERVER}", helper=helper)
    assert done.returncode == 1
    assert names(loaded, tmp_path) == {"server.py", "helper.py"}
    assert loaded.failure is not None
    assert all(word in loaded.failure for word in words), loaded.failure
    assert "python_target" not in loaded.failure
    assert "importlib" not in loaded.failure


@pytest.mark.parametrize("target", ["server.py", "server.py:server", "server:server"])
def test_a_file_with_a_syntax_error_is_reported(
    serve: Serve, loaded: LoadedFiles, tmp_path: Path, target: str
) -> None:
    serve(target, server="def broken(:\n")
    assert names(loaded, tmp_path) == {"server.py"}
    assert "SyntaxError" in (loaded.failure or "")


def test_a_file_that_an_import_looked_for_is_reported_as_missing(
    serve: Serve, loaded: LoadedFiles, tmp_path: Path
) -> None:
    serve("server.py", server=f"import prices\n{SERVER}")
    assert names(loaded, tmp_path, missing=True) >= {"prices.py", "prices/__init__.py"}
    assert "No module named 'prices'" in (loaded.failure or "")


def test_a_file_without_a_server_is_a_failure_in_one_line(
    serve: Serve, loaded: LoadedFiles
) -> None:
    serve("server.py:server", server="import os")
    assert loaded.failure is not None
    assert loaded.failure.endswith("server.py has no object named 'server'")
    assert "\n" not in loaded.failure


def test_the_cause_of_the_users_own_exception_is_not_taken_for_the_exception(
    serve: Serve, loaded: LoadedFiles
) -> None:
    source = "try:\n    1 / 0\nexcept Exception as error:\n    raise KeyError('price') from error"
    serve("server.py", server=source)
    assert "KeyError: 'price'" in (loaded.failure or "")
    assert "direct cause" in (loaded.failure or "")


def test_the_next_process_replaces_the_files_of_the_last_one(
    serve: Serve, loaded: LoadedFiles, tmp_path: Path
) -> None:
    serve("server.py", server=f"import prices\n{SERVER}", prices="")
    loaded.begin()
    serve("server.py", server=SERVER)
    assert names(loaded, tmp_path) == {"server.py"}


def test_a_process_for_a_comparison_adds_to_the_files_of_the_server(
    serve: Serve, loaded: LoadedFiles, tmp_path: Path
) -> None:
    path = str(tmp_path / "server.py")
    serve("server.py", server=f"import late\n{SERVER}", late="")
    before = loaded.files[path]
    serve("server.py", server=f"import other\n{SERVER}", other="")
    assert names(loaded, tmp_path) == {"server.py", "late.py", "other.py"}
    assert loaded.files[path] == before, "the server has not loaded the change"


def test_after_a_failure_the_files_of_the_last_process_are_watched_too(
    serve: Serve, loaded: LoadedFiles, tmp_path: Path
) -> None:
    serve("server.py", server=f"import prices\n{SERVER}", prices="")
    write(tmp_path / "prices.py", "changed = True")
    loaded.begin()
    serve("server.py", server="1 / 0")
    assert names(loaded, tmp_path) == {"server.py", "prices.py"}
    path = str(tmp_path / "prices.py")
    assert loaded.files[path] == read_state(path), "what is known already is not a change"


def test_the_servers_own_processes_do_not_report(
    serve: Serve, loaded: LoadedFiles, tmp_path: Path
) -> None:
    write(tmp_path / "other.py", f"import os\nassert {REPORT_VARIABLE!r} not in os.environ")
    source = "import subprocess, sys\nsubprocess.run([sys.executable, 'other.py'], check=True)\n"
    done = serve("server.py", server=source + SERVER)
    assert done.returncode == 0, done.stderr
    assert names(loaded, tmp_path) == {"server.py"}


def test_a_server_whose_report_was_removed_runs(serve: Serve, loaded: LoadedFiles) -> None:
    loaded.close()
    assert serve("server.py", server=SERVER).returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="modes are those of POSIX")
def test_nobody_else_can_read_the_report(loaded: LoadedFiles) -> None:
    path = Path(loaded.environment[REPORT_VARIABLE])
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("/p/server.py", True),
        ("/p/a/b.py", True),
        ("/p/.env", True),
        ("/p/.venv/x/y.py", False),
        ("/other/server.py", False),
        ("/project/server.py", False),
        ("/p/../other.py", False),
    ],
)
def test_only_files_of_the_project_count(path: str, counts: bool) -> None:
    assert is_project_file(path, "/p") is counts


def test_the_project_is_the_nearest_folder_with_a_marker(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    assert find_project(folder) == folder.resolve()
    (tmp_path / "a" / "pyproject.toml").touch()
    assert find_project(folder) == (tmp_path / "a").resolve()
