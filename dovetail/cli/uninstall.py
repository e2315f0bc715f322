"""`dovetail uninstall HOST NAME`: remove a server that `dovetail install` added."""

from argparse import ArgumentParser, Namespace

from .install import add_scope_argument
from .install_output import print_plan
from .output import print_json


def add_uninstall_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("host", metavar="HOST", help="the host; `dovetail hosts` lists them")
    parser.add_argument("name", metavar="NAME", help="the name of the server in the host")
    add_scope_argument(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="remove it even if `dovetail install` did not write it, or if it changed since",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would change, and change nothing"
    )


def uninstall(options: Namespace) -> None:
    """Remove the entry."""
    from ..host_configs.hosts import Machine, find_host
    from ..host_configs.install import apply, plan_uninstall
    from ..host_configs.running import is_running

    host = find_host(options.host)
    plan = plan_uninstall(
        host,
        options.name,
        machine=Machine.current(),
        scope=options.scope,
        is_running=is_running(host),
        force=options.force,
    )
    if not options.dry_run:
        apply(plan)
    if options.json:
        print_json(
            {
                "host": host.id,
                "file": str(plan.file),
                "name": plan.name,
                "changed": not options.dry_run,
                "would_change": True,
            }
        )
        return
    print_plan(plan, f"{'would be' if options.dry_run else 'was'} removed from", options)
