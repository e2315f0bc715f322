"""The MCP Inspector on its command line, against our server: a process for each step that it has an
option for."""

import json
import subprocess
from typing import Any

from .cases import Case
from .ours import Seen
from .peers import HOME, MODULES, NODE, ROOT
from .steps import HANDSHAKE

PROGRAM = MODULES / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
SECONDS = 20


def pairs(option: str, given: dict[str, Any]) -> list[str]:
    return (
        [option, *(f"{key}={json.dumps(value)}" for key, value in given.items())] if given else []
    )


ARGUMENTS = {
    "tools": lambda step: ["tools/list"],
    "call": lambda step: [
        "tools/call",
        "--tool-name",
        step["tool"],
        *pairs("--tool-arg", step["arguments"]),
    ],
    "resources": lambda step: ["resources/list"],
    "templates": lambda step: ["resources/templates/list"],
    "read": lambda step: ["resources/read", "--uri", step["uri"]],
    "prompts": lambda step: ["prompts/list"],
    "prompt": lambda step: [
        "prompts/get",
        "--prompt-name",
        step["prompt"],
        *pairs("--prompt-args", step["arguments"]),
    ],
}
"""What it is told for a step, by its verb."""


def inspected(case: Case) -> dict[str, Seen]:
    """What the Inspector shows for each step of a case."""
    return {step["name"]: _shown(case, step) for step in case.told()["steps"]}


def _shown(case: Case, step: dict[str, Any]) -> Seen:
    target = case.target if isinstance(case.target, list) else [case.target]
    path = ["-e", f"PYTHONPATH={ROOT}"] if case.transport == "stdio" else []
    era = ["--protocol-era", "legacy" if case.revision in HANDSHAKE else "modern"]
    command = [
        NODE,
        PROGRAM,
        "--cli",
        *path,
        *target,
        *era,
        "--method",
        *ARGUMENTS[step["do"]](step),
    ]
    home = HOME / "inspector"
    env = {**case.env, "HOME": str(home), "MCP_CATALOG_PATH": str(home / "mcp.json")}
    try:
        done = subprocess.run(
            [*map(str, command)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=env,
        )
        shown = json.loads(done.stdout or "null")
    except (subprocess.TimeoutExpired, json.JSONDecodeError) as problem:
        return {"error": {"message": str(problem)[:300]}}
    if (
        not isinstance(shown, dict)
        or "error" in shown
        or (done.returncode and "content" not in shown)
    ):
        return {"error": {"message": (done.stderr or done.stdout).strip()[-300:]}}
    return {"result": shown}
