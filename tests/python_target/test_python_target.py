"""Servers in Python code, as `dovetail run`, the other verbs and `Client` name them."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dovetail import Client
from dovetail.errors import ConfigError, ConnectFailed
from dovetail.python_target.parse import PythonTarget, parse_python_target
from tests.cli.conftest import ROOT, dovetail
from tests.cli.test_run import GREETING

ENV = {"PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("server.py", PythonTarget("server.py")),
        ("server.py:app", PythonTarget("server.py", "app")),
        ("server.py:app.inner", PythonTarget("server.py", "app.inner")),
        ("C:\\x\\server.py", PythonTarget("C:\\x\\server.py")),
        ("C:server.py", PythonTarget("C:server.py")),
        ("C:\\x\\server.py:app", PythonTarget("C:\\x\\server.py", "app")),
        ("/a:b/server.py", PythonTarget("/a:b/server.py")),
        ("shop:app", PythonTarget("shop", "app")),
        ("shop.servers:app.inner", PythonTarget("shop.servers", "app.inner")),
        ("server.py:", None),
        ("server.py:a b", None),
        ("shop..servers:app", None),
        ("shop.servers", None),
        ("C:server", None),
        ("localhost:8000", None),
        ("npx some:server", None),
        (":app", None),
        ("", None),
    ],
)
def test_a_string_names_python_code_or_does_not(text: str, target: PythonTarget | None) -> None:
    assert parse_python_target(text) == target


FILES = {
    "plain.py": "server = Server('plain')",
    "guarded.py": "server = Server('guarded')\nif __name__ == '__main__': server.run()",
    "unguarded.py": "server = Server('unguarded')\nserver.run()",
    "network.py": "server = Server('network')\nserver.run('http', port=1)",
    "awaited.py": "import asyncio\nserver = Server('awaited')\nasyncio.run(server.run_async())",
    "several.py": "a = Server('a')\nb = Server('b')\nb.run()",
    "factory.py": "def make(): return Server('made')\nasync def make_later(): return make()\n"
    "def main(): make().run()",
    "shop/__init__.py": "",
    "shop/names.py": "NAME = 'relative'",
    "shop/types.py": "raise RuntimeError('this shadows a standard module')",
    "shop/deep/__init__.py": "",
    "shop/deep/server.py": "from ..names import NAME\nserver = Server(NAME)",
    "shop/siblings.py": "import names\nserver = Server('sibling of ' + names.NAME)",
    "shop/servers.py": "from .names import NAME\norders = Server('orders')",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, source in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(f"from dovetail import Server\n{source}\n" if source else "")
    (tmp_path / "shop" / "names.py").write_text(FILES["shop/names.py"])
    return tmp_path


TARGETS = [
    ("plain.py", "plain"),
    ("plain.py:server", "plain"),
    ("plain:server", "plain"),
    ("guarded.py", "guarded"),
    ("guarded.py:server", "guarded"),
    ("unguarded.py", "unguarded"),
    ("unguarded.py:server", "unguarded"),
    ("network.py", "network"),
    ("awaited.py", "awaited"),
    ("several.py", "b"),
    ("several.py:a", "a"),
    ("factory.py:make", "made"),
    ("factory:make_later", "made"),
    ("factory.py:main", "made"),
    ("shop/deep/server.py", "relative"),
    ("shop/deep/server.py:server", "relative"),
    ("shop/siblings.py", "sibling of relative"),
    ("shop.servers:orders", "orders"),
]


@pytest.mark.parametrize(("target", "name"), TARGETS)
def test_run_serves_it(folder: Path, target: str, name: str) -> None:
    done = dovetail("run", target, stdin=json.dumps(GREETING) + "\n", cwd=folder)
    assert (done.code, done.err) == (0, "")
    assert done.json["result"]["serverInfo"]["name"] == name


@pytest.mark.parametrize(("target", "name"), TARGETS)
async def test_a_client_starts_it(folder: Path, target: str, name: str) -> None:
    path = target if ":" in target and ".py" not in target else str(folder / target)
    async with Client(path, env=ENV, cwd=folder) as client:
        assert client.server_info is not None
        assert client.server_info.name == name


@pytest.mark.parametrize("verb", [["inspect"], ["ping"]])
@pytest.mark.parametrize("target", ["plain.py", "factory.py:make", "shop.servers:orders"])
def test_the_verbs_start_it(folder: Path, target: str, verb: list[str]) -> None:
    done = dovetail(*verb, target, cwd=folder)
    assert (done.code, done.err) == (0, "")


def test_a_file_is_found_with_another_directory_for_the_server(folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    done = dovetail("ping", "factory.py:make", "--cwd", "elsewhere", cwd=folder)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("plain.py:nope", "plain.py has no object named 'nope'; it has: server"),
        ("factory.py", "factory.py has no Server at module level"),
        ("no_such:server", "There is no module named 'no_such'"),
        ("shop.nope.deeper:server", "There is no module named 'shop.nope.deeper'"),
        ("shop.types:server", "types.py:2: RuntimeError: this shadows a standard module"),
    ],
)
async def test_a_client_says_why_it_cannot_be_started(
    folder: Path, target: str, problem: str
) -> None:
    path = str(folder / target) if ".py" in target else target
    with pytest.raises(ConnectFailed) as raised:
        await Client(path, env=ENV, cwd=folder).connect()
    assert problem in str(raised.value)
    done = dovetail("run", target, cwd=folder)
    assert done.code in (1, 2)
    assert problem in done.failure


def test_a_file_that_is_not_there_is_refused_before_anything_starts() -> None:
    for target in ("no/such.py", "no/such.py:server"):
        with pytest.raises(ConfigError, match=r"The file no/such\.py does not exist$"):
            Client(target)


SCRIPT = """
import json, os, sys
assert __name__ == "__main__" and sys.argv == [__file__] == [os.path.abspath(__file__)]
assert sys.path[0] == os.path.dirname(__file__) and __spec__ is None
assert not any(name.startswith("dovetail.server") for name in sys.modules)
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        info = {"name": "foreign", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    elif "id" in message:
        error = {"code": -32601, "message": "no such method"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"""


async def test_a_script_of_another_package_runs_as_it_would_by_itself(tmp_path: Path) -> None:
    (tmp_path / "foreign.py").write_text(SCRIPT)
    async with Client(str(tmp_path / "foreign.py")) as client:
        assert client.server_info is not None
        assert client.server_info.name == "foreign"


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("def f():\n    1 / 0\nf()", '  File "{path}", line 3, in <module>\n    f()\n'),
        ("x = (", '  File "{path}", line 1\n    x = (\n'),
    ],
)
def test_the_traceback_of_a_script_starts_in_the_script(
    tmp_path: Path, source: str, shown: str
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(source)
    done = subprocess.run(
        PythonTarget(str(path)).command(), capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert "child.py" not in done.stderr
    assert done.stderr.removeprefix("Traceback (most recent call last):\n").startswith(
        shown.format(path=path)
    )


@pytest.mark.parametrize("code", [0, 3])
def test_a_script_that_exits_keeps_its_exit_code(tmp_path: Path, code: int) -> None:
    path = tmp_path / "exits.py"
    path.write_text(f"import dovetail, sys; sys.exit({code})")
    done = subprocess.run(PythonTarget(str(path)).command(), timeout=30, check=False)
    assert done.returncode == code


def test_the_file_is_compiled_each_time(tmp_path: Path) -> None:
    """A file of the same size, changed within the same second, must not be taken from a cache."""
    path = tmp_path / "quick.py"
    for word in ("one", "two"):
        path.write_text(f"print('{word}')")
        done = subprocess.run(
            PythonTarget(str(path)).command(), capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{word}\n"


async def test_a_script_can_start_processes_of_its_own(folder: Path) -> None:
    (folder / "spawning.py").write_text(
        textwrap.dedent(
            """
            from multiprocessing import get_context
            from dovetail import Server

            server = Server("spawning")

            def double(number):
                return 2 * number

            @server.tool
            def doubled(number: int) -> int:
                with get_context("spawn").Pool(1) as pool:
                    return pool.apply(double, (number,))

            @server.tool(isolate="process")
            def isolated(number: int) -> int:
                return double(number)
            """
        )
    )
    async with Client(str(folder / "spawning.py"), env=ENV) as client:
        assert (await client.call_tool("doubled", {"number": 4})).data == 8
        assert (await client.call_tool("isolated", {"number": 4})).data == 8


def test_loading_ends_at_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "after.py").write_text(
        "from dovetail import Server\nopen_ = True\nserver = Server('after')\nserver.run()\n"
        "open_ = False"
    )
    from dovetail.python_target.load import load_server

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [])
    server = load_server(PythonTarget(str(folder / "after.py")))
    assert server.name == "after"
    assert sys.modules.pop("after").open_ is True
