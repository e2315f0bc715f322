"""The files of a project that `dovetail init` creates. NAME, MODULE, VERSION and FRIENDLY are
replaced."""

SERVER = '''"""FRIENDLY: an MCP server."""

from dovetail import Server

server = Server("NAME", version="0.1.0")


@server.tool
def greet(name: str, loud: bool = False) -> str:
    """Greet someone.

    Args:
        name: Who is greeted.
        loud: Whether to shout.
    """
    greeting = f"Hello, {name}!"
    return greeting.upper() if loud else greeting


@server.resource("NAME://about")
def about() -> str:
    """Say what this server is for."""
    return "A server that greets people."


def main() -> None:
    server.run()


if __name__ == "__main__":
    main()
'''

TEST = """from MODULE import server

from dovetail import Client


def test_someone_is_greeted() -> None:
    with Client(server).blocking() as client:
        assert client.call_tool("greet", {"name": "Ada"}).data == "Hello, Ada!"
        assert client.call_tool("greet", {"name": "Ada", "loud": True}).data == "HELLO, ADA!"


def test_the_server_says_what_it_is_for() -> None:
    with Client(server).blocking() as client:
        (page,) = client.read_resource("NAME://about")
        assert page.text == "A server that greets people."
"""

PYPROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "NAME"
version = "0.1.0"
description = "FRIENDLY: an MCP server"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["dovetail-mcp>=VERSION"]

[project.scripts]
NAME = "MODULE:main"

[dependency-groups]
dev = ["pytest>=8", "dovetail-mcp[http]>=VERSION"]

[tool.hatch.build.targets.wheel]
only-include = ["MODULE.py"]
"""

README = """# FRIENDLY

An MCP server, written with Dovetail.

## Run it

```console
$ uv run dovetail dev MODULE.py      # a page with its tools; the server restarts when you save
$ uv run dovetail run MODULE.py      # as a host starts it, on stdio
$ uv run pytest                      # the tests
$ uv run dovetail check MODULE.py    # problems in schemas and descriptions
```

Without uv, create a virtual environment, run `pip install -e . pytest "dovetail-mcp[http]"`, and
leave out `uv run`.

## Add it to a host

```console
$ uv run dovetail hosts                               # the hosts on this machine
$ uv run dovetail install claude-desktop MODULE.py
$ uv run dovetail install claude-code MODULE.py
$ uv run dovetail install cursor MODULE.py
$ uv run dovetail install vscode MODULE.py
```

`dovetail uninstall HOST MODULE` removes it again.

Once the project is published on PyPI, anyone can add it with one click or one command:

CURSOR · VSCODE

```console
$ uvx dovetail-mcp install claude-desktop "uvx NAME"
```
"""

WORKFLOW = """name: test
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: astral-sh/setup-uv@v5
      - run: uv run pytest
      - run: uv run dovetail check MODULE.py
"""

IGNORED = """.venv/
__pycache__/
dist/
.dovetail/recordings/
"""

FILES = {
    "MODULE.py": SERVER,
    "test_MODULE.py": TEST,
    "pyproject.toml": PYPROJECT,
    "README.md": README,
    ".github/workflows/test.yml": WORKFLOW,
    ".gitignore": IGNORED,
}
