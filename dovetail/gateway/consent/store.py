"""What is remembered of consent, and where: grants, and what each server listed.

A grant says what somebody allowed, and for how long. An item is a tool, a prompt or the
instructions as a server listed them; it may be approved (pinned) or only seen. Both belong to an
entry digest, so nothing passes on to a server whose entry was replaced.

    sqlite_store.py    a file that several programs may use at once (the default)
    shared_store.py    the backend of a gateway with several replicas
"""

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from .policy import ConsentKind


class ConsentGrant(Struct, frozen=True, kw_only=True):
    """Something that somebody allowed.

    Attributes:
        kind: What was allowed: `start`, `reach`, `call`, `pin`, `share` or `sampling`.
        server: The name of the server in the configuration.
        digest: The digest of the server's entry, to which the grant is bound.
        name: The tool, the item, or the URI or URI prefix; empty if the grant is for the server.
        pin: The digest of the tool that was allowed.
        principal: Who allowed it, behind a gateway; empty for the user of a host.
        session: The session in which the grant holds; empty if it holds always.
        created: When it was allowed, in seconds since the epoch.
    """

    kind: ConsentKind
    server: str
    digest: str
    name: str = ""
    pin: str = ""
    principal: str = ""
    session: str = ""
    created: float = 0.0


class SeenItem(Struct, frozen=True, kw_only=True):
    """A tool, a prompt or the instructions, as a server listed them.

    Attributes:
        server: The name of the server in the configuration.
        digest: The digest of the server's entry.
        item: `tool:NAME`, `prompt:NAME` or `instructions`.
        pin: The digest of the content.
        content: All that a model sees of the item, as canonical JSON.
        seen: When it was last listed, in seconds since the epoch.
        approved: When it was approved; None if it is not.
    """

    server: str
    digest: str
    item: str
    pin: str
    content: str
    seen: float = 0.0
    approved: float | None = None


class ConsentStore(Protocol):
    """A place where consent is remembered. `Consent(store=…)` accepts any object with these
    methods. In each filter, None means any."""

    def find_grants(
        self,
        *,
        server: str | None = None,
        digest: str | None = None,
        kind: str | None = None,
        name: str | None = None,
        principal: str | None = None,
    ) -> list[ConsentGrant]:
        """Return the grants that match, oldest first.

        Args:
            server: The name of the server in the configuration.
            digest: The digest of its entry.
            kind: What was allowed.
            name: The tool, item, URI or URI prefix.
            principal: Who allowed it.
        """

    def add_grant(self, grant: ConsentGrant) -> None:
        """Remember a grant.

        Args:
            grant: The grant.
        """

    def remove_grants(self, grants: Iterable[ConsentGrant]) -> None:
        """Forget grants.

        Args:
            grants: The grants.
        """

    def end_session(self, session: str, principal: str | None = None) -> None:
        """Forget the grants of a session.

        Args:
            session: The session.
            principal: Whose grants to forget.
        """

    def find_items(
        self, *, server: str | None = None, digest: str | None = None, item: str | None = None
    ) -> list[SeenItem]:
        """Return the items that match, in the order in which they were last seen.

        Args:
            server: The name of the server in the configuration.
            digest: The digest of its entry.
            item: `tool:NAME`, `prompt:NAME` or `instructions`.
        """

    def record_items(self, items: Iterable[SeenItem], *, approve_first: bool = False) -> None:
        """Remember what a server listed. Of each item, only the approved versions and the latest
        one are kept.

        Args:
            items: What the server listed.
            approve_first: Whether to approve it if nothing is known of the server yet. If several
                programs do that at once, only one of them is the first.
        """

    def approve_items(self, items: Iterable[SeenItem], *, only: bool = False) -> None:
        """Approve versions of items. The oldest of more than `pins.MAX_DIGESTS` is dropped.

        Args:
            items: The versions to approve.
            only: Whether to drop all other versions of these items.
        """

    def remove_items(self, items: Iterable[SeenItem]) -> None:
        """Forget versions of items.

        Args:
            items: The versions to forget.
        """

    def close(self) -> None:
        """Release what the store holds."""
