"""What is asked of a token endpoint: a form, how the client proves itself, and what the answer
means.

`ask` is one such request; like all of the flow it is a generator without I/O. It returns what the
server said, a `TokenReply` or an `ErrorReply`, and raises ConnectFailed where the server is merely
in trouble: no credentials are worth less for that.

The grants below need no person: client credentials (RFC 6749, 4.4), an enterprise's own login (an
ID-JAG, got by token exchange, RFC 8693, and redeemed by RFC 7523), and the identity of a workload
(RFC 7523).
"""

import time
from base64 import b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from secrets import token_urlsafe
from typing import Any, TypeAlias
from urllib.parse import quote_plus, urlencode, urlsplit

from msgspec import Struct

from ...errors import ConfigError, ConnectFailed, Unauthorized, missing_extra
from ...ports import HttpRequest, HttpResponse
from ...text import one_line
from ..documents import ErrorReply, SecretStruct, TokenReply, read_document
from ..dpop import DpopClient
from ..urls import require_safe
from .discovery import DiscoveryResult, server_metadata
from .store import ClientRegistration, TokenSet

TokenResult: TypeAlias = TokenReply | ErrorReply
TokenRequestSteps: TypeAlias = Generator[HttpRequest, HttpResponse, TokenResult]
SignAssertion: TypeAlias = Callable[[str, str], str]
"""Makes the signed statement of a client (its id) for an issuer."""
UnattendedGrant: TypeAlias = Callable[
    [DiscoveryResult, ClientRegistration, Sequence[str], DpopClient | None], TokenRequestSteps
]
"""Gets tokens for a place, without anybody's help."""

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS = 60
KEY_TYPES: Mapping[str, Any] = {"ES": "EC", "RS": "RSA", "PS": "RSA", "Ed": "OKP"}
TRANSIENT_ERRORS = frozenset({"temporarily_unavailable", "server_error", "slow_down"})


class IdentityProvider(SecretStruct, kw_only=True):
    """Where an enterprise's users log in, and what one of them got there."""

    token_endpoint: str
    client_id: str
    id_token: str
    client_secret: str | None = None


class _ClientAuthentication(Struct, frozen=True):
    """How a client proves itself in one request."""

    form: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}


def _basic(
    client: ClientRegistration, issuer: str, sign: SignAssertion | None
) -> _ClientAuthentication:
    # Both halves are form-encoded first: https://www.rfc-editor.org/rfc/rfc6749#section-2.3.1
    pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret or '')}"
    return _ClientAuthentication(
        headers={"authorization": f"Basic {b64encode(pair.encode()).decode()}"}
    )


def _post(
    client: ClientRegistration, issuer: str, sign: SignAssertion | None
) -> _ClientAuthentication:
    return _ClientAuthentication(
        form={"client_id": client.client_id, "client_secret": client.client_secret or ""}
    )


def _none(
    client: ClientRegistration, issuer: str, sign: SignAssertion | None
) -> _ClientAuthentication:
    return _ClientAuthentication(form={"client_id": client.client_id})


def _signed(
    client: ClientRegistration, issuer: str, sign: SignAssertion | None
) -> _ClientAuthentication:
    if sign is None:
        raise ConfigError(
            f"{issuer}: this client proves itself with a private key, and none was given"
        )
    form = {
        "client_id": client.client_id,
        "client_assertion_type": ASSERTION,
        "client_assertion": sign(client.client_id, issuer),
    }
    return _ClientAuthentication(form=form)


_AUTHENTICATE: Mapping[
    str, Callable[[ClientRegistration, str, SignAssertion | None], _ClientAuthentication]
] = {
    "client_secret_basic": _basic,
    "client_secret_post": _post,
    "none": _none,
    "private_key_jwt": _signed,
}


def request_token(
    endpoint: str,
    issuer: str,
    client: ClientRegistration,
    form: Mapping[str, str],
    proofs: DpopClient | None = None,
    sign: SignAssertion | None = None,
) -> TokenRequestSteps:
    """One token request, made again if all that it lacked was the server's nonce."""
    require_safe(endpoint, f"{issuer}: its token endpoint")
    answer = HttpResponse()
    for _ in range(2):
        proof = {} if proofs is None else {"dpop": proofs.header("POST", endpoint)}
        answer = yield _form_request(endpoint, issuer, client, form, proof, sign)
        if proofs is None or not proofs.wanted(endpoint, answer):
            break
    return _read_reply(endpoint, answer)


def revoke_tokens(
    tokens: TokenSet, client: ClientRegistration
) -> Generator[HttpRequest, HttpResponse, bool]:
    """Have tokens ended by who gave them out; whether that is done. With a refresh token ends all
    that came of it: https://www.rfc-editor.org/rfc/rfc7009#section-2.1"""
    server = yield from server_metadata(tokens.issuer)
    if server.revocation_endpoint is None:
        return False
    endpoint = require_safe(server.revocation_endpoint, f"{tokens.issuer}: its revocation_endpoint")
    kind = "access_token" if tokens.refresh_token is None else "refresh_token"
    form = {"token": tokens.refresh_token or tokens.access_token, "token_type_hint": kind}
    answer = yield _form_request(endpoint, tokens.issuer, client, form)
    return answer.status == 200


