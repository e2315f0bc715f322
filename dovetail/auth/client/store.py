"""Where a client keeps what it got in with, so that nobody has to log in twice.

A `Store` maps a server's URL to bytes, and lends a lock for each. Three are here:

    MemoryStore     for this process only
    FileStore       one encrypted file that only its owner may read; its key lies in a second one,
                    or in DOVETAIL_KEYS
    KeychainStore   the same file, but its key is kept by the system's keychain

The keychain holds the key and not the grants themselves: some keychains cannot list what they hold,
and some refuse what is longer than a few tokens. A key beside its file protects from whoever gets
at one of the two, such as a backup or a log; it cannot protect from a program that runs as the same
user.

**Writing** is read, change and replace, in a thread and under a lock among processes, and the file
is replaced whole or not at all. Reading therefore needs no lock. A file that cannot be opened
counts as empty, and is set aside by the next write.

**Locks** are tried again and again, never waited for: a thread that waits cannot be cancelled. They
are the system's, on an open file, and so end with whoever held them, however that ended.
"""

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes, token_hex
from threading import Lock
from typing import Any, Protocol
from weakref import WeakValueDictionary

import msgspec
from msgspec import DecodeError, ValidationError
from msgspec.json import decode, encode

from ...errors import ConfigError, TimedOut, install_command, missing_extra
from ...sealing import KEYS_VARIABLE, Forged, KeyRing, key_ring
from ..documents import SecretStruct

log = logging.getLogger("dovetail.auth")

SEAL_PURPOSE = "grants"
SECRET_BYTES = 32
MAX_FILE_BYTES = 16 * 1024 * 1024
"""Bytes of a file that is read at all."""
LOCK_RETRY_SECONDS = (0.002, 0.05)
"""Seconds between two attempts to get a lock: the first pause, which doubles, and the longest."""
LOCK_TIMEOUT_SECONDS = 600.0
"""Seconds that somebody else may hold a lock: a person may be logging in."""
WRITE_TIMEOUT_SECONDS = 10.0
"""Seconds that somebody else may take to write."""
POSIX = os.name == "posix"
OTHERS_MODE, WRITERS_MODE = 0o077, 0o022
DATA_FOLDERS = {
    "win32": ("APPDATA", "AppData/Roaming"),
    "darwin": ("", "Library/Application Support"),
}
"""What names the folder of applications' data, and where it is in a user's home; elsewhere as
freedesktop.org has it."""
SERVICE, USER = "dovetail", "grants"
"""What the keychain knows the key by."""

_decode = msgspec.msgpack.Decoder(dict[str, bytes]).decode


