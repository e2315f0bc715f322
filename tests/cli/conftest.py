"""The command as a user has it: a process of its own, against servers that are small scripts.

`dovetail("call", path, "add", "a=1")` runs it and gives exit code, stdout and stderr. To save time,
the process is forked from one that has loaded the command (`tests/forked.py`).
`server(source)` writes a script with a Server in it. `scripted({method: answer})` writes one that
answers with whatever it is told, however hostile: it is made of bare JSON, so nothing of ours
smooths what it says.
"""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dovetail.host_configs.hosts import HostApp, Machine
from tests import forked

ROOT = Path(__file__).parents[2]
WEATHER = str(ROOT / "examples" / "weather.py")
SECONDS = 30
NAMES = "Context, Message, NotFound, ProtocolError, Server, ToolError"
"""What the scripts here need: a star would load all there is, each time."""

SCRIPTED = """
import json, sys
answers = json.loads({answers!r})
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = answers.get(message["method"], {{"error": {{"code": -32601, "message": "no such method"}}}})
    sys.stderr.write(answer.get("stderr", ""))
    sys.stderr.flush()
    if "exit" in answer:
        sys.exit(answer["exit"])
    if answer.get("silent"):
        continue
    token = (message.get("params") or {{}}).get("_meta", {{}}).get("progressToken")
    for method, params in answer.get("before", []):
        if method == "notifications/progress":
            params = params | {{"progressToken": token}}
        print(json.dumps({{"jsonrpc": "2.0", "method": method, "params": params}}), flush=True)
    reply = {{key: answer[key] for key in ("result", "error") if key in answer}}
    print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], **reply}}), flush=True)
"""  # noqa: E501


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def failure(self) -> str:
        """The failure line, which must be the only one."""
        (line,) = self.err.splitlines()
        assert line.startswith("dovetail: error: ")
        return line.removeprefix("dovetail: error: ")


def command(*words: str) -> list[str]:
    """The command line; a server that it starts finds the package where we do."""
    return [sys.executable, "-m", "dovetail", *arguments(*words)]


def arguments(*words: str) -> list[str]:
    """What follows the name of the command."""
    alone = (
        "run",
        "gateway",
        "worker",
        "backend",
        "logout",
        "whoami",
        "consent",
        "completion",
        "install",
        "uninstall",
        "hosts",
        "init",
        "move",
    )  # these start no server
    found = (
        ["--env", f"PYTHONPATH={ROOT}"]
        if words and words[0] not in alone and not words[0].startswith("-")
        else []
    )
    return [*words, *found]


def environment(**more: str) -> dict[str, str]:
    """Ours, without what changes how text is written."""
    strange = ("NO_COLOR", "COLUMNS", "TERM")
    kept = {key: value for key, value in os.environ.items() if key not in strange}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", **more}


def dovetail(*words: str, cwd: Path | None = None, stdin: str = "", **variables: str) -> Done:
    return run_to_end(arguments(*words), environment(**variables), cwd=cwd, stdin=stdin)


def run_to_end(
    words: list[str],
    variables: dict[str, str],
    *,
    cwd: Path | None = None,
    stdin: str = "",
    prepare: str = "",
) -> Done:
    """Run the command with exactly these words and variables.

    Args:
        words: what follows `dovetail` on the command line.
        variables: the environment.
        cwd: where it runs.
        stdin: what it reads from stdin.
        prepare: Python code to execute before.
    """
    options: dict[str, Any] = {"cwd": cwd, "env": variables, "timeout": SECONDS}
    if forked.IS_POSSIBLE:
        code, out, err = forked.run_forked(words, prepare=prepare, input=stdin.encode(), **options)
        return Done(code, out.decode(), err.decode())
    program = f"{prepare}\nimport sys\nfrom dovetail.cli.main import main\nsys.exit(main())"
    start = ["-c", program] if prepare else ["-m", "dovetail"]
    done = subprocess.run(
        [sys.executable, *start, *words],
        input=stdin.encode(),
        capture_output=True,
        **options,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def handshake(info: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The greeting of a server of the handshake era that offers everything."""
    offers: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}, "logging": {}}
    info = info or {"name": "scripted", "version": "1"}
    result = {"protocolVersion": "2025-06-18", "capabilities": offers, "serverInfo": info, **more}
    return {"initialize": {"result": result}, "logging/setLevel": {"result": {}}}


def tool(name: str = "go", **more: Any) -> dict[str, Any]:
    """A list with one tool."""
    return {
        "tools/list": {
            "result": {"tools": [{"name": name, "inputSchema": {"type": "object"}, **more}]}
        }
    }


def says(*blocks: Any, **more: Any) -> dict[str, Any]:
    """A tool that gives these blocks; a string stands for text."""
    content = [
        {"type": "text", "text": block} if isinstance(block, str) else block for block in blocks
    ]
    return {"tools/call": {"result": {"content": content, **more.pop("result", {})}, **more}}


@pytest.fixture
def scripted(tmp_path: Path) -> Callable[..., str]:
    """A server that answers each method with what it is told, and refuses the others."""

    def write(*answers: dict[str, Any]) -> str:
        told = {
            method: answer for group in (handshake(), *answers) for method, answer in group.items()
        }
        path = tmp_path / "scripted.py"
        path.write_text(SCRIPTED.format(answers=json.dumps(told)))
        return str(path)

    return write


@pytest.fixture
def server(tmp_path: Path) -> Callable[..., str]:
    """A script with a server of ours."""

    def write(source: str, name: str = "served.py") -> str:
        path = tmp_path / name
        head = f"from dovetail import {NAMES}\nserver = Server('small', version='1.2.3')\n"
        path.write_text(
            head + textwrap.dedent(source) + "\nif __name__ == '__main__':\n    server.run()\n"
        )
        return str(path)

    return write


# hosts

Run = Callable[..., Done]
WITH_PROCESSES = """
import os
from dovetail.host_configs import running
running.list_processes = lambda: set(os.environ["PROCESSES"].split(","))
"""
"""The command on a machine on which only certain programs run."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder without any host, and a project in it."""
    home = tmp_path / "höme of ada"
    (home / "my project").mkdir(parents=True)
    return home


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The only folder on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


@pytest.fixture
def run(home: Path, programs: Path) -> Run:
    """Run the command with this home, in a project of it. No host of this machine can be seen."""

    def run_command(*words: str, running: str = "", **variables: str) -> Done:
        clean = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME", "APPDATA", "LOCALAPPDATA")
        own = {"HOME": str(home), "PATH": str(programs), "PROCESSES": running}
        variables = environment(**dict.fromkeys(clean, ""), **own | variables)
        cwd = home / "my project"
        return run_to_end([*words], variables, cwd=cwd, prepare=WITH_PROCESSES)

    return run_command


def file_of(host: HostApp, home: Path, scope: Any = "user") -> Path:
    return host.file(Machine(sys.platform, {}, home, home / "my project"), scope)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path
