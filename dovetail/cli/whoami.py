"""`dovetail whoami TARGET`: what is kept of a login. The server is not asked, and no token is ever
shown."""

import argparse

from ..errors import Unauthorized
from . import logins
from .output import print_json

HELP = "Show what is known of the login to a server."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which."""
    logins.add_arguments(parser)


def execute(options: argparse.Namespace) -> None:
    """Do it."""
    import asyncio

    from ..auth import default_store

    name = logins.login_name(options)
    found = asyncio.run(logins.describe_login(name, default_store()))
    if found is None:
        raise Unauthorized(f"There is no login to {name}: dovetail login {name}")
    print_json(found) if options.json else logins.print_login(found)
