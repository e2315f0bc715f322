"""Composition: a target to a channel. What `Client` calls.

A target is one of: a Server object, a channel, a command (list), a script (`server.py`), an `mcp.json` (path or dict).
It becomes a `Door`: a name for messages, and a function that opens a fresh channel each time it is called, so that a server
that died can be started again.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from . import config
from .errors import ConfigError
from .limits import Limits
from .ports import Channel
from .transports import memory

Open = Callable[[], Awaitable[Channel]]
SCRIPTS = {".py": [sys.executable, "-u"], ".js": ["node"], ".mjs": ["node"], ".ts": ["npx", "tsx"]}
"""What runs a script, by its suffix."""


class Door(Struct, frozen=True, eq=False):
    """Where a client's conversations begin."""

    name: str
    open: Open
    again: bool = True
    """Whether a second channel can be opened; a channel that was given is the only one."""
    key: str | None = None
    """What the same server is known by, to remember its era."""


def door(
    target: Any,
    *,
    server: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    limits: Limits,
    on_stderr: Callable[[str], None] | None = None,
) -> Door:
    """The door to a target."""
    if _is_server(target):
        return Door(f"the server {target.name!r}", lambda: _in_memory(target, limits))
    if _is_channel(target):
        return Door(type(target).__name__, lambda: _given(target), again=False)
    if isinstance(target, Mapping):
        return _configured(config.choose(config.parse(target), server), env, cwd, limits, on_stderr)
    if isinstance(target, list | tuple):
        return _command([str(part) for part in target], env, cwd, limits, on_stderr)
    if isinstance(target, str | Path):
        return _named(str(target), server, env, cwd, limits, on_stderr)
    raise ConfigError(f"{target!r} is no target: give a script, a command as a list, an mcp.json, a Server or a channel")


def _named(text: str, server: str | None, env: Any, cwd: Any, limits: Limits, on_stderr: Any) -> Door:
    if "://" in text:
        raise ConfigError(f"{text}: this version reaches servers over stdio only")
    path = Path(text)
    if path.suffix == ".json":
        return _configured(config.choose(config.read(path), server, text), env, cwd, limits, on_stderr)
    if path.suffix in SCRIPTS:
        if not path.is_file():
            raise ConfigError(f"There is no file {text}")
        return _command([*SCRIPTS[path.suffix], str(path.absolute())], env, cwd, limits, on_stderr)
    if not text.strip():
        raise ConfigError("The target is empty")
    raise ConfigError(f"{text!r} is no script or mcp.json; give a command as a list: {text.split()!r}")


def _configured(chosen: config.ServerConfig, env: Any, cwd: Any, limits: Limits, on_stderr: Any) -> Door:
    filled = config.expand(chosen)
    if filled.url is not None:
        return _named(filled.url, None, env, cwd, limits, on_stderr)
    assert filled.command is not None
    return _command([filled.command, *filled.args], {**filled.env, **(env or {})}, cwd or filled.cwd, limits, on_stderr)


def _command(command: Sequence[str], env: Any, cwd: Any, limits: Limits, on_stderr: Any) -> Door:
    if not command:
        raise ConfigError("The command is empty")

    async def open() -> Channel:
        from .transports.process import spawn

        return await spawn(command, env=env, cwd=cwd, limits=limits, on_stderr=on_stderr)

    return Door(" ".join(command), open, key="\0".join([*command, str(cwd or "")]))


async def _given(channel: Channel) -> Channel:
    return channel


async def _in_memory(server: Any, limits: Limits) -> Channel:
    ours, theirs = memory.pair(limits, server.limits)
    task = asyncio.get_running_loop().create_task(_hold(server, theirs))
    _serving.add(task)
    task.add_done_callback(_served)
    return ours


async def _hold(server: Any, channel: Channel) -> None:
    try:
        await server.serve(channel)
    finally:
        await channel.close()  # also where the server failed before it had said a word


_serving: set["asyncio.Task[None]"] = set()


def _served(task: "asyncio.Task[None]") -> None:
    _serving.discard(task)
    if not task.cancelled() and task.exception() is not None:
        import logging

        logging.getLogger("dovetail.connect").error("The server failed", exc_info=task.exception())


def _is_server(target: Any) -> bool:
    return all(hasattr(target, name) for name in ("answer", "listen", "serve", "info"))


def _is_channel(target: Any) -> bool:
    return all(callable(getattr(target, name, None)) for name in ("start", "send", "drain", "close"))
