"""`dovetail record TARGET -o FILE`: a proxy on stdio that records what a host and a server say."""

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..python_target.parse import parse_python_target
from .options import CONFIG_SUFFIXES, add_connect_options, find_server_config, parse_target
from .output import print_error
from .session import connect_options, explained_refusals

if TYPE_CHECKING:
    from ..client.recording import McplogWriter
    from ..client.recording.proxy import ServerCommand


def add_record_arguments(parser: ArgumentParser) -> None:
    add_connect_options(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the file to create (default: a new file in .dovetail/recordings)",
    )


def record(options: Namespace) -> None:
    """Be the server for the host that has started this process, until one of the two ends."""
    is_remote = find_server_config(options) is not None
    command = None if is_remote else _find_command(options)
    with _create_recording(options) as writer:
        if command is None:
            status = 0
            _record_url(options, writer)
        else:
            from ..client.recording.proxy import run_proxy

            status = run_proxy(command, writer)
    if status:
        from ..client.recording.proxy import end_like

        end_like(status)


def _create_recording(options: Namespace) -> "McplogWriter":
    from ..client.recording import McplogWriter, new_recording_path

    path = options.output or str(new_recording_path())
    target = parse_target(options)
    writer = McplogWriter(
        path, target, on_problem=lambda problem: print_error(f"dovetail: {problem}")
    )
    if str(writer.path) != options.output:
        print_error(f"dovetail: recording to {writer.path}")
    return writer


def _find_command(options: Namespace) -> "ServerCommand":
    """Return the command that starts TARGET, with the environment of this process: the host has
    chosen it for the server."""
    from ..client.recording.proxy import ServerCommand

    target, env, cwd = parse_target(options), dict(options.env), options.cwd
    if not isinstance(target, str):
        return ServerCommand(target, env, cwd)
    if python := parse_python_target(target):
        python.check_exists()
        return ServerCommand(python.command(), env, cwd)
    if target.endswith(CONFIG_SUFFIXES):
        from .. import config

        chosen = config.resolve(config.read(target), options.server, target, option="--server")
        server = chosen.config
        assert server.command is not None
        argv = [server.command, *server.args]
        return ServerCommand(argv, {**server.env, **env}, cwd or server.cwd)
    from ..client.targets import SCRIPT_RUNNERS

    if not os.path.isfile(target):
        raise ConfigError(f"The file {target} does not exist")
    runner = SCRIPT_RUNNERS[os.path.splitext(target)[1]]
    return ServerCommand([*runner, os.path.abspath(target)], env, cwd)


def _record_url(options: Namespace, writer: "McplogWriter") -> None:
    import asyncio

    from ..client.recording.bridge import run_bridge
    from ..client.targets import resolve_target

    async def run() -> None:
        target = resolve_target(parse_target(options), connect_options(options))
        with explained_refusals(options):
            await run_bridge(target, writer)

    asyncio.run(run())
