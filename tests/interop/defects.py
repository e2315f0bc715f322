"""What fails for a reason that is the peer's: one row each. Whatever is not named here is ours to
answer for.

A row says in which cases it shows (patterns as for file names; the case is `peer role transport
revision`), at which step, and what the peer's message or answer is then to contain: another failure
at the same place is not excused by it.
"""

from fnmatch import fnmatch
from typing import NamedTuple


class Defect(NamedTuple):
    """A mistake, or a gap, of a peer."""

    cases: str
    step: str
    shows: str
    reason: str


FORGETS = (
    "hands progress to its caller a microtask after it forgot the call that it belongs "
    "to, where both came in one piece"
)
DEFECTS = (
    Defect("ts[12] client * *", "progress in a burst", ".progress", FORGETS),
    Defect("ts[12] gateway * *", "progress", ".progress[0].progress is 2", FORGETS),
    Defect(
        "fastmcp4 client * 2026-*",
        "list change",
        ".changes is []",
        "its client has no subscriptions/listen",
    ),
    Defect(
        "fastmcp4 client * 2026-*",
        "subscription",
        ".changes is []",
        "its client has no subscriptions/listen",
    ),
    Defect(
        "fastmcp4 server * 2026-*",
        "list change",
        "Method not found",
        "its server has no subscriptions/listen",
    ),
    Defect(
        "fastmcp3 server * *",
        "completion",
        "MethodNotFound",
        "has no completion (it came with release 4)",
    ),
)


def excuse(case: str, step: str, complaint: str) -> Defect | None:
    """The row that a failure falls under, if any."""
    rows = (row for row in DEFECTS if row.step == step and fnmatch(case, row.cases))
    return next((row for row in rows if row.shows in complaint), None)
