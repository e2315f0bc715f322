"""Compare what servers list with what was approved.

The first list of a server is approved. After that, a tool, a prompt or the instructions that are
new or have changed are handled as the server's `pin` setting says:

    warn    they are used, and the change is logged
    ask     they are withheld until somebody approves the change, in this program or in another one
            that uses the same store (`dovetail consent approve`)
    off     nothing is compared

Pins belong to the digest of a server's entry. A server without an entry in a file has none, so
nothing is compared.
"""

import json
import logging
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ..errors import ConfigError, Overloaded
from ..text import quote
from .catalog import Catalog
from .consent import Consent
from .naming import Kind
from .pins import digest, pinned_text
from .upstream import UpstreamServer

log = logging.getLogger("dovetail.gateway")

PinMode: TypeAlias = Literal["ask", "warn", "off"]
INSTRUCTIONS: Final = "instructions"
_PREFIXES: Final = {"tools": "tool:", "prompts": "prompt:"}


class _PinnedList(Struct, eq=False):
    """What a server lists, and which of it is not approved."""

    digest: str
    """The digest of the server's entry."""
    items: dict[str, str]
    """The canonical JSON of each item."""
    pins: dict[str, str]
    """The digest of each item."""
    unapproved: dict[str, str]
    """The digest of each item that is new or has changed."""
    is_compared: bool = False
    """Whether the list was compared with the store. If not, nothing of it is approved."""


class PinChecks:
    """The pins of all servers.

    Args:
        consent: Where approved digests are stored.
        default: What happens to a change if the settings of a server do not say it.
    """

    def __init__(self, consent: Consent, default: PinMode) -> None:
        self._consent, self._default = consent, default
        self._listed: dict[str, _PinnedList] = {}

    def mode(self, server: UpstreamServer) -> PinMode:
        """Return what happens to the changes of a server."""
        return (server.settings.pin or self._default) if server.entry.digest else "off"

    def update(self, server: UpstreamServer) -> None:
        """Compare a list that a server has just sent, and approve it if it is the first.

        Args:
            server: The server.

        Raises:
            ConfigError, Overloaded: The store cannot be used, so the server is withheld.
        """
        mode = self.mode(server)
        if mode == "off":
            self._listed.pop(server.name, None)
            return
        try:
            self._update(server, mode)
        except (ConfigError, Overloaded) as problem:
            if mode == "ask":
                raise
            log.warning("%s: changes of its tools are not noticed: %s", server.name, problem)

    def _update(self, server: UpstreamServer, mode: PinMode) -> None:
        name, entry_digest = server.name, server.entry.digest
        items = pinned_items(server.catalog)
        before = self._listed.get(name)
        if before is not None and (not before.is_compared or before.digest != entry_digest):
            before = None
        if before is not None and before.items == items:
            return
        pins = {item: digest(text) for item, text in items.items()}
        listed = self._listed[name] = _PinnedList(entry_digest, items, pins, pins)
        known = self._consent.store.find_items(server=name, digest=entry_digest)
        self._consent.record_seen(name, entry_digest, items)
        if before is None and not known:  # otherwise, what was approved may have been revoked
            self._consent.approve(name, digest=entry_digest)
        self._compare(server, listed)
        listed.is_compared = True
        for item, pin in listed.unapproved.items():
            if before is None or before.unapproved.get(item) != pin:
                log.warning(
                    "%s: %s is new or has changed%s. Compare it with: dovetail consent diff. "
                    "Approve it with: %s",
                    name,
                    quote(item),
                    " and is withheld" if mode == "ask" else "",
                    self._consent.approve_command(name, item),
                )

    def refresh(self, server: UpstreamServer) -> bool:
        """Look again for what is approved. Return whether something is withheld or offered now that
        was not before.

        Args:
            server: The server.
        """
        listed = self._listed.get(server.name)
        if listed is None or self.mode(server) != "ask":
            return False
        before = listed.unapproved
        if not listed.is_compared:
            self._update(server, "ask")
            return True
        self._compare(server, listed)
        if listed.unapproved.keys() - before.keys():  # so that it can be approved again
            self._consent.record_seen(server.name, server.entry.digest, listed.items)
        return before != listed.unapproved

    def _compare(self, server: UpstreamServer, listed: _PinnedList) -> None:
        approved = self._consent.approved(server.name, server.entry.digest)
        listed.unapproved = {
            item: pin for item, pin in listed.pins.items() if pin not in approved.get(item, ())
        }

    def is_withheld(self, server: UpstreamServer, kind: Kind | None, name: str = "") -> bool:
        """Return whether an item must not be used until it is approved.

        Args:
            server: The server.
            kind: The kind of the item; None for the instructions.
            name: The server's own name of the item.
        """
        if self.mode(server) != "ask" or kind in ("resources", "templates"):
            return False
        listed, item = self._listed.get(server.name), item_of(kind, name)
        return listed is None or item in listed.unapproved or item not in listed.items

    def is_approved(self, server: UpstreamServer, kind: Kind, name: str) -> bool:
        """Return whether the current version of an item is approved. What was approved or revoked
        meanwhile, by any program, counts.

        Args:
            server: The server, whose changes are withheld.
            kind: The kind of the item.
            name: The server's own name of the item.
        """
        if kind in ("resources", "templates"):
            return True
        listed, item = self._listed.get(server.name), item_of(kind, name)
        pin = None if listed is None else listed.pins.get(item)
        found = self._consent.store.find_items(
            server=server.name, digest=server.entry.digest, item=item
        )
        return any(one.pin == pin and one.approved is not None for one in found)

    def approve_command(self, server: UpstreamServer, kind: Kind, name: str) -> str:
        """Return the command with which an operator approves an item."""
        return self._consent.approve_command(server.name, item_of(kind, name))


def item_of(kind: Kind | None, name: str = "") -> str:
    """Return the key of an item: `tool:NAME`, `prompt:NAME` or `instructions`."""
    return INSTRUCTIONS if kind is None else f"{_PREFIXES[kind]}{name}"


def pinned_items(catalog: Catalog) -> dict[str, str]:
    """Return the canonical JSON of all that a model sees of a server. The instructions are always
    among it, so that a server that lists nothing at first has a first list, too."""
    instructions = json.dumps(catalog.instructions).encode()
    found = {INSTRUCTIONS: pinned_text(INSTRUCTIONS, instructions)}
    for kind in ("tools", "prompts"):
        for item in catalog.items(kind).values():
            found[item_of(kind, item.name)] = item.pinned
    return found
