"""Signed tokens (JWS, RFC 7515), behind one door: the rest of this folder knows neither the library
nor its exceptions.

Only signatures with a key pair are spoken. `none` and the HMACs are in no list here, so a public
key can never be taken for a shared secret. A key says by its type which algorithms it fits, and the
caller says which it takes at all.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Mapping
from functools import cache
from hashlib import sha256
from typing import Any, Final

import msgspec

from ..errors import missing_extra

ALGORITHMS: Final = (
    "ES256", "ES384", "ES512", "Ed25519", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384",
    "RS512",
)  # fmt: skip
"""All that are spoken; RFC 7518, 3.1, RFC 8037 and RFC 9864."""
MAX_TOKEN_LENGTH: Final = 16 * 1024
"""Characters of a token; a longer one is not looked at."""
PRIVATE_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
"""The members of a key that only its owner may have."""
RSA_MODULUS_LENGTHS: Final = (2048 // 6, 8192 // 6 + 1)
"""How long the `n` of an RSA key may be in base64: shorter is weak, longer keeps us busy."""
MAX_RSA_EXPONENT_LENGTH: Final = 6
"""How long its `e` may be: 32 bits and more than anybody uses; what is longer keeps us busy too."""
_KEY_TYPES: Final = {
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "RS256": ("RSA", 2048),
}


class InvalidJwt(ValueError):
    """Not a token that was signed by the key in question; the text says why, and holds nothing of
    the token."""


def generate_key(algorithm: str = "ES256") -> dict[str, Any]:
    """A new key for this algorithm, as a JWK with its private parts."""
    kind, size = _KEY_TYPES.get(algorithm, ("OKP", "Ed25519"))
    key: dict[str, Any] = _library("jwk").generate_key(kind, size).as_dict(private=True)
    return key


def load_key(jwk: Mapping[str, Any]) -> Any:
    """A key, ready for use; Unverified where it is none, or too weak or too long to be used."""
    modulus = jwk.get("n")
    if (
        isinstance(modulus, str)
        and not RSA_MODULUS_LENGTHS[0] <= len(modulus) <= RSA_MODULUS_LENGTHS[1]
    ):
        raise InvalidJwt("its RSA key has not between 2048 and 8192 bits")
    if isinstance(exponent := jwk.get("e"), str) and len(exponent) > MAX_RSA_EXPONENT_LENGTH:
        raise InvalidJwt("the exponent of its RSA key is longer than 32 bits")
    library = _library("jwk")
    try:
        return library.import_key(
            {name: value for name, value in jwk.items() if name not in ("alg", "use", "key_ops")}
        )
    except Exception:
        raise InvalidJwt("its key cannot be read") from None


def public_jwk(jwk: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a key that everybody may see."""
    return {name: value for name, value in jwk.items() if name not in PRIVATE_MEMBERS}


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """What a key is known by: RFC 7638, with SHA-256."""
    found: str = load_key(public_jwk(jwk)).thumbprint()
    return found


def s256(text: str) -> str:
    """Return the SHA-256 of a text in base64url: a PKCE code challenge (RFC 7636, 4.2), or the
    `ath` of a DPoP proof (RFC 9449, 4.2)."""
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()


def sign(header: Mapping[str, Any], claims: Mapping[str, Any], key: Any) -> str:
    """A signed token. The header names the algorithm, the key is a loaded one."""
    signer = _library("jws").serialize_compact
    made: str = signer(
        dict(header), msgspec.json.encode(claims), key, registry=_registry(header["alg"])
    )
    return made


def decode_unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a token says of itself, before anybody knows whether it is true; Unverified where it
    says nothing."""
    head, _, rest = token.partition(".")
    body, dot, _ = rest.partition(".")
    if len(token) > MAX_TOKEN_LENGTH or not dot:
        raise InvalidJwt("it is no signed token")
    return decode_payload(_decoded(head)), decode_payload(_decoded(body))


def verify(
    token: str, key: Any, algorithms: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of a token that was signed by this key, or by the one that a function finds
    for its header; Unverified for any other."""
    if len(token) > MAX_TOKEN_LENGTH:
        raise InvalidJwt(f"it is longer than {MAX_TOKEN_LENGTH} characters")
    header, _ = decode_unverified(token)
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in algorithms or algorithm not in ALGORITHMS:
        raise InvalidJwt("its algorithm is not one that is taken here")
    if "crit" in header:  # RFC 7515, 4.1.11: we know none of what it may name
        raise InvalidJwt("it demands extensions that are not known here")
    found = key(header) if callable(key) else key
    try:
        signed = _library("jws").deserialize_compact(token, found, registry=_registry(algorithm))
    except Exception:  # whatever the library makes of what a stranger sent
        raise InvalidJwt("its signature does not fit") from None
    return header, decode_payload(signed.payload)


def decode_payload(raw: bytes) -> dict[str, Any]:
    """The JSON object in these bytes; Unverified where there is none."""
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidJwt("it is no signed token")
    return found


def _decoded(part: str) -> bytes:
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        raise InvalidJwt("it is no signed token") from None


@cache
def _registry(algorithm: str) -> Any:
    """What the library takes for one algorithm. Headers may be as long as a key in them is, and say
    what we do not know."""
    taken = _library("jws").JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    taken.max_header_length = MAX_TOKEN_LENGTH
    return taken


def require_library() -> None:
    """Complain now rather than at the first token, without loading anything."""
    from importlib.util import find_spec

    if find_spec("joserfc") is None:
        raise missing_extra("Signing or verifying a token", "auth")


def _library(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(f"joserfc.{module}")
    except ImportError:
        raise missing_extra("Signing or verifying a token", "auth") from None
