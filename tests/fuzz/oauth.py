"""What OAuth reads of strangers: documents, challenges, tokens, keys, proofs, and the addresses in
all of them.

Tokens and proofs come in two ways: changed after they were signed, when none may be taken for good,
and signed with something odd in them, which whoever has a key can do.
"""

import json
import time
from collections.abc import Awaitable, Generator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from msgspec.json import encode

from dovetail.auth import jose, urls, wire
from dovetail.auth.client.discovery import DiscoveryResult, discover, require_metadata
from dovetail.auth.client.store import read_record
from dovetail.auth.dpop import Checker, ProofRefused
from dovetail.auth.provider import clients as redirects
from dovetail.auth.provider.clients import ClientRegistry
from dovetail.auth.provider.web import (
    DocumentUnavailable,
    OAuthError,
    ProviderRequest,
    error_response,
    parse_fields,
    parse_object,
    pick_key,
)
from dovetail.auth.server.verifiers import JwtVerifier, TokenRefused, introspection, jwt
from dovetail.errors import ConnectFailed, Unauthorized
from dovetail.net import is_loopback
from dovetail.ports import HttpRequest, HttpResponse, Principal, PublicUrl
from dovetail.sealing import KeyRing
from dovetail.text import MAX_MESSAGE_CHARS

from .engine import Target
from .mutator import Mutator, text_of

T = TypeVar("T")
HERE, ISSUER = "https://mcp.example.com/mcp", "https://as.example.com/tenant"
RING = KeyRing([b"a secret of sixteen"])
JSON_HEADERS = {"content-type": "application/json"}
NOWHERE = HttpResponse(status=404)


def awaited(work: Awaitable[T]) -> T:
    """What a coroutine returns that waits for nothing."""
    try:
        next(iter(work.__await__()))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


def answering(body: bytes) -> PublicUrl:
    """A server whose fetches are all answered with this."""

    async def fetch(request: HttpRequest) -> HttpResponse:
        assert urls.is_confidential(request.url), request.url
        return HttpResponse(headers=JSON_HEADERS, body=body)

    return PublicUrl(HERE, "https://mcp.example.com", RING, fetch, fetch)


# documents

RESOURCE = {
    "resource": HERE,
    "authorization_servers": [ISSUER],
    "scopes_supported": ["a", "b"],
    "dpop_bound_access_tokens_required": True,
}
SERVER = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "registration_endpoint": f"{ISSUER}/register",
    "jwks_uri": f"{ISSUER}/jwks",
    "grant_types_supported": ["authorization_code"],
    "client_id_metadata_document_supported": True,
    "code_challenge_methods_supported": ["S256"],
}
CLIENT = {
    "client_id": "https://app.example.com/client.json", "client_name": "App",
    "redirect_uris": ["https://app.example.com/cb"], "token_endpoint_auth_method": "none",
    "grant_types": ["authorization_code"], "response_types": ["code"], "jwks": {"keys": []},
}  # fmt: skip
REPLY = {
    "access_token": "secret",
    "token_type": "Bearer",
    "expires_in": 3600,
    "refresh_token": "secret",
    "scope": "a b",
}
KINDS: tuple[tuple[type[Any], Any], ...] = (
    (wire.ResourceMetadata, RESOURCE),
    (wire.ServerMetadata, SERVER),
    (wire.ClientMetadata, CLIENT),
    (
        wire.ClientInformation,
        {"client_id": "x", "client_secret": "secret", "client_secret_expires_at": 0},
    ),
    (wire.TokenReply, REPLY),
    (
        wire.ErrorReply,
        {
            "error": "invalid_grant",
            "error_description": "no \x1b[2J more",
            "error_uri": "https://x",
        },
    ),
)


def make_document(rng: Mutator) -> bytes:
    """A document, and behind the first letter what kind it is."""
    number = int(rng.random() * len(KINDS))
    return b"%d" % number + rng.json(KINDS[number][1])


def check_document(data: bytes) -> bool:
    """A document or None; written again it is read as the same, and secrets are not shown."""
    kind, _ = KINDS[int(data[:1])]
    found = wire.read_document(data[1:], kind)
    if found is None:
        return False
    assert wire.read_document(encode(found), kind) == found
    assert not isinstance(found, wire.SecretStruct) or "secret" not in repr(found)
    if isinstance(found, wire.ErrorReply):
        assert found.text.isprintable() and len(found.text) <= MAX_MESSAGE_CHARS + 1
    return True