def _form_request(
    endpoint: str,
    issuer: str,
    client: ClientRegistration,
    form: Mapping[str, str],
    headers: Mapping[str, str] = {},
    sign: SignAssertion | None = None,
) -> HttpRequest:
    """A form, and the proof of who sends it."""
    prove = _AUTHENTICATE.get(client.auth_method)
    if prove is None:
        raise Unauthorized(
            f"{issuer}: this client cannot prove itself by {one_line(client.auth_method)}"
        )
    proven = prove(client, issuer, sign)
    return HttpRequest(
        method="POST",
        url=endpoint,
        path=urlsplit(endpoint).path or "/",
        headers={
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
            **proven.headers,
            **headers,
        },
        body=urlencode(
            {**{name: value for name, value in form.items() if value}, **proven.form}
        ).encode(),
    )


def _read_reply(endpoint: str, answer: HttpResponse) -> TokenResult:
    refusal = read_document(answer.body, ErrorReply)
    if (
        answer.status in (408, 429)
        or answer.status >= 500
        or (refusal is not None and refusal.error in TRANSIENT_ERRORS)
    ):
        why = f" ({refusal.text})" if refusal is not None else ""
        raise ConnectFailed(f"{endpoint}: answered {answer.status}{why}; try again later")
    if refusal is not None:  # some say so with status 200
        return refusal
    reply = read_document(answer.body, TokenReply) if answer.status in (200, 201) else None
    if reply is None:
        raise Unauthorized(
            f"{endpoint}: answered {answer.status}, and neither a token nor a reason; its "
            "operator has to look"
        )
    if not reply.access_token or not all("!" <= letter <= "~" for letter in reply.access_token):
        raise Unauthorized(
            f"{endpoint}: gave out a token that no header can carry; its operator has to look"
        )
    return reply


def client_credentials(
    place: DiscoveryResult,
    client: ClientRegistration,
    scopes: Sequence[str],
    proofs: DpopClient | None,
    *,
    sign: SignAssertion | None = None,
) -> TokenRequestSteps:
    """Tokens for the client itself."""
    form = {
        "grant_type": "client_credentials",
        "resource": place.resource,
        "scope": " ".join(scopes),
    }
    return (
        yield from request_token(
            place.token_endpoint, place.server.issuer, client, form, proofs, sign
        )
    )


def workload_identity(
    place: DiscoveryResult,
    client: ClientRegistration,
    scopes: Sequence[str],
    proofs: DpopClient | None,
    *,
    assertion: str,
) -> TokenRequestSteps:
    """Tokens for a workload, whose platform vouches for it. What is refused once is refused for
    good."""
    form = {
        "grant_type": JWT_BEARER,
        "assertion": assertion,
        "resource": place.resource,
        "scope": " ".join(scopes),
    }
    return (
        yield from request_token(place.token_endpoint, place.server.issuer, client, form, proofs)
    )


def enterprise_managed(
    place: DiscoveryResult,
    client: ClientRegistration,
    scopes: Sequence[str],
    proofs: DpopClient | None,
    *,
    provider: IdentityProvider,
) -> TokenRequestSteps:
    """Tokens for a user whose enterprise decides where it may go: its provider is asked for a
    grant, the server takes it."""
    at_provider = ClientRegistration(
        client_id=provider.client_id,
        client_secret=provider.client_secret,
        auth_method="none" if provider.client_secret is None else "client_secret_basic",
    )
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": ID_JAG,
        "subject_token": provider.id_token,
        "subject_token_type": ID_TOKEN,
        "audience": place.server.issuer,
        "resource": place.resource,
        "scope": " ".join(scopes),
        "client_id": provider.client_id,
    }
    got = yield from request_token(
        provider.token_endpoint, provider.token_endpoint, at_provider, form
    )
    if isinstance(got, ErrorReply):
        raise Unauthorized(
            f"{provider.token_endpoint}: the identity provider refuses ({got.text}); log in "
            "there again, or ask who runs it"
        )
    if got.issued_token_type != ID_JAG:
        raise Unauthorized(
            f"{provider.token_endpoint}: the identity provider gave out something else than "
            "was asked for (an ID-JAG)"
        )
    form = {
        "grant_type": JWT_BEARER,
        "assertion": got.access_token,
        "resource": place.resource,
        "scope": " ".join(scopes),
    }
    return (
        yield from request_token(place.token_endpoint, place.server.issuer, client, form, proofs)
    )


def assertion_signer(key: str | bytes, algorithm: str) -> SignAssertion:
    """Signs a client's statements with this private key, a PEM:
    https://www.rfc-editor.org/rfc/rfc7523#section-3"""
    kind = KEY_TYPES.get(algorithm[:2])
    if kind is None:
        raise ConfigError(f"algorithm: {algorithm} is not known here; ES256 is a good one")
    try:
        from joserfc.jwk import import_key
    except ImportError:
        raise missing_extra("Signing a client assertion", "auth") from None
    from .. import jose

    try:
        loaded: Any = import_key(key, kind)
    except Exception:  # whatever the library makes of it; its text may show parts of the key
        loaded = None
    if loaded is None or not loaded.is_private:
        raise ConfigError(
            f"private_key: give a private key for {algorithm} as PEM, with its BEGIN and END lines"
        )

    def sign(client_id: str, issuer: str) -> str:
        now = int(time.time())
        claims = {
            "iss": client_id,
            "sub": client_id,
            "aud": issuer,
            "jti": token_urlsafe(16),
            "iat": now,
        }
        return jose.sign(
            {"alg": algorithm, "typ": "JWT"}, {**claims, "exp": now + ASSERTION_SECONDS}, loaded
        )

    return sign
