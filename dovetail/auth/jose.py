"""Signed tokens (JWS, RFC 7515). This is the only module that uses the JOSE library.

Only asymmetric signatures are supported. `none` and the HMAC algorithms are never accepted, so a
public key can never be used as a shared secret. The key type determines which algorithms are
possible, and the caller decides which of them to accept.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Mapping
from functools import cache
from hashlib import sha256
from typing import Any

import msgspec

from ..errors import ConfigError, missing_extra
from .wire import decode_object

ALGORITHMS = (
    "ES256", "ES384", "ES512", "Ed25519", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384",
    "RS512",
)  # fmt: skip
"""The supported algorithms: RFC 7518, 3.1; RFC 8037; RFC 9864."""
MAX_TOKEN_LENGTH = 16 * 1024
"""In characters. The maximum length of a token. Longer tokens are not parsed."""
PRIVATE_MEMBERS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
"""The JWK members that must stay private."""
RSA_MODULUS_LENGTHS = (2048 // 6, 8192 // 6 + 1)
"""The minimum and maximum length of an RSA `n` in base64. A shorter key is weak, and a longer key
takes too much CPU time."""
MAX_RSA_EXPONENT_LENGTH = 6
"""The maximum length of an RSA `e` in base64 (32 bits). A longer exponent takes too much CPU
time."""


class InvalidJwt(ValueError):
    """Raised if a token is malformed or not signed with the expected key.

    The message is a lower-case phrase that completes a sentence and contains no part of the token.
    """


_KEY_TYPES: Mapping[str, Any] = {"ES": "EC", "RS": "RSA", "PS": "RSA", "Ed": "OKP"}


def generate_key() -> dict[str, Any]:
    """Return a new ES256 key as a JWK, including its private members."""
    key: dict[str, Any] = _library("jwk").generate_key("EC", "P-256").as_dict(private=True)
    return key


def load_key(jwk: Mapping[str, Any]) -> Any:
    """Import a JWK. Raises InvalidJwt if the key is malformed, too weak or too long."""
    modulus = jwk.get("n")
    if (
        isinstance(modulus, str)
        and not RSA_MODULUS_LENGTHS[0] <= len(modulus) <= RSA_MODULUS_LENGTHS[1]
    ):
        raise InvalidJwt("the RSA key must have between 2048 and 8192 bits")
    if isinstance(exponent := jwk.get("e"), str) and len(exponent) > MAX_RSA_EXPONENT_LENGTH:
        raise InvalidJwt("the exponent of the RSA key is longer than 32 bits")
    library = _library("jwk")
    try:
        return library.import_key(
            {name: value for name, value in jwk.items() if name not in ("alg", "use", "key_ops")}
        )
    except Exception:
        raise InvalidJwt("the key cannot be parsed") from None


def load_private_key(pem: str | bytes, algorithm: str) -> Any:
    """Import a PEM private key for this algorithm. Raises ConfigError if the key cannot be used."""
    kind = _KEY_TYPES.get(algorithm[:2])
    if kind is None:
        raise ConfigError(f"algorithm={algorithm!r} is not supported. Use ES256.")
    library = _library("jwk")
    try:
        key = library.import_key(pem, kind)
    except Exception:  # the library's message may contain parts of the key
        key = None
    if key is None or not key.is_private:
        raise ConfigError(
            f"private_key is not a private key for {algorithm}. Pass the key as PEM, with its "
            "BEGIN and END lines."
        )
    return key


def load_public_pem(pem: str | bytes, algorithm: str) -> dict[str, Any]:
    """Return a PEM public key for this algorithm as a JWK. Raises ConfigError if the key cannot be
    used."""
    try:
        key = _library("jwk").import_key(pem, _KEY_TYPES[algorithm[:2]])
        return public_jwk(key.as_dict())
    except Exception:
        raise ConfigError(
            f"This is not a public key for {algorithm}. Pass the key as PEM, with its BEGIN and "
            "END lines."
        ) from None


def public_jwk(jwk: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JWK without its private members."""
    return {name: value for name, value in jwk.items() if name not in PRIVATE_MEMBERS}


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """Return the SHA-256 thumbprint of a key (RFC 7638)."""
    found: str = load_key(public_jwk(jwk)).thumbprint()
    return found


def s256(text: str) -> str:
    """Return the base64url-encoded SHA-256 digest of a text, for a PKCE code challenge (RFC 7636,
    4.2) or the `ath` claim of a DPoP proof (RFC 9449, 4.2)."""
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()


def sign(header: Mapping[str, Any], claims: Mapping[str, Any], key: Any) -> str:
    """Return a signed token. The header names the algorithm, and the key must already be loaded."""
    serialize = _library("jws").serialize_compact
    payload = msgspec.json.encode(claims)
    token: str = serialize(dict(header), payload, key, registry=_registry(header["alg"]))
    return token


def decode_unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and claims of a token without checking its signature. Raises InvalidJwt."""
    header, _, rest = token.partition(".")
    body, dot, _ = rest.partition(".")
    if len(token) > MAX_TOKEN_LENGTH or not dot:
        raise InvalidJwt("this is not a signed token")
    return _decode_part(header), _decode_part(body)


def verify(
    token: str, key: Any, algorithms: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Verify a token and return its header and claims. Raises InvalidJwt.

    Args:
        token: The token in compact form.
        key: A loaded key, or a function that receives the header and returns a loaded key.
        algorithms: The algorithms to accept.
    """
    if len(token) > MAX_TOKEN_LENGTH:
        raise InvalidJwt(f"the token is longer than {MAX_TOKEN_LENGTH} characters")
    header, _ = decode_unverified(token)
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in algorithms or algorithm not in ALGORITHMS:
        raise InvalidJwt("the signature algorithm is not accepted")
    if "crit" in header:  # RFC 7515, 4.1.11: no critical extension is supported
        raise InvalidJwt("the token requires extensions that are not supported")
    loaded = key(header) if callable(key) else key
    try:
        signed = _library("jws").deserialize_compact(token, loaded, registry=_registry(algorithm))
    except Exception:  # the token is untrusted, so the library may raise anything
        raise InvalidJwt("the signature is not valid") from None
    return header, _decode_payload(signed.payload)


def require_library() -> None:
    """Without importing the library, raise ConfigError if it is not installed."""
    from importlib.util import find_spec

    if find_spec("joserfc") is None:
        raise missing_extra("Signing or verifying a token", "auth")


def _decode_part(part: str) -> dict[str, Any]:
    try:
        raw = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        raise InvalidJwt("this is not a signed token") from None
    return _decode_payload(raw)


def _decode_payload(raw: bytes) -> dict[str, Any]:
    found = decode_object(raw)
    if found is None:
        raise InvalidJwt("this is not a signed token")
    return found


@cache
def _registry(algorithm: str) -> Any:
    """Return the library's settings for one algorithm.

    Headers may contain an entire key, and members that Dovetail does not know.
    """
    registry = _library("jws").JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_header_length = MAX_TOKEN_LENGTH
    return registry


def _library(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(f"joserfc.{module}")
    except ImportError:
        raise missing_extra("Signing or verifying a token", "auth") from None
