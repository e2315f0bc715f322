"""`dovetail call` on a tool that runs as a task: it waits, shows what the task says, and Ctrl-C
cancels the task."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from dovetail import Server
from tests.behaviour.web import on_a_port
from tests.cli.conftest import command, dovetail, environment

SOURCE = """
    import asyncio

    @server.tool(task="required")
    async def bake(ctx: Context, fail: bool = False) -> str:
        ctx.progress(1, 3, "kneading")
        await asyncio.sleep(0.5)
        if fail:
            raise ToolError("burnt")
        return "bread"
"""
posix = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
REVISIONS = ["2025-11-25", "2026-07-28"]


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_task_is_waited_for_and_its_words_are_progress(
    server: Callable[..., str], revision: str
) -> None:
    path = server(SOURCE)
    done = dovetail("call", path, "bake", "--revision", revision, "--verbose")
    assert (done.code, done.out) == (0, "bread\n")
    assert [
        line.split()[-1] for line in done.err.splitlines() if line.startswith("progress: ")
    ] == ["kneading"]
    assert dovetail("call", path, "bake", "fail=true", "--revision", revision).failure == "burnt"


def test_the_timeout_of_a_call_is_the_tasks_too(server: Callable[..., str]) -> None:
    done = dovetail("call", server(SOURCE.replace("0.5", "60")), "bake", "--timeout", "5")
    assert (
        done.code != 0
        and "is still working after 5 s without an update; its last message was: kneading"
        in done.failure
    )


@posix
def test_on_a_terminal_a_task_says_in_words_how_far_it_is(server: Callable[..., str]) -> None:
    from tests.cli.screen import on_screen

    code, err, out = on_screen("call", server(SOURCE), "bake", "--revision", "2026-07-28")
    assert (code, out) == (0, "bread\n")
    assert [line.rstrip() for line in err.split("\r")] == ["", "kneading", "", ""]


@posix
@pytest.mark.parametrize("revision", REVISIONS)
async def test_ctrl_c_cancels_the_task_at_the_server(revision: str) -> None:
    server, begun, cancelled = Server("slow"), asyncio.Event(), asyncio.Event()

    @server.tool(task="required")
    async def wait() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    async with on_a_port(server.asgi(path="/mcp")) as address:
        words = command("call", f"http://{address}/mcp", "wait", "--revision", revision)
        words = words[: words.index("--env")]
        process = await asyncio.create_subprocess_exec(
            *words, stderr=subprocess.PIPE, env=environment()
        )
        await begun.wait()
        await asyncio.sleep(0.5)  # until it waits for the task, and not for the call that began it
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert (process.returncode, err) == (130, b"")
        await cancelled.wait()
