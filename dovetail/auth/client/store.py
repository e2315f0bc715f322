"""The data that a client stores about a server and the stores that hold it, so that users log in
only once.

**Data**: there is one `ServerRecord` for each server. Registrations are stored by issuer, and
tokens are stored with their issuer, endpoint and client, so nothing from one authorization server
is ever sent to another. Times are absolute, so they stay correct after a restart.

**Stores**: a `Store` maps the URL of each server to bytes, and has a lock for each URL.

    MemoryStore     memory, for this process only
    FileStore       one encrypted file that only its owner may read; its key is in a second file, or
                    in DOVETAIL_KEYS
    KeychainStore   a similar file whose key is in the system's keychain

Processes on several machines share the store of a backend (`Backend.tokens`).

The keychain holds only the key, because some keychains cannot list their entries, and some refuse
values longer than a few tokens. A key in a second file protects the logins if only one of the two
files leaks, for example in a backup. A key file does not protect the logins from programs that run
as the same user.

**To write**, a store reads the file, changes the data, and replaces the file. This work is done in
a thread, under a lock that all processes share. The file is replaced atomically, so reading needs
no lock. A file that cannot be decrypted is treated as empty, and is renamed at the next write.

**Locks** are polled, because a thread that waits for a lock cannot be cancelled. The locks are the
operating system's file locks, so they are released when the process ends, even if it crashes.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from hashlib import blake2b
from itertools import count
from pathlib import Path
from secrets import token_bytes, token_hex
from threading import Lock
from typing import Any, Protocol
from weakref import WeakValueDictionary

import msgspec

from ...aio import backoff
from ...errors import ConfigError, TimedOut, install_command, missing_extra
from ...file_lock import try_lock
from ...logs import get_logger
from ...sealing import KEYS_VARIABLE, Forged, KeyRing, key_ring
from ..wire import SecretStruct

log = get_logger("auth")

MAX_REGISTRATIONS = 8
"""The maximum number of authorization servers in one record. The one that was used last is always
kept."""
RENEW_AHEAD_SECONDS = 60.0
"""How long before tokens expire to renew them, but at most a fifth of their lifetime."""
SEAL_PURPOSE = "grants"
SECRET_BYTES = 32
MAX_FILE_BYTES = 16 * 1024 * 1024
LOCK_RETRY_SECONDS = (0.002, 0.05)
"""The first and the longest pause between attempts to acquire a lock."""
LOCK_TIMEOUT_SECONDS = 600.0
"""How long to wait for a lock. Another program may hold it while its user logs in."""
WRITE_TIMEOUT_SECONDS = 10.0
"""How long to wait for another process to finish writing."""
POSIX = os.name == "posix"
OTHERS_MODE, WRITERS_MODE = 0o077, 0o022
DATA_FOLDERS = {
    "win32": ("APPDATA", "AppData/Roaming"),
    "darwin": ("", "Library/Application Support"),
}
"""The environment variable that names the folder for application data, and the default folder
inside the user's home folder. Other systems use the folder that freedesktop.org defines."""
SERVICE, USER = "dovetail", "grants"
"""The names under which the keychain stores the key."""

_decode = msgspec.msgpack.Decoder(dict[str, bytes]).decode


# what is stored


class ClientRegistration(SecretStruct, kw_only=True, omit_defaults=True):
    """The registration of this client at one authorization server."""

    client_id: str
    client_secret: str | None = None
    auth_method: str = "none"
    """How the client authenticates at the token endpoint."""
    source: str = "given"
    """How the client got its id: `given` (by the user), `document` (the id is the document's URL)
    or `registered`."""
    expires_at: float | None = None
    redirect_uri: str | None = None
    scopes: tuple[str, ...] = ()
    """The scopes that the client was registered for, or empty if its scopes are not limited."""


class TokenSet(SecretStruct, kw_only=True, omit_defaults=True):
    """The tokens from an authorization server, and everything needed to renew them."""

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
    """The user who logged in, if the authorization server names them. Only for display."""

    def is_expiring(self, now: float) -> bool:
        """Return whether it is time to renew the tokens."""
        return self.expires_at is not None and now >= self.expires_at - min(
            RENEW_AHEAD_SECONDS, (self.expires_at - self.issued_at) / 5
        )

    def is_expired(self, now: float) -> bool:
        """Return whether the tokens have expired."""
        return self.expires_at is not None and now >= self.expires_at


