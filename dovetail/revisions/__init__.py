"""The protocol revisions, oldest first. Only this folder contains their dates; other code checks
which features a revision supports."""

from ..protocol.decoding import decode
from . import draft_dialect, v2024_11_05, v2025_03_26, v2025_06_18, v2025_11_25, v2026_07_28
from .revision import BAD_ARGUMENTS, Dialect, Revision, error_from_wire

OFFICIAL: tuple[Revision, ...] = (
    v2024_11_05.REVISION,
    v2025_03_26.REVISION,
    v2025_06_18.REVISION,
    v2025_11_25.REVISION,
    v2026_07_28.REVISION,
)
DRAFT_DIALECT = draft_dialect.REVISION
ALL: tuple[Revision, ...] = (*OFFICIAL, DRAFT_DIALECT)
BY_NAME: dict[str, Revision] = {revision.name: revision for revision in ALL}
HANDSHAKE: tuple[Revision, ...] = tuple(revision for revision in OFFICIAL if not revision.stateless)
STATELESS: tuple[Revision, ...] = tuple(revision for revision in OFFICIAL if revision.stateless)
HEADERLESS = v2025_03_26.REVISION
"""The revision to assume for an HTTP request that names no revision and has no session. Later
revisions require a header that names the revision."""

APPS = "2026-01-26"
"""The revision of the MCP Apps extension, which has its own numbering.
https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx"""

__all__ = [
    "ALL", "APPS", "BAD_ARGUMENTS", "BY_NAME", "DRAFT_DIALECT", "HANDSHAKE", "HEADERLESS",
    "OFFICIAL", "STATELESS", "Dialect", "Revision", "decode", "error_from_wire",
]  # fmt: skip
