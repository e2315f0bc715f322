"""Proof of possession (DPoP, RFC 9449) for clients and servers, which makes a stolen token useless.

For each request, the client signs the method, the URL, the time and the access token with its key.
The token itself contains the thumbprint of the key (`cnf.jkt`). A proof is valid only once and for
a short time. The server remembers the `jti` of each accepted proof until the proof is too old to be
accepted again. The number of remembered proofs is limited. If the limit is exceeded, proofs as old
as the forgotten ones are refused, so no proof is ever accepted twice. If the processes of a server
share a backend, they remember the proofs there. A proof that cannot be looked up is not accepted.

A server may also require its own nonce in each proof, so that proofs cannot be made in advance.
This server's nonce is the sealed current time. Every process with the same keys recognises the
nonce, which is replaced after half of the `Checker`'s `window`.

A client generates its key when it is first needed. The client stores the latest nonce from each
origin (https://www.rfc-editor.org/rfc/rfc9449#section-8.2). A request that was refused only because
it lacked a nonce is sent one more time, with a new proof.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..aio import LruDict
from ..net import split_origin
from ..ports import HttpResponse
from ..sealing import Forged, KeyRing
from . import jose
from .urls import origin, to_http_scheme
from .wire import ErrorReply, read_document, read_requirements

if TYPE_CHECKING:
    from ..backend.protocols import Rows

PROOF_TYPE = "dpop+jwt"
NONCE_PURPOSE = "dpop nonce"
PROOF_ALGORITHMS = ("ES256", "ES384", "Ed25519", "EdDSA", "PS256", "RS256")
MAX_ORIGINS = 16
MAX_NONCE_LENGTH = 1024
NONCE_NEEDED = "use_dpop_nonce"


class ProofRefused(ValueError):
    """Raised if a proof is not accepted. The message gives the reason.

    Attributes:
        nonce: Whether the proof was refused only because it lacked this server's nonce.
        code: The OAuth error code (RFC 9449, 7.1 and 8).
    """

    def __init__(self, reason: str, *, nonce: bool = False) -> None:
        super().__init__(reason)
        self.nonce = nonce
        self.code = NONCE_NEEDED if nonce else "invalid_dpop_proof"


class DpopSigner:
    """Signs proofs with a key. Generates the key if none is given."""

    def __init__(self, key: dict[str, Any] | None = None) -> None:
        self.jwk = key or jose.generate_key()
        """The key, including its private members. Store it together with the tokens."""
        self.thumbprint = jose.thumbprint(self.jwk)
        self._key = jose.load_key(self.jwk)
        self._header = {"typ": PROOF_TYPE, "alg": "ES256", "jwk": jose.public_jwk(self.jwk)}

    def proof(
        self, method: str, url: str, access_token: str | None = None, nonce: str | None = None
    ) -> str:
        """Return a new proof, which is the value of the `DPoP` header for one request."""
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


class DpopClient:
    """A client's key, and the nonce that each origin expects in proofs."""

    def __init__(self) -> None:
        self._jwk: dict[str, Any] | None = None
        self._signer: DpopSigner | None = None
        self._nonces: LruDict[str, str] = LruDict(MAX_ORIGINS)

    @property
    def jwk(self) -> dict[str, Any] | None:
        """The key, including its private members, or None if there is no key yet."""
        return self._jwk if self._signer is None else self._signer.jwk

    def use_key(self, jwk: dict[str, Any] | None) -> None:
        """Use a stored key, or keep the current key if `jwk` is None."""
        if jwk is not None and jwk != self.jwk:
            self._jwk, self._signer = jwk, None

    def proof_header(self, method: str, url: str, access_token: str | None = None) -> str:
        """Return a proof for one request, with the nonce that its origin expects."""
        nonce = self._nonces.get(origin(url))
        return self.signer().proof(method, to_http_scheme(url), access_token, nonce)

    def signer(self) -> DpopSigner:
        """Return the signer. Generates a key if none was stored. Raises ConfigError if the library
        is not installed."""
        if self._signer is None:
            self._signer = DpopSigner(self._jwk)
        return self._signer

    def remember_nonce(self, url: str, answer: HttpResponse) -> bool:
        """Remember the nonce in a response. Returns False if the response has none."""
        nonce = answer.headers.get("dpop-nonce", "")
        if not 0 < len(nonce) <= MAX_NONCE_LENGTH:
            return False
        self._nonces[origin(url)] = nonce
        return True

    def should_retry(self, url: str, answer: HttpResponse) -> bool:
        """Return whether the response contains a nonce and refuses the request only because it
        lacked one."""
        if not self.remember_nonce(url, answer) or answer.status not in (400, 401):
            return False
        reply = read_document(answer.body, ErrorReply)
        return NONCE_NEEDED in (read_requirements(answer).error, reply and reply.error)


