"""The whole of a client's authorization, without I/O.

`acquire` and `refresh` are generators. They yield an `HttpRequest` to be sent, and are sent the
`HttpResponse`; or a `Go`, a page that a person has to visit, and are sent the parameters that came
back at the redirect URI. What fails on the way is thrown into them. `bound.py` does all that; a
test does it in microseconds.

    acquire     discovery -> registration -> a grant (by default the authorization code with PKCE)
                -> Tokens
    refresh     Tokens -> Tokens

What has to hold at each step stands at that step. Of an answer that came through the browser
nothing is believed, nor shown, before `state` and `iss` have been checked, errors included:
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

from ...errors import Unauthorized
from ...ports import HttpRequest
from ...text import one_line
from .. import jose
from ..challenges import AccessRequirements
from ..documents import ErrorReply, ServerMetadata, TokenReply, words
from ..dpop import DpopClient
from ..urls import is_local, require_safe
from .discovery import CheckServer, DiscoveryResult, discover, require_metadata
from .grants import TokenResult, UnattendedGrant, request_token
from .registration import ClientIdentity, issuer_chooser, obtain_registration, use_given_client
from .store import ClientRegistration, ServerRecord, TokenSet

R = TypeVar("R")
MAX_LIFETIME_SECONDS = 10 * 365 * 86400.0
OFFLINE_ACCESS = "offline_access"
UNKNOWN_CLIENT_ERRORS = frozenset({"invalid_client", "unauthorized_client"})
"""What a server says that does not know this client any more."""
TOKEN_SCHEMES = {"bearer": "Bearer", "dpop": "DPoP"}


class OpenPage(Struct, frozen=True):
    """A page that a person has to visit; what comes back are the parameters at the redirect URI."""

    url: str
    about: str


Flow: TypeAlias = Generator[HttpRequest | OpenPage, Any, R]


class FlowOptions(Struct, frozen=True, kw_only=True):
    """What a client wants, whatever it will be told."""

    url: str
    identity: ClientIdentity
    scopes: tuple[str, ...] = ()
    dpop: bool | None = None
    """Whether tokens are to be bound to a key; None leaves that to the server."""
    fresh: bool = False
    """Whether to log in anew whatever is kept, which stays until that worked."""


def acquire_tokens(
    plan: FlowOptions,
    record: ServerRecord,
    demand: AccessRequirements,
    proofs: DpopClient,
    now: Callable[[], float],
    *,
    redirect_uri: str | None = None,
    grant: UnattendedGrant | None = None,
) -> Flow[TokenSet]:
    """Tokens for a server, by a login or, with a `grant`, without anybody's help. `record` learns
    of new registrations."""
    suits: CheckServer = (
        partial(_check_can_log_in, plan.url) if grant is None else _check_gives_tokens
    )
    place = yield from discover(
        plan.url, demand.metadata_url, issuer_chooser(plan.identity, record), suits
    )
    issuer = place.server.issuer
    scopes = choose_scopes(plan, record, demand, place, person=grant is None)
    bound = proofs if _wants_dpop(plan, record, demand, place) else None
    if bound is not None:
        bound.prover()  # where there can be no key, that is said before a login and not after it
    if grant is None:
        client, reply = yield from _log_in_twice_if_forgotten(
            plan, record, place, redirect_uri or "", scopes, bound, now
        )
    else:
        client = use_given_client(plan.identity, place, record)
        reply = yield from grant(place, client, scopes, bound)
    if isinstance(reply, ErrorReply):
        raise Unauthorized(f"{issuer} gives no token for {plan.url}: {reply.text}")
    if plan.dpop and reply.token_type.lower() != "dpop":
        raise Unauthorized(
            f"{issuer} gave out a token that is not bound to this client's key, as dpop=True "
            "demands"
        )
    return _to_token_set(reply, place, client, scopes, now())


def registration_of(tokens: TokenSet, identity: ClientIdentity) -> ClientRegistration:
    """The client that these tokens belong to; a secret that was given is the user's to keep, and to
    change."""
    client = tokens.registration
    mine = client.source == "given" and client.client_id == identity.client_id
    return replace(client, client_secret=identity.client_secret) if mine else client


def refresh_tokens(
    tokens: TokenSet, identity: ClientIdentity, proofs: DpopClient, now: Callable[[], float]
) -> Flow[TokenSet | ErrorReply]:
    """New tokens for old ones, or why there are none."""
    form = {
        "grant_type": "refresh_token",
        "refresh_token": tokens.refresh_token or "",
        "resource": tokens.resource,
    }
    bound = proofs if tokens.scheme == "DPoP" else None
    reply = yield from request_token(
        tokens.token_endpoint, tokens.issuer, registration_of(tokens, identity), form, bound
    )
    if isinstance(reply, ErrorReply):
        return reply
    server = ServerMetadata(issuer=tokens.issuer, token_endpoint=tokens.token_endpoint)
    renewed = _to_token_set(
        reply,
        DiscoveryResult(tokens.resource, server),
        tokens.registration,
        tokens.requested_scopes,
        now(),
    )
    if renewed.scheme != tokens.scheme:
        raise Unauthorized(
            f"{tokens.issuer} gave out a {renewed.scheme} token for a {tokens.scheme} one, "
            "which is less or useless"
        )
    renewed.refresh_token = renewed.refresh_token or tokens.refresh_token
    renewed.granted_scopes = words(reply.scope) or tokens.granted_scopes
    renewed.user = renewed.user or tokens.user
    return renewed


def choose_scopes(
    plan: FlowOptions,
    record: ServerRecord,
    demand: AccessRequirements,
    place: DiscoveryResult,
    *,
    person: bool,
) -> tuple[str, ...]:
    """What to ask for: what the challenge names, else what the server says is needed; what was
    asked for before, so that nothing is lost; and whatever the user wants. Nothing is an answer
    too. A `person` is not to be asked again soon."""
    before = (
        record.tokens.requested_scopes if record.tokens is not None else record.requested_scopes
    )
    named = demand.scopes or (() if plan.scopes or before else place.scopes)
    wanted = dict.fromkeys((*plan.scopes, *before, *named))
    supported = OFFLINE_ACCESS in (place.server.scopes_supported or ())
    if not supported:
        wanted.pop(OFFLINE_ACCESS, None)
    elif wanted and person:  # alone it would stand for "nothing else"
        wanted[OFFLINE_ACCESS] = None
    return tuple(wanted)


def _log_in_twice_if_forgotten(
    plan: FlowOptions,
    record: ServerRecord,
    place: DiscoveryResult,
    redirect_uri: str,
    scopes: Sequence[str],
    proofs: DpopClient | None,
    now: Callable[[], float],
) -> Flow[tuple[ClientRegistration, TokenResult]]:
    """A login, and a second one where it turned out that the server had forgotten this client."""
    issuer = place.server.issuer
    known = plan.identity.client_id is None and issuer in record.registrations
    for again in (True, False):
        client = yield from obtain_registration(
            plan.identity, place, record, redirect_uri, scopes, now()
        )
        try:
            reply = yield from _log_in(place, client, redirect_uri, scopes, proofs, plan.url)
        except Unauthorized:
            if (
                known
            ):  # it may well be that its page told the user that it does not know this client
                record.forget(issuer)
            raise
        forgotten = (
            isinstance(reply, ErrorReply)
            and reply.error in UNKNOWN_CLIENT_ERRORS
            and client.source == "registered"
        )
        if not (forgotten and again):
            break
        record.forget(issuer)
    return client, reply


def _log_in(
    place: DiscoveryResult,
    client: ClientRegistration,
    redirect_uri: str,
    scopes: Sequence[str],
    proofs: DpopClient | None,
    about: str,
) -> Flow[TokenResult]:
    """The authorization code grant:
    https://datatracker.ietf.org/doc/html/draft-ietf-oauth-v2-1-13#section-4.1"""
    require_safe(redirect_uri, "the redirect URI")
    verifier, state = token_urlsafe(32), token_urlsafe(32)
    asked = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "scope": " ".join(scopes),
        "state": state,
        "code_challenge": jose.s256(verifier),
        "code_challenge_method": "S256",
        "resource": place.resource,
        # https://openid.net/specs/openid-connect-core-1_0.html#OfflineAccess
        "prompt": "consent" if OFFLINE_ACCESS in scopes else "",
    }
    endpoint = place.server.authorization_endpoint or ""
    query = urlencode({name: value for name, value in asked.items() if value})
    came = yield OpenPage(f"{endpoint}{'&' if '?' in endpoint else '?'}{query}", about)
    code = _check_callback(came, place.server, state)
    if isinstance(code, ErrorReply):
        return code
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
        "resource": place.resource,
    }
    return (
        yield from request_token(place.token_endpoint, place.server.issuer, client, form, proofs)
    )


