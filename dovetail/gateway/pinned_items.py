"""The tools, prompts and instructions of servers that a user has approved, and those that wait for
approval.

Approving a server approves what it lists first. What it lists later is compared with that:

    pin      an item that is new or changed
    ask      is withheld until a person approves the difference (`dovetail consent approve`, too)
    warn     is logged, and offered
    off      is offered

The approved versions are in the consent store, and looked up for each call, so that an approval or
revocation by another program counts at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from ..aio import TaskSet
from ..errors import ConsentDenied, DovetailError
from ..text import quote
from .catalog import Catalog
from .consent import Consent, ConsentRequest, Decision
from .consent_store import SeenItem
from .naming import Kind
from .pins import describe_change, digest, pinned_text
from .upstream import UpstreamServer

log = logging.getLogger("dovetail.gateway")

PinMode = Literal["ask", "warn", "off"]
Decide = Callable[[UpstreamServer, Callable[[], ConsentRequest], str], Awaitable[Decision]]
"""A function that decides about a request. Its arguments are the server, a function that describes
the request as it is now, and the name that the policy sees."""
ItemVersion = tuple[UpstreamServer, str, str]
"""A server, an item and its pin."""
INSTRUCTIONS = "instructions"


def item_of(kind: Kind, name: str) -> str | None:
    """Return the key of an item in the consent store; None for what is not pinned."""
    prefix = {"tools": "tool", "prompts": "prompt"}.get(kind)
    return None if prefix is None else f"{prefix}:{name}"


def pinned_texts(catalog: Catalog) -> dict[str, str]:
    """Return all that a model sees of a server, by item. An item that is not valid is left out.

    The instructions are always there, even if they are empty, so that a server that listed nothing
    when it was approved is known as well.
    """
    fields: dict[str, Raw | dict[str, Raw]] = {
        INSTRUCTIONS: Raw(msgspec.json.encode(catalog.instructions or ""))
    }
    fields |= {f"tool:{name}": item.fields for name, item in catalog.tools.items()}
    fields |= {f"prompt:{name}": item.fields for name, item in catalog.prompts.items()}
    texts = {}
    for key, value in fields.items():
        try:
            texts[key] = pinned_text(key.partition(":")[0], value)  # type: ignore[arg-type]
        except ValueError as problem:
            log.warning("Left out %s: %s", quote(key), problem)
    return texts


class PinnedItem(Struct, frozen=True):
    """The current version of an item."""

    text: str
    pin: str


class PinnedItems:
    """What the servers of a host list, and what of it is approved.

    Args:
        consent: Where approved versions are stored.
        decide: Asks the user about a change.
        mode: What happens to changed items of servers whose entry does not say so.
        on_approval: Called with a server after one of its items was approved.
    """

    def __init__(
        self,
        consent: Consent,
        decide: Decide,
        *,
        mode: PinMode,
        on_approval: Callable[[UpstreamServer], None],
    ) -> None:
        self._consent, self._decide, self._on_approval = consent, decide, on_approval
        self._mode = mode
        self._listed: dict[UpstreamServer, dict[str, PinnedItem]] = {}
        self._reviews: dict[ItemVersion, asyncio.Task[bool]] = {}
        """The questions that are open or that were answered with no."""
        self._accepted: set[ItemVersion] = set()
        """What was allowed without being stored."""
        self._warned: set[ItemVersion] = set()
        self._to_approve: set[UpstreamServer] = set()
        self._background = TaskSet()

    def mode(self, server: UpstreamServer) -> PinMode:
        """Return what happens to changed items of a server."""
        is_own_code = server.entry.describe is None  # it runs in this process
        return server.settings.pin or ("off" if is_own_code else self._mode)

    def on_start_allowed(self, server: UpstreamServer) -> None:
        """Approve what a server lists first, because a user has just approved the server."""
        if not self._consent.approved(server.name, server.entry.digest):
            self._to_approve.add(server)

    def on_catalog(self, server: UpstreamServer) -> None:
        """Compare what a server lists now with what was approved."""
        listed = {
            item: PinnedItem(text, digest(text))
            for item, text in pinned_texts(server.catalog).items()
        }
        self._listed[server] = listed
        if self.mode(server) == "off":
            return
        texts = {item: one.text for item, one in listed.items()}
        self._consent.record_seen(server.name, server.entry.digest, texts)
        if server in self._to_approve:
            self._to_approve.discard(server)
            self._consent.store.approve_items(
                SeenItem(
                    server=server.name,
                    digest=server.entry.digest,
                    item=item,
                    pin=one.pin,
                    content=one.text,
                )
                for item, one in listed.items()
            )
        for item in self.withheld(server):
            if self.mode(server) == "warn":
                self._warn(server, item, listed[item].pin)
            else:
                self._background.start(self._review_quietly(server, item))

    def _warn(self, server: UpstreamServer, item: str, pin: str) -> None:
        if (server, item, pin) not in self._warned:
            self._warned.add((server, item, pin))
            log.warning(
                "%s of %s is new or has changed since it was approved. To see the difference: "
                "dovetail consent diff",
                quote(item),
                quote(server.name),
            )

    def find(self, server: UpstreamServer, item: str) -> PinnedItem | None:
        """Return the current version of an item; None if the server does not list it."""
        return self._listed.get(server, {}).get(item)

    def pin(self, server: UpstreamServer, item: str) -> str:
        """Return the digest that a grant for an item is bound to."""
        found = self.find(server, item)
        return "" if found is None or self.mode(server) == "off" else found.pin

    def withheld(self, server: UpstreamServer) -> set[str]:
        """Return the items whose current version is not approved."""
        if self.mode(server) == "off":
            return set()
        approved = self._consent.approved(server.name, server.entry.digest)
        return {
            item
            for item, one in self._listed.get(server, {}).items()
            if one.pin not in approved.get(item, ())
            and (server, item, one.pin) not in self._accepted
        }

    def is_offered(self, server: UpstreamServer, item: str) -> bool:
        """Return whether the current version of an item may be used without asking."""
        found = self.find(server, item)
        if found is None:
            return False
        if self.mode(server) != "ask" or (server, item, found.pin) in self._accepted:
            return True
        return self._consent.find_grant(self._describe(server, item)) is not None

    async def require(self, server: UpstreamServer, item: str) -> None:
        """Ask about an item if its current version is not approved. What was refused is not asked
        again.

        Args:
            server: The server.
            item: `tool:NAME`, `prompt:NAME` or `instructions`.

        Raises:
            ConsentDenied: The item is not approved.
        """
        found = self.find(server, item)
        if found is None:
            raise ConsentDenied(f"{quote(server.name)} does not list {quote(item)}.")
        if self.is_offered(server, item) or await self._review(server, item, found.pin):
            return
        raise ConsentDenied(
            f"{quote(item)} of {quote(server.name)} is new or has changed, and is not approved. To "
            f"approve it: {self._consent.approve_command(server.name, item)}"
        )

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

    async def _review_quietly(self, server: UpstreamServer, item: str) -> None:
        found = self.find(server, item)
        try:
            if found is not None and await self._review(server, item, found.pin):
                self._on_approval(server)
        except DovetailError as problem:
            log.warning("%s", problem)

    async def _ask(self, version: ItemVersion) -> bool:
        server, item, pin = version
        decision = await self._decide(server, lambda: self._describe(server, item), item)
        if not decision.allowed:
            log.warning(
                "Withheld %s of %s, which is new or has changed. To approve it: %s",
                quote(item),
                quote(server.name),
                self._consent.approve_command(server.name, item),
            )
        elif decision.answer in (None, "once"):
            self._accepted.add((server, item, decision.request.pin))
        # If the item changed meanwhile, the answer is about another version.
        return decision.allowed and decision.request.pin == pin

    def _describe(self, server: UpstreamServer, item: str) -> ConsentRequest:
        """Return the question about the current version of an item."""
        found = self.find(server, item) or PinnedItem("null", "")
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

    def forget(self, server: UpstreamServer, item: str | None = None) -> None:
        """Forget what the user accepted or refused, so that it is asked again.

        Args:
            server: The server.
            item: The item (default: all of them).
        """

        def is_meant(version: ItemVersion) -> bool:
            return version[0] is server and item in (None, version[1])

        self._accepted = {one for one in self._accepted if not is_meant(one)}
        for version, review in list(self._reviews.items()):
            if is_meant(version) and review.done():
                del self._reviews[version]

    async def close(self) -> None:
        """Cancel all questions."""
        for task in list(self._background):
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
