"""What servers listed when they were last started, so that a server can be listed and searched
before it is started again.

Each catalog is a file in a folder beside the consent store. Its name is the digest of the server's
entry and of the values of the entry's variables: a changed entry, or another token, has no known
catalog. The lists of a server that every user sees differently are not kept.

Files are private, and replaced as a whole. A file that cannot be read counts as missing, because
the server can always be asked.

The replicas of a gateway with a shared backend also store catalogs in its rows, so that a new
replica knows what the others have listed. A catalog in the backend has precedence over a file.
"""

import asyncio
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from ..aio import TaskSet
from ..databases import MEMORY
from ..errors import BackendAway, ConfigError
from ..logs import get_logger
from ..protocol.base import Implementation
from ..protocol.lifecycle import ServerCapabilities
from ..protocol.raw import encode_raw
from ..protocol.tasks import TaskForm
from .catalog import LIST_KINDS, LISTS, Catalog, Item
from .consent.pins import digest

if TYPE_CHECKING:
    from ..backend.protocols import Rows
    from .upstream import UpstreamEntry

log = get_logger("gateway")

FORMAT: Final = 1
MAX_CATALOGS: Final = 1000
"""The number of catalogs that are kept. Beyond this, the oldest are deleted."""
SHARED_SECONDS: Final = 30 * 86_400.0
"""How long a catalog is kept in the backend."""
_FILE_NAME: Final = re.compile(r"[0-9a-f]{64}\.json")
_decode_text = msgspec.json.Decoder(str).decode


class _Saved(Struct, kw_only=True):
    format: int
    info: Implementation | None = None
    instructions: str | None = None
    capabilities: Raw = Raw(b"{}")
    tasks: TaskForm = ""
    tools: list[dict[str, Raw]] = []
    prompts: list[dict[str, Raw]] = []
    resources: list[dict[str, Raw]] = []
    templates: list[dict[str, Raw]] = []
    skills: list[dict[str, Raw]] = []


_decode = msgspec.json.Decoder(_Saved).decode


class KnownCatalogs:
    """The catalogs of all servers that were started before.

    Args:
        folder: Where they are stored; None if they are not stored in files.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._rows: Rows | None = None
        self._shared: dict[str, Catalog] = {}
        """What was read from the backend."""
        self._background = TaskSet()

    @classmethod
    def beside(cls, store: object) -> "KnownCatalogs | None":
        """Return the catalogs that belong to a consent store; None if it is not a file.

        Args:
            store: The consent store.
        """
        path = getattr(store, "path", None)
        if not isinstance(path, str) or path == MEMORY:
            return None
        return cls(Path(f"{path}-catalogs"))

    async def read_shared(self, rows: "Rows", entries: "Iterable[UpstreamEntry]") -> None:
        """Read catalogs from a backend, and store them there from now on. If the backend is away,
        there are only the files.

        Args:
            rows: The rows of the backend.
            entries: The entries of the servers.
        """
        self._rows = rows
        keys = {key: entry.name for entry in entries if (key := catalog_key(entry)) is not None}
        try:
            found = await asyncio.gather(*map(rows.get, keys))
        except BackendAway:
            return
        for (key, name), data in zip(keys.items(), found, strict=True):
            if data is not None and (catalog := _read_saved(name, data)) is not None:
                self._shared[key] = catalog

    def load(self, entry: "UpstreamEntry") -> Catalog | None:
        """Return the catalog of a server, or None if it is not known.

        Args:
            entry: The entry of the server.
        """
        key = catalog_key(entry)
        if key is None or key in self._shared:
            return self._shared.get(key or "")
        try:
            if self._folder is None or not _is_own(self._folder):
                return None
            return _read_saved(entry.name, (self._folder / f"{key}.json").read_bytes())
        except FileNotFoundError:
            return None
        except OSError as problem:
            log.info("The known lists of %s could not be read: %s", entry.name, problem)
            return None

    def save(self, entry: "UpstreamEntry", catalog: Catalog) -> None:
        """Remember the catalog of a server, unless it depends on the user.

        Args:
            entry: The entry of the server.
            catalog: What the server lists.
        """
        key = catalog_key(entry)
        if key is None or (self._folder is None and self._rows is None):
            return
        saved = _Saved(
            format=FORMAT,
            info=catalog.info,
            instructions=catalog.instructions,
            capabilities=encode_raw(catalog.capabilities),
            tasks=catalog.tasks,
            **{kind: [one.fields for one in catalog.items(kind).values()] for kind in LIST_KINDS},
        )
        data = msgspec.json.encode(saved)
        if self._rows is not None:
            self._shared.pop(key, None)
            self._background.start(self._share(self._rows, key, data))
        if self._folder is None:
            return
        try:
            self._replace(self._folder, self._folder / f"{key}.json", data)
        except OSError as problem:
            log.info("The lists of %s could not be saved: %s", entry.name, problem)

    async def _share(self, rows: "Rows", key: str, data: bytes) -> None:
        try:
            await rows.put(key, data, SHARED_SECONDS)
        except BackendAway:
            pass  # the file is enough

    async def finish(self) -> None:
        """Wait until everything is stored."""
        await self._background.wait()

    def _replace(self, folder: Path, path: Path, content: bytes) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(folder):
            raise PermissionError(f"{folder} belongs to another user")
        is_new = not path.exists()
        with NamedTemporaryFile(dir=folder, suffix=".new", delete=False) as file:
            file.write(content)
        try:
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)
            raise
        if is_new:
            _delete_oldest(folder)


def _read_saved(name: str, data: bytes) -> Catalog | None:
    """Return a catalog that was saved; None if that is not possible any more."""
    try:
        saved = _decode(data)
        capabilities = msgspec.json.decode(saved.capabilities)
        lists: dict[str, Any] = {kind: _index(kind, getattr(saved, kind)) for kind in LIST_KINDS}
        if saved.format != FORMAT:
            return None
        return Catalog(
            info=saved.info,
            instructions=saved.instructions,
            capabilities=ServerCapabilities.lift(capabilities),
            tasks=saved.tasks,
            is_from_disk=True,
            **lists,
        )
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        log.info("The known lists of %s could not be read: %s", name, problem)
        return None


def _delete_oldest(folder: Path) -> None:
    files = [path for path in folder.iterdir() if _FILE_NAME.fullmatch(path.name)]
    if len(files) > MAX_CATALOGS:
        files.sort(key=lambda path: path.stat().st_mtime)
        for path in files[: len(files) - MAX_CATALOGS]:
            path.unlink(missing_ok=True)


def catalog_key(entry: "UpstreamEntry") -> str | None:
    """Return the key under which the lists of a server are kept. None if they are not: the server
    runs in this process, or may list something else for each user.

    Args:
        entry: The entry of the server.
    """
    if entry.describe is None or entry.needs_login or entry.settings.forward:
        return None
    try:
        values = "" if entry.read_values is None else entry.read_values()
    except ConfigError:
        return None  # a variable is not set, which is an error when the server is started
    return digest(f"{entry.digest}\n{values}").removeprefix("sha256:")


def _is_own(folder: Path) -> bool:
    """Return whether nobody else could have written to a folder, or put a link in its place."""
    if os.name != "posix":
        return True
    found = folder.lstat()
    is_own = found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return is_own and stat.S_ISDIR(found.st_mode)


def _index(kind: Any, items: list[dict[str, Raw]]) -> dict[str, Item]:
    names = [_decode_text(fields[LISTS[kind].key]) for fields in items]
    return {name: Item(kind, name, fields) for name, fields in zip(names, items, strict=True)}