def _check_callback(
    came: Mapping[str, str], server: ServerMetadata, state: str
) -> str | ErrorReply:
    """The code of an answer that came through the browser, if it is one to this very question."""
    if not compare_digest(came.get("state", "").encode(errors="replace"), state.encode()):
        raise Unauthorized(
            "the answer that came back is to another login (its state differs); it was "
            "dropped, log in again"
        )
    issuer = came.get("iss")
    if issuer is None and server.authorization_response_iss_parameter_supported:
        raise Unauthorized(
            f"the answer that came back does not say that it is from {server.issuer}, as that "
            "promised; it was dropped"
        )
    if issuer is not None and issuer != server.issuer:
        raise Unauthorized(
            f"the answer that came back is from {one_line(issuer)} and not from {server.issuer}; "
            "it was dropped"
        )
    if "error" in came:
        return ErrorReply(error=came["error"], error_description=came.get("error_description"))
    code = came.get("code", "")
    if not code or not code.isascii():
        raise Unauthorized(
            f"{server.issuer}: the answer that came back has no code in it; log in again"
        )
    return code


def _check_can_log_in(url: str, server: ServerMetadata) -> None:
    require_metadata(
        server,
        authorization_endpoint=...,
        token_endpoint=...,
        code_challenge_methods_supported="S256",
    )
    # What is fetched is looked at when it is connected to; the user's browser opens whatever it is
    # given.
    if (
        is_local(server.authorization_endpoint or "")
        and not is_local(server.issuer)
        and not is_local(url)
    ):
        raise Unauthorized(
            f"{server.issuer}: its authorization_endpoint is on the local network, where a "
            "server elsewhere must not send "
            f"a browser: {one_line(server.authorization_endpoint or '')}"
        )


