"""Requests to a token endpoint: a form, the authentication of the client, and the meaning of the
response.

`request_token` is one such request. Like all of the flow it is a generator without I/O: it yields
requests and is sent the responses. It returns what the server said, a `TokenReply` or an
`ErrorReply`, and raises ConnectFailed if the server is merely in trouble, which says nothing about
the credentials.

The grants below need no person: client credentials (RFC 6749, 4.4), the login at an enterprise (an
ID-JAG from a token exchange, RFC 8693, redeemed by RFC 7523), and the identity of a workload (RFC
7523).
"""

import time
from base64 import b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from secrets import token_urlsafe
from typing import TypeAlias
from urllib.parse import quote_plus, urlencode, urlsplit

from ...errors import ConfigError, ConnectFailed, Unauthorized
from ...ports import HttpRequest, HttpResponse
from ...text import one_line
from .. import jose
from ..dpop import DpopClient
from ..urls import require_safe
from ..wire import ErrorReply, SecretStruct, TokenReply, read_document
from .discovery import DiscoveryResult, server_metadata
from .store import ClientRegistration, TokenSet

TokenResult: TypeAlias = TokenReply | ErrorReply
TokenRequestSteps: TypeAlias = Generator[HttpRequest, HttpResponse, TokenResult]
SignAssertion: TypeAlias = Callable[[str, str], str]
"""Takes a client id and an issuer, and returns a signed client assertion."""
UnattendedGrant: TypeAlias = Callable[
    [DiscoveryResult, ClientRegistration, Sequence[str], DpopClient | None], TokenRequestSteps
]
"""Gets tokens without a person."""

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS = 60
TRANSIENT_ERRORS = frozenset({"temporarily_unavailable", "server_error", "slow_down"})


class IdentityProvider(SecretStruct, kw_only=True):
    """Where the users of an enterprise log in, and the ID token that one of them got there."""

    token_endpoint: str
    client_id: str
    id_token: str
    client_secret: str | None = None


def basic_authorization(client_id: str, client_secret: str) -> str:
    """Return the Authorization header of a client with a secret.

    Both parts are form-encoded first: https://www.rfc-editor.org/rfc/rfc6749#section-2.3.1
    """
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def request_token(
    endpoint: str,
    issuer: str,
    client: ClientRegistration,
    form: Mapping[str, str],
    dpop: DpopClient | None = None,
    sign: SignAssertion | None = None,
) -> TokenRequestSteps:
    """Send one token request, and again if all it lacked was the server's nonce."""
    require_safe(endpoint, f"{issuer}: its token endpoint")
    answer = HttpResponse()
    for _ in range(2):
        proof = {} if dpop is None else {"dpop": dpop.proof_header("POST", endpoint)}
        answer = yield _form_request(endpoint, issuer, client, form, proof, sign)
        if dpop is None or not dpop.should_retry(endpoint, answer):
            break
    return _read_reply(endpoint, answer)


def revoke_tokens(
    tokens: TokenSet, client: ClientRegistration
) -> Generator[HttpRequest, HttpResponse, bool]:
    """Revoke tokens at their issuer; False if that was not possible.

    Revoking a refresh token ends everything that was granted with it:
    https://www.rfc-editor.org/rfc/rfc7009#section-2.1
    """
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
    """Return a POST of this form, with the authentication of the client."""
    id, secret = client.client_id, client.client_secret or ""
    fields = {name: value for name, value in form.items() if value}
    authorization = {}
    if client.auth_method == "client_secret_basic":
        authorization = {"authorization": basic_authorization(id, secret)}
    elif client.auth_method == "client_secret_post":
        fields |= {"client_id": id, "client_secret": secret}
    elif client.auth_method == "none":
        fields["client_id"] = id
    elif client.auth_method == "private_key_jwt":
        if sign is None:
            raise ConfigError(f"{issuer}: this client needs a private key to authenticate")
        fields |= {
            "client_id": id,
            "client_assertion_type": ASSERTION,
            "client_assertion": sign(id, issuer),
        }
    else:
        raise Unauthorized(
            f"{issuer}: the authentication method {one_line(client.auth_method)} is not supported"
        )
    return HttpRequest(
        method="POST",
        url=endpoint,
        path=urlsplit(endpoint).path or "/",
        headers={
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
            **authorization,
            **headers,
        },
        body=urlencode(fields).encode(),
    )


