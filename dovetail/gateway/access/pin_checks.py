"""Compare what servers list with what was approved.

The first list of a server is approved with the server. After that, a tool, a prompt or the
instructions that are new or have changed are handled as the server's `pin` setting says:

    ask     they are withheld until somebody approves the difference: the user of a host, or
            `dovetail consent approve` in another program that uses the same store
    warn    they are used, and the change is logged
    off     nothing is compared

Pins belong to the digest of a server's entry. The approved versions are in the consent store, and
looked up for each call, so that an approval or a revocation by another program counts at once. A
server that runs in this process has no entry that could be approved, so nothing is compared.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Final, Literal, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from msgspec import Struct

from ...aio import TaskSet
from ...errors import BackendAway, ConfigError, ConsentDenied, DovetailError, Overloaded
from ...logs import get_logger
from ...text import quote
from ..catalog import Catalog
from ..consent.consent import Consent, Decision
from ..consent.pins import describe_change, digest, pinned_text
from ..consent.request import ConsentRequest
from ..naming import Kind
from ..upstream import UpstreamServer

log = get_logger("gateway")

PinMode: TypeAlias = Literal["ask", "warn", "off"]
Decide: TypeAlias = Callable[
    [UpstreamServer, Callable[[], ConsentRequest], str], Awaitable[Decision]
]
"""A function that decides about a request. Its arguments are the server, a function that describes
the request as it is now, and the name that the policy sees."""
ItemVersion: TypeAlias = tuple[UpstreamServer, str, str]
"""A server, an item and its pin."""
INSTRUCTIONS: Final = "instructions"
MAX_REVIEWS: Final = 20
"""How many changes of one list the user is asked about, or that are logged. The user is asked about
the others when they are used."""
_PREFIXES: Final[Mapping[Kind, str]] = {"tools": "tool:", "prompts": "prompt:"}


class PinnedItem(Struct, frozen=True):
    """The current version of an item."""

    text: str
    """All that a model sees of it, as canonical JSON."""
    pin: str
    """The digest of the text."""


class _Comparison(Struct, frozen=True, eq=False):
    """Which items of a catalog are not approved."""

    catalog: Catalog
    unapproved: dict[str, str]
    """The pin of each item that is new or has changed."""


class PinChecks:
    """The pins of all servers.

    Args:
        consent: Where approved versions are stored.
        default: What happens to a change if the settings of a server do not say it.
        on_change: Called with a server if something of it was approved or revoked.
        decide: Asks the user about a change (default: None, nobody is asked).
    """

    def __init__(
        self,
        consent: Consent,
        default: PinMode,
        *,
        on_change: Callable[[UpstreamServer], None],
        decide: Decide | None = None,
    ) -> None:
        self._consent, self._default = consent, default
        self._on_change, self._decide = on_change, decide
        self._compared: WeakKeyDictionary[UpstreamServer, _Comparison] = WeakKeyDictionary()
        self._failed: WeakSet[UpstreamServer] = WeakSet()
        """The servers that could not be compared, so that nothing of them is approved."""
        self._problems: WeakKeyDictionary[UpstreamServer, str] = WeakKeyDictionary()
        """Why they could not be compared, as it was logged."""
        self._seen: set[tuple[str, str]] = set()
        """The servers, with the digests of their entries, that have listed something."""
        self._approved: set[tuple[str, str]] = set()
        """Those that the user has just approved."""
        self._logged: WeakKeyDictionary[UpstreamServer, dict[str, str]] = WeakKeyDictionary()
        """The pins that were last logged, by item; for "", the number of the items not logged."""
        self._reviews: dict[ItemVersion, asyncio.Task[bool]] = {}
        """The questions that are open or that were answered with no."""
        self._accepted: set[ItemVersion] = set()
        """What the user allowed without storing it."""
        self._background = TaskSet()

    def mode(self, server: UpstreamServer) -> PinMode:
        """Return what happens to the changes of a server."""
        is_own_code = server.entry.describe is None  # it runs in this process
        return server.settings.pin or ("off" if is_own_code else self._default)

    def is_settled(self, server: UpstreamServer) -> bool:
        """Return whether nothing about a server depends on the store at the moment: it is not
        compared, or its changes are only logged and it was compared already."""
        mode = self.mode(server)
        return mode == "off" or (mode == "warn" and server not in self._failed)

    # what servers list

    def on_catalog(self, server: UpstreamServer) -> None:
        """Compare a list that a server has just sent, and approve it if it is the first.

        Args:
            server: The server.

        Raises:
            ConfigError, Overloaded: The store cannot be used, so the server is withheld. If a
                shared store is away, nothing is raised, and the server is withheld until it is
                back.
        """
        mode = self.mode(server)
        if mode == "off":
            return
        self._failed.add(server)
        try:
            self._record(server)
            unapproved = self._compare(server)
            self._failed.discard(server)
        except (ConfigError, Overloaded) as problem:
            if mode == "ask" and not isinstance(problem, BackendAway):
                raise
            if self._problems.get(server) != str(problem):  # it may last for days
                self._problems[server] = str(problem)
                log.warning("%s: changes to its tools cannot be detected: %s", server.name, problem)
            return
        self._problems.pop(server, None)
        self._report(server, unapproved)

    def _report(self, server: UpstreamServer, unapproved: dict[str, str]) -> None:
        """Ask or warn about items that are not approved, about each version once."""
        mode = self.mode(server)
        for item, pin in islice(unapproved.items(), MAX_REVIEWS):
            if mode == "ask" and self._decide is not None:
                self._background.start(self._review_quietly(server, item, pin))
            else:
                self._log(server, item, pin)
        more = len(unapproved) - MAX_REVIEWS
        if more > 0 and self._mark_reported(server, "", str(more)):
            log.warning("%s: %d more items are new or have changed", server.name, more)

    def _record(self, server: UpstreamServer) -> None:
        entry = (server.name, server.entry.digest)
        listed = {item: find_item(server.catalog, item) for item in pinned_items(server.catalog)}
        texts = {item: one.text for item, one in listed.items() if one is not None}
        if entry in self._approved:
            is_first = not self._consent.approved(*entry)
            seen = self._consent.record_seen(*entry, texts)
            if is_first:
                self._consent.store.approve_items(seen)
        else:  # if this is not the first list in this run, what was approved may have been revoked
            self._consent.record_seen(*entry, texts, approve_first=entry not in self._seen)
        self._seen.add(entry)
        self._approved.discard(entry)

    def _compare(self, server: UpstreamServer) -> dict[str, str]:
        """Look for what is approved now, and return the pins of all other items."""
        approved = self._consent.approved(server.name, server.entry.digest)
        pins = {item: self.pin(server, item) for item in pinned_items(server.catalog)}
        unapproved = {
            item: pin
            for item, pin in pins.items()
            if pin not in approved.get(item, ()) and (server, item, pin) not in self._accepted
        }
        self._compared[server] = _Comparison(server.catalog, unapproved)
        return unapproved

    def on_stored(self, server: UpstreamServer) -> None:
        """Compare a list again when it is in a store that other processes share: one of them may
        have stored the first list before.

        Args:
            server: The server.
        """
        before = self._compared.get(server)
        if before is None or server in self._failed or self.mode(server) == "off":
            return
        unapproved = self._compare(server)
        # Even if nothing differs: `refresh` may have compared the list while it was stored.
        self._report(server, unapproved)
        if unapproved != before.unapproved:
            self._on_change(server)

    def refresh(self, server: UpstreamServer) -> None:
        """Look again for what is approved.

        Args:
            server: The server.

        Raises:
            ConfigError, Overloaded: The store cannot be used.
        """
        mode = self.mode(server)
        if server in self._failed and mode != "off":
            self.on_catalog(server)
            if mode == "ask":
                self._on_change(server)
            return
        if mode != "ask":
            return
        before = self._compared.get(server)
        now = self._compare(server)
        if before is None or before.catalog is not server.catalog or before.unapproved == now:
            return
        if now.keys() - before.unapproved.keys() and not server.catalog.is_from_disk:
            self._record(server)  # so that it can be approved again
        self._on_change(server)

    def _log(self, server: UpstreamServer, item: str, pin: str) -> None:
        if self._mark_reported(server, item, pin):
            log.warning(
                "%s: %s is new or has changed%s. To see the difference and approve it, run: %s",
                server.name,
                quote(item),
                " and is withheld" if self.mode(server) == "ask" else "",
                self._consent.approve_command(server.name, item),
            )

    def _mark_reported(self, server: UpstreamServer, item: str, pin: str) -> bool:
        """Remember that a version of an item is logged. Return False if it was logged before."""
        logged = self._logged.setdefault(server, {})
        is_first = logged.get(item) != pin
        logged[item] = pin
        return is_first

    # what may be used

    def pin(self, server: UpstreamServer, item: str | None) -> str:
        """Return the digest that a grant for an item is bound to; empty if there is none."""
        found = None if item is None else find_item(server.catalog, item)
        return "" if found is None or self.mode(server) == "off" else found.pin

    def is_withheld(self, server: UpstreamServer, item: str | None) -> bool:
        """Return whether an item is left out of lists. This is as of the last `refresh`.

        Args:
            server: The server.
            item: `tool:NAME`, `prompt:NAME` or `instructions`; None for what is not pinned.
        """
        if item is None or self.mode(server) != "ask":
            return False
        if server in self._failed:
            return True
        compared = self._compared.get(server)
        try:
            if compared is None or compared.catalog is not server.catalog:
                self._compare(server)
        except DovetailError as problem:
            log.error("%s: %s", server.name, problem)
            return True
        is_listed = find_item(server.catalog, item) is not None
        return not is_listed or item in self._compared[server].unapproved

    def is_approved(self, server: UpstreamServer, item: str | None) -> bool:
        """Return whether the current version of an item may be used. What was approved or revoked
        meanwhile, by any program, counts.

        Args:
            server: The server.
            item: `tool:NAME`, `prompt:NAME` or `instructions`; None for what is not pinned.
        """
        if item is None or self.mode(server) != "ask":
            return True
        if server in self._failed:
            self.refresh(server)
        found = find_item(server.catalog, item)
        if found is None:
            return False
        is_approved = (server, item, found.pin) in self._accepted or self._consent.is_approved(
            server.name, server.entry.digest, item, found.pin
        )
        if is_approved == self.is_withheld(server, item):
            self.refresh(server)
        return is_approved

    async def require(self, server: UpstreamServer, item: str) -> None:
        """Ask the user about an item if its current version is not approved. A user who refused is
        not asked again.

        Args:
            server: The server.
            item: `tool:NAME`, `prompt:NAME` or `instructions`.

        Raises:
            ConsentDenied: The item is not approved.
        """
        found = find_item(server.catalog, item)
        if found is None:
            raise ConsentDenied(f"{quote(server.name)} does not list {quote(item)}.")
        if not self.is_approved(server, item) and not await self._review(server, item, found.pin):
            raise ConsentDenied(
                f"{quote(item)} of {quote(server.name)} {self.explain(server, item)}"
            )

    def explain(self, server: UpstreamServer, item: str, *, name_store: bool = True) -> str:
        """Return why an item is withheld, as the end of a sentence. `name_store` is whether to show
        where the store is."""
        command = self._consent.approve_command(server.name, item, name_store=name_store)
        return (
            "is withheld because it is new or has changed since it was approved. To approve it, "
            f"run: {command}"
        )

    # questions

    async def _review(self, server: UpstreamServer, item: str, pin: str) -> bool:
        """Ask about one version of an item, once, and return whether it is approved."""
        key = (server, item, pin)
        review = self._reviews.get(key)
        if review is None:
            review = self._reviews[key] = self._background.start(self._ask(key))
        try:
            is_approved = await asyncio.shield(review)
        except DovetailError:
            self._reviews.pop(key, None)
            raise
        except asyncio.CancelledError:
            if not review.cancelled():
                raise
            raise ConsentDenied(f"The host was closed before {quote(item)} was approved") from None
        if is_approved:
            self._reviews.pop(key, None)
        return is_approved

    async def _review_quietly(self, server: UpstreamServer, item: str, pin: str) -> None:
        try:
            if await self._review(server, item, pin):
                self.refresh(server)
        except DovetailError as problem:
            log.warning("%s", problem)

    async def _ask(self, version: ItemVersion) -> bool:
        server, item, pin = version
        if self._decide is None:
            return False
        decision = await self._decide(server, lambda: self._describe(server, item), item)
        if not decision.allowed:
            self._log(*version)
        elif decision.answer in (None, "once"):
            self._accepted.add((server, item, decision.request.pin))
        # If the item changed meanwhile, the answer is about another version.
        return decision.allowed and decision.request.pin == pin

    def _describe(self, server: UpstreamServer, item: str) -> ConsentRequest:
        """Return the question about the current version of an item."""
        found = find_item(server.catalog, item) or PinnedItem("null", "")
        versions = self._consent.versions(server.name, item, digest=server.entry.digest)
        before = next((one.previous for one in versions if one.previous is not None), None)
        previous = None if before is None else before.content
        return ConsentRequest(
            kind="pin",
            server=server.name,
            digest=server.entry.digest,
            name=item,
            pin=found.pin,
            text=found.text,
            previous=previous,
            diff="\n".join(describe_change(previous, found.text)),
        )

    def on_server_approved(self, server: UpstreamServer) -> None:
        """The user has just approved a server. If nothing of it is approved yet, what it lists next
        is approved with it.

        Args:
            server: The server.
        """
        self._approved.add((server.name, server.entry.digest))

    def forget(self, server: UpstreamServer) -> None:
        """Forget what the user accepted or refused, so that it is asked again.

        Args:
            server: The server.
        """
        self._accepted = {one for one in self._accepted if one[0] is not server}
        for version, review in list(self._reviews.items()):
            if version[0] is server and review.done():
                del self._reviews[version]

    async def close(self) -> None:
        """Cancel all questions."""
        await self._background.close()


def item_of(kind: Kind, name: str) -> str | None:
    """Return the key of an item: `tool:NAME` or `prompt:NAME`; None for what is not pinned."""
    prefix = _PREFIXES.get(kind)
    return None if prefix is None else f"{prefix}{name}"


def pinned_items(catalog: Catalog) -> list[str]:
    """Return the keys of all that a model sees of a server. The instructions are always among them,
    so that a server that lists nothing at first has a first list, too."""
    found = [INSTRUCTIONS]
    for kind, prefix in _PREFIXES.items():
        found += [f"{prefix}{name}" for name in catalog.items(kind)]
    return found


def find_item(catalog: Catalog, item: str) -> PinnedItem | None:
    """Return the current version of an item; None if the server does not list it."""
    if item == INSTRUCTIONS:
        text = pinned_text(INSTRUCTIONS, json.dumps(catalog.instructions or "").encode())
        return PinnedItem(text, digest(text))
    prefix, _, name = item.partition(":")
    found = (catalog.tools if prefix == "tool" else catalog.prompts).get(name)
    return None if found is None else PinnedItem(found.pinned, found.pin)
