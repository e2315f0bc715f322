"""Proof Key for Code Exchange, S256 only: https://www.rfc-editor.org/rfc/rfc7636#section-4"""

from base64 import urlsafe_b64encode
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe


def verifier() -> str:
    """A secret for one login: 43 characters, as hard to guess as a key of 256 bits."""
    return token_urlsafe(32)


def challenge(verifier: str) -> str:
    """What may be seen of it."""
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def matches(verifier: str, shown: str) -> bool:
    """Whether this secret belongs to what was seen, as the authorization server asks."""
    return (
        43 <= len(verifier) <= 128
        and verifier.isascii()
        and compare_digest(challenge(verifier).encode(), shown.encode())
    )
