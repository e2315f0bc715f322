"""`dovetail dev TARGET`: serve the inspector's page, and restart the server when its files change.

A Python server reports the files that it loads. Other servers cannot, so they need `--watch`. The
server gets little time to end, because a restart should be quick, and Ctrl-C should end everything
within a second.
"""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..python_target.parse import PythonTarget, parse_python_target
from .options import URL, add_client_options, parse_target
from .output import one_line, print_error
from .session import make_client
from .web import add_web_options, serve_page

if TYPE_CHECKING:
    from ..inspector.loaded_files import LoadedFiles
    from ..inspector.reload import ReloadReport
    from ..inspector.state import InspectorState
    from ..inspector.watch import Watch

DEV_TARGET = (
    "a script (server.py), an object in Python code (server.py:orders, shop.servers:orders); with "
    '--watch also an mcp.json file, or a command such as "node server.js"'
)
SHUTDOWN_SECONDS = 0.3
"""How long the server may take to end after its stdin is closed, and again after SIGTERM."""


def add_dev_arguments(parser: ArgumentParser) -> None:
    """Add the options of `dovetail dev`."""
    add_client_options(parser, DEV_TARGET)
    parser.add_argument(
        "--watch",
        metavar="DIR",
        action="append",
        default=[],
        help="also restart when a file below this folder changes; repeatable",
    )
    add_web_options(parser)


def develop(options: Namespace) -> None:
    """Serve the page and restart the server on changes, until Ctrl-C."""
    python = _find_python_target(options)
    folders = [_check_folder(folder) for folder in options.watch]
    if python is None and not folders:
        raise ConfigError(
            f"{options.target} is not Python code, so its files are not known. Name the folder to "
            "watch: --watch DIR"
        )
    from ..inspector.loaded_files import LoadedFiles, find_project
    from ..inspector.watch import Watch

    folder = Path(options.cwd or ".")
    project = find_project(Path(python.source).parent if python and python.is_file else folder)
    files = [project / ".env", folder / ".env"]
    if os.path.isfile(options.target):
        files.append(Path(options.target))
    watch = Watch(files, folders)
    if watch.is_full:
        print_error("Warning: --watch has too many files; some of them are not watched")
    loaded = LoadedFiles(project) if python else None
    try:
        _serve(options, watch, loaded)
    finally:
        if loaded is not None:
            loaded.close()


def _serve(options: Namespace, watch: "Watch", loaded: "LoadedFiles | None") -> None:
    from msgspec.structs import replace

    from ..limits import DEFAULT

    env = dict(options.env) | (loaded.environment if loaded is not None else {})

    def connect(**more: Any) -> Any:
        limits = replace(more.pop("limits", DEFAULT), shutdown=SHUTDOWN_SECONDS)
        return make_client(options, env=env, limits=limits, **more)

    async def watch_files(state: "InspectorState") -> None:
        from ..inspector.reload import ServerReloader

        await ServerReloader(state, watch, loaded, _print_reload, Path.cwd()).run()

    serve_page(options, connect, watch_files)


def _find_python_target(options: Namespace) -> PythonTarget | None:
    """Return the target if it is Python code."""
    if URL.fullmatch(options.target):
        raise ConfigError(
            f"`dovetail dev` starts a server, but {options.target} is a URL. Run: dovetail inspect "
            f"{options.target} --web"
        )
    target = parse_target(options)
    return parse_python_target(target) if isinstance(target, str) else None


def _check_folder(folder: str) -> str:
    if not os.path.isdir(folder):
        raise ConfigError(f"--watch {folder}: there is no such folder")
    return folder


def _print_reload(report: "ReloadReport") -> None:
    """Print one line for a restart, and the traceback of code that cannot be loaded."""
    if report.traceback is not None:
        print_error(report.traceback, lines=True)
    if report.files:
        more = f" and {len(report.files) - 1} more" if len(report.files) > 1 else ""
        print_error(one_line(f"{report.files[0]}{more} changed. {report.message}"))
    elif report.problem is not None:
        print_error(one_line(report.message))
