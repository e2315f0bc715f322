"""examples/shell.py: nothing runs without agreement, outside the roots, or for too long."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, ToolError

from .conftest import EXAMPLES

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="commands as POSIX has them")
SERVER = EXAMPLES / "shell.py"


def connect(folder: Path, answer: Any = True, **options: Any) -> tuple[Client, list[str]]:
    """A client whose user gives this answer, and the questions that the user sees."""
    asked: list[str] = []

    def on_elicit(request: Any) -> Any:
        asked.append(request.message)
        return answer

    return Client(SERVER, cwd=folder, on_elicit=on_elicit, **options), asked


@pytest.mark.parametrize("revision", ["stateless", "handshake"])
async def test_a_command_runs_once_after_the_user_has_agreed(tmp_path: Path, revision: str) -> None:
    client, asked = connect(tmp_path, roots=[tmp_path], revision=revision)
    async with client:
        arguments = {"command": "echo run >> log; cat log; exit 3", "folder": str(tmp_path)}
        done = (await client.call_tool("run", arguments)).data
    assert done == {"exit_code": 3, "output": "run\n"}
    assert asked == [f"Run 'echo run >> log; cat log; exit 3' in {tmp_path}?"]


@pytest.mark.parametrize("answer", [False, None])
async def test_without_agreement_nothing_runs(tmp_path: Path, answer: Any) -> None:
    client, asked = connect(tmp_path, answer)
    async with client:
        with pytest.raises(ToolError, match="the user did not agree"):
            await client.call_tool("run", {"command": "touch ran"})
    assert asked
    assert not (tmp_path / "ran").exists()


async def test_if_nobody_can_be_asked_nothing_runs(tmp_path: Path) -> None:
    async with Client(SERVER, cwd=tmp_path) as client:
        with pytest.raises(ToolError, match="cannot ask its user"):
            await client.call_tool("run", {"command": "touch ran"})
    assert not (tmp_path / "ran").exists()


async def test_the_question_shows_what_a_terminal_would_hide(tmp_path: Path) -> None:
    client, asked = connect(tmp_path, False)
    async with client:
        with pytest.raises(ToolError):
            await client.call_tool("run", {"command": "true #\r\x1b[2Krm -rf /\u202e"})
    assert asked == [rf"Run 'true #\r\x1b[2Krm -rf /\u202e' in {tmp_path}?"]


@pytest.mark.parametrize("has_roots", [True, False])
async def test_a_folder_outside_is_refused_before_the_user_is_asked(
    tmp_path: Path, has_roots: bool
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path)
    client, asked = connect(inside, **({"roots": [inside]} if has_roots else {}))
    async with client:
        for folder in ("..", "link", str(tmp_path), "/"):
            with pytest.raises(ToolError, match="is outside the"):
                await client.call_tool("run", {"command": "touch ran", "folder": folder})
    assert asked == []
    assert not (tmp_path / "ran").exists()


async def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    written = tmp_path / "child"
    command = f"sleep 600 & echo $! > {written}.new; mv {written}.new {written}; wait"
    for seconds in (1, 4, 16, 64):  # a busy machine may not even start the command in the first
        client, _ = connect(tmp_path, env={"SHELL_SECONDS": str(seconds)})
        async with client:
            with pytest.raises(ToolError, match=f"did not finish within {seconds} s"):
                await client.call_tool("run", {"command": command})
            if written.exists():
                break
    child = int(written.read_text())
    while is_running(child):
        await asyncio.sleep(0.01)


def is_running(process: int) -> bool:
    """Whether a process runs. One that has ended may wait for its parent to notice."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        return not Path("/proc/self").exists()
    return status.rpartition(")")[2].split()[0] != "Z"
