"""Requests to a token endpoint: the form, the client's authentication, and the response.

`request_token` sends one token request. Like the rest of the flow, it is a generator that does no
I/O: it yields requests and receives the responses. The result is the server's `TokenReply` or
`ErrorReply`. If the server fails temporarily, which says nothing about the credentials,
`request_token` raises ConnectFailed.

The grants below need no user interaction: client credentials (RFC 6749, 4.4), an enterprise login
(an ID-JAG from a token exchange, RFC 8693, redeemed as in RFC 7523), and workload identity (RFC
7523).
"""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from secrets import token_urlsafe
from typing import TypeAlias
from urllib.parse import urlencode

from ...errors import ConfigError, ConnectFailed, Unauthorized
from ...ports import AuthStepName, HttpRequest, HttpResponse
from ...text import one_line
from .. import jose
from ..dpop import DpopClient
from ..urls import require_safe
from ..wire import ErrorReply, SecretStruct, TokenReply, basic_authorization, read_document
from .discovery import DiscoveryResult, server_metadata
from .steps import StepRequest
from .store import ClientRegistration, TokenSet

TokenResult: TypeAlias = TokenReply | ErrorReply
TokenRequestSteps: TypeAlias = Generator[HttpRequest, HttpResponse, TokenResult]
SignAssertion: TypeAlias = Callable[[str, str], str]
"""Returns a signed client assertion for a client id and an issuer."""

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS = 60
TRANSIENT_ERRORS = frozenset({"temporarily_unavailable", "server_error", "slow_down"})


class EnterpriseLogin(SecretStruct):
    """A user's login at their enterprise's identity provider."""

    token_endpoint: str
    client: ClientRegistration
    """The registration of this client at the identity provider."""
    id_token: str


class UnattendedGrant(SecretStruct):
    """A grant that needs no user interaction."""

    form: Mapping[str, str]
    """The form of the token request, without the resource and scopes."""
    sign: SignAssertion | None = None
    """Signs the client's assertions, if the client authenticates with a private key."""
    login: EnterpriseLogin | None = None
    """The login to exchange for the assertion in the form, if an enterprise manages access."""


def request_token(
    endpoint: str,
    issuer: str,
    client: ClientRegistration,
    form: Mapping[str, str],
    dpop: DpopClient | None = None,
    sign: SignAssertion | None = None,
) -> TokenRequestSteps:
    """Send a token request. Send it again if the only problem was that it lacked the server's
    nonce."""
    require_safe(endpoint, f"{issuer}: the token endpoint")
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
    """Revoke tokens at their issuer. Returns False if they cannot be revoked.

    Revoking a refresh token also revokes all access tokens of the same grant:
    https://www.rfc-editor.org/rfc/rfc7009#section-2.1
    """
    server = yield from server_metadata(tokens.issuer)
    if server.revocation_endpoint is None:
        return False
    endpoint = require_safe(server.revocation_endpoint, f"{tokens.issuer}: its revocation_endpoint")
    kind = "access_token" if tokens.refresh_token is None else "refresh_token"
    form = {"token": tokens.refresh_token or tokens.access_token, "token_type_hint": kind}
    answer = yield _form_request(endpoint, tokens.issuer, client, form, step="revocation")
    return answer.status == 200


def _form_request(
    endpoint: str,
    issuer: str,
    client: ClientRegistration,
    form: Mapping[str, str],
    headers: Mapping[str, str] = {},
    sign: SignAssertion | None = None,
    step: AuthStepName = "token",
) -> HttpRequest:
    """Return a POST request with this form and the client's authentication."""
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
    return StepRequest(
        step=step,
        method="POST",
        url=endpoint,
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
            f"{endpoint}: the response (HTTP {answer.status}) contains neither a token nor an "
            "error. Contact the operator of the authorization server."
        )
    if not reply.access_token or not all("!" <= char <= "~" for char in reply.access_token):
        raise Unauthorized(
            f"{endpoint} sent a token that cannot be used in a header. Contact the operator of the "
            "authorization server."
        )
    return reply


def request_unattended(
    grant: UnattendedGrant,
    found: DiscoveryResult,
    client: ClientRegistration,
    scopes: Sequence[str],
    dpop: DpopClient | None,
) -> TokenRequestSteps:
    """Get tokens for the discovered resource without user interaction."""
    form = {**grant.form, "resource": found.resource, "scope": " ".join(scopes)}
    if grant.login is not None:
        form["assertion"] = yield from _exchange_id_token(grant.login, found, scopes)
    issuer = found.server.issuer
    return (yield from request_token(found.token_endpoint, issuer, client, form, dpop, grant.sign))


def _exchange_id_token(
    login: EnterpriseLogin, found: DiscoveryResult, scopes: Sequence[str]
) -> Generator[HttpRequest, HttpResponse, str]:
    """Get an ID-JAG from the identity provider, which decides which servers its users may use. The
    server's authorization server redeems the ID-JAG."""
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": ID_JAG,
        "subject_token": login.id_token,
        "subject_token_type": ID_TOKEN,
        "audience": found.server.issuer,
        "resource": found.resource,
        "scope": " ".join(scopes),
        "client_id": login.client.client_id,
    }
    endpoint = login.token_endpoint
    reply = yield from request_token(endpoint, endpoint, login.client, form)
    if isinstance(reply, ErrorReply):
        raise Unauthorized(
            f"{endpoint}: the identity provider refused the token exchange ({reply.text}). "
            "Log in to the identity provider again, or contact its operator."
        )
    if reply.issued_token_type != ID_JAG:
        raise Unauthorized(
            f"{endpoint}: the identity provider did not issue the requested token (an ID-JAG)"
        )
    return reply.access_token


def assertion_signer(key: str | bytes, algorithm: str) -> SignAssertion:
    """Return a function that signs client assertions with this private key (PEM):
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
