"""The peers: what is installed, in which version, and where to.

Python peers want different versions of the same libraries, so each has an environment of its own;
npm keeps apart what has to be apart by itself. All of it comes from the registries by name, with
the ordinary clients, into `.interop/` at the root of the repository, once: a folder is brought
again only when its line here changes.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..node import Trouble, ended

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".interop"
INSTALL_SECONDS = 400

PYTHON = {
    "mcp1": ["mcp==1.30.0"],
    "mcp2": ["mcp==2.3.0"],
    "fastmcp3": ["fastmcp==3.4.10"],
    "fastmcp4": [
        "fastmcp==4.1.2"
    ],  # the releases after these want a certifi that not every mirror has yet
    "reference": [
        "mcp-server-time==2026.10.19",
        "mcp-server-git==2026.10.19",
        "mcp-server-fetch==2026.10.19",
    ],
}
"""By environment: what pip brings."""
OURS = ["msgspec==0.22.0", "jsonschema-rs==0.60.3", "httptools==0.9.0"]
"""What `dovetail` needs in the environment of a framework."""
FRAMEWORKS = {
    "langchain": ["langchain-mcp-adapters==0.3.2", "mcp==1.30.0"],
    "openai_agents": ["openai-agents==0.24.0", "mcp==2.3.0"],
    "openai_agents1": ["openai-agents==0.24.0", "mcp==1.30.0"],
    "litellm": ["litellm==1.106.2", "mcp==2.3.0"],
    "dspy": ["dspy==3.4.1", "mcp==2.3.0"],
}
"""Agent frameworks, and the release of the SDK that they are made for."""
NPM = {
    "node": "22",
    "@modelcontextprotocol/sdk": "1.32.2",
    "@modelcontextprotocol/server": "2.4.0",
    "@modelcontextprotocol/server-legacy": "2.3.1",
    "@modelcontextprotocol/node": "2.1.2",
    "@modelcontextprotocol/client": "2.4.0",
    "@modelcontextprotocol/inspector": "2.12.0",
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "@modelcontextprotocol/server-memory": "2026.8.31",
}
"""What npm brings; the first is a Node that is new enough for the others."""
SCOPE = "@modelcontextprotocol"
AS_PINNED = {
    **PYTHON,
    **FRAMEWORKS,
    "ts1": [f"sdk {NPM[f'{SCOPE}/sdk']}"],
    "ts2": [
        f"{name} {NPM[f'{SCOPE}/{name}']}" for name in ("client", "server", "server-legacy", "node")
    ],
    "inspector": [f"inspector {NPM[f'{SCOPE}/inspector']}"],
    "servers": [
        f"{name} {NPM[f'{SCOPE}/{name}']}"
        for name in ("server-everything", "server-filesystem", "server-memory")
    ],
}
"""What a peer is, by the name that it has in the table."""
MODULES = HOME / "npm/node_modules"
NODE = MODULES / "node/bin/node"


def python(environment: str) -> Path:
    """The interpreter of an environment."""
    return HOME / environment / "bin/python"


def install() -> None:
    """Bring what is not there."""
    for environment, wanted in PYTHON.items():
        _bring(environment, wanted, _with_pip)
    for environment, wanted in FRAMEWORKS.items():
        _bring(environment, [*wanted, *OURS], _with_pip)
    _bring("npm", NPM, _with_npm)


def _bring(name: str, wanted: Any, bring: Callable[[Path, Any], None]) -> None:
    folder, text = HOME / name, json.dumps(wanted)
    stamp = folder / "installed.json"
    if stamp.is_file() and stamp.read_text() == text:
        return
    print(f"Installing into {folder.relative_to(ROOT)}: {', '.join(wanted)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    bring(folder, wanted)
    stamp.write_text(text)


def _with_pip(folder: Path, wanted: list[str]) -> None:
    _run([sys.executable, "-m", "venv", str(folder)], folder)
    _run(
        [
            str(folder / "bin/python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *wanted,
        ],
        folder,
    )


def _with_npm(folder: Path, wanted: dict[str, str]) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Trouble(
            "npm is needed to install the peers that are written in TypeScript; it comes with Node"
        )
    package = {"private": True, "dependencies": wanted, "allowScripts": {"node": True}}
    (folder / "package.json").write_text(json.dumps(package))
    _run(
        [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"], folder
    )
    if not NODE.is_file():
        raise Trouble(f"npm install did not bring {NODE}")


def _run(command: list[str], folder: Path) -> None:
    process = subprocess.Popen(command, cwd=folder, start_new_session=True)
    ended(process, INSTALL_SECONDS, " ".join(command[:4]))
    if process.returncode:
        raise Trouble(f"{' '.join(command)} failed")
