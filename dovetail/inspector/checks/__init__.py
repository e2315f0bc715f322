"""`dovetail check`: problems in what a server lists.

    findings = await check_server(client)
    reported, ignored = apply_ignores(findings, read_ignores())

The rules are rows of a table (`rules.py`). The functions that apply them are pure: they look at
what the server listed (`listing.py`) and at the digests of the last check (`history.py`).
"""

from typing import TYPE_CHECKING

from .history import (
    Digests,
    check_changes,
    describe_texts,
    history_file,
    read_history,
    target_key,
    write_history,
)
from .ignores import (
    CHECK_FILE,
    IgnoreEntry,
    add_ignore,
    apply_ignores,
    format_ignore,
    parse_ignores,
    read_ignores,
)
from .listing import ServerListing, read_listing
from .messages import check_messages
from .names import check_lists, check_name
from .rules import LEVELS, RULES, CheckRule, Finding, FindingPlace, worst_first
from .safety import check_instructions, check_safety
from .schemas import check_description, check_schemas

if TYPE_CHECKING:
    from ... import Client

__all__ = [
    "CHECK_FILE",
    "LEVELS",
    "RULES",
    "CheckRule",
    "Finding",
    "FindingPlace",
    "IgnoreEntry",
    "add_ignore",
    "apply_ignores",
    "check_listing",
    "check_server",
    "format_ignore",
    "history_file",
    "parse_ignores",
    "read_history",
    "read_ignores",
    "target_key",
    "worst_first",
]

_ITEM_CHECKS = (check_name, check_description, check_schemas, check_safety)
_LISTING_CHECKS = (check_messages, check_instructions, check_lists)


def check_listing(listing: ServerListing) -> list[Finding]:
    """Apply all rules to what a server listed, except those that compare with the last check.

    Args:
        listing: What the server listed.
    """
    findings = [one for check in _LISTING_CHECKS for one in check(listing)]
    findings += [one for item in listing.items for check in _ITEM_CHECKS for one in check(item)]
    return list(dict.fromkeys(findings))


async def check_server(
    client: "Client", target: str | None = None, before: Digests | None = None
) -> list[Finding]:
    """Read the lists of a server and return the problems in them, the worst first.

    Args:
        client: A connected client.
        target: What identifies the server, such as its command or its URL. If given, descriptions
            are compared with those of the last check of this target, whose digests are in the state
            folder.
        before: The digests to compare with (default: those of the last check).

    Raises:
        Unauthorized: The server requires a login.
    """
    listing = await read_listing(client)
    findings = check_listing(listing)
    if target is not None:
        file = history_file(target)
        last = read_history(file)
        findings += check_changes(last if before is None else before, listing)
        write_history(file, last | describe_texts(listing))
    return [one for group in worst_first(findings) for one in group]
