"""Proof of possession (DPoP, RFC 9449), both sides: a token that is of no use to whoever stole it.

The client has a key and signs each request: which method, which URL, when, and with which access
token. The token itself names the key's thumbprint (`cnf.jkt`). A proof is good once and not for
long: the server remembers the `jti` of those it took until they are too old to be taken anyway.
That memory is bounded; where it overflows, the proofs that are as old as what it lost are refused,
so that nothing is ever taken twice.

A server may also want a nonce of its own in each proof, so that none can be made ahead of time.
Ours is the time of day, sealed: any process with the keys knows it again, and a new one is handed
out when the old one is half through its life.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Any, Final
from urllib.parse import urlsplit

from ..net import split_origin
from ..ports import HttpResponse
from ..sealing import Forged, KeyRing
from . import jose
from .challenges import read_requirements
from .documents import ErrorReply, read_document
from .urls import origin, to_http_scheme

PROOF_TYPE: Final = "dpop+jwt"
NONCE_PURPOSE: Final = "dpop nonce"
PROOF_ALGORITHMS: Final = ("ES256", "ES384", "Ed25519", "EdDSA", "PS256", "RS256")


class ProofRefused(ValueError):
    """A proof that is not taken, and why. `nonce`: one with the server's nonce in it would be."""

    def __init__(self, reason: str, *, nonce: bool = False) -> None:
        super().__init__(reason)
        self.nonce = nonce


class DpopSigner:
    """A client's key, and the proofs that it makes. Without a key of before, there is a new one."""

    def __init__(self, key: Mapping[str, Any] | None = None, algorithm: str = "ES256") -> None:
        self.jwk: dict[str, Any] = dict(key) if key is not None else jose.generate_key(algorithm)
        """The key, private parts and all: to be kept where tokens are kept."""
        self.algorithm = algorithm
        self.thumbprint = jose.thumbprint(self.jwk)
        self._key = jose.load_key(self.jwk)
        self._header = {"typ": PROOF_TYPE, "alg": algorithm, "jwk": jose.public_jwk(self.jwk)}

    def __repr__(self) -> str:
        return f"Prover({self.thumbprint!r})"

    def proof(
        self, method: str, url: str, access_token: str | None = None, nonce: str | None = None
    ) -> str:
        """The `DPoP` header for one request; no two are alike."""
        claims: dict[str, Any] = {
            "jti": token_urlsafe(16),
            "htm": method,
            "htu": url.partition("#")[0].partition("?")[0],
            "iat": int(time.time()),
        }
        if access_token is not None:
            claims["ath"] = jose.s256(access_token)
        if nonce is not None:
            claims["nonce"] = nonce
        return jose.sign(self._header, claims, self._key)


class Checker:
    """A server's judgement of proofs. `required` is for its owner: whether tokens without a key are
    refused."""

    def __init__(
        self,
        *,
        required: bool = False,
        nonces: bool = False,
        algorithms: Collection[str] = PROOF_ALGORITHMS,
        window: float = 60.0,
        remembered: int = 100_000,
    ) -> None:
        self.required, self.nonces, self.algorithms = required, nonces, tuple(algorithms)
        self._window, self._remembered = window, remembered
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        """When the proofs were made that were taken lately, the one that was taken first at the
        front."""
        self._floor = 0.0
        """Proofs made before this may have been taken already."""
        self._nonce = ("", 0.0)
        self._lock = threading.Lock()

    def nonce(self, ring: KeyRing) -> str:
        """What the next proof is to have in it."""
        nonce, made = self._nonce
        now = time.time()
        if not 0 <= now - made < self._window / 2:
            self._nonce = nonce, _ = ring.seal(NONCE_PURPOSE, int(now).to_bytes(8)), now
        return nonce

    def check(
        self,
        proof: str | None,
        method: str,
        url: str,
        *,
        ring: KeyRing,
        access_token: str | None = None,
        thumbprint: str | None = None,
    ) -> str:
        """The thumbprint of the key behind a proof for this request; ProofRefused where it proves
        nothing. With an access token, the proof has to be for that very one, and by the key that
        the token is bound to."""
        if not proof:
            raise ProofRefused("there is no DPoP header")
        header, claims = self._verified(proof)
        now = time.time()
        made = claims.get("iat")
        if claims.get("htm") != method:
            raise ProofRefused("it is for another method")
        if not is_same_url(claims.get("htu"), url):
            raise ProofRefused(
                "it is for another URL than this server goes by; the server may have to say "
                "public_url="
            )
        if (
            not isinstance(made, int | float)
            or not now - self._window <= made <= now + self._window
        ):
            raise ProofRefused(f"its iat is not within {self._window:g} s of this server's clock")
        if access_token is not None and not _equal(claims.get("ath"), jose.s256(access_token)):
            raise ProofRefused("it is for another access token")
        found = jose.thumbprint(header["jwk"])
        if thumbprint is not None and not compare_digest(found, thumbprint):
            raise ProofRefused("it is by another key than the access token is bound to")
        if self.nonces and not self._timely(claims.get("nonce"), ring, now):
            raise ProofRefused("it needs the nonce of this server", nonce=True)
        self._take(claims.get("jti"), found, float(made), now)
        return found

    def _verified(self, proof: str) -> tuple[dict[str, Any], dict[str, Any]]:
        def key(header: Mapping[str, Any]) -> Any:
            jwk = header.get("jwk")
            if not isinstance(jwk, dict) or jose.PRIVATE_MEMBERS & jwk.keys():
                raise jose.InvalidJwt("its header has no public key")
            return jose.load_key(jwk)

        try:
            header, claims = jose.verify(proof, key, self.algorithms)
        except jose.InvalidJwt as problem:
            raise ProofRefused(str(problem)) from None
        if str(header.get("typ")).lower() != PROOF_TYPE:
            raise ProofRefused(f"its typ is not {PROOF_TYPE}")
        return header, claims

    def _timely(self, nonce: Any, ring: KeyRing, now: float) -> bool:
        if not isinstance(nonce, str):
            return False
        try:
            made = int.from_bytes(ring.open(NONCE_PURPOSE, nonce))
        except Forged:
            return False
        return made - 1 <= now <= made + 2 * self._window

    def _take(self, jti: Any, thumbprint: str, made: float, now: float) -> None:
        """Take a proof, which can be done once."""
        if not isinstance(jti, str) or not jti:
            raise ProofRefused("it has no jti")
        key, seen = (
            sha256(f"{thumbprint} {jti}".encode("utf-8", "surrogatepass")).digest(),
            self._seen,
        )
        with self._lock:
            self._forget(now)
            if key in seen or made <= self._floor:
                raise ProofRefused("it was used before; make a new one for each request")
            seen[key] = made

    def _forget(self, now: float) -> None:
        """Make room, of what is too old to be taken again, else of what was taken first."""
        seen = self._seen
        while seen and (
            next(iter(seen.values())) < now - self._window or len(seen) >= self._remembered
        ):
            _, lost = seen.popitem(last=False)
            self._floor = max(
                self._floor, min(lost, now)
            )  # also of what is too old: a clock may be put back


