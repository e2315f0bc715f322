"""What `make install-check` runs: entries of `dovetail install` start as hosts start them.

    python -m tests.host_configs.bare_start

Each kind of environment gets Dovetail from a wheel of this checkout: a virtual environment, pipx,
uvx, a project of uv, and a script with inline metadata (PEP 723). `dovetail install` runs in it and
writes an entry for Claude Desktop. Then the entry is started from the root folder with
`env -i HOME=… PATH=/usr/bin:/bin`, and its tool is called. Every path has spaces and letters beyond
ASCII.

uv reads where the wheel is from its settings in the home folder, because a host passes on no
variables. All homes share one cache.

The last row is what a newcomer does: `init`, `install`, and the entry answers.
"""

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dovetail import Client, config
from dovetail.host_configs.hosts import Machine, find_host

ROOT = Path(__file__).parents[2]
HOST = find_host("claude-desktop")
BARE_PATH = "/usr/bin:/bin"
SERVER = '''
from dovetail import Server

server = Server("weather", version="1.0.0")


@server.tool
def greet(name: str) -> str:
    """Greet someone."""
    return f"Hello, {name}!"


if __name__ == "__main__":
    server.run()
'''
METADATA = '# /// script\n# requires-python = ">=3.11"\n# dependencies = ["dovetail-mcp"]\n# ///\n'
UV_SETTINGS = """find-links = ["{wheels}"]
cache-dir = "{cache}"
system-certs = true
"""
PROJECT = """[project]
name = "weather"
version = "1.0.0"
requires-python = ">=3.11"
dependencies = ["dovetail-mcp"]
"""


class Place(NamedTuple):
    """A home of its own, with the programs that a kind of environment needs."""

    home: Path
    wheels: Path
    tools: Path

    def run(self, *command: str | Path, cwd: Path | None = None) -> None:
        """Run a command as the user of this home, and show what it printed if it fails."""
        path = os.pathsep.join([str(self.tools), BARE_PATH])
        done = subprocess.run(
            [str(one) for one in command],
            cwd=cwd or self.home,
            env={
                **os.environ,
                "HOME": str(self.home),
                "PATH": path,
                "PIP_FIND_LINKS": str(self.wheels),
                "UV_PYTHON": sys.executable,
                "XDG_CONFIG_HOME": "",
                "XDG_STATE_HOME": "",
            },
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
        self.show(*command)
        self.show_output(done.stdout)

    def show(self, *command: str | Path) -> None:
        """Print a command as one types it in this home."""
        line = " ".join(shlex.quote(str(one)) for one in command)
        print(f"  $ {self.shorten(line)}", flush=True)

    def show_output(self, text: str) -> None:
        for line in text.splitlines():
            print(f"    {self.shorten(line)}".rstrip(), flush=True)

    def shorten(self, text: str) -> str:
        return text.replace(str(self.tools), "/tools/bin").replace(str(self.home), "~")

    def write(self, path: str, text: str) -> Path:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        return file


def in_venv(place: Place) -> None:
    folder = place.home / "mein Projekt – ä"
    server = place.write("mein Projekt – ä/weather.py", SERVER)
    venv.create(folder / ".venv", with_pip=True)
    python = folder / ".venv/bin/python"
    place.run(python, "-m", "pip", "install", "--quiet", "dovetail-mcp")
    place.run(python, "-m", "dovetail", "install", HOST.id, server)


def in_pipx(place: Place) -> None:
    server = place.write("mein Server – ä/weather.py", SERVER)
    place.run("pipx", "install", "--quiet", "dovetail-mcp")
    place.run(place.home / ".local/bin/dovetail", "install", HOST.id, server)


def in_uv_project(place: Place) -> None:
    place.write("mein Projekt – ä/pyproject.toml", PROJECT)
    server = place.write("mein Projekt – ä/weather.py", SERVER)
    place.run("uv", "run", "dovetail", "install", HOST.id, server, cwd=server.parent)


def with_uvx(place: Place) -> None:
    server = place.write("mein Server – ä/weather.py", SERVER)
    place.run("uvx", "--from", "dovetail-mcp", "dovetail", "install", HOST.id, server)


def as_script(place: Place) -> None:
    server = place.write("meine Skripte – ä/weather.py", METADATA + SERVER)
    place.run("uvx", "--from", "dovetail-mcp", "dovetail", "install", HOST.id, server)


def as_newcomer(place: Place) -> None:
    place.run("uvx", "--from", "dovetail-mcp", "dovetail", "init", "weather")
    folder = place.home / "weather"
    place.run("uv", "run", "dovetail", "install", HOST.id, "weather.py", cwd=folder)


KINDS: dict[str, Callable[[Place], None]] = {
    "virtual environment": in_venv,
    "pipx": in_pipx,
    "uvx": with_uvx,
    "project of uv": in_uv_project,
    "script with inline metadata": as_script,
    "init, install, and the entry answers": as_newcomer,
}


async def call_entry(place: Place) -> str:
    """Start the entry as a host starts it, and call its tool."""
    home = place.home
    file = HOST.file(Machine(sys.platform, {}, home, home))
    server = config.read(file)["weather"]
    assert "archive-v" not in (server.command or ""), "uv may remove an environment of its cache"
    bare = ["/usr/bin/env", "-i", f"HOME={home}", f"PATH={BARE_PATH}"]
    variables = [f"{name}={value}" for name, value in server.env.items()]
    command = [*bare, *variables, server.command or "", *server.args]
    place.show(*command)
    async with Client(command, cwd="/", timeout=60) as client:
        answer = str((await client.call_tool("greet", {"name": "Ada"})).data)
    place.show_output(f"greet(name='Ada') → {answer}")
    return answer


def check(kind: str, wheels: Path, tools: Path) -> float:
    """Prepare one kind of environment, install, and call the entry; how many seconds that took."""
    with tempfile.TemporaryDirectory(prefix="höme of ada ") as folder:
        place = Place(Path(folder), wheels, tools)
        settings = UV_SETTINGS.format(wheels=wheels, cache=wheels.with_name("cache"))
        place.write(".config/uv/uv.toml", settings)
        began = time.monotonic()
        KINDS[kind](place)
        answer = asyncio.run(call_entry(place))
        assert answer == "Hello, Ada!", answer
        return time.monotonic() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wheels, tools = Path(folder) / "wheels", Path(folder) / "tools"
        pip = [sys.executable, "-m", "pip", "--quiet", "--quiet"]
        subprocess.run([*pip, "wheel", "--no-deps", "-w", str(wheels), str(ROOT)], check=True)
        venv.create(tools, with_pip=True)
        install = [str(tools / "bin/python"), "-m", "pip", "install", "-qq", "uv", "pipx"]
        subprocess.run(install, check=True)
        seconds = {}
        for kind in KINDS:
            print(f"{kind}:", flush=True)
            seconds[kind] = check(kind, wheels, tools / "bin")
        for kind, took in seconds.items():
            print(f"{kind:40} answers after {took:5.1f} s")


if __name__ == "__main__":
    main()
