"""The reference servers, which know nothing of our steps: each has a few of its own, for our
client."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from .cases import Case
from .peers import HOME, MODULES, NODE
from .running import environment, listening
from .steps import HANDSHAKE, REVISIONS, STRUCTURED, Step, call, said

FILES = HOME / "files"
PACKAGES = MODULES / "@modelcontextprotocol"
EVERYTHING = PACKAGES / "server-everything/dist/index.js"


class Reference(NamedTuple):
    """A server that others wrote, and what to do with it."""

    name: str
    command: list[Any]
    revisions: tuple[str, ...]
    steps: tuple[Step, ...]
    modes: dict[str, str] = {}
    """The transports besides stdio, by what the server calls them."""


def has(*texts: str) -> Any:
    return said(*(f"~{text}" for text in texts))


REFERENCES = (
    Reference(
        "server-everything",
        [NODE, EVERYTHING],
        HANDSHAKE,
        (
            Step("server", "server", {"result": {"name": "mcp-servers/everything"}}),
            Step(
                "tools", "tools", {"result": {"tools": "has echo get-sum trigger-sampling-request"}}
            ),
            Step("call", "call", said("The sum of 2 and 3 is 5."), call("get-sum", a=2, b=3)),
            Step(
                "picture",
                "call",
                {"result": {"content": [{}, {"type": "image"}, {}]}},
                call("get-tiny-image"),
            ),
            Step(
                "structured",
                "call",
                {"result": {"structuredContent": {"conditions": "Cloudy"}}},
                call("get-structured-content", location="New York"),
                since=STRUCTURED,
            ),
            Step(
                "progress",
                "call",
                {"progress": [..., {"progress": 3, "total": 3}]},
                call("trigger-long-running-operation", duration=0.3, steps=3),
                {"progress": 3},
            ),
            Step(
                "resources",
                "resources",
                {"result": {"resources": "has demo://resource/static/document/features.md"}},
            ),
            Step(
                "read",
                "read",
                {"result": {"contents": [{"text": "~Resource 1"}]}},
                {"uri": "demo://resource/dynamic/text/1"},
            ),
            Step(
                "templates",
                "templates",
                {"result": {"resourceTemplates": "has demo://resource/dynamic/text/{resourceId}"}},
            ),
            Step("prompts", "prompts", {"result": {"prompts": "has simple-prompt args-prompt"}}),
            Step(
                "prompt",
                "prompt",
                {"result": {"messages": [{"content": {"text": "~Oslo"}}]}},
                {"prompt": "args-prompt", "arguments": {"city": "Oslo"}},
            ),
            Step(
                "completion",
                "complete",
                {"result": {"completion": {"values": ["Engineering"]}}},
                {"prompt": "completable-prompt", "argument": "department", "value": "Eng"},
            ),
            Step(
                "sampling",
                "call",
                has("Godspeed!"),
                call("trigger-sampling-request", prompt="Go", maxTokens=10),
            ),
            Step("roots", "call", has("file:///tmp/interop"), call("get-roots-list")),
            Step(
                "elicitation",
                "call",
                {"result": {"content": [{"text": "~provided"}, {"text": "~Ada"}, {}]}},
                call("trigger-elicitation-request"),
                since=STRUCTURED,
            ),
        ),
        {"http": "streamableHttp", "sse": "sse"},
    ),
    Reference(
        "server-filesystem",
        [NODE, PACKAGES / "server-filesystem/dist/index.js", FILES],
        HANDSHAKE,
        (
            Step("tools", "tools", {"result": {"tools": "has read_text_file list_directory"}}),
            Step("call", "call", has("hello.txt"), call("list_directory", path=str(FILES))),
            Step(
                "read a file",
                "call",
                said("hello"),
                call("read_text_file", path=str(FILES / "hello.txt")),
            ),
            Step("outside", "call", "failed", call("read_text_file", path="/etc/hostname")),
        ),
    ),
    Reference(
        "mcp-server-time",
        [HOME / "reference/bin/mcp-server-time", "--local-timezone", "Europe/Oslo"],
        REVISIONS,
        (
            Step("tools", "tools", {"result": {"tools": "has get_current_time convert_time"}}),
            Step(
                "call", "call", has("Europe/Oslo"), call("get_current_time", timezone="Europe/Oslo")
            ),
            Step(
                "bad timezone", "call", "failed", call("get_current_time", timezone="Nowhere/Such")
            ),
        ),
    ),
    Reference(
        "mcp-server-git",
        [HOME / "reference/bin/mcp-server-git", "--repository", FILES],
        REVISIONS,
        (
            Step("tools", "tools", {"result": {"tools": "has git_status git_log"}}),
            Step("call", "call", has("hello.txt"), call("git_status", repo_path=str(FILES))),
            Step("outside", "call", "failed", call("git_status", repo_path="/nowhere")),
        ),
    ),
)


def referred(reference: Reference, stack: ExitStack) -> list[Case]:
    """Our client with a reference server, which is started here where it listens."""
    return list(_cases(reference, stack))


def _cases(reference: Reference, stack: ExitStack) -> Iterator[Case]:
    env = environment()
    for transport in ("stdio", *reference.modes):
        target: Any = [str(part) for part in reference.command]
        if transport != "stdio":
            port = stack.enter_context(
                listening(
                    [*target, reference.modes[transport]], f"{reference.name} {transport}", "PORT"
                )
            )
            target = f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"
        for revision in reference.revisions:
            steps = [step for step in reference.steps if step.since <= revision <= step.until]
            yield Case(reference.name, "server", transport, revision, target, steps, env)


def prepare(folder: Path = FILES) -> None:
    """A folder with a file in it that git has not been told of."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hello.txt").write_text("hello")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
