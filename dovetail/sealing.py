"""Tokens that only this server can have made: session ids, cursors, the state of a question.

A token is `kind | nonce | body | tag`, in the URL-safe base64 that a header can carry. Two kinds
exist, told apart by the first byte. *Encrypted* is AES-GCM, wherever `cryptography` is installed.
*Signed* is keyed BLAKE2b, for the bare install: its body can be read by whoever holds it, but not
made or changed; `ring.encrypts` says which kind a ring makes.

From each secret comes one key for every kind and purpose, so a token of one purpose or kind never
opens as another, and what is sealed may be `bound` to something that is not in it (a user, a
request) and has to be there again when it is opened. As both kinds are equally hard to forge, a
ring that encrypts opens signed tokens too: what they show was shown when they were made, and a
fleet may be upgraded machine by machine. The other way round nothing can be read, and the token is
refused.

The first key seals and all keys open; a key is changed by putting the new one in front, and
dropping the old one when the last of its tokens has expired. Nonces are random, which bounds a key
to about 2^32 tokens of one purpose.

There is exactly one spelling of a token: a list of revoked ones cannot be evaded by writing one
differently.
"""

import os
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Literal, Protocol, TypeAlias

from .errors import ConfigError

ENCRYPTED, SIGNED = 1, 2
NONCE = 12
TAG = 16
SHORTEST = 16
VARIABLE = "DOVETAIL_KEYS"

Key: TypeAlias = str | bytes
Origin: TypeAlias = Literal["configured", "environment", "process"]


class Forged(ValueError):
    """Not a token of this server, or not for this use. Which of them is never said."""

    def __init__(self) -> None:
        super().__init__("not a valid token")


class Cipher(Protocol):
    """What AESGCM is, seen from here."""

    def encrypt(self, nonce: bytes, data: bytes, bound: bytes, /) -> bytes:
        """The body and its tag."""

    def decrypt(self, nonce: bytes, sealed: bytes, bound: bytes, /) -> bytes:
        """The data again; raises where anything was changed."""


class _Signed:
    """Leaves the data readable and adds a tag."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def _tag(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        # The length keeps the end of `bound` and the start of `data` apart.
        return blake2b(
            b"".join((nonce, len(bound).to_bytes(8), bound, data)), digest_size=TAG, key=self._key
        ).digest()

    def encrypt(self, nonce: bytes, data: bytes, bound: bytes, /) -> bytes:
        return data + self._tag(nonce, data, bound)

    def decrypt(self, nonce: bytes, sealed: bytes, bound: bytes, /) -> bytes:
        data = sealed[:-TAG]
        if not compare_digest(sealed[-TAG:], self._tag(nonce, data, bound)):
            raise Forged
        return data


class KeyRing:
    """Seals bytes into tokens and opens them again. Purposes are words of the program, never of a
    request."""

    __slots__ = ("_ciphers", "_kinds", "_refusals", "_roots", "origin")

    def __init__(self, secrets: Sequence[bytes], origin: Origin = "configured") -> None:
        self.origin = origin
        """Where the keys are from: with "process", only this process and its children share
        them."""
        self._roots = [blake2b(secret, person=b"dovetail root").digest() for secret in secrets]
        self._ciphers: dict[tuple[int, str], list[Cipher]] = {}
        self._kinds: dict[int, Callable[[bytes], Cipher]] = {}
        self._refusals: tuple[type[Exception], ...] = (Forged,)

    @property
    def encrypts(self) -> bool:
        """Whether tokens hide what is in them. The first call loads `cryptography`, where it is
        installed."""
        return ENCRYPTED in (self._kinds or self._load())

    def seal(self, purpose: str, data: bytes, *, bound: bytes = b"") -> str:
        """A token for these bytes. No two are alike, even for the same bytes."""
        kind = ENCRYPTED if self.encrypts else SIGNED
        nonce = os.urandom(NONCE)
        cipher = (self._ciphers.get((kind, purpose)) or self._derive(kind, purpose))[0]
        return _spell(b"%c%b%b" % (kind, nonce, cipher.encrypt(nonce, data, bound)))

    def open(self, purpose: str, token: str, *, bound: bytes = b"") -> bytes:
        """The bytes that were sealed for this purpose and bound to this; raises Forged for any
        other token."""
        try:
            raw = _read(token)
        except ValueError:
            raise Forged from None
        if (
            len(raw) <= NONCE + TAG or _spell(raw) != token
        ):  # the decoder skips what it does not know
            raise Forged
        nonce, sealed = raw[1 : 1 + NONCE], raw[1 + NONCE :]
        for cipher in self._ciphers.get((raw[0], purpose)) or self._derive(raw[0], purpose):
            try:
                return cipher.decrypt(nonce, sealed, bound)
            except self._refusals:
                continue  # another key of the ring, perhaps
        raise Forged

    def _derive(self, kind: int, purpose: str) -> list[Cipher]:
        make = (self._kinds or self._load()).get(kind)
        if make is None:
            return []
        label = b"%c%b" % (kind, purpose.encode())
        keys = (
            blake2b(label, digest_size=32, key=root, person=b"dovetail seal").digest()
            for root in self._roots
        )
        ciphers = self._ciphers[kind, purpose] = [make(key) for key in keys]
        return ciphers

    def _load(self) -> dict[int, Callable[[bytes], Cipher]]:
        kinds: dict[int, Callable[[bytes], Cipher]] = {SIGNED: _Signed}
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            pass
        else:
            kinds[ENCRYPTED] = AESGCM
            self._refusals = (Forged, InvalidTag)
        self._kinds = kinds
        return kinds


def key_ring(keys: Sequence[Key] | None = None) -> KeyRing:
    """The ring of these keys, else of those in the environment, else of one that the processes of
    this program share."""
    if keys is not None:
        return KeyRing(
            _secrets([keys] if isinstance(keys, str | bytes) else keys, "the keys"), "configured"
        )
    given = [key.strip() for key in os.environ.get(VARIABLE, "").split(",")]
    if any(given):
        return KeyRing(_secrets([key for key in given if key], VARIABLE), "environment")
    from multiprocessing import current_process

    return KeyRing([bytes(current_process().authkey)], "process")


def _secrets(keys: Sequence[Key], where: str) -> list[bytes]:
    remedy = 'make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
    if not keys:
        raise ConfigError(f"{where}: at least one is needed; {remedy}")
    for place, key in enumerate(keys, 1):
        if len(key) < SHORTEST:
            raise ConfigError(
                f"{where}: key {place} has {len(key)} characters, at least {SHORTEST} are "
                f"needed; {remedy}"
            )
    return [key if isinstance(key, bytes) else os.fsencode(key) for key in keys]


def _spell(raw: bytes) -> str:
    return b2a_base64(raw, newline=False).decode().rstrip("=").replace("+", "-").replace("/", "_")


def _read(token: str) -> bytes:
    return a2b_base64(token.replace("-", "+").replace("_", "/") + "=" * (-len(token) % 4))
