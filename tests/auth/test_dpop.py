"""Proof of possession, both sides: what is taken, and all that is not."""

import asyncio
import time
from typing import Any

import pytest

from dovetail.auth import jose
from dovetail.auth.dpop import Checker, DpopSigner, ProofRefused
from dovetail.sealing import key_ring

from .issuing import generate_key

RING = key_ring(["a key of sixteen characters"])
URL = "https://mcp.example/mcp"


def check(checker: Checker, proof: str | None, **how: Any) -> str:
    method, url = how.pop("method", "POST"), how.pop("url", URL)
    return asyncio.run(checker.check(proof, method, url, ring=RING, **how))


def forged(prover: DpopSigner, *, header: dict[str, Any] | None = None, **claims: Any) -> str:
    """A proof that says something else than it should; what is None is left out."""
    usual = {
        "typ": "dpop+jwt",
        "alg": "ES256",
        "jwk": jose.public_jwk(prover.jwk),
        **(header or {}),
    }
    said = {"jti": "x", "htm": "POST", "htu": URL, "iat": int(time.time()), **claims}
    usual, said = (
        {name: value for name, value in part.items() if value is not None} for part in (usual, said)
    )
    return jose.sign(usual, said, jose.load_key(prover.jwk))


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "RS256", "Ed25519"])
def test_a_proof_is_taken_and_names_its_key(algorithm: str) -> None:
    jwk = generate_key(algorithm)
    header = {"typ": "dpop+jwt", "alg": algorithm, "jwk": jose.public_jwk(jwk)}
    claims = {"jti": "x", "htm": "POST", "htu": URL, "iat": int(time.time())}
    proof = jose.sign(header, claims, jose.load_key(jwk))
    assert check(Checker(), proof) == jose.thumbprint(jwk)


def test_a_key_that_was_kept_makes_the_same_proofs_again() -> None:
    prover = DpopSigner()
    again = DpopSigner(prover.jwk)
    assert again.thumbprint == prover.thumbprint
    assert check(Checker(), again.proof("POST", URL)) == prover.thumbprint


def test_the_private_key_is_in_no_proof_and_no_repr() -> None:
    prover = DpopSigner()
    header, _ = jose.decode_unverified(prover.proof("POST", URL))
    assert not jose.PRIVATE_MEMBERS & header["jwk"].keys()
    assert prover.jwk["d"] not in repr(prover)


def test_query_and_fragment_are_no_part_of_where_it_is_for() -> None:
    prover = DpopSigner()
    assert check(Checker(), prover.proof("POST", URL + "?a=b#c"), url=URL + "?d=e")


def test_two_spellings_of_one_place_are_the_same() -> None:
    prover = DpopSigner()
    assert check(Checker(), prover.proof("POST", "HTTPS://MCP.example:443/mcp"), url=URL)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"htm": "GET"}, "htm.* does not match"),
        ({"htu": "https://evil.example/mcp"}, "does not match"),
        ({"htu": "https://mcp.example:444/mcp"}, "does not match"),
        ({"htu": "http://mcp.example/mcp"}, "does not match"),
        ({"htu": "https://mcp.example:nonsense/"}, "does not match"),
        ({"htu": None}, "does not match"),
        ({"iat": None}, "clock"),
        ({"iat": "now"}, "clock"),
        ({"iat": 0}, "clock"),
        ({"iat": 2**40}, "clock"),
        ({"jti": None}, "jti claim is missing"),
        ({"header": {"typ": "JWT"}}, "typ"),
        ({"header": {"typ": None}}, "typ"),
        ({"header": {"jwk": None}}, "no public key"),
    ],
)
def test_a_proof_that_says_something_else_is_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ProofRefused, match=complaint):
        check(Checker(), forged(DpopSigner(), **wrong))


def test_a_proof_with_the_private_key_in_it_is_refused() -> None:
    prover = DpopSigner()
    with pytest.raises(ProofRefused, match="no public key"):
        check(Checker(), forged(prover, header={"jwk": prover.jwk}))


def test_a_proof_signed_by_another_key_is_refused() -> None:
    with pytest.raises(ProofRefused, match="signature"):
        check(Checker(), forged(DpopSigner(), header={"jwk": jose.public_jwk(DpopSigner().jwk)}))


def test_an_unsigned_proof_is_refused() -> None:
    from base64 import urlsafe_b64encode

    head, body, _ = forged(DpopSigner()).split(".")
    none = urlsafe_b64encode(b'{"typ":"dpop+jwt","alg":"none"}').decode().rstrip("=")
    for proof in (f"{none}.{body}.", f"{head}.{body}."):
        with pytest.raises(ProofRefused):
            check(Checker(), proof)


def test_a_proof_by_a_shared_secret_is_refused() -> None:
    from joserfc import jws
    from joserfc.jwk import OctKey

    key = OctKey.import_key("secretsecretsecretsecretsecretse")
    header = {"typ": "dpop+jwt", "alg": "HS256", "jwk": key.as_dict(private=True)}
    with pytest.raises(ProofRefused, match="algorithm"):
        check(Checker(), jws.serialize_compact(header, "{}", key, ["HS256"]))


