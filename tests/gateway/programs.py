"""Servers in processes of their own, for tests of hosts and gateways."""

import sys
from pathlib import Path
from typing import Any

from dovetail import Limits

PATIENT = Limits(catalog_wait=30)
"""Limits with which lists are complete even if the machine is slow."""
ROOT = Path(__file__).parents[2]
SERVER = '''
import asyncio, os, sys
from dovetail import Context, Server

server = Server({name!r}, revisions={revisions!r}, instructions="Use {name}.")

@server.tool
async def pid() -> int:
    """The process of this server."""
    return os.getpid()

@server.tool
async def echo(text: str) -> str:
    return text

@server.tool
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"

@server.tool
async def crash() -> str:
    sys.stderr.write("secret: hunter2\\n")
    sys.stderr.flush()
    os._exit(7)

@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Which size?", str)
    return str(answer.data)

@server.tool
async def grow(name: str) -> str:
    """Add a tool with this name."""
    server.add_tool(pid, name=name)
    server.notify_resource_updated("note://{name}")
    return name

@server.resource("note://{name}")
def note() -> str:
    return "the note of {name}"

@server.resource("file://{name}/{{path}}")
def file(path: str) -> str:
    return path

@server.prompt
def hello(who: str) -> str:
    return f"Hello {{who}}"

hello.complete("who", ["Ada", "Alan"])

{more}
server.run()
'''


def write_server(
    folder: Path, name: str, *, revisions: list[str] | None = None, more: str = ""
) -> list[str]:
    """Write the program of a server, and return its command."""
    path = folder / f"{name}.py"
    path.write_text(SERVER.format(name=name, revisions=revisions, more=more), "utf-8")
    return [sys.executable, "-P", str(path)]


def entry(command: list[str], **settings: Any) -> dict[str, Any]:
    """Return an entry of a configuration."""
    env = {"PYTHONPATH": str(ROOT)}
    return {"command": command[0], "args": command[1:], "env": env, "dovetail": settings}
