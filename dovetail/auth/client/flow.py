"""The client's authorization flow. This module does no I/O itself.

`acquire_tokens` and `refresh_tokens` are generators. Each of them yields an `HttpRequest` and
receives its `HttpResponse`, or yields an `OpenPage` for the user to visit and receives the
parameters of the redirect. Errors are thrown into the generator. `run_flow` drives a generator, and
tests can drive one without I/O.

    acquire_tokens   discovery -> registration -> a grant (by default the authorization code with
                     PKCE) -> TokenSet
    refresh_tokens   TokenSet -> TokenSet

Each check is made at the step that it protects. Nothing that comes back through the browser, not
even an error, is trusted or shown before `state` and `iss` have been checked:
https://www.rfc-editor.org/rfc/rfc9207#section-2.4
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from ...errors import DovetailError, Unauthorized
from ...ports import Fetch, HttpRequest
from ...text import one_line
from .. import jose
from ..dpop import DpopClient
from ..urls import is_local, require_safe
from ..wire import AccessRequirements, ErrorReply, ServerMetadata, TokenReply, parse_scopes
from .browser import Visit
from .discovery import (
    DiscoveryResult,
    FlowOptions,
    discover,
    issuer_chooser,
    obtain_registration,
    require_metadata,
    use_given_client,
)
from .grants import TokenResult, UnattendedGrant, request_token, request_unattended
from .store import ClientRegistration, ServerRecord, TokenSet

R = TypeVar("R")
MAX_LIFETIME_SECONDS = 10 * 365 * 86400.0
OFFLINE_ACCESS = "offline_access"
UNKNOWN_CLIENT_ERRORS = frozenset({"invalid_client", "unauthorized_client"})
"""The errors that a server returns if it no longer knows this client."""
TOKEN_SCHEMES = {"bearer": "Bearer", "dpop": "DPoP"}


class OpenPage(Struct, frozen=True):
    """A page for the user to visit. The flow then receives the parameters of the redirect."""

    url: str
    about: str


Flow: TypeAlias = Generator[HttpRequest | OpenPage, Any, R]


async def run_flow(steps: Flow[R], fetch: Fetch, visit: Visit | None = None) -> R:
    """Run a flow to completion, sending its requests and opening its pages."""
    answer: Any = None
    error: DovetailError | None = None
    try:
        while True:
            step = steps.send(answer) if error is None else steps.throw(error)
            answer = error = None
            try:
                if not isinstance(step, OpenPage):
                    answer = await fetch(step)
                elif visit is not None:
                    answer = await visit.go(step.url, step.about)
            except DovetailError as problem:
                error = problem
    except StopIteration as end:
        result: R = end.value
        return result
    finally:
        steps.close()


def acquire_tokens(
    options: FlowOptions,
    record: ServerRecord,
    required: AccessRequirements,
    dpop: DpopClient,
    now: Callable[[], float],
    *,
    redirect_uri: str | None = None,
    grant: UnattendedGrant | None = None,
) -> Flow[TokenSet]:
    """Get tokens for a server through a login or, if a `grant` is given, without user interaction.
    New registrations are added to `record`."""
    check = partial(_check_can_log_in, options.url)
    if grant is not None:
        check = partial(require_metadata, token_endpoint=...)
    choose = issuer_chooser(options, record)
    found = yield from discover(options.url, required.metadata_url, choose, check)
    issuer = found.server.issuer
    scopes = choose_scopes(options, record, required, found, person=grant is None)
    bound = dpop if _wants_dpop(options, record, required, found) else None
    if bound is not None:
        bound.signer()  # if no key can be generated, raise before the login, not after it
    if grant is None:
        client, reply = yield from _log_in_again_if_forgotten(
            options, record, found, redirect_uri or "", scopes, bound, now
        )
    else:
        client = use_given_client(options, found, record)
        reply = yield from request_unattended(grant, found, client, scopes, bound)
    if isinstance(reply, ErrorReply):
        raise Unauthorized(f"{issuer} did not issue a token for {options.url}: {reply.text}")
    if options.dpop and reply.token_type.lower() != "dpop":
        raise Unauthorized(
            f"{issuer} issued a token that is not bound to this client's key, which dpop=True "
            "requires"
        )
    return _to_token_set(reply, found, client, scopes, now())


def registration_of(tokens: TokenSet, options: FlowOptions) -> ClientRegistration:
    """Return the client that these tokens belong to. A secret that the user passed comes from the
    options, because it is not stored with the tokens."""
    client = tokens.registration
    given = client.source == "given" and client.client_id == options.client_id
    return replace(client, client_secret=options.client_secret) if given else client


def refresh_tokens(
    tokens: TokenSet, options: FlowOptions, dpop: DpopClient, now: Callable[[], float]
) -> Flow[TokenSet | ErrorReply]:
    """Exchange a refresh token. Returns an ErrorReply if the server refuses it."""
    form = {
        "grant_type": "refresh_token",
        "refresh_token": tokens.refresh_token or "",
        "resource": tokens.resource,
    }
    bound = dpop if tokens.scheme == "DPoP" else None
    client = registration_of(tokens, options)
    reply = yield from request_token(tokens.token_endpoint, tokens.issuer, client, form, bound)
    if isinstance(reply, ErrorReply):
        return reply
    server = ServerMetadata(issuer=tokens.issuer, token_endpoint=tokens.token_endpoint)
    found = DiscoveryResult(tokens.resource, server)
    renewed = _to_token_set(reply, found, tokens.registration, tokens.requested_scopes, now())
    if renewed.scheme != tokens.scheme:
        raise Unauthorized(
            f"{tokens.issuer} issued a {renewed.scheme} token instead of a {tokens.scheme} token"
        )
    renewed.refresh_token = renewed.refresh_token or tokens.refresh_token
    renewed.granted_scopes = parse_scopes(reply.scope) or tokens.granted_scopes
    renewed.user = renewed.user or tokens.user
    return renewed


def choose_scopes(
    options: FlowOptions,
    record: ServerRecord,
    required: AccessRequirements,
    found: DiscoveryResult,
    *,
    person: bool,
) -> tuple[str, ...]:
    """Return the scopes to request.

    The result contains the scopes in the options, those that were requested before, and those in
    the challenge. If there are none, the scopes in the server's metadata are used. The result may
    be empty. If a `person` logs in and the server supports `offline_access`, that scope is added,
    so that they do not have to log in again soon.
    """
    tokens = record.tokens
    before = tokens.requested_scopes if tokens is not None else record.requested_scopes
    named = required.scopes or (() if options.scopes or before else found.scopes)
    wanted = dict.fromkeys((*options.scopes, *before, *named))
    if OFFLINE_ACCESS not in (found.server.scopes_supported or ()):
        wanted.pop(OFFLINE_ACCESS, None)
    elif wanted and person:  # on its own it would mean "no other scope"
        wanted[OFFLINE_ACCESS] = None
    return tuple(wanted)


def _log_in_again_if_forgotten(
    options: FlowOptions,
    record: ServerRecord,
    found: DiscoveryResult,
    redirect_uri: str,
    scopes: Sequence[str],
    dpop: DpopClient | None,
    now: Callable[[], float],
) -> Flow[tuple[ClientRegistration, TokenResult]]:
    """Log in. If the server no longer knows this client, register the client and log in again."""
    issuer = found.server.issuer
    known = options.client_id is None and issuer in record.registrations
    for retry in (True, False):
        client = yield from obtain_registration(options, found, record, redirect_uri, scopes, now())
        try:
            reply = yield from _log_in(found, client, redirect_uri, scopes, dpop, options.url)
        except Unauthorized:
            if known:  # the login page may have told the user that the client is unknown
                record.forget(issuer)
            raise
        forgotten = isinstance(reply, ErrorReply) and reply.error in UNKNOWN_CLIENT_ERRORS
        if not (forgotten and retry and client.source == "registered"):
            break
        record.forget(issuer)
    return client, reply


def _log_in(
    found: DiscoveryResult,
    client: ClientRegistration,
    redirect_uri: str,
    scopes: Sequence[str],
    dpop: DpopClient | None,
    about: str,
) -> Flow[TokenResult]:
    """Run the authorization code grant:
    https://datatracker.ietf.org/doc/html/draft-ietf-oauth-v2-1-13#section-4.1"""
    require_safe(redirect_uri, "The redirect URI")
    verifier, state = token_urlsafe(32), token_urlsafe(32)
    parameters = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "scope": " ".join(scopes),
        "state": state,
        "code_challenge": jose.s256(verifier),
        "code_challenge_method": "S256",
        "resource": found.resource,
        # https://openid.net/specs/openid-connect-core-1_0.html#OfflineAccess
        "prompt": "consent" if OFFLINE_ACCESS in scopes else "",
    }
    endpoint = found.server.authorization_endpoint or ""
    query = urlencode({name: value for name, value in parameters.items() if value})
    returned = yield OpenPage(f"{endpoint}{'&' if '?' in endpoint else '?'}{query}", about)
    code = _check_callback(returned, found.server, state)
    if isinstance(code, ErrorReply):
        return code
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
        "resource": found.resource,
    }
    issuer = found.server.issuer
    return (yield from request_token(found.token_endpoint, issuer, client, form, dpop))