class Store(Protocol):
    """Keeps bytes by name, safely. `Client(auth=OAuth(store=…))` takes anything of this shape."""

    async def load(self, key: str) -> bytes | None:
        """What is kept under this name."""

    async def save(self, key: str, data: bytes) -> None:
        """Keep this, in place of what was there."""

    async def delete(self, key: str) -> None:
        """Keep nothing under this name."""

    async def keys(self) -> list[str]:
        """The names under which something is kept."""

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Only one at a time, of all who share this store, holds the lock of a name."""


class MemoryStore:
    """Keeps it for as long as this process lasts."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}
        self._locks: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._guard = Lock()

    async def load(self, key: str) -> bytes | None:
        """What is kept under this name."""
        return self._kept.get(key)

    async def save(self, key: str, data: bytes) -> None:
        """Keep this."""
        self._kept[key] = data

    async def delete(self, key: str) -> None:
        """Forget it."""
        self._kept.pop(key, None)

    async def keys(self) -> list[str]:
        """The names under which something is kept."""
        return sorted(self._kept)

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Held among tasks and threads."""
        with self._guard:
            lock = self._locks.setdefault(key, Lock())
        await _acquire_with_backoff(lambda: bool(lock.acquire(blocking=False)), key)
        try:
            yield
        finally:
            lock.release()


class FileStore:
    """Keeps it in one encrypted file; `path` is that file, by default among the user's application
    data."""

    default = "grants.sealed"

    def __init__(self, path: str | Path | None = None) -> None:
        self._given = path is not None
        self._path = Path(path) if path is not None else data_folder() / self.default

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._path)!r})"

    async def load(self, key: str) -> bytes | None:
        """What is kept under this name."""
        return (await asyncio.to_thread(self._read))[0].get(key)

    async def save(self, key: str, data: bytes) -> None:
        """Keep this. It is on the disk when this returns."""
        await asyncio.to_thread(self._change, lambda kept: kept | {key: data})

    async def delete(self, key: str) -> None:
        """Forget it."""
        await asyncio.to_thread(
            self._change, lambda kept: {name: data for name, data in kept.items() if name != key}
        )

    async def keys(self) -> list[str]:
        """The names under which something is kept."""
        return sorted((await asyncio.to_thread(self._read))[0])

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Held among tasks, threads and processes, by who is about to keep something. If that
        cannot be, now is the time to say so: nobody wants to hear it after a login."""
        self._check(KeyRing([]))
        name = blake2b(key.encode(), digest_size=16).hexdigest()
        file = self._open_lock(name)
        try:
            await _acquire_with_backoff(lambda: _lock(file), key)
            yield
        finally:
            os.close(file)

    # the file

    def _read(self) -> tuple[dict[str, bytes], bool]:
        """What is kept, and whether the file makes sense."""
        with self._explained():
            sealed = self._load(self._path)
            if sealed is None:
                return {}, True
            for ring in self._rings(None):
                try:
                    return _decode(ring.open(SEAL_PURPOSE, sealed.decode("ascii"))), True
                except (Forged, UnicodeDecodeError, msgspec.MsgspecError):
                    continue
        log.warning(
            "%s cannot be opened with the keys at hand; who was logged in has to log in again",
            self._path,
        )
        return {}, False

    def _change(self, change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> None:
        file = self._open_lock("file")
        try:
            deadline = time.monotonic() + WRITE_TIMEOUT_SECONDS
            while not _lock(file):
                if time.monotonic() > deadline:
                    raise TimedOut(
                        f"{self._path}: another process has been writing for "
                        f"{WRITE_TIMEOUT_SECONDS:g} s"
                    )
                time.sleep(LOCK_RETRY_SECONDS[0])
            kept, sound = self._read()
            after = change(kept)
            if sound and after == kept:
                return
            with self._explained():
                if not sound:
                    os.replace(self._path, self._beside(".damaged"))
                ring = self._rings(self._make_secret)[0]
                self._write(
                    self._path, ring.seal(SEAL_PURPOSE, msgspec.msgpack.encode(after)).encode()
                )
        finally:
            os.close(file)

    def _rings(self, make: Callable[[], bytes] | None) -> list[KeyRing]:
        """The keys that may open the file, the one that seals it first."""
        rings = [key_ring()] if os.environ.get(KEYS_VARIABLE, "").strip(" ,") else []
        secret = self._secret() or (make() if make is not None and not rings else None)
        if secret is not None:
            rings.append(KeyRing([secret]))
        if rings:
            self._check(rings[0])
        return rings

    def _check(self, ring: KeyRing) -> None:
        if not ring.encrypts:
            raise missing_extra(f"{self._path}: storing a login", "auth")

    def _secret(self) -> bytes | None:
        return self._load(self._beside(".key"))

    def _make_secret(self) -> bytes:
        secret = token_bytes(SECRET_BYTES)
        self._write(self._beside(".key"), secret)
        return secret

    # files that only their owner may see

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _load(self, path: Path) -> bytes | None:
        try:
            number = os.open(
                path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
            )
        except FileNotFoundError:
            return None
        with open(number, "rb") as file:
            _require_private(number, path)
            return file.read(MAX_FILE_BYTES)

    def _write(self, path: Path, data: bytes) -> None:
        """Replace a file whole: who reads it meanwhile reads the old one, and a crash leaves it."""
        new = path.with_name(f"{path.name}.{token_hex(4)}.new")
        try:
            with open(
                os.open(
                    new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600
                ),
                "wb",
            ) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _replace(new, path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def _open_lock(self, name: str) -> int:
        """A file to be locked. Closing it lets the lock go."""
        with self._explained():
            self._prepare(self._path.parent)
            folder = self._beside(".locks")
            folder.mkdir(mode=0o700, exist_ok=True)
            return os.open(
                folder / name, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600
            )

    def _prepare(self, folder: Path) -> None:
        """The folder, which others must not be able to put anything into."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not POSIX:
            return  # what lies in a user's profile is that user's
        found = folder.stat()
        if found.st_uid == os.geteuid() and found.st_mode & OTHERS_MODE and not self._given:
            folder.chmod(0o700)
        elif found.st_uid != os.geteuid() or found.st_mode & WRITERS_MODE:
            raise ConfigError(
                f"{folder}: others may write there, so no login is kept in it: chmod 700 it, "
                "or take another"
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What goes wrong with files, in one line."""
        try:
            yield
        except (ConfigError, TimedOut):
            raise
        except OSError as problem:
            what = (
                "a symbolic link is not followed"
                if os.path.islink(problem.filename or "")
                else problem.strerror
            )
            raise ConfigError(
                f"{problem.filename or self._path}: logins cannot be kept there: {what}"
            ) from None


class KeychainStore(FileStore):
    """Keeps it in one encrypted file, whose key only the system's keychain has."""

    default = "keychain.sealed"

    def __init__(self, path: str | Path | None = None) -> None:
        super().__init__(path)
        if (backend := _keychain()) is None:
            raise ConfigError(
                f"No keychain is available. Run: {install_command('keychain')}, and unlock a "
                "keychain; or use FileStore()"
            )
        self._backend = backend

    def _secret(self) -> bytes | None:
        found = self._ask(lambda: self._backend.get_password(SERVICE, USER))
        return None if found is None else str(found).encode()

    def _make_secret(self) -> bytes:
        secret = token_hex(SECRET_BYTES)
        self._ask(lambda: self._backend.set_password(SERVICE, USER, secret))
        return secret.encode()

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except Exception as problem:  # each keychain has errors of its own
            raise ConfigError(
                f"The keychain refuses: {type(problem).__name__}; unlock it, or use FileStore()"
            ) from None


def default_store() -> Store:
    """The keychain where there is one, else the file. Who sets DOVETAIL_KEYS has a place for keys
    already."""
    if not os.environ.get(KEYS_VARIABLE) and _keychain() is not None:
        return KeychainStore()
    return FileStore()


def data_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this system keeps what belongs to a user's applications."""
    variable, below = DATA_FOLDERS.get(sys.platform, ("XDG_DATA_HOME", ".local/share"))
    try:
        return Path(environment.get(variable) or Path.home() / below) / "dovetail"
    except RuntimeError:
        remedy = f"set {variable or 'HOME'}, or give a store"
        raise ConfigError(
            f"This user has no home folder, where a login could be kept: {remedy}"
        ) from None


def _keychain() -> Any:
    """The system's keychain, if the library is installed and has found one that is worth the
    name."""
    try:
        import keyring  # type: ignore[import-not-found,unused-ignore]

        backend = keyring.get_keyring()
        return (
            backend if backend.priority >= 1 else None
        )  # below that it is for tests, or plain text
    except Exception:  # a keychain that fails to load is none
        return None


def _require_private(number: int, path: Path) -> None:
    """See to it that nobody else can read an open file; refuse what somebody else put there."""
    if not POSIX:
        return
    found = os.fstat(number)
    if found.st_uid != os.geteuid():
        raise ConfigError(f"{path} belongs to another user: remove it, or run as that user")
    if found.st_mode & OTHERS_MODE:
        log.warning("%s could be read by others; it was made private", path)
        os.fchmod(number, 0o600)


def _replace(new: Path, path: Path) -> None:
    """Put a file in the place of another. Windows refuses that while somebody reads the other,
    which never takes long."""
    deadline = time.monotonic() + (0 if POSIX else WRITE_TIMEOUT_SECONDS)
    while True:
        try:
            return os.replace(new, path)
        except PermissionError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(LOCK_RETRY_SECONDS[0])


async def _acquire_with_backoff(attempt: Callable[[], bool], key: str) -> None:
    """Try until it works. Each pause is a chance to be cancelled."""
    loop = asyncio.get_running_loop()
    deadline, (pause, longest) = loop.time() + LOCK_TIMEOUT_SECONDS, LOCK_RETRY_SECONDS
    while not attempt():
        if loop.time() > deadline:
            raise TimedOut(
                f"{key}: another program has been logging in for {LOCK_TIMEOUT_SECONDS:g} s; end it"
            )
        await asyncio.sleep(pause)
        pause = min(2 * pause, longest)


if sys.platform == "win32":
    import msvcrt

    def _lock(number: int) -> bool:
        try:
            os.lseek(number, 0, os.SEEK_SET)
            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _lock(number: int) -> bool:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# --- merged from records.py (integrate, then remove this comment)
# What a client keeps about a server: how it is known there, and what it was given.
#
# One record for each server, as bytes in a `Store`. Registrations are kept by issuer, and tokens
# name the issuer, the endpoint and the client that they belong to: nothing that one authorization
# server said can ever reach another. Times are absolute: they mean the same after a restart.

MAX_REGISTRATIONS = 8
"""Authorization servers that one record remembers; the one that was used last is never
forgotten."""
RENEW_AHEAD_SECONDS = 60.0
"""Seconds before its end that a token is renewed, or a fifth of its life if that is less."""


class ClientRegistration(SecretStruct, kw_only=True, omit_defaults=True):
    """How this client is known to one authorization server."""

    client_id: str
    client_secret: str | None = None
    auth_method: str = "none"
    """How it proves itself at the token endpoint."""
    source: str = "given"
    """`given` by the user, a `document` of its own, or `registered` on the way."""
    expires_at: float | None = None
    redirect_uri: str | None = None
    scopes: tuple[str, ...] = ()
    """What it may ask for, as far as it was registered for something."""


class TokenSet(SecretStruct, kw_only=True, omit_defaults=True):
    """What an authorization server gave, and everything that is needed to have it renewed."""

    access_token: str
    scheme: str
    """`Bearer` or `DPoP`."""
    issuer: str
    token_endpoint: str
    resource: str
    registration: ClientRegistration
    issued_at: float
    expires_at: float | None = None
    refresh_token: str | None = None
    requested_scopes: tuple[str, ...] = ()
    granted_scopes: tuple[str, ...] = ()
    user: str | None = None
    """Who logged in, where the authorization server says so; to be shown, and good for nothing
    else."""

    def is_expiring(self, now: float) -> bool:
        """Whether it is time for new ones."""
        return self.expires_at is not None and now >= self.expires_at - min(
            RENEW_AHEAD_SECONDS, (self.expires_at - self.issued_at) / 5
        )

    def is_expired(self, now: float) -> bool:
        """Whether nobody will take them any more."""
        return self.expires_at is not None and now >= self.expires_at


class ServerRecord(SecretStruct, kw_only=True, omit_defaults=True):
    """All of it, for one server."""

    tokens: TokenSet | None = None
    registrations: dict[str, ClientRegistration] = {}
    """By issuer."""
    requested_scopes: tuple[str, ...] = ()
    """What was asked for with tokens that are no more."""
    metadata_url: str | None = None
    """Where the server said that its metadata is."""
    jwk: dict[str, Any] | None = None
    """The key that tokens are bound to, private parts and all."""

    def register(self, issuer: str, client: ClientRegistration) -> None:
        """Remember a registration."""
        others = {known: kept for known, kept in self.registrations.items() if known != issuer}
        self.registrations = dict([*others.items(), (issuer, client)][-MAX_REGISTRATIONS:])

    def forget(self, issuer: str) -> None:
        """Forget a registration; tokens know theirs and live on."""
        self.registrations = {
            known: kept for known, kept in self.registrations.items() if known != issuer
        }

    def encode(self) -> bytes:
        """The record as a store keeps it."""
        return encode(self)


def read_record(data: bytes | None) -> ServerRecord:
    """The record that was kept; a new one where there is none, or none that can be read."""
    if data is None:
        return ServerRecord()
    try:
        return decode(data, type=ServerRecord)
    except (ValidationError, DecodeError, UnicodeDecodeError, RecursionError):
        return ServerRecord()