def make_record(rng: Mutator) -> bytes:
    """What a client keeps of a server."""
    client = {"client_id": "x", "client_secret": "secret", "scopes": ["a"], "expires_at": 1.5}
    tokens = {
        "access_token": "secret",
        "scheme": "Bearer",
        "issuer": ISSUER,
        "token_endpoint": ISSUER,
        "resource": HERE,
        "issued_at": 1,
        "expires_at": 9,
    }
    kept = {
        "tokens": tokens | {"registration": client},
        "registrations": {ISSUER: client},
        "requested_scopes": ["a"],
        "jwk": {"kty": "EC"},
    }
    return rng.json(kept)


def check_record(data: bytes) -> bool:
    """What was kept, or a new record; it can always be kept again."""
    found = read_record(data)
    assert read_record(found.encode()).encode() == found.encode() and "secret" not in repr(found)
    if found.tokens is not None:
        assert found.tokens.is_expired(0.0) in (True, False) and found.tokens.is_expiring(1e12) in (
            True,
            False,
        )
    return found.tokens is not None


# discovery


def make_search(rng: Mutator) -> bytes:
    """What a server and its issuer say of themselves, where, and how some requests are answered
    instead."""
    said = {
        "hint": rng.pick((None, "https://mcp.example.com/meta")),
        "resource": RESOURCE,
        "server": SERVER,
    }
    instead = [rng.pick((0, 0, 0, 0, 0, 0, 302, 404, 429, 500)) for _ in range(4)]
    return rng.json(
        said
        | {
            "instead": instead,
            "location": rng.pick(("/x", "//evil", "http://[", "https://mcp.example.com/y")),
        }
    )


def check_search(data: bytes) -> bool:
    """A place whose addresses are all safe, or a refusal; a few requests, and none of them in the
    clear."""
    try:
        said = parse_object(data)
    except DocumentUnavailable:
        return False
    instead = said.get("instead")
    statuses = (
        [one for one in instead if one in (302, 404, 429, 500)] if isinstance(instead, list) else []
    )
    hint, location = said.get("hint"), said.get("location")
    headers = {"location": location} if isinstance(location, str) else {}

    def answered(request: HttpRequest) -> HttpResponse:
        assert request.method == "GET" and urls.is_confidential(request.url), request.url
        if statuses:
            return HttpResponse(status=statuses.pop(0), headers=headers)
        described = "protected-resource" in request.url or request.url == hint
        return HttpResponse(
            headers=JSON_HEADERS, body=encode(said.get("resource" if described else "server"))
        )

    try:
        place = _driven(
            discover(
                HERE, hint if isinstance(hint, str) else None, lambda found: found, _gives_tokens
            ),
            answered,
        )
    except (Unauthorized, ConnectFailed) as refused:
        assert str(refused).isprintable()
        return False
    assert (
        urls.covers_url(place.resource, HERE)
        and urls.is_confidential(place.server.issuer)
        and urls.is_confidential(place.token_endpoint)
    )
    return True


def _gives_tokens(server: wire.ServerMetadata) -> None:
    require_metadata(server, token_endpoint=...)


def _driven(
    search: Generator[HttpRequest, HttpResponse, DiscoveryResult], answered: Any
) -> DiscoveryResult:
    try:
        request = next(search)
        for _ in range(100):
            request = search.send(answered(request))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("a hundred requests")


# challenges

CHALLENGES = (
    'Bearer realm="x", error="invalid_token", error_description="it \\"ended\\"", '
    'resource_metadata="https://x", scope="a"',
    "DPoP algs=\"ES256\", Basic realm=x, Negotiate dG9rZW42OA==, ApiKey header=X-Key",
    'Bearer, , Digest  qop="a, b",  nonce=\\', "Bearer resource_metadata=https://x/y?z=1, scope=a",
)  # fmt: skip


def make_challenge(rng: Mutator) -> bytes:
    """A WWW-Authenticate header."""
    text = rng.pick(CHALLENGES)
    text = text + ", " + rng.pick(CHALLENGES) if rng.random() < 0.2 else text
    return rng.garbled(text.encode()) if rng.random() < 0.9 else rng.garbled(text.encode() * 30)


def check_challenge(data: bytes) -> bool:
    """Challenges, the same each time; each of them, written by us, is read as the same."""
    headers = {"www-authenticate": data.decode("latin-1")}
    found = wire.parse_challenges(headers)
    assert wire.parse_challenges(headers) == found and len(found) <= wire.MAX_PARTS
    for one in found:
        if one.parameters and all(
            value.isascii() and value.isprintable() for value in one.parameters.values()
        ):
            again = wire.parse_challenges(
                {"www-authenticate": wire.format_challenge(one.scheme, one.parameters)}
            )
            assert [(each.scheme, each.parameters) for each in again] == [
                (one.scheme, one.parameters)
            ]
    asked = wire.read_requirements(HttpResponse(status=401, headers=headers))
    assert asked.reason.isprintable() and len(asked.reason) < 400
    return bool(found)


