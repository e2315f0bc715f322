"""What servers listed when they were last started, so that a server can be listed and searched
before it is started again.

Each catalog is a file of its own, named after the digest of the server's entry: a changed entry has
no known catalog. Files are private, and replaced as a whole. A file that cannot be read counts as
missing, because the server can always be asked.
"""

import logging
import os
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ..protocol.base import Implementation
from ..protocol.lifecycle import ServerCapabilities
from .catalog import LISTS, Catalog, Item
from .naming import KINDS

log = logging.getLogger("dovetail.gateway")

FORMAT: Final = 1
MAX_CATALOGS: Final = 1000
"""The number of catalogs that are kept. Beyond this, the oldest are deleted."""
_decode_text = msgspec.json.Decoder(str).decode


class _Saved(Struct, kw_only=True):
    format: int
    info: Implementation | None = None
    instructions: str | None = None
    capabilities: Raw = Raw(b"{}")
    tools: list[dict[str, Raw]] = []
    prompts: list[dict[str, Raw]] = []
    resources: list[dict[str, Raw]] = []
    templates: list[dict[str, Raw]] = []


_decode = msgspec.json.Decoder(_Saved).decode


class KnownCatalogs:
    """The catalogs of all servers that were started before.

    Args:
        folder: Where they are stored.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, digest: str) -> Catalog | None:
        """Return the catalog of an entry, or None if it is not known.

        Args:
            digest: The digest of the entry.
        """
        try:
            saved = _decode(self._path(digest).read_bytes())
            capabilities = msgspec.json.decode(saved.capabilities)
            lists: dict[str, Any] = {kind: _index(kind, getattr(saved, kind)) for kind in KINDS}
            if saved.format != FORMAT:
                return None
            return Catalog(
                info=saved.info,
                instructions=saved.instructions,
                capabilities=ServerCapabilities.lift(capabilities),
                **lists,
            )
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, KeyError, TypeError) as problem:
            log.info("A known catalog could not be read: %s", problem)
            return None

    def save(self, digest: str, catalog: Catalog) -> None:
        """Remember the catalog of an entry.

        Args:
            digest: The digest of the entry.
            catalog: What its server lists.
        """
        saved = _Saved(
            format=FORMAT,
            info=catalog.info,
            instructions=catalog.instructions,
            capabilities=Raw(msgspec.json.encode(catalog.capabilities)),
            **{kind: [one.fields for one in catalog.items(kind).values()] for kind in KINDS},
        )
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=self._folder, suffix=".new", delete=False) as file:
                file.write(msgspec.json.encode(saved))
            os.replace(file.name, self._path(digest))
            self._delete_oldest()
        except OSError as problem:
            log.info("A catalog could not be saved: %s", problem)

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest.removeprefix('sha256:')}.json"

    def _delete_oldest(self) -> None:
        files = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in files[: max(0, len(files) - MAX_CATALOGS)]:
            path.unlink(missing_ok=True)


def _index(kind: Any, items: list[dict[str, Raw]]) -> dict[str, Item]:
    names = [_decode_text(fields[LISTS[kind].key]) for fields in items]
    return {name: Item(kind, name, fields) for name, fields in zip(names, items, strict=True)}