def _check_callback(
    returned: Mapping[str, str], server: ServerMetadata, state: str
) -> str | ErrorReply:
    """Return the code from the browser's response, if the response belongs to this request."""
    if not compare_digest(returned.get("state", "").encode(errors="replace"), state.encode()):
        raise Unauthorized(
            "The authorization response belongs to another login (its state differs) and was "
            "ignored. Log in again."
        )
    issuer = returned.get("iss")
    if issuer is None and server.authorization_response_iss_parameter_supported:
        raise Unauthorized(
            "The authorization response was ignored because it has no iss parameter, which "
            f"{server.issuer} always sends. Log in again."
        )
    if issuer is not None and issuer != server.issuer:
        raise Unauthorized(
            f"The authorization response was ignored because it is from {one_line(issuer)}, not "
            f"from {server.issuer}. Log in again."
        )
    if "error" in returned:
        return ErrorReply(
            error=returned["error"], error_description=returned.get("error_description")
        )
    code = returned.get("code", "")
    if not code or not code.isascii():
        raise Unauthorized(
            f"{server.issuer}: the authorization response has no code. Log in again."
        )
    return code


def _check_can_log_in(url: str, server: ServerMetadata) -> None:
    require_metadata(
        server,
        authorization_endpoint=...,
        token_endpoint=...,
        code_challenge_methods_supported="S256",
    )
    # The addresses of our own requests are checked when connecting, but the user's browser opens
    # any URL.
    endpoint = server.authorization_endpoint or ""
    if is_local(endpoint) and not is_local(server.issuer) and not is_local(url):
        raise Unauthorized(
            f"{server.issuer}: the authorization_endpoint, {one_line(endpoint)}, was not "
            "opened because it is on the local network and the server is not"
        )


