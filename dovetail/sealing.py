"""Tokens that only this server can create, such as session ids, cursors and the state of a
question.

A token is `kind | salt | nonce | body | tag`, in URL-safe base64, so that a header can carry it
(`seal`), or as it is, for a database (`seal_bytes`). The first byte identifies the kind. If
`cryptography` is installed, tokens are *encrypted* with AES-GCM. Otherwise, they are *signed* with
keyed BLAKE2b and have no salt: anybody who holds a token can read its body, but only the server can
create or change one. `ring.encrypts` says which kind a ring creates.

For each kind and purpose, a separate key is derived from each secret, so a token for one purpose or
kind never opens as another. A token may also be `bound` to data that it does not contain, such as a
user or a request. The same data is required to open the token. Both kinds are equally hard to
forge, and opening a signed token reveals nothing new. So a ring that encrypts also opens signed
tokens, and a fleet can be upgraded one machine at a time. A ring that only signs rejects encrypted
tokens.

The first key seals tokens, and all keys open them. To rotate keys, put the new key first, and
remove the old key when the last of its tokens has expired.

Nonces are random, so one key may encrypt about 2^32 tokens. Many processes with the same keys could
exceed that, so each ring encrypts with subkeys of its own. They are derived from the keys of the
ring and a random salt, which is part of the token, and which the ring replaces in time. Tokens that
were encrypted without a subkey still open.

A token has exactly one spelling, so writing a revoked token differently does not evade the list of
revoked tokens.
"""

import os
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from .aio import BoundedDict
from .errors import ConfigError

ENCRYPTED, SIGNED, ENCRYPTED_WITH_SUBKEY = 1, 2, 3
SALT_BYTES = 16
NONCE_BYTES = 12
TAG_BYTES = 16
MAX_TOKENS_PER_SALT = 2**31
MAX_CIPHERS = 4096
"""How many ciphers a ring remembers. The ciphers of a salt cost a few microseconds to derive."""
MIN_KEY_LENGTH = 16
KEYS_VARIABLE = "DOVETAIL_KEYS"
GENERATE_KEY = 'Generate one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'

Key: TypeAlias = str | bytes
KeyOrigin: TypeAlias = Literal["configured", "environment", "process"]


class Forged(ValueError):
    """This server did not create the token, or created it for another use. The error does not
    reveal which of the two is the case."""

    def __init__(self) -> None:
        super().__init__("not a valid token")


class Cipher(Protocol):
    """The interface of `AESGCM`."""

    def encrypt(self, nonce: bytes, data: bytes, bound: bytes, /) -> bytes:
        """Return the body and its tag."""

    def decrypt(self, nonce: bytes, sealed: bytes, bound: bytes, /) -> bytes:
        """Return the data. Raise an error if anything was modified."""


