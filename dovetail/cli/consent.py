"""`dovetail consent list|show|approve|revoke|pin|diff [SERVER [TOOL]]`: what was allowed, and what
each server listed.

A program that uses the same store notices a change at its next question: it asks again for what was
revoked, and offers a tool that was approved. `approve` accepts one more version of a tool, and
`pin` only the latest one. Both show the difference first, and ask if there is a terminal.
"""

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Generator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, ConsentDenied
from ..text import closest_name, escape_unsafe
from .output import bold, dim, print_json, print_line, print_table, print_text_or_json

if TYPE_CHECKING:
    from ..gateway.consent.consent import Consent, ItemChange
    from ..gateway.consent.shared_store import ConsentRow
    from ..gateway.consent.store import ConsentGrant, ConsentStore, SeenItem

ACTIONS = ("list", "show", "approve", "revoke", "pin", "diff")
NEED_SERVER = ("approve", "revoke", "pin")


def add_consent_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=ACTIONS,
        help="list: what is allowed; show: the details; approve: accept the latest version of "
        "what a server lists; revoke: forget what was allowed; pin: accept only the latest "
        "version; diff: what changed since it was approved",
    )
    parser.add_argument(
        "server", metavar="SERVER", nargs="?", help="the name of a server in the configuration"
    )
    parser.add_argument(
        "tool",
        metavar="TOOL",
        nargs="?",
        help="the name of a tool, or prompt:NAME, or instructions",
    )
    parser.add_argument(
        "--store",
        metavar="FILE",
        help="where consent is stored (default: $XDG_STATE_HOME/dovetail/consent.db)",
    )
    parser.add_argument(
        "--backend",
        metavar="URL",
        help="the consent that the replicas of a gateway share, such as redis://cache:6379/0 "
        "(default: $DOVETAIL_BACKEND, unless --store is given)",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        default="gateway",
        help="the name of the gateway that uses the backend (default: gateway)",
    )
    parser.add_argument(
        "--yes", action="store_true", help="approve or pin without asking at the terminal"
    )


def manage_consent(options: Namespace) -> None:
    """Do what the command line says, and print it."""
    from ..gateway.consent.consent import Consent

    if options.action in NEED_SERVER and options.server is None:
        raise ConfigError(f"consent {options.action} requires the name of a SERVER")
    consent = Consent(_find_store(options), terminal=False)
    try:
        if options.server is not None:
            _check_names(consent, options)
        {
            "list": _list,
            "show": _show,
            "approve": _approve,
            "pin": _approve,
            "revoke": _revoke,
            "diff": _diff,
        }[options.action](consent, options)
    finally:
        consent.close()


def _find_store(options: Namespace) -> "str | ConsentStore":
    from ..gateway.consent.sqlite_store import default_store_path

    chosen, backend = options.store, options.backend
    if chosen is not None and backend is not None:
        raise ConfigError("Use either --store or --backend")
    if backend is None and chosen is None:
        backend = os.environ.get("DOVETAIL_BACKEND")
    if backend:
        return _open_backend(backend, options.name)
    if chosen is not None and not Path(chosen).expanduser().is_file():
        raise ConfigError(f"The consent store {chosen} does not exist")
    path = chosen or str(default_store_path())
    return path if chosen or Path(path).exists() else ":memory:"  # nothing was allowed yet


def _open_backend(url: str, name: str) -> "ConsentStore":
    """Return the consent in a shared backend. Each change is stored and announced before it is
    reported."""
    import asyncio

    from ..backend import Backend
    from ..gateway.replicas import announce_consent, open_shared_store

    backend = Backend(url, name=name)
    store = open_shared_store(backend, name)

    async def read() -> None:
        try:
            await backend.connect(required=True)
            await store.read_all()
        finally:
            await backend.close()

    async def write() -> None:
        changed: list[ConsentRow] = []
        store.announce = changed.append
        try:
            await store.write()
            bus = await backend.bus()
            for row in changed:
                announce_consent(bus, row)
            await bus.close()
        finally:
            await backend.close()

    asyncio.run(read())
    store.store_changes = lambda: asyncio.run(write())
    return store