def _read_reply(endpoint: str, answer: HttpResponse) -> TokenResult:
    error = read_document(answer.body, ErrorReply)
    if (
        answer.status in (408, 429)
        or answer.status >= 500
        or (error is not None and error.error in TRANSIENT_ERRORS)
    ):
        reason = f" ({error.text})" if error is not None else ""
        raise ConnectFailed(f"{endpoint}: HTTP {answer.status}{reason}. Try again later.")
    if error is not None:  # some servers send errors with status 200
        return error
    reply = read_document(answer.body, TokenReply) if answer.status in (200, 201) else None
    if reply is None:
        raise Unauthorized(
            f"{endpoint}: HTTP {answer.status}, without a token or an error. Ask the "
            "operator of the authorization server."
        )
    if not reply.access_token or not all("!" <= char <= "~" for char in reply.access_token):
        raise Unauthorized(
            f"{endpoint}: sent a token that no header can carry. Ask the operator of the "
            "authorization server."
        )
    return reply


def _redeem(
    found: DiscoveryResult,
    client: ClientRegistration,
    scopes: Sequence[str],
    dpop: DpopClient | None,
    form: Mapping[str, str],
    sign: SignAssertion | None = None,
) -> TokenRequestSteps:
    """Request a token for the discovered resource."""
    form = {**form, "resource": found.resource, "scope": " ".join(scopes)}
    return request_token(found.token_endpoint, found.server.issuer, client, form, dpop, sign)


def client_credentials(
    found: DiscoveryResult,
    client: ClientRegistration,
    scopes: Sequence[str],
    dpop: DpopClient | None,
    *,
    sign: SignAssertion | None = None,
) -> TokenRequestSteps:
    """Get tokens for the client itself."""
    return _redeem(found, client, scopes, dpop, {"grant_type": "client_credentials"}, sign)


def workload_identity(
    found: DiscoveryResult,
    client: ClientRegistration,
    scopes: Sequence[str],
    dpop: DpopClient | None,
    *,
    assertion: str,
) -> TokenRequestSteps:
    """Get tokens for a workload, with an assertion of its platform."""
    form = {"grant_type": JWT_BEARER, "assertion": assertion}
    return _redeem(found, client, scopes, dpop, form)


def enterprise_managed(
    found: DiscoveryResult,
    client: ClientRegistration,
    scopes: Sequence[str],
    dpop: DpopClient | None,
    *,
    provider: IdentityProvider,
) -> TokenRequestSteps:
    """Get tokens for a user whose enterprise decides what they may use: the identity provider
    issues an ID-JAG, which the server's authorization server redeems."""
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
        "audience": found.server.issuer,
        "resource": found.resource,
        "scope": " ".join(scopes),
        "client_id": provider.client_id,
    }
    endpoint = provider.token_endpoint
    reply = yield from request_token(endpoint, endpoint, at_provider, form)
    if isinstance(reply, ErrorReply):
        raise Unauthorized(
            f"{endpoint}: the identity provider refuses ({reply.text}). Log in there again, or "
            "ask its operator."
        )
    if reply.issued_token_type != ID_JAG:
        raise Unauthorized(
            f"{endpoint}: the identity provider did not issue what was requested (an ID-JAG)"
        )
    redeemed = {"grant_type": JWT_BEARER, "assertion": reply.access_token}
    return (yield from _redeem(found, client, scopes, dpop, redeemed))


def assertion_signer(key: str | bytes, algorithm: str) -> SignAssertion:
    """Return what signs client assertions with this private key (PEM):
    https://www.rfc-editor.org/rfc/rfc7523#section-3"""
    loaded = jose.load_private_key(key, algorithm)

    def sign(client_id: str, issuer: str) -> str:
        now = int(time.time())
        claims = {
            "iss": client_id,
            "sub": client_id,
            "aud": issuer,
            "jti": token_urlsafe(16),
            "iat": now,
            "exp": now + ASSERTION_SECONDS,
        }
        return jose.sign({"alg": algorithm, "typ": "JWT"}, claims, loaded)

    return sign