class ServerRecord(SecretStruct, kw_only=True, omit_defaults=True):
    """Everything that is stored about one server."""

    tokens: TokenSet | None = None
    registrations: dict[str, ClientRegistration] = {}
    """The client's registrations, keyed by issuer."""
    requested_scopes: tuple[str, ...] = ()
    """The scopes that were requested for the last tokens. They are kept even if those tokens are
    discarded."""
    metadata_url: str | None = None
    """The URL of the server's metadata, from its challenge."""
    jwk: dict[str, Any] | None = None
    """The key that tokens are bound to, with its private members."""

    def register(self, issuer: str, client: ClientRegistration) -> None:
        """Remember a registration."""
        self.forget(issuer)
        self.registrations = dict(
            [*self.registrations.items(), (issuer, client)][-MAX_REGISTRATIONS:]
        )

    def forget(self, issuer: str) -> None:
        """Forget a registration. Stored tokens keep their own copy of the registration."""
        self.registrations = {
            known: client for known, client in self.registrations.items() if known != issuer
        }

    def encode(self) -> bytes:
        """Return the bytes to be stored."""
        return msgspec.json.encode(self)


def read_record(data: bytes | None) -> ServerRecord:
    """Decode a stored record. Returns a new record if none is stored or the stored one cannot be
    decoded."""
    if data is None:
        return ServerRecord()
    try:
        return msgspec.json.decode(data, type=ServerRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ServerRecord()


# where it is stored


class Store(Protocol):
    """A place where a client stores its logins. `OAuth(store=…)` accepts any object with these
    methods."""

    async def load(self, key: str) -> bytes | None:
        """Return the data stored under a key, or None if there is none.

        Args:
            key: The URL of a server.
        """

    async def save(self, key: str, data: bytes) -> None:
        """Store data under a key, replacing any previous data.

        Args:
            key: The URL of a server.
            data: The data to store. It contains secrets.

        Raises:
            ConfigError: The data cannot be stored.
        """

    async def delete(self, key: str) -> None:
        """Delete any data stored under a key.

        Args:
            key: The URL of a server.
        """

    async def keys(self) -> list[str]:
        """Return the keys under which data is stored."""

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Return a context manager that holds the lock for a key. Only one of the tasks, threads
        and programs that share the store can hold the lock at a time.

        Args:
            key: The URL of a server, with an optional suffix.
        """


class MemoryStore:
    """Stores logins in memory until the process ends."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}
        self._locks: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._guard = Lock()

    async def load(self, key: str) -> bytes | None:
        """Return the data stored under a key, or None if there is none.

        Args:
            key: The URL of a server.
        """
        return self._data.get(key)

    async def save(self, key: str, data: bytes) -> None:
        """Store data under a key, replacing any previous data.

        Args:
            key: The URL of a server.
            data: The data to store.
        """
        self._data[key] = data

    async def delete(self, key: str) -> None:
        """Delete any data stored under a key.

        Args:
            key: The URL of a server.
        """
        self._data.pop(key, None)

    async def keys(self) -> list[str]:
        """Return the keys under which data is stored."""
        return sorted(self._data)

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Hold the lock for a key, which all tasks and threads in this process share.

        Args:
            key: The URL of a server, with an optional suffix.

        Raises:
            TimedOut: The lock was not released within 600 seconds.
        """
        with self._guard:
            lock = self._locks.setdefault(key, Lock())
        await poll_lock(lambda: bool(lock.acquire(blocking=False)), key)
        try:
            yield
        finally:
            lock.release()


class FileStore:
    """Stores logins in one encrypted file. Requires `dovetail-mcp[auth]`.

    Args:
        path: The file (default: `grants.sealed` in the user's folder for application data).
    """

    default = "grants.sealed"

    def __init__(self, path: str | Path | None = None) -> None:
        self._path_was_chosen = path is not None
        self._path = Path(path) if path is not None else data_folder() / self.default

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._path)!r})"

    async def load(self, key: str) -> bytes | None:
        """Return the data stored under a key, or None if there is none.

        Args:
            key: The URL of a server.

        Raises:
            ConfigError: The file cannot be read, or belongs to another user.
        """
        return (await asyncio.to_thread(self._read))[0].get(key)

    async def save(self, key: str, data: bytes) -> None:
        """Store data under a key, replacing any previous data. The data is on disk when this method
        returns.

        Args:
            key: The URL of a server.
            data: The data to store.

        Raises:
            ConfigError: The file cannot be written.
            TimedOut: Another process did not finish writing within 10 seconds.
        """
        await asyncio.to_thread(self._change, lambda rows: rows | {key: data})

    async def delete(self, key: str) -> None:
        """Delete any data stored under a key.

        Args:
            key: The URL of a server.

        Raises:
            ConfigError: The file cannot be written.
            TimedOut: Another process did not finish writing within 10 seconds.
        """
        await asyncio.to_thread(
            self._change, lambda rows: {name: data for name, data in rows.items() if name != key}
        )

    async def keys(self) -> list[str]:
        """Return the keys under which data is stored."""
        return sorted((await asyncio.to_thread(self._read))[0])

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Hold the lock for a key, which all tasks, threads and processes share.

        Args:
            key: The URL of a server, with an optional suffix.

        Raises:
            ConfigError: The file cannot be encrypted or written. The file is checked first, so that
                the user learns about the problem before logging in.
            TimedOut: The lock was not released within 600 seconds.
        """
        self._require_encryption(KeyRing([]))
        name = blake2b(key.encode(), digest_size=16).hexdigest()
        file = self._open_lock(name)
        try:
            await poll_lock(lambda: try_lock(file), key)
            yield
        finally:
            os.close(file)

    # the file

    def _read(self) -> tuple[dict[str, bytes], bool]:
        """Return the stored rows, and whether the file could be decrypted."""
        with self._explain_errors():
            sealed = self._read_private(self._path)
            if sealed is None:
                return {}, True
            for ring in self._rings():
                try:
                    return _decode(ring.open(SEAL_PURPOSE, sealed.decode("ascii"))), True
                except (Forged, UnicodeDecodeError, msgspec.MsgspecError):
                    continue
        log.warning("%s cannot be decrypted with the available keys. Log in again.", self._path)
        return {}, False

    def _change(self, change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> None:
        file = self._open_lock("file")
        try:
            deadline = time.monotonic() + WRITE_TIMEOUT_SECONDS
            while not try_lock(file):
                if time.monotonic() > deadline:
                    raise TimedOut(
                        f"{self._path}: another process did not finish writing within "
                        f"{WRITE_TIMEOUT_SECONDS:g} s"
                    )
                time.sleep(LOCK_RETRY_SECONDS[0])
            rows, readable = self._read()
            changed = change(rows)
            if readable and changed == rows:
                return
            with self._explain_errors():
                if not readable:
                    os.replace(self._path, self._with_suffix(".damaged"))
                ring = self._rings(create=True)[0]
                data = ring.seal(SEAL_PURPOSE, msgspec.msgpack.encode(changed)).encode()
                self._write_private(self._path, data)
        finally:
            os.close(file)

    def _rings(self, *, create: bool = False) -> list[KeyRing]:
        """Return the key rings that may decrypt the file. The first key ring also encrypts it."""
        rings = [key_ring()] if os.environ.get(KEYS_VARIABLE, "").strip(" ,") else []
        secret = self._secret() or (self._make_secret() if create and not rings else None)
        if secret is not None:
            rings.append(KeyRing([secret]))
        if rings:
            self._require_encryption(rings[0])
        return rings

    def _require_encryption(self, ring: KeyRing) -> None:
        if not ring.encrypts:
            raise missing_extra(f"Storing a login in {self._path}", "auth")

    def _secret(self) -> bytes | None:
        return self._read_private(self._with_suffix(".key"))

    def _make_secret(self) -> bytes:
        secret = token_bytes(SECRET_BYTES)
        self._write_private(self._with_suffix(".key"), secret)
        return secret

    # files that only their owner may read

    def _with_suffix(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _read_private(self, path: Path) -> bytes | None:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        try:
            number = os.open(path, flags)
        except FileNotFoundError:
            return None
        with open(number, "rb") as file:
            _require_private(number, path)
            return file.read(MAX_FILE_BYTES)

    def _write_private(self, path: Path, data: bytes) -> None:
        """Replace a file atomically. Readers see either the old or the new file, and a crash leaves
        the old file in place."""
        new = path.with_name(f"{path.name}.{token_hex(4)}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        try:
            with open(os.open(new, flags, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _replace(new, path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def _open_lock(self, name: str) -> int:
        """Open a file that can be locked. Closing the file releases the lock."""
        with self._explain_errors():
            self._prepare_folder(self._path.parent)
            folder = self._with_suffix(".locks")
            folder.mkdir(mode=0o700, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            return os.open(folder / name, flags, 0o600)

    def _prepare_folder(self, folder: Path) -> None:
        """Create the folder. Raises ConfigError if other users can write to the folder."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not POSIX:
            return  # a user's profile is private on Windows
        found = folder.stat()
        if (
            found.st_uid == os.geteuid()
            and found.st_mode & OTHERS_MODE
            and not self._path_was_chosen
        ):
            folder.chmod(0o700)
        elif found.st_uid != os.geteuid() or found.st_mode & WRITERS_MODE:
            raise ConfigError(
                f"{folder}: other users can write to this folder, so logins are not stored in "
                "it. Run chmod 700 on the folder, or use another one."
            )

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turn an operating system error into a one-line ConfigError."""
        try:
            yield
        except (ConfigError, TimedOut):
            raise
        except OSError as error:
            is_link = os.path.islink(error.filename or "")
            reason = "symbolic links are not followed" if is_link else error.strerror
            raise ConfigError(
                f"Cannot store logins in {error.filename or self._path}: {reason}"
            ) from None


class KeychainStore(FileStore):
    """Stores logins in one encrypted file whose key is in the system's keychain.

    Args:
        path: The file (default: `keychain.sealed` in the user's folder for application data).

    Raises:
        ConfigError: There is no keychain, or the `keyring` library is not installed.
    """

    default = "keychain.sealed"

    def __init__(self, path: str | Path | None = None) -> None:
        super().__init__(path)
        if (backend := _find_keychain()) is None:
            raise ConfigError(
                f"No keychain is available. Run `{install_command('keychain')}` and unlock "
                "the keychain, or use FileStore()"
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
        except Exception as error:  # each keychain raises its own errors
            raise ConfigError(
                f"The keychain refused access ({type(error).__name__}). Unlock the keychain, "
                "or use FileStore()."
            ) from None


def default_store() -> Store:
    """Return the store that `OAuth` uses by default.

    The default is a `KeychainStore` if there is a keychain, and otherwise a `FileStore`. If the
    environment variable DOVETAIL_KEYS is set, the default is always a `FileStore`, encrypted with
    those keys.
    """
    if not os.environ.get(KEYS_VARIABLE) and _find_keychain() is not None:
        return KeychainStore()
    return FileStore()


def data_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for this user's application data."""
    variable, below = DATA_FOLDERS.get(sys.platform, ("XDG_DATA_HOME", ".local/share"))
    try:
        return Path(environment.get(variable) or Path.home() / below) / "dovetail"
    except RuntimeError:
        raise ConfigError(
            "There is no home folder in which to store logins. Set "
            f"{variable or 'HOME'}, or pass a store."
        ) from None


def _find_keychain() -> Any:
    """Return the system's keychain, or None if the library is not installed or finds no safe
    keychain."""
    try:
        import keyring  # type: ignore[import-not-found,unused-ignore]

        backend = keyring.get_keyring()
        # A keychain with a lower priority is meant for tests or stores plain text.
        return backend if backend.priority >= 1 else None
    except Exception:  # a keychain that cannot be loaded cannot be used
        return None


def _require_private(number: int, path: Path) -> None:
    """Restrict an open file to its owner. Raises ConfigError if the file belongs to another
    user."""
    if not POSIX:
        return
    found = os.fstat(number)
    if found.st_uid != os.geteuid():
        raise ConfigError(f"{path} belongs to another user. Remove the file, or run as that user.")
    if found.st_mode & OTHERS_MODE:
        log.warning(
            "%s was accessible to other users, so its permissions have been restricted", path
        )
        os.fchmod(number, 0o600)


def _replace(new: Path, path: Path) -> None:
    """Replace a file. Windows refuses to replace a file that is being read, so keep trying for a
    while."""
    deadline = time.monotonic() + (0 if POSIX else WRITE_TIMEOUT_SECONDS)
    while True:
        try:
            return os.replace(new, path)
        except PermissionError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(LOCK_RETRY_SECONDS[0])


async def poll_lock(
    attempt: Callable[[], bool | Awaitable[bool]],
    key: str,
    longest: float = LOCK_RETRY_SECONDS[1],
) -> None:
    """Keep trying to acquire a lock, with pauses of up to `longest` seconds. The task can be
    cancelled between attempts."""
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    for number in count():
        acquired = attempt()
        if acquired is True or (acquired is not False and await acquired):
            return
        if time.monotonic() > deadline:
            raise TimedOut(
                f"{key}: another program has been logging in for {LOCK_TIMEOUT_SECONDS:g} s. "
                "Stop that program and try again."
            )
        await asyncio.sleep(backoff(number, LOCK_RETRY_SECONDS[0], longest))