def _check_names(consent: "Consent", options: Namespace) -> None:
    """Raise ConfigError if nothing is stored about the server or the tool."""
    from ..gateway.consent.consent import item_key

    server, tool = options.server, options.tool
    grants, items = consent.store.find_grants(), consent.store.find_items()
    servers = _servers(grants, items)
    if server not in servers:
        raise ConfigError(f"Nothing is known about the server {server!r}.{_hint(server, servers)}")
    listed = {one.item for one in items if one.server == server}
    names = listed | {one.name for one in grants if one.server == server}
    if tool is not None and not {tool, item_key(tool)} & names:
        tools = {name.removeprefix("tool:") for name in names if name}
        raise ConfigError(f"Nothing is known about {tool!r} of {server}.{_hint(tool, tools)}")


def _hint(name: str, known: Collection[str]) -> str:
    close = closest_name(name, known)
    return f" Did you mean {close}?" if close else ""


def _servers(grants: "list[ConsentGrant]", items: "list[SeenItem]") -> list[str]:
    return sorted({one.server for one in grants} | {one.server for one in items})


# list and show


def _list(consent: "Consent", options: Namespace) -> None:
    grants, items = _find(consent, options)
    if options.json:
        print_json(
            {"grants": [_grant(one) for one in grants], "items": [_item(one) for one in items]}
        )
        return
    if not grants and not items:
        print_line("Nothing has been allowed yet.")
    for server in _servers(grants, items):
        print_line(bold(server))
        rows = [_describe(one) for one in grants if one.server == server]
        approved = [one for one in items if one.server == server and one.approved is not None]
        if count := len({one.item for one in approved}):
            rows.append(("approved", f"{count} item{'s' if count > 1 else ''}", ""))
        if changed := len(consent.changes(server)):
            words = ["dovetail", "consent", "diff", server]
            words += ["--store", options.store] if options.store else []
            words += getattr(consent.store, "command", ())
            rows.append(("not approved", f"{changed}", shlex.join(words)))
        print_table(rows, indent=2)


def _show(consent: "Consent", options: Namespace) -> None:
    grants, items = _find(consent, options)
    if options.json:
        documents = [{**_item(one), "content": _content(one)} for one in items]
        print_json({"grants": [_grant(one) for one in grants], "items": documents})
        return
    for grant in grants:
        kind, held, when = _describe(grant)
        print_line(bold(grant.server), f" {kind}  ", dim(f"{held}, {when}"))
        print_line("  ", dim(f"entry {grant.digest}{_pin(grant.pin)}"))
    for one in items:
        state = "seen" if one.approved is None else f"approved {_time(one.approved)}"
        print_line(bold(one.server), f" {one.item}  ", dim(state))
        print_line("  ", dim(f"entry {one.digest}{_pin(one.pin)}"))
        print_text_or_json(one.content)


def _find(consent: "Consent", options: Namespace) -> "tuple[list[ConsentGrant], list[SeenItem]]":
    from ..gateway.consent.consent import item_key

    grants = consent.store.find_grants(server=options.server)
    items = consent.store.find_items(server=options.server)
    if options.tool is not None:
        key = item_key(options.tool)
        grants = [one for one in grants if one.name in (options.tool, key)]
        items = [one for one in items if one.item == key]
    return grants, items


def _describe(grant: "ConsentGrant") -> tuple[str, str, str]:
    whom = f" for {grant.principal}" if grant.principal else ""
    held = "session" if grant.session else "always"
    return f"{grant.kind} {grant.name}".strip(), f"{held}{whom}", _time(grant.created)


def _grant(grant: "ConsentGrant") -> dict[str, Any]:
    return {
        "kind": grant.kind,
        "server": grant.server,
        "name": grant.name,
        "holds": "session" if grant.session else "always",
        "principal": grant.principal,
        "digest": grant.digest,
        "pin": grant.pin,
        "created": _time(grant.created),
    }