class Checker:
    """Checks the DPoP proofs that a server receives: `Bearer(…, dpop=Checker(nonces=True))`.

    Args:
        required: Whether to refuse access tokens that are not bound to a key (default: False).
        nonces: Whether each proof must contain a nonce from this server, so that proofs cannot be
            made in advance (default: False).
        algorithms: The signature algorithms to accept.
        window: How far a proof's time may be from this server's time in either direction, in
            seconds (default: 60).
        remembered: How many accepted proofs to remember (default: 100,000). If more proofs arrive
            within the window, the oldest ones are refused rather than accepted twice. A shared
            backend remembers all of them.
    """

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
        """The creation time of each accepted proof, in order of acceptance."""
        self._floor = 0.0
        """Proofs made before this time may have been accepted already."""
        self._nonce = ("", 0.0)
        self._lock = threading.Lock()
        self._rows: Rows | None = None

    def use_rows(self, rows: "Rows") -> None:
        """Remember proofs together with other processes.

        Args:
            rows: The rows that the processes share.
        """
        self._rows = rows

    def nonce(self, ring: KeyRing) -> str:
        """Return the nonce that the next proof should contain.

        Args:
            ring: The server's keys, which seal the nonces.
        """
        nonce, issued_at = self._nonce
        now = time.time()
        if not 0 <= now - issued_at < self._window / 2:
            self._nonce = nonce, _ = ring.seal(NONCE_PURPOSE, int(now).to_bytes(8)), now
        return nonce

    async def check(
        self,
        proof: str | None,
        method: str,
        url: str,
        *,
        ring: KeyRing,
        access_token: str | None = None,
        thumbprint: str | None = None,
    ) -> str:
        """Check the proof of a request and remember it, so that it cannot be used again.

        Args:
            proof: The `DPoP` header, or None if there is none.
            method: The method of the request.
            url: The URL of the request; its query is ignored.
            ring: The server's keys, which seal the nonces.
            access_token: The token that the proof must be for (default: any).
            thumbprint: The thumbprint of the key that must have signed the proof (default: any).

        Returns:
            The thumbprint of the key that signed the proof.

        Raises:
            ProofRefused: The proof is missing, invalid, too old or already used.
            BackendAway: The server cannot find out whether the proof was already used.
        """
        if not proof:
            raise ProofRefused("the DPoP header is missing")
        header, claims = self._verify(proof)
        now = time.time()
        issued_at = claims.get("iat")
        if claims.get("htm") != method:
            raise ProofRefused("the method (htm) does not match")
        if not is_same_url(claims.get("htu"), url):
            raise ProofRefused(
                "the URL (htu) does not match; if the client used the correct URL, set "
                "public_url= on "
                "the server"
            )
        if (
            not isinstance(issued_at, int | float)
            or not now - self._window <= issued_at <= now + self._window
        ):
            raise ProofRefused(
                f"the issue time (iat) is not within {self._window:g} s of this server's clock"
            )
        if access_token is not None and not _equal(claims.get("ath"), jose.s256(access_token)):
            raise ProofRefused("the proof is for a different access token")
        found = jose.thumbprint(header["jwk"])
        if thumbprint is not None and not compare_digest(found, thumbprint):
            raise ProofRefused(
                "the proof is not signed with the key that the access token is bound to"
            )
        if self.nonces and not self._is_current(claims.get("nonce"), ring, now):
            raise ProofRefused("the proof must contain this server's nonce", nonce=True)
        await self._accept_once(claims.get("jti"), found, float(issued_at), now)
        return found

    def _verify(self, proof: str) -> tuple[dict[str, Any], dict[str, Any]]:
        def key(header: Mapping[str, Any]) -> Any:
            jwk = header.get("jwk")
            if not isinstance(jwk, dict) or jose.PRIVATE_MEMBERS & jwk.keys():
                raise jose.InvalidJwt("the header has no public key")
            return jose.load_key(jwk)

        try:
            header, claims = jose.verify(proof, key, self.algorithms)
        except jose.InvalidJwt as error:
            raise ProofRefused(str(error)) from None
        if str(header.get("typ")).lower() != PROOF_TYPE:
            raise ProofRefused(f"the typ header is not {PROOF_TYPE}")
        return header, claims

    def _is_current(self, nonce: Any, ring: KeyRing, now: float) -> bool:
        if not isinstance(nonce, str):
            return False
        try:
            issued_at = int.from_bytes(ring.open(NONCE_PURPOSE, nonce))
        except Forged:
            return False
        return issued_at - 1 <= now <= issued_at + 2 * self._window

    async def _accept_once(self, jti: Any, thumbprint: str, issued_at: float, now: float) -> None:
        if not isinstance(jti, str) or not jti:
            raise ProofRefused("the jti claim is missing")
        key = sha256(f"{thumbprint} {jti}".encode("utf-8", "surrogatepass"))
        if not (
            self._remember(key.digest(), issued_at, now)
            if self._rows is None
            else await self._rows.add(key.hexdigest(), b"", self._shared_life(issued_at, now))
        ):
            raise ProofRefused("the proof was already used; create a new proof for each request")

    def _shared_life(self, issued_at: float, now: float) -> float:
        """Return how long other processes have to remember a proof, in seconds. By this process's
        clock, the proof is too old one window after its creation. Another process's clock may be
        two windows behind: if it were further behind, no client could reach both processes."""
        return issued_at + self._window - now + 2 * self._window

    def _remember(self, key: bytes, issued_at: float, now: float) -> bool:
        """Remember a proof in this process. Return False if it may have been used."""
        with self._lock:
            self._forget(now)
            if key in self._seen or issued_at <= self._floor:
                return False
            self._seen[key] = issued_at
            return True

    def _forget(self, now: float) -> None:
        """Forget the proofs that are too old to be accepted again, and then the oldest ones if too
        many remain."""
        seen = self._seen
        while seen and (
            next(iter(seen.values())) < now - self._window or len(seen) >= self._remembered
        ):
            _, lost = seen.popitem(last=False)
            # This includes proofs that are too old, as the clock may be set back.
            self._floor = max(self._floor, min(lost, now))


def is_same_url(claimed: Any, url: str) -> bool:
    """Return whether two URLs are equal, ignoring their queries and fragments (RFC 9449, 4.3)."""
    try:
        return isinstance(claimed, str) and _comparable(claimed) == _comparable(url)
    except ValueError:
        return False


def _comparable(url: str) -> tuple[str, str, int, str]:
    return *split_origin(url), urlsplit(url).path or "/"


def _equal(claimed: Any, expected: str) -> bool:
    return isinstance(claimed, str) and compare_digest(claimed.encode(), expected.encode())
