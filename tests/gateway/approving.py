"""Approving what a server lists, as `dovetail consent approve` and `pin` do."""

from dovetail.gateway.consent.consent import Consent


def approve(
    consent: Consent, server: str, tool: str | None = None, *, only: bool = False
) -> list[str]:
    """Approve the latest version of what a server lists, and return the items."""
    found = consent.versions(server, tool) if only else consent.changes(server, tool)
    consent.store.approve_items((change.current for change in found), only=only)
    return [change.current.item for change in found]