def _item(one: "SeenItem") -> dict[str, Any]:
    return {
        "server": one.server,
        "item": one.item,
        "digest": one.digest,
        "pin": one.pin,
        "seen": _time(one.seen),
        "approved": None if one.approved is None else _time(one.approved),
    }


def _content(one: "SeenItem") -> Any:
    import msgspec

    try:
        return msgspec.json.decode(one.content)
    except msgspec.MsgspecError:
        return one.content


def _pin(pin: str) -> str:
    return f", pin {pin}" if pin else ""


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(round(seconds), UTC).isoformat().replace("+00:00", "Z")


# diff, approve and pin


def _diff(consent: "Consent", options: Namespace) -> None:
    servers = (
        [options.server]
        if options.server
        else sorted({one.server for one in consent.store.find_items()})
    )
    changes = [one for server in servers for one in consent.changes(server, options.tool)]
    if options.json:
        print_json({"changes": [_change(one) for one in changes]})
    elif changes:
        _print_changes(changes)
    else:
        print_line("Nothing has changed since it was approved.")


def _approve(consent: "Consent", options: Namespace) -> None:
    only = options.action == "pin"
    found = consent.versions(options.server, options.tool)
    if options.tool is not None and not found:
        raise ConfigError(f"{options.server} has not listed {options.tool!r}")
    chosen = [one for one in found if only or one.current.approved is None]
    done = "pinned" if only else "approved"
    if not options.json:
        _print_changes([one for one in chosen if one.current.approved is None])
    if chosen:
        _confirm(f"{options.action.capitalize()} {_count(chosen)} of {options.server}?", options)
    consent.store.approve_items((one.current for one in chosen), only=only)
    if options.json:
        print_json({done: [_change(one) for one in chosen]})
    elif not chosen:
        print_line(f"Everything that {options.server} lists is approved.")
    for change in chosen if not options.json else ():
        print_line(f"{done.capitalize()} {change.current.item} of {options.server}")


def _confirm(question: str, options: Namespace) -> None:
    """Ask at the terminal, if there is one."""
    import asyncio

    from ..terminal.prompts import UserDeclined, require_yes
    from ..terminal.run_dialog import Interrupted, run_dialog

    attended = sys.stdin and sys.stdin.isatty() and sys.stderr.isatty() and not options.yes
    if not attended:
        return

    def talk() -> Generator[str, str | None, None]:
        yield from require_yes(f"{escape_unsafe(question)} [y/N] ")

    try:
        asyncio.run(run_dialog(talk(), sys.stdin, sys.stderr))
    except (UserDeclined, Interrupted):
        raise ConsentDenied("Nothing was changed.") from None


def _count(changes: "Sequence[ItemChange]") -> str:
    return changes[0].current.item if len(changes) == 1 else f"{len(changes)} items"


def _print_changes(changes: "Sequence[ItemChange]") -> None:
    for change in changes:
        state = "new" if change.previous is None else "changed"
        print_line(bold(f"{change.current.server} {change.current.item}"), f" ({state})")
        for line in _lines(change):
            print_line(f"  {line}")


def _change(change: "ItemChange") -> dict[str, Any]:
    previous = None if change.previous is None else change.previous.pin
    return {**_item(change.current), "previous": previous, "lines": _lines(change)}


def _lines(change: "ItemChange") -> list[str]:
    from ..gateway.consent.pins import describe_change

    previous = None if change.previous is None else change.previous.content
    return describe_change(previous, change.current.content)


# revoke


def _revoke(consent: "Consent", options: Namespace) -> None:
    _, items = _find(consent, options)
    approved = [one for one in items if one.approved is not None]
    grants = consent.revoke(options.server, options.tool)
    if options.json:
        print_json(
            {"grants": [_grant(one) for one in grants], "items": [_item(one) for one in approved]}
        )
        return
    if not grants and not approved:
        print_line("Nothing was allowed.")
    for one in grants:
        print_line(f"Revoked {one.kind} {one.name}".rstrip(), f" of {one.server}")
    for item in sorted({one.item for one in approved}):
        print_line(f"Revoked the approval of {item} of {options.server}")