class _Signer(Struct, frozen=True, eq=False):
    """A cipher that leaves the data readable and adds a tag."""

    key: bytes

    def _tag(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        # The length keeps the end of `bound` and the start of `data` apart.
        message = b"".join((nonce, len(bound).to_bytes(8), bound, data))
        return blake2b(message, digest_size=TAG_BYTES, key=self.key).digest()

    def encrypt(self, nonce: bytes, data: bytes, bound: bytes, /) -> bytes:
        return data + self._tag(nonce, data, bound)

    def decrypt(self, nonce: bytes, sealed: bytes, bound: bytes, /) -> bytes:
        data = sealed[:-TAG_BYTES]
        if not compare_digest(sealed[-TAG_BYTES:], self._tag(nonce, data, bound)):
            raise Forged
        return data


class KeyRing:
    """A ring of keys that seals bytes into tokens and opens them again.

    A purpose is a fixed word in the program and never comes from a request.
    """

    __slots__ = (
        *("_ciphers", "_forgery_errors", "_makers", "_roots", "origin"),
        *("_process", "_salt", "_salt_uses"),
    )

    def __init__(self, secrets: Sequence[bytes], origin: KeyOrigin = "configured") -> None:
        self.origin = origin
        """Where the keys come from. With "process", only this process and its children have the
        keys."""
        self._roots = [blake2b(secret, person=b"dovetail root").digest() for secret in secrets]
        self._ciphers: BoundedDict[tuple[int, str, bytes], list[Cipher]] = BoundedDict(MAX_CIPHERS)
        """The ciphers by kind, purpose and salt, one for each key."""
        self._makers: dict[int, Callable[[bytes], Cipher]] = {}
        """The function that creates a cipher from a key, by kind. Each function is loaded on first
        use."""
        self._forgery_errors: tuple[type[Exception], ...] = (Forged,)
        self._salt, self._salt_uses, self._process = b"", 0, 0

    @property
    def encrypts(self) -> bool:
        """Whether tokens hide their content. The first call imports `cryptography`, if it is
        installed."""
        return ENCRYPTED in (self._makers or self._load_makers())

    def seal(self, purpose: str, data: bytes, *, bound: bytes = b"", hide: bool = True) -> str:
        """Return a token for these bytes. Every token is different, even for the same bytes.

        Args:
            purpose: What the token is for.
            data: The bytes.
            bound: Data that is required to open the token.
            hide: Whether to encrypt the bytes, if possible. If the holder of the token knows them
                anyway, a signature is enough, and `cryptography` is not imported, which takes
                several MiB.
        """
        return _to_text(self.seal_bytes(purpose, data, bound=bound, hide=hide))

    def seal_bytes(
        self, purpose: str, data: bytes, *, bound: bytes = b"", hide: bool = True
    ) -> bytes:
        """Return the token as bytes. The arguments are the same as for `seal`."""
        kind, salt = SIGNED, b""
        if hide and self.encrypts:
            kind, salt = ENCRYPTED_WITH_SUBKEY, self._own_salt()
        ciphers = self._ciphers.get((kind, purpose, salt))
        if ciphers is None:
            ciphers = self._ciphers[kind, purpose, salt] = self._derive_ciphers(kind, purpose, salt)
        nonce = os.urandom(NONCE_BYTES)
        return b"%c%b%b%b" % (kind, salt, nonce, ciphers[0].encrypt(nonce, data, bound))

    def open(self, purpose: str, token: str, *, bound: bytes = b"", hidden: bool = True) -> bytes:
        """Return the bytes that were sealed for this purpose and with this `bound`. Raise Forged
        for any other token.

        Args:
            purpose: What the token is for.
            token: The token.
            bound: The data that it was bound to.
            hidden: False if tokens for this purpose are never encrypted, so that an encrypted one
                is a forgery.
        """
        try:
            raw = _from_text(token)
        except ValueError:
            raise Forged from None
        if _to_text(raw) != token:  # the decoder skips unknown characters
            raise Forged
        return self.open_bytes(purpose, raw, bound=bound, hidden=hidden)

    def open_bytes(
        self, purpose: str, token: bytes, *, bound: bytes = b"", hidden: bool = True
    ) -> bytes:
        """Return the bytes in a token of `seal_bytes`. The arguments are the same as for `open`."""
        kind = token[0] if token else 0
        start = 1 + (SALT_BYTES if kind == ENCRYPTED_WITH_SUBKEY else 0)
        if len(token) < start + NONCE_BYTES + TAG_BYTES or (kind != SIGNED and not hidden):
            raise Forged
        salt, nonce = token[1:start], token[start : start + NONCE_BYTES]
        sealed = token[start + NONCE_BYTES :]
        known = self._ciphers.get((kind, purpose, salt))
        ciphers = self._derive_ciphers(kind, purpose, salt) if known is None else known
        for cipher in ciphers:
            try:
                data = cipher.decrypt(nonce, sealed, bound)
            except self._forgery_errors:
                continue  # perhaps another key of the ring opens it
            if known is None:
                self._ciphers[kind, purpose, salt] = ciphers  # only now: forgeries cost no memory
            return data
        raise Forged

    def digest(self, purpose: str, data: bytes) -> str:
        """Return a name for these bytes. Without the first key, nobody can compute it, not even to
        check a guess; with another first key, it is another name.

        Args:
            purpose: What the name is for.
            data: The bytes.
        """
        label = b"dovetail name"
        key = blake2b(purpose.encode(), digest_size=32, key=self._roots[0], person=label).digest()
        return blake2b(data, digest_size=32, key=key, person=label).hexdigest()

    def _own_salt(self) -> bytes:
        """Return this process's salt: a new one in a forked child, and before the tokens of one
        subkey become too many."""
        self._salt_uses += 1
        if self._salt_uses > MAX_TOKENS_PER_SALT or self._process != os.getpid():
            self._salt, self._salt_uses, self._process = os.urandom(SALT_BYTES), 1, os.getpid()
        return self._salt

    def _derive_ciphers(self, kind: int, purpose: str, salt: bytes) -> list[Cipher]:
        make: Callable[[bytes], Cipher] | None = _Signer
        if kind != SIGNED:
            base = ENCRYPTED if kind == ENCRYPTED_WITH_SUBKEY else kind
            make = (self._makers or self._load_makers()).get(base)
        if make is None:
            return []
        label = b"%c%b%b" % (kind, salt, purpose.encode())
        keys = (
            blake2b(label, digest_size=32, key=root, person=b"dovetail seal").digest()
            for root in self._roots
        )
        return [make(key) for key in keys]

    def _load_makers(self) -> dict[int, Callable[[bytes], Cipher]]:
        makers: dict[int, Callable[[bytes], Cipher]] = {SIGNED: _Signer}
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            pass
        else:
            makers[ENCRYPTED] = AESGCM
            self._forgery_errors = (Forged, InvalidTag)
        self._makers = makers
        return makers


def key_ring(keys: Sequence[Key] | None = None) -> KeyRing:
    """Return the ring for these keys. By default, use the keys in `DOVETAIL_KEYS` or, if it is not
    set, a key that the processes of this program share."""
    if keys is not None:
        listed = [keys] if isinstance(keys, str | bytes) else keys
        return KeyRing(_check_keys(listed, "the keys"), "configured")
    parts = [key.strip() for key in os.environ.get(KEYS_VARIABLE, "").split(",")]
    if any(parts):
        secrets = _check_keys([key for key in parts if key], KEYS_VARIABLE)
        return KeyRing(secrets, "environment")
    from multiprocessing import current_process

    return KeyRing([bytes(current_process().authkey)], "process")


def _check_keys(keys: Sequence[Key], source: str) -> list[bytes]:
    if not keys:
        raise ConfigError(f"{source}: at least one key is required. {GENERATE_KEY}")
    for number, key in enumerate(keys, 1):
        if len(key) < MIN_KEY_LENGTH:
            raise ConfigError(
                f"{source}: key {number} has {len(key)} characters; at least {MIN_KEY_LENGTH} are "
                f"required. {GENERATE_KEY}"
            )
    return [key if isinstance(key, bytes) else os.fsencode(key) for key in keys]


def _to_text(raw: bytes) -> str:
    return b2a_base64(raw, newline=False).decode().rstrip("=").replace("+", "-").replace("/", "_")


def _from_text(token: str) -> bytes:
    return a2b_base64(token.replace("-", "+").replace("_", "/") + "=" * (-len(token) % 4))
