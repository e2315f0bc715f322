"""Tokens that only this server can create, such as session ids, cursors and the state of a
question.

A token is `kind | nonce | body | tag`, in URL-safe base64, so that a header can carry it. The first
byte identifies one of two kinds. If `cryptography` is installed, tokens are *encrypted* with
AES-GCM. Otherwise, they are *signed* with keyed BLAKE2b: anybody who holds a token can read its
body, but only the server can create or change one. `ring.encrypts` says which kind a ring creates.

For each kind and purpose, a separate key is derived from each secret, so a token for one purpose or
kind never opens as another. A token may also be `bound` to data that it does not contain, such as a
user or a request. The same data is required to open the token. Both kinds are equally hard to
forge, and opening a signed token reveals nothing new. So a ring that encrypts also opens signed
tokens, and a fleet can be upgraded one machine at a time. A ring that only signs rejects encrypted
tokens.

The first key seals tokens, and all keys open them. To rotate keys, put the new key first, and
remove the old key when the last of its tokens has expired. Nonces are random, which limits each key
to about 2^32 tokens per purpose.

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

from .errors import ConfigError

ENCRYPTED, SIGNED = 1, 2
NONCE_BYTES = 12
TAG_BYTES = 16
MIN_KEY_LENGTH = 16
KEYS_VARIABLE = "DOVETAIL_KEYS"

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

    __slots__ = ("_ciphers", "_forgery_errors", "_makers", "_roots", "origin")

    def __init__(self, secrets: Sequence[bytes], origin: KeyOrigin = "configured") -> None:
        self.origin = origin
        """Where the keys come from. With "process", only this process and its children have the
        keys."""
        self._roots = [blake2b(secret, person=b"dovetail root").digest() for secret in secrets]
        self._ciphers: dict[tuple[int, str], list[Cipher]] = {}
        """The ciphers by kind and purpose, one for each key."""
        self._makers: dict[int, Callable[[bytes], Cipher]] = {}
        """The function that creates a cipher from a key, by kind. Each function is loaded on first
        use."""
        self._forgery_errors: tuple[type[Exception], ...] = (Forged,)

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
        kind = ENCRYPTED if hide and self.encrypts else SIGNED
        nonce = os.urandom(NONCE_BYTES)
        cipher = (self._ciphers.get((kind, purpose)) or self._derive_ciphers(kind, purpose))[0]
        return _to_text(b"%c%b%b" % (kind, nonce, cipher.encrypt(nonce, data, bound)))

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
        # The decoder skips unknown characters, hence the second condition.
        if len(raw) <= NONCE_BYTES + TAG_BYTES or _to_text(raw) != token:
            raise Forged
        kind, nonce, sealed = raw[0], raw[1 : 1 + NONCE_BYTES], raw[1 + NONCE_BYTES :]
        if kind != SIGNED and not hidden:
            raise Forged
        for cipher in self._ciphers.get((kind, purpose)) or self._derive_ciphers(kind, purpose):
            try:
                return cipher.decrypt(nonce, sealed, bound)
            except self._forgery_errors:
                continue  # perhaps another key of the ring opens it
        raise Forged

    def _derive_ciphers(self, kind: int, purpose: str) -> list[Cipher]:
        make: Callable[[bytes], Cipher] | None = _Signer
        if kind != SIGNED:
            make = (self._makers or self._load_makers()).get(kind)
        if make is None:
            return []
        label = b"%c%b" % (kind, purpose.encode())
        keys = (
            blake2b(label, digest_size=32, key=root, person=b"dovetail seal").digest()
            for root in self._roots
        )
        ciphers = self._ciphers[kind, purpose] = [make(key) for key in keys]
        return ciphers

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
    remedy = 'Generate one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
    if not keys:
        raise ConfigError(f"{source}: at least one key is required. {remedy}")
    for number, key in enumerate(keys, 1):
        if len(key) < MIN_KEY_LENGTH:
            raise ConfigError(
                f"{source}: key {number} has {len(key)} characters; at least {MIN_KEY_LENGTH} are "
                f"required. {remedy}"
            )
    return [key if isinstance(key, bytes) else os.fsencode(key) for key in keys]


def _to_text(raw: bytes) -> str:
    return b2a_base64(raw, newline=False).decode().rstrip("=").replace("+", "-").replace("/", "_")


def _from_text(token: str) -> bytes:
    return a2b_base64(token.replace("-", "+").replace("_", "/") + "=" * (-len(token) % 4))