def _check_gives_tokens(server: ServerMetadata) -> None:
    require_metadata(server, token_endpoint=...)


def _wants_dpop(
    plan: FlowOptions, record: ServerRecord, demand: AccessRequirements, place: DiscoveryResult
) -> bool:
    """Whether to ask for tokens that are bound to a key: where they are wanted, and the issuer
    makes them."""
    able = "ES256" in (place.server.dpop_signing_alg_values_supported or ())
    needed = bool(plan.dpop) or place.requires_dpop or demand.schemes == {"dpop"}
    if needed and not able:
        raise Unauthorized(
            f"{place.server.issuer}: it makes no tokens that are bound to a key (DPoP, "
            "ES256), which are needed here"
        )
    before = record.tokens is not None and record.tokens.scheme == TOKEN_SCHEMES["dpop"]
    return plan.dpop is not False and able and (needed or before or "dpop" in demand.schemes)


def _to_token_set(
    reply: TokenReply,
    place: DiscoveryResult,
    client: ClientRegistration,
    scopes: Sequence[str],
    now: float,
) -> TokenSet:
    scheme = TOKEN_SCHEMES.get(reply.token_type.lower())
    if scheme is None:
        raise Unauthorized(
            f"{place.server.issuer} gave out a token of a kind that is not known here: "
            f"{one_line(reply.token_type)}"
        )
    lasts = reply.expires_in is not None and 0 < reply.expires_in < MAX_LIFETIME_SECONDS
    return TokenSet(
        access_token=reply.access_token,
        scheme=scheme,
        issuer=place.server.issuer,
        token_endpoint=place.token_endpoint,
        resource=place.resource,
        registration=replace(client, client_secret=None) if client.source == "given" else client,
        issued_at=now,
        expires_at=now + (reply.expires_in or 0) if lasts else None,
        refresh_token=reply.refresh_token,
        requested_scopes=tuple(scopes),
        granted_scopes=words(reply.scope) or tuple(scopes),
        user=_user_of(reply.id_token),
    )


def _user_of(id_token: str | None) -> str | None:
    """Who an ID token is about. It came from the authorization server itself, so nobody has to look
    at its signature: https://openid.net/specs/openid-connect-core-1_0.html#IDTokenValidation"""
    try:
        claims = jose.decode_unverified(id_token or "")[1]
    except jose.InvalidJwt:
        return None
    found = (claims.get(name) for name in ("preferred_username", "email", "sub"))
    return next((one_line(name) for name in found if isinstance(name, str) and name), None)