# tokens, proofs and keys


KEYS = json.loads((Path(__file__).parent / "keys.json").read_bytes())
SIGNING: dict[str, Any] = KEYS["signing"]


@cache
def _key() -> Any:
    return jose.load_key(SIGNING)


@cache
def _verifier() -> JwtVerifier:
    return jwt(ISSUER, keys=[jose.public_jwk(SIGNING)])


CLAIMS = {
    "iss": ISSUER,
    "sub": "ada",
    "aud": HERE,
    "exp": 10**10,
    "nbf": 10**9,
    "iat": 10**9,
    "scope": "a b",
    "client_id": "c",
}
HEADER = {"alg": "Ed25519", "typ": "at+jwt", "kid": "1"}


@cache
def _signed() -> str:
    return jose.sign(HEADER, CLAIMS, _key())


def _either(rng: Mutator, header: Any, claims: Any) -> bytes:
    """Both, and something odd in one of them."""
    return json.dumps(
        [rng.value(header), claims] if rng.random() < 0.3 else [header, rng.value(claims)]
    ).encode()


def make_token(rng: Mutator) -> bytes:
    """A token that was changed, or the claims and header of one that is yet to be signed."""
    if rng.random() < 0.5:
        return b"=" + rng.garbled(_signed().encode())
    return b"+" + _either(rng, HEADER, CLAIMS)


def check_token(data: bytes) -> bool:
    """Somebody, or a refusal; and nobody for what was changed after it was signed."""
    how, rest = data[:1], data[1:]
    if how == b"+":
        try:
            header, claims = json.loads(rest)
            token = jose.sign(header, claims, _key())
        except Exception:  # what cannot be signed, for which we answer to nobody
            return False
    else:
        token = text_of(rest)
    try:
        principal = awaited(_verifier()(token, answering(b"{}")))
    except TokenRefused as refused:
        assert str(refused)
        return False
    assert isinstance(principal, Principal) and isinstance(principal.id, str) and principal.expires
    assert how == b"+" or jose.decode_unverified(token) == jose.decode_unverified(_signed())
    return True


def make_proof(rng: Mutator) -> bytes:
    """The header and claims of a proof of possession; its time is counted from now."""
    claims = {
        "htm": "POST",
        "htu": HERE,
        "iat": 0,
        "jti": str(rng.random()),
        "ath": "x",
        "nonce": "n",
    }
    header = {"typ": "dpop+jwt", "alg": "Ed25519", "jwk": jose.public_jwk(SIGNING)}
    return _either(rng, header, claims)


def check_proof(data: bytes) -> bool:
    """A thumbprint once, then a refusal; or a refusal."""
    header, claims = json.loads(data)
    if isinstance(claims, dict) and claims.get("iat") == 0:
        claims["iat"] = int(time.time())
    checker = (
        Checker()
    )  # one that many have used is full, and lets nobody in until some time has passed
    try:
        proof = jose.sign(header, claims, _key())
    except Exception:
        return False
    try:
        found = awaited(checker.check(proof, "POST", HERE, ring=RING))
    except ProofRefused:
        return False
    assert found == jose.thumbprint(SIGNING)
    try:
        awaited(checker.check(proof, "POST", HERE, ring=RING))
    except ProofRefused:
        return True
    raise AssertionError("a proof was taken twice")


def make_keys(rng: Mutator) -> bytes:
    """A set of keys."""
    return rng.json({"keys": KEYS["listed"]})


def check_keys(data: bytes) -> bool:
    """Keys that can be used, or Unverified."""
    try:
        found = parse_object(data)
        jwk = pick_key(found, {"kid": "ES256"})
        assert jose.load_key(jose.public_jwk(jwk)) is not None and jose.thumbprint(jwk)
    except (DocumentUnavailable, jose.InvalidJwt):
        return False
    return True


def check_introspected(data: bytes) -> bool:
    """What an issuer says of a token is somebody, nobody or a refusal."""
    ask = introspection(f"{ISSUER}/introspect", client_id="x", client_secret="y")
    try:
        return awaited(ask("token", answering(data))) is not None
    except (TokenRefused, ConnectFailed):
        return False


# clients and addresses


def make_client(rng: Mutator) -> bytes:
    """What a client says of itself."""
    return rng.json(CLIENT | {"redirect_uris": [rng.pick(ADDRESSES), rng.pick(ADDRESSES)]})


class _Nothing:
    """Storage in which nothing is found."""

    async def get(self, key: str) -> bytes | None:
        return None

    async def add(self, key: str, data: bytes, expires: float, parent: str | None = None) -> bool:
        return True


