"""`dovetail backend check [URL]`: check whether Redis is set up as a shared backend needs it. Also,
the options of other commands that name a backend.

A password in the URL is never printed.
"""

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..errors import ConfigError, missing_extra
from .options import integer
from .output import AlreadyPrinted, bold, print_json, print_line, print_table

if TYPE_CHECKING:
    from ..server.runnable import RunnableService

ACTIONS = ("check",)


class BackendNotReady(AlreadyPrinted):
    """Some checks of a backend failed; the results of all were printed."""


def add_backend_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action", metavar="check", choices=ACTIONS, help="print one line for each check"
    )
    parser.add_argument(
        "url", metavar="URL", nargs="?", help="the URL of Redis (default: $DOVETAIL_BACKEND)"
    )
    parser.add_argument(
        "--name", help="the name of your server, to check whether it may use its keys (ACL)"
    )


def check_backend(options: Namespace) -> None:
    """Run all checks, and print what they found."""
    import asyncio

    from ..backend.factory import prefix_of
    from ..backend.redis.address import parse_address
    from ..limits import DEFAULT
    from ..logs import get_logger

    url = options.url or os.environ.get("DOVETAIL_BACKEND")
    if not url:
        raise ConfigError(
            "Name the URL of Redis, for example: dovetail backend check redis://host, or set "
            "DOVETAIL_BACKEND"
        )
    address = parse_address(url)
    try:
        from ..backend.redis.checks import check_redis
    except ImportError:
        raise missing_extra("A shared backend", "redis") from None
    if not options.verbose:
        get_logger("backend").disabled = True  # the checks say it
    prefix = None if options.name is None else prefix_of(options.name)
    checks = asyncio.run(check_redis(address, DEFAULT.backend_timeout, prefix))
    failed = [check.name for check in checks if check.status == "failed"]
    if options.json:
        print_json({"backend": str(address), "ok": not failed, "checks": checks})
    else:
        print_line(bold(str(address)))
        print_table([(check.name, check.status, check.text) for check in checks], indent=2)
    if failed:
        raise BackendNotReady(f"This backend is not ready: {', '.join(failed)}")


# options of other commands


def add_backend_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        metavar="URL",
        help="the Redis that all processes of this server share (default: $DOVETAIL_BACKEND)",
    )


def add_tasks_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--tasks",
        metavar="N",
        type=integer(0),
        help="how many tasks this process runs at once; 0 leaves them to `dovetail worker` "
        "(default: 16)",
    )


def use_backend_options(service: "RunnableService", options: Namespace) -> None:
    """Apply the options that name a backend to a server or gateway."""
    if options.backend is not None:
        service.use_backend(options.backend)
    if (slots := getattr(options, "tasks", None)) is not None:
        service.task_slots = slots
