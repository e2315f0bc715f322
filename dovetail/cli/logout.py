"""`dovetail logout TARGET`: forget a login, and have the authorization server end it where it can
be asked to."""

import argparse
from typing import TYPE_CHECKING

from . import logins
from .output import bold, print_json, print_line

if TYPE_CHECKING:
    from ..auth import OAuth

HELP = "Forget the login to a server."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which."""
    logins.add_arguments(parser)


def execute(options: argparse.Namespace) -> None:
    """Do it. What was not there is forgotten as well."""
    import asyncio

    name, found = logins.login_name(options), logins.find_server_config(options)
    assert found is not None
    there, revoked = asyncio.run(_forget(name, logins.make_oauth(found, False)))
    if options.json:
        print_json({"server": name, "forgotten": there, "revoked": revoked})
    else:
        ended = ", where its tokens are worth nothing any more" if revoked else ""
        print_line("Logged out of " if there else "There was no login to ", bold(name), ended)


async def _forget(name: str, login: "OAuth") -> tuple[bool, bool]:
    """Whether there was a login, and whether its tokens were revoked."""
    from .. import Client
    from ..auth import default_store

    there = await default_store().load(name) is not None
    return there, await Client(name, auth=login).log_out()
