"""A client's side of DPoP: its key, made when first needed, and the nonces that servers want in the
proofs.

A nonce holds for the origin it came from (https://www.rfc-editor.org/rfc/rfc9449#section-8.2),
until the next one comes. A request that was refused for want of one is made again with a fresh
proof, once.
"""

from typing import TYPE_CHECKING, Any

from ..ports import HttpResponse
from .challenges import demand
from .documents import ErrorReply, read
from .urls import http_form, origin

if TYPE_CHECKING:
    from .dpop import Prover

ORIGINS = 16
LONGEST = 1024
WANTED = "use_dpop_nonce"


class Proofs:
    """One key, and what each origin wants to see in its proofs."""

    __slots__ = ("_jwk", "_nonces", "_prover")

    def __init__(self) -> None:
        self._jwk: dict[str, Any] | None = None
        self._prover: Prover | None = None
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
            method, http_form(url), access_token, self._nonces.get(origin(url))
        )

    def prover(self) -> "Prover":
        """What makes proofs, with the key of before or a new one; ConfigError where none can be
        made."""
        if self._prover is None:
            from .dpop import Prover

            self._prover = Prover(self._jwk)
        return self._prover

    def heard(self, url: str, answer: HttpResponse) -> bool:
        """Remember the nonce of an answer; whether there is one."""
        nonce, home = answer.headers.get("dpop-nonce", ""), origin(url)
        if not 0 < len(nonce) <= LONGEST:
            return False
        self._nonces.pop(home, None)
        self._nonces[home] = nonce
        if len(self._nonces) > ORIGINS:
            del self._nonces[next(iter(self._nonces))]
        return True

    def wanted(self, url: str, answer: HttpResponse) -> bool:
        """Whether this refusal only wants a nonce, and brought one along."""
        if not self.heard(url, answer) or answer.status not in (400, 401):
            return False
        refusal = read(answer.body, ErrorReply)
        return demand(answer).error == WANTED or (refusal is not None and refusal.error == WANTED)
