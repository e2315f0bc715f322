"""A shell: a command runs only after the user has agreed, in a process of its own, for a limited
time.

    dovetail call examples/shell.py run command="git status --short"
    dovetail call examples/shell.py run command="ls" folder=/etc

The user sees the whole command before it runs. It runs in a folder within the client's roots, or
within the server's own folder if the client has no roots. If the time is up or the call is
cancelled, the command is killed with everything that it has started.

None of this is a sandbox: a command can do what you can do. To confine commands, start them in a
sandbox: pass its command to `isolate=`, as docs/guides/tools.md shows.
"""

import os
import subprocess
from pathlib import Path

from msgspec import Struct

from dovetail import CannotAsk, Client, Context, Server, ToolError

FOLDER = Path.cwd()
SECONDS = float(os.environ.get("SHELL_SECONDS", "30"))
MAX_CHARS = 20_000

# `single_use`: the user's agreement cannot be sent again to run the command a second time.
server = Server("shell", version="1.0.0", single_use=True)
runner = Server("runner")  # has a tool that asks nothing, so only this module may reach it


class Finished(Struct):
    exit_code: int
    output: str


@runner.tool(isolate="process", timeout=SECONDS)
def execute(command: str, folder: str) -> Finished:
    """Run a command. This function runs in a new process, which is killed if the time is up."""
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    return Finished(done.returncode, done.stdout[:MAX_CHARS])


@server.tool(annotations={"destructiveHint": True, "openWorldHint": True})
async def run(command: str, ctx: Context, folder: str = ".") -> Finished:
    """Run a shell command, if the user agrees. Return its exit code and its output.

    Args:
        command: The command.
        folder: The folder in which to run it.
    """
    path = await resolve(folder, ctx)
    try:
        # With `!r`, the user also sees line breaks and invisible characters.
        answer = await ctx.elicit(f"Run {command!r} in {path}?")
    except CannotAsk:
        raise ToolError("Not run: this client cannot ask its user.") from None
    if not answer:
        raise ToolError("Not run: the user did not agree. Ask what to do instead.")
    async with Client(runner) as client:
        arguments = {"command": command, "folder": str(path)}
        done = await client.call_tool("execute", arguments, type=Finished, timeout=SECONDS + 30)
        return done.data


async def resolve(folder: str, ctx: Context) -> Path:
    """Return the real path of a folder, after links and `..`. Refuse a folder that is outside."""
    try:
        path = await ctx.resolve_in_roots(FOLDER / folder)
    except CannotAsk:  # the client has no roots
        path = (FOLDER / folder).resolve()
        if not path.is_relative_to(FOLDER):
            raise ToolError(f"{folder} is outside the server's folder") from None
    if not path.is_dir():
        raise ToolError(f"There is no folder {folder}")
    return path


if __name__ == "__main__":
    server.run()