def check_client(data: bytes) -> bool:
    """A client, described by its document or registered, with addresses that are fit to be sent
    back to; or a refusal."""
    clock = iter(range(0, 10**9, 1000))
    clients = ClientRegistry([], _Nothing(), lambda: float(next(clock)))  # type: ignore[arg-type]
    request = ProviderRequest(body=data, issuer=ISSUER, public_url=answering(data), scopes={})
    taken = 0
    try:
        found = awaited(clients.find(str(CLIENT["client_id"]), request))
        assert (
            all(redirects.is_allowed_redirect(uri) for uri in found.redirect_uris)
            and found.name.isprintable()
        )
        taken += 1
    except OAuthError as refused:
        assert error_response(refused).status in range(400, 500)
    try:
        answer = awaited(clients.register(request))
        again = json.loads(answer.body)
        assert answer.status == 201 and all(
            redirects.is_allowed_redirect(uri) for uri in again["redirect_uris"]
        )
        taken += 1
    except OAuthError as refused:
        assert error_response(refused).status in range(400, 500)
    return taken > 0


ADDRESSES = (
    "https://app.example.com/cb", "http://127.0.0.1:4567/cb", "http://localhost/cb?x=1",
    "http://[::1]:80/", "https://a.example:443", "com.example.app:/cb", "https://[2001:db8::1]/x",
    "http://localhost.evil.example/", "http://127.0.0.1@evil.example/", "https://a/%2e%2e/b",
)  # fmt: skip


def make_address(rng: Mutator) -> bytes:
    """Two addresses, the second something like the first."""
    first = rng.pick(ADDRESSES)
    second = first if rng.random() < 0.5 else rng.pick(ADDRESSES)
    both = (
        one.encode() if rng.random() < 0.4 else rng.garbled(one.encode()) for one in (first, second)
    )
    return b"\n".join(one.replace(b"\n", b"") for one in both)


def check_address(data: bytes) -> bool:
    """An address that is taken means the same to another reader of URLs; what is the same place is
    so in any order."""
    one, _, other = text_of(data).partition("\n")
    for uri in (one, other):
        if redirects.is_allowed_redirect(uri):
            parts = urlsplit(uri)
            assert (
                "@" not in parts.netloc
                and not parts.fragment
                and parts.netloc.lower() == redirects.redirect_host(uri)
            )
            assert parts.scheme == "https" or is_loopback(parts.hostname)
            assert redirects.redirect_matches(uri, uri) and redirects.is_loopback_redirect(uri) == (
                parts.scheme == "http"
            )
        if urls.is_confidential(uri):
            assert urls.origin(urls.origin(uri)) == urls.origin(uri) and urls.canonical_url(
                urls.canonical_url(uri)
            ) == urls.canonical_url(uri)
            assert urls.covers_url(urls.canonical_url(uri), uri) and urls.covers_url(
                urls.origin(uri), uri
            )
    taken = redirects.is_allowed_redirect(one), redirects.is_allowed_redirect(other)
    if all(taken) and redirects.redirect_matches(one, other):
        assert (
            redirects.redirect_matches(other, one)
            and urlsplit(one).hostname == urlsplit(other).hostname
        )
    try:
        assert urls.require_safe(one, "it") == one
    except Unauthorized as refused:
        assert str(refused).isprintable()
    assert urls.is_local(one) in (True, False)
    return any(taken)


def make_form(rng: Mutator) -> bytes:
    """A form for the token endpoint."""
    return rng.garbled(
        b"grant_type=authorization_code&code=x%20y&redirect_uri=https%3A%2F%2Fa%2Fcb&resource=a&resource=b&client_id="
    )


def check_form(data: bytes) -> bool:
    """Fields, each once and none empty, or a refusal."""
    try:
        found, resources = parse_fields(data)
    except OAuthError as refused:
        assert json.loads(error_response(refused).body)["error"]
        return False
    assert all(found.values()) and all(resources) and "resource" not in found
    return True


SAID = {
    "active": True,
    "sub": "ada",
    "exp": 10**10,
    "nbf": 1,
    "scope": "a b",
    "client_id": "c",
    "aud": HERE,
    "iss": ISSUER,
}
TARGETS = (
    Target("oauth documents", make_document, check_document, 80_000),
    Target("oauth discovery", make_search, check_search, 40_000),
    Target("oauth challenges", make_challenge, check_challenge, 60_000),
    Target("oauth clients", make_client, check_client, 40_000),
    Target("oauth addresses", make_address, check_address, 60_000),
    Target("oauth forms", make_form, check_form, 40_000),
    Target("oauth records", make_record, check_record, 40_000),
    Target("tokens", make_token, check_token, 20_000),
    Target("token introspection", lambda rng: rng.json(SAID), check_introspected, 40_000),
    Target("token proofs", make_proof, check_proof, 10_000),
    Target("token keys", make_keys, check_keys, 20_000),
)