def _wants_dpop(
    options: FlowOptions,
    record: ServerRecord,
    required: AccessRequirements,
    found: DiscoveryResult,
) -> bool:
    """Return whether to request tokens that are bound to a key. The issuer must support such
    tokens. In addition, the options or the server must ask for them, or the last tokens must have
    been bound. Raises Unauthorized if bound tokens are required but not supported."""
    supported = "ES256" in (found.server.dpop_signing_alg_values_supported or ())
    needed = bool(options.dpop) or found.requires_dpop or required.schemes == {"dpop"}
    if needed and not supported:
        raise Unauthorized(
            f"{found.server.issuer} does not issue tokens that are bound to a key (DPoP with "
            "ES256), but this login requires them"
        )
    before = record.tokens is not None and record.tokens.scheme == "DPoP"
    return (
        options.dpop is not False and supported and (needed or before or "dpop" in required.schemes)
    )


def _to_token_set(
    reply: TokenReply,
    found: DiscoveryResult,
    client: ClientRegistration,
    scopes: Sequence[str],
    now: float,
) -> TokenSet:
    scheme = TOKEN_SCHEMES.get(reply.token_type.lower())
    if scheme is None:
        raise Unauthorized(
            f"{found.server.issuer} issued a token of an unknown type: {one_line(reply.token_type)}"
        )
    expires = reply.expires_in is not None and 0 < reply.expires_in < MAX_LIFETIME_SECONDS
    return TokenSet(
        access_token=reply.access_token,
        scheme=scheme,
        issuer=found.server.issuer,
        token_endpoint=found.token_endpoint,
        resource=found.resource,
        registration=replace(client, client_secret=None) if client.source == "given" else client,
        issued_at=now,
        expires_at=now + (reply.expires_in or 0) if expires else None,
        refresh_token=reply.refresh_token,
        requested_scopes=tuple(scopes),
        granted_scopes=parse_scopes(reply.scope) or tuple(scopes),
        user=_user_of(reply),
    )


def _user_of(reply: TokenReply) -> str | None:
    """Return the user name from the ID token, or from the field that our own `Provider` sends. The
    ID token came directly from the authorization server, so its signature need not be checked:
    https://openid.net/specs/openid-connect-core-1_0.html#IDTokenValidation"""
    try:
        claims = jose.decode_unverified(reply.id_token or "")[1]
    except jose.InvalidJwt:
        claims = {}
    named = (claims.get(name) for name in ("preferred_username", "email", "sub"))
    found = (*named, reply.username)
    return next((one_line(name) for name in found if isinstance(name, str) and name), None)