@pytest.mark.parametrize(
    "nonsense", ["", "x", "a.b.c", "....", "é.é.é", "x" * 100_000, "e30.e30.e30", "W10.W10.W10"]
)
def test_what_is_no_proof_is_refused(nonsense: str) -> None:
    with pytest.raises(ProofRefused):
        check(Checker(), nonsense)


def test_a_weak_or_endless_rsa_key_is_refused_before_it_is_used() -> None:
    for bits in ("AQAB", "A" * 10_000):
        with pytest.raises(ProofRefused, match="RSA"):
            check(
                Checker(),
                forged(DpopSigner(), header={"jwk": {"kty": "RSA", "e": "AQAB", "n": bits}}),
            )


def test_a_lone_surrogate_in_a_claim_is_refused_and_breaks_nothing() -> None:
    import json

    from joserfc import jws

    prover = DpopSigner()
    claims = json.dumps(
        {"jti": "\ud800", "htm": "POST", "htu": URL, "iat": int(time.time()), "ath": "\ud800"}
    )
    header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": jose.public_jwk(prover.jwk)}
    proof = jws.serialize_compact(header, claims, jose.load_key(prover.jwk), ["ES256"])
    with pytest.raises(ProofRefused):
        check(Checker(), proof, access_token="t")


def test_a_proof_is_taken_once() -> None:
    checker, proof = Checker(), DpopSigner().proof("POST", URL)
    check(checker, proof)
    with pytest.raises(ProofRefused, match="already used"):
        check(checker, proof)


def test_two_keys_may_use_the_same_jti() -> None:
    checker = Checker()
    check(checker, forged(DpopSigner(), jti="one"))
    check(checker, forged(DpopSigner(), jti="one"))


def test_a_full_memory_refuses_old_proofs_rather_than_take_one_twice() -> None:
    checker, prover = Checker(remembered=3), DpopSigner()
    early = forged(prover, jti="early", iat=int(time.time()) - 10)
    check(checker, early)
    for number in range(3):
        check(checker, forged(prover, jti=str(number)))
    with pytest.raises(ProofRefused, match="already used"):
        check(checker, early)
    with pytest.raises(ProofRefused, match="already used"):
        check(
            checker, forged(prover, jti="as old as what was forgotten", iat=int(time.time()) - 10)
        )
    assert len(checker._seen) <= 3


def test_what_is_too_old_to_be_taken_is_not_remembered() -> None:
    checker, prover = Checker(window=1.0), DpopSigner()
    check(checker, forged(prover, jti="early", iat=int(time.time())))
    checker._forget(time.time() + 10)
    assert not checker._seen


def test_a_proof_is_for_one_access_token() -> None:
    prover = DpopSigner()
    proof = prover.proof("POST", URL, access_token="mine")
    assert jose.decode_unverified(proof)[1]["ath"] == jose.s256("mine")
    assert check(Checker(), proof, access_token="mine", thumbprint=prover.thumbprint)
    for other in (prover.proof("POST", URL, access_token="another"), prover.proof("POST", URL)):
        with pytest.raises(ProofRefused, match="different access token"):
            check(Checker(), other, access_token="mine", thumbprint=prover.thumbprint)


def test_a_token_of_another_key_is_of_no_use() -> None:
    thief = DpopSigner()
    with pytest.raises(ProofRefused, match="not signed with the key"):
        check(
            Checker(),
            thief.proof("POST", URL, "stolen"),
            access_token="stolen",
            thumbprint=DpopSigner().thumbprint,
        )


def test_where_nonces_are_wanted_a_proof_needs_the_servers_own() -> None:
    checker, prover = Checker(nonces=True), DpopSigner()
    for nonce in (None, "made up", RING.seal("session", b"12345678")):
        with pytest.raises(ProofRefused) as refusal:
            check(checker, prover.proof("POST", URL, nonce=nonce))
        assert refusal.value.nonce
    assert check(checker, prover.proof("POST", URL, nonce=checker.nonce(RING)))


def test_a_nonce_of_another_process_with_the_same_keys_is_taken() -> None:
    assert check(
        Checker(nonces=True),
        DpopSigner().proof("POST", URL, nonce=Checker(nonces=True).nonce(RING)),
    )


def test_an_old_nonce_is_not_taken_any_more() -> None:
    old = RING.seal("dpop nonce", (int(time.time()) - 1000).to_bytes(8))
    with pytest.raises(ProofRefused) as refusal:
        check(Checker(nonces=True), DpopSigner().proof("POST", URL, nonce=old))
    assert refusal.value.nonce


def test_nonces_change_with_time() -> None:
    checker = Checker(nonces=True, window=10.0)
    first = checker.nonce(RING)
    assert checker.nonce(RING) == first
    checker._nonce = (first, time.time() - 6)
    assert checker.nonce(RING) != first


def test_a_key_that_would_keep_us_busy_is_refused() -> None:
    jwk = jose.public_jwk(generate_key("RS256"))
    assert jose.load_key(jwk)
    for long in ({"e": "A" * 300 + "AQAB"}, {"n": jwk["n"] * 5}):
        with pytest.raises(jose.InvalidJwt, match="RSA key"):
            jose.load_key({**jwk, **long})