def is_same_url(claimed: Any, url: str) -> bool:
    """Whether two URLs are the same but for query and fragment: RFC 9449, 4.3, as far as spelling
    goes."""
    try:
        return isinstance(claimed, str) and _place(claimed) == _place(url)
    except ValueError:
        return False


def _place(url: str) -> tuple[str, str, int, str]:
    return *split_origin(url), urlsplit(url).path or "/"


def _equal(claimed: Any, wanted: str) -> bool:
    return isinstance(claimed, str) and compare_digest(claimed.encode(), wanted.encode())


# --- merged from proofs.py (integrate, then remove this comment)
# A client's side of DPoP: its key, made when first needed, and the nonces that servers want in the
# proofs.
#
# A nonce holds for the origin it came from (https://www.rfc-editor.org/rfc/rfc9449#section-8.2),
# until the next one comes. A request that was refused for want of one is made again with a fresh
# proof, once.

MAX_ORIGINS = 16
MAX_NONCE_LENGTH = 1024
NONCE_NEEDED = "use_dpop_nonce"


class DpopClient:
    """One key, and what each origin wants to see in its proofs."""

    __slots__ = ("_jwk", "_nonces", "_prover")

    def __init__(self) -> None:
        self._jwk: dict[str, Any] | None = None
        self._prover: DpopSigner | None = None
        self._nonces: dict[str, str] = {}

    @property
    def jwk(self) -> dict[str, Any] | None:
        """The key, private parts and all; None while there is none."""
        return self._jwk if self._prover is None else self._prover.jwk

    def adopt(self, jwk: dict[str, Any] | None) -> None:
        """Go on with the key of before, if there was one."""
        if jwk is not None and jwk != self.jwk:
            self._jwk, self._prover = jwk, None

    def header(self, method: str, url: str, access_token: str | None = None) -> str:
        """A proof for this request, good once."""
        return self.prover().proof(
            method, to_http_scheme(url), access_token, self._nonces.get(origin(url))
        )

    def prover(self) -> "DpopSigner":
        """What makes proofs, with the key of before or a new one; ConfigError where none can be
        made."""
        if self._prover is None:
            self._prover = DpopSigner(self._jwk)
        return self._prover

    def heard(self, url: str, answer: HttpResponse) -> bool:
        """Remember the nonce of an answer; whether there is one."""
        nonce, home = answer.headers.get("dpop-nonce", ""), origin(url)
        if not 0 < len(nonce) <= MAX_NONCE_LENGTH:
            return False
        self._nonces.pop(home, None)
        self._nonces[home] = nonce
        if len(self._nonces) > MAX_ORIGINS:
            del self._nonces[next(iter(self._nonces))]
        return True

    def wanted(self, url: str, answer: HttpResponse) -> bool:
        """Whether this refusal only wants a nonce, and brought one along."""
        if not self.heard(url, answer) or answer.status not in (400, 401):
            return False
        refusal = read_document(answer.body, ErrorReply)
        return read_requirements(answer).error == NONCE_NEEDED or (
            refusal is not None and refusal.error == NONCE_NEEDED
        )
