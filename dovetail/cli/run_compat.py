"""`dovetail run --compat TARGET -- ARGUMENTS`: run a program that was written for the official SDK
or for FastMCP on Dovetail, without editing it.

    server.py              a file, which runs as a script
    notes.server           a module, which runs as with `python -m`
    notes.server:main      a function, which is called (and awaited), or a server, which is run
    mcp-server-git         a console script of this environment

The program starts its server itself, and so chooses its transport. Its imports of `mcp` and
`fastmcp` find `dovetail.compat`.
"""

import inspect
import os
import runpy
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module, metadata, util
from typing import Any

from ..errors import ConfigError
from ..text import closest_name

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run_compat(options: Namespace, refused: Iterable[str]) -> None:
    """Run the program until it ends.

    Args:
        options: The command line.
        refused: Other arguments that the user has given.
    """
    for argument in refused:
        raise ConfigError(
            f"{argument} does not apply to --compat: the program starts its server itself. Put the "
            "program's own arguments after --"
        )
    from ..compat.imports import install

    start = _find_program(options.compat)
    sys.argv = [options.compat, *options.program_arguments]
    install()
    try:
        result = start()
        if inspect.iscoroutine(result):
            import asyncio

            result = asyncio.run(result)
    except (AttributeError, ImportError, ConfigError) as error:
        raise ConfigError(f"{_locate(error)}{error}") from error
    sys.exit(result if isinstance(result, int | str) else 0)


def _find_program(target: str) -> Callable[[], Any]:
    """Return a function that runs the program."""
    if target.endswith(".py") or os.path.isfile(target):
        return partial(_run_file, target)
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    source, colon, name = target.rpartition(":")
    if colon and source.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(source)))
        return partial(_call, os.path.basename(source)[:-3], name)
    if colon:
        _check_module(source)
        return partial(_call, source, name)
    if scripts := metadata.entry_points(group="console_scripts", name=target):
        script = next(iter(scripts))
        return partial(_call, script.module, script.attr)
    _check_module(target)
    return partial(runpy.run_module, target, run_name="__main__", alter_sys=True)


def _run_file(path: str) -> None:
    if not os.path.isfile(path):
        raise ConfigError(f"The file {path} does not exist")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    runpy.run_path(path, run_name="__main__")


def _call(module: str, name: str) -> Any:
    """Call a function, or run a server."""
    found: Any = import_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{module} has no function or server named {name!r}")
        found = getattr(found, part)
    return found.run() if hasattr(found, "run_async") else found()


def _check_module(name: str) -> None:
    try:
        if util.find_spec(name) is not None:
            return
    except (ImportError, ValueError):
        pass
    scripts = metadata.entry_points(group="console_scripts")
    close = closest_name(name, scripts.names)
    raise ConfigError(
        f"{name} is not a file, a module or a console script of this Python ({sys.prefix}); "
        + (f"did you mean {close}? " if close else "")
        + "Install the server and dovetail-mcp into the same environment, and run dovetail there"
    )


def _locate(error: BaseException) -> str:
    """Return the file and line of the program that caused an error."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((PACKAGE, "<frozen ")):
            return f"{frame.filename}:{frame.lineno}: "
    return ""
