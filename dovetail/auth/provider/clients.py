"""Who may ask for access: programs that were made known here, that registered, or that describe
themselves at a URL.

1. *Known*: `Provider(clients=[KnownClient(…)])`. Only these may ask on their own behalf
   (`client_credentials`).
2. *Described*: the client id is an https URL, and the document there says the rest:
   https://datatracker.ietf.org/doc/html/draft-ietf-oauth-client-id-metadata-document-00.
3. *Registered*: RFC 7591. Anybody may, so it means little: what nobody has consented to within a
   day is forgotten, and later what was not used for `LIFE`.

A client proves itself at the token endpoint by what its record says (`method`): nothing, a secret,
or a signed assertion.
"""

import re
import secrets
import time
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Literal
from urllib.parse import unquote_plus, urlsplit

import msgspec
from msgspec import Struct

from ...errors import ConfigError
from ...net import LOOPBACK_SPELLINGS
from ...ports import Fetch, HttpRequest, HttpResponse, PublicUrl
from ...text import strip_unsafe
from .. import jose
from ..documents import parse_scopes
from .storage import Storage, row_key
from .web import (
    MAX_BODY_BYTES,
    AttemptLimiter,
    DocumentCache,
    DocumentUnavailable,
    OAuthError,
    json_response,
    parse_object,
    pick_key,
    to_timestamp,
)

USED_LIFETIME_SECONDS, UNUSED_LIFETIME_SECONDS = 90 * 86400.0, 86400.0
MAX_REDIRECT_URIS = 10
MIN_SECRET_LENGTH = 16
"""Characters that the secret of a known client has at least."""
MAX_NAME_LENGTH = 80
ASSERTION_LIFE, SKEW = 600.0, 30.0
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
DOCUMENT_URL = re.compile(r"https://[a-z0-9.-]+(:[0-9]{1,5})?/[^/].*", re.IGNORECASE)
LOCAL_DOCUMENT_URL = re.compile(rf"http://({LOOPBACK_SPELLINGS})(:[0-9]{{1,5}})?/[^/].*")
CLIENT_AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")
GRANT_TYPES = ("authorization_code", "refresh_token")
Source = Literal["known", "described", "registered"]


class KnownClient(Struct, frozen=True, kw_only=True):
    """A client that is known from the start: with a `secret`, with public keys (`jwks`), or,
    without both, a public one."""

    id: str
    secret: str | None = None
    jwks: dict[str, Any] | None = None
    redirect_uris: tuple[str, ...] = ()
    name: str | None = None
    scopes: tuple[str, ...] | str | None = None
    """What it may have on its own behalf; None for all that there is."""

    def __repr__(self) -> str:
        return f"KnownClient(id={self.id!r})"


class OAuthClient(Struct, frozen=True, omit_defaults=True):
    """A client, wherever it is known from."""

    id: str
    name: str
    source: Source
    redirect_uris: tuple[str, ...] = ()
    auth_method: str = "none"
    secret: str = ""
    """The digest of it."""
    jwks: dict[str, Any] | None = None
    jwks_uri: str | None = None
    grant_types: tuple[str, ...] = GRANT_TYPES
    scopes: tuple[str, ...] | None = None

    def redirect(self, asked: str | None) -> str:
        """Where its user is sent back to; Refused where it may not be there."""
        if asked is None and len(self.redirect_uris) == 1:
            return self.redirect_uris[0]
        if asked is None or not any(redirect_matches(uri, asked) for uri in self.redirect_uris):
            raise OAuthError(
                "invalid_request", "the redirect URI is not one that this client has registered"
            )
        return asked


class ClientRegistry:
    """All that can be known of clients."""

    def __init__(
        self,
        known: Iterable[KnownClient],
        storage: Storage,
        documents: DocumentCache,
        *,
        schemes: Collection[str] = (),
        described: bool = True,
        private: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._known = {client.id: _client_from_config(client, schemes) for client in known}
        self._storage, self._documents, self._now = storage, documents, now
        self._schemes, self._takes_described, self._private = tuple(schemes), described, private
        self._rates = AttemptLimiter(100, 6.0, now)

    async def find(
        self, id: str | None, issuer: str, site: PublicUrl, address: str | None = None
    ) -> OAuthClient:
        """The client of this id, for whoever asks from this address; Refused where there is
        none."""
        if id is None:
            raise OAuthError("invalid_request", "the client_id is missing")
        if client := self._known.get(id):
            return client
        if row := await self._storage.get(row_key("client", issuer, id)):
            return msgspec.json.decode(row, type=OAuthClient)
        if self._takes_described and self._is_document(id):
            return await self._described(id, site, address)
        raise OAuthError(
            "invalid_client", "this client is not known here; it may have to register again", 401
        )

    def is_known(self, id: str) -> bool:
        """Whether this is a client that was known from the start."""
        return id in self._known

    async def register(self, request: HttpRequest, issuer: str) -> HttpResponse:
        """The registration endpoint: https://www.rfc-editor.org/rfc/rfc7591#section-3."""
        self._rates.require(request.address)
        if len(request.body) > MAX_BODY_BYTES:
            raise OAuthError(
                "invalid_client_metadata",
                f"the metadata is longer than {MAX_BODY_BYTES} bytes",
                413,
            )
        try:
            metadata = parse_object(request.body)
        except DocumentUnavailable:
            raise OAuthError("invalid_client_metadata", "the body is no JSON object") from None
        client = _client_from_metadata(
            secrets.token_urlsafe(16), metadata, "registered", self._schemes
        )
        shown: dict[str, Any] = {}
        if client.auth_method.startswith("client_secret"):
            secret = secrets.token_urlsafe(32)
            client = msgspec.structs.replace(client, secret=_digest(secret))
            shown = {"client_secret": secret, "client_secret_expires_at": 0}
        now = self._now()
        await self._storage.add(
            row_key("client", issuer, client.id),
            msgspec.json.encode(client),
            now + UNUSED_LIFETIME_SECONDS,
        )
        return json_response(
            {
                "client_id": client.id,
                "client_id_issued_at": int(now),
                **shown,
                "client_name": client.name,
                "redirect_uris": client.redirect_uris,
                "token_endpoint_auth_method": client.auth_method,
                "grant_types": client.grant_types,
                "response_types": ["code"],
                "application_type": "web"
                if metadata.get("application_type") == "web"
                else "native",
            },
            201,
        )

    async def used(self, client: OAuthClient, issuer: str) -> None:
        """Somebody consented to this client, or it came for a token: remember it for longer."""
        if client.source == "registered":
            row = msgspec.json.encode(client)
            await self._storage.change(
                row_key("client", issuer, client.id), row, row, self._now() + USED_LIFETIME_SECONDS
            )

    async def authenticate(
        self, request: HttpRequest, fields: Mapping[str, str], issuer: str, site: PublicUrl
    ) -> OAuthClient:
        """The client that calls the token endpoint, and can prove it:
        https://www.rfc-editor.org/rfc/rfc6749#section-2.3."""
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        basic = _parse_basic(credentials) if scheme.lower() == "basic" else None
        ways = [basic is not None, "client_secret" in fields, "client_assertion" in fields]
        if sum(ways) > 1:
            raise OAuthError("invalid_request", "the client proves itself in more than one way")
        headers = {"www-authenticate": 'Basic realm="token"'} if basic else {}
        wrong = OAuthError(
            "invalid_client", "the client is not known here, or its proof is wrong", 401, headers
        )
        assertion = fields.get("client_assertion")
        id = basic[0] if basic else fields.get("client_id") or _subject_of(assertion)
        if fields.get("client_id", id) != id:
            raise OAuthError(
                "invalid_request", "the client_id is not that of the Authorization header"
            )
        try:
            client = await self.find(id, issuer, site, request.address)
        except OAuthError as refused:
            raise (wrong if refused.error == "invalid_client" else refused) from None
        if client.auth_method == "private_key_jwt":
            if assertion is None or fields.get("client_assertion_type") != ASSERTION:
                raise wrong
            await self._check_assertion(client, assertion, issuer, site, request.address)
        elif client.secret:
            given = basic[1] if basic else fields.get("client_secret", "")
            if not compare_digest(_digest(given), client.secret):
                raise wrong
        return client

    def _is_document(self, id: str) -> bool:
        if len(id) > MAX_URI_LENGTH or not SAFE_CHARACTERS.fullmatch(id) or DOT_SEGMENTS.search(id):
            return False
        return bool(
            DOCUMENT_URL.fullmatch(id) or (self._private and LOCAL_DOCUMENT_URL.fullmatch(id))
        )

    def _fetch(self, site: PublicUrl) -> Fetch:
        return (
            site.fetch_trusted if self._private and site.fetch_trusted is not None else site.fetch
        )

    async def _described(self, url: str, site: PublicUrl, address: str | None) -> OAuthClient:
        try:
            document = await self._documents.get(url, self._fetch(site), address=address)
        except DocumentUnavailable as problem:
            raise OAuthError(
                "invalid_client",
                f"the document that describes this client cannot be had: {problem}",
            ) from None
        if document.get("client_id") != url:
            raise OAuthError(
                "invalid_client", "the document that describes this client is for another client_id"
            )
        if not isinstance(document.get("client_name"), str) or "client_secret" in document:
            raise OAuthError(
                "invalid_client",
                "the document that describes this client has no client_name, or has a "
                "client_secret",
            )
        client = _client_from_metadata(
            url, {"token_endpoint_auth_method": "none", **document}, "described", self._schemes
        )
        if client.auth_method.startswith("client_secret"):
            raise OAuthError(
                "invalid_client", "a client that is described by a document can have no secret"
            )
        return client

    async def _check_assertion(
        self, client: OAuthClient, assertion: str, issuer: str, site: PublicUrl, address: str | None
    ) -> None:
        # https://www.rfc-editor.org/rfc/rfc7523#section-3
        try:
            header, claims = jose.decode_unverified(assertion)
            if client.jwks_uri:
                jwk = await self._documents.key(client.jwks_uri, self._fetch(site), header, address)
            else:
                jwk = pick_key(client.jwks or {}, header)
            jose.verify(assertion, lambda _: jose.load_key(jwk), jose.ALGORITHMS)
        except (jose.InvalidJwt, DocumentUnavailable) as problem:
            raise OAuthError(
                "invalid_client", f"the client_assertion is refused: {problem}", 401
            ) from None
        now, jti = self._now(), claims.get("jti")
        ends, starts = to_timestamp(claims.get("exp")), to_timestamp(claims.get("nbf", 0))
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        checks = (
            (
                claims.get("iss") == claims.get("sub") == client.id,
                "iss and sub must be the client_id",
            ),
            (
                not {issuer, f"{issuer}/", f"{issuer}/token"}.isdisjoint(map(str, audiences)),
                "aud must be this issuer",
            ),
            (
                now - SKEW < ends <= now + ASSERTION_LIFE + SKEW,
                "exp must be within ten minutes",
            ),
            (starts <= now + SKEW, "nbf is still to come"),
            (isinstance(jti, str) and jti != "", "it needs a jti"),
        )
        for sound, reason in checks:
            if not sound:
                raise OAuthError(
                    "invalid_client", f"the client_assertion is refused: {reason}", 401
                )
        if not await self._storage.add(
            row_key("assertion", issuer, client.id, str(jti)), b"", ends + SKEW
        ):
            raise OAuthError("invalid_client", "the client_assertion was used before", 401)


def _client_from_config(client: KnownClient, schemes: Collection[str]) -> OAuthClient:
    for uri in client.redirect_uris:
        if not is_allowed_redirect(uri, schemes):
            allowed = ", ".join(("https", "http on a loopback address", *schemes))
            raise ConfigError(
                f"{client}: {uri!r} is no redirect URI that is allowed here ({allowed}); say "
                "schemes="
            )
    if client.secret is not None and len(client.secret) < MIN_SECRET_LENGTH:
        remedy = 'make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
        raise ConfigError(
            f"{client}: its secret has fewer than {MIN_SECRET_LENGTH} characters and could be "
            f"guessed; {remedy}"
        )
    method = (
        "private_key_jwt" if client.jwks else "client_secret_basic" if client.secret else "none"
    )
    return OAuthClient(
        id=client.id,
        name=client.name or client.id,
        source="known",
        redirect_uris=tuple(client.redirect_uris),
        auth_method=method,
        secret=_digest(client.secret) if client.secret else "",
        jwks=client.jwks,
        grant_types=(*GRANT_TYPES, "client_credentials")
        if client.secret or client.jwks
        else GRANT_TYPES,
        scopes=None if client.scopes is None else parse_scopes(client.scopes),
    )


def _client_from_metadata(
    id: str, metadata: Mapping[str, Any], source: Source, schemes: Collection[str]
) -> OAuthClient:
    """A client as it describes itself; what is not known is ignored:
    https://www.rfc-editor.org/rfc/rfc7591#section-2."""

    def texts(name: str, default: Iterable[str]) -> list[str]:
        value = metadata.get(name)
        if value is None:
            return list(default)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise OAuthError("invalid_client_metadata", f"{name} must be a list of strings")
        return value

    uris = texts("redirect_uris", ())
    if not 1 <= len(uris) <= MAX_REDIRECT_URIS:
        raise OAuthError(
            "invalid_redirect_uri", f"there must be between 1 and {MAX_REDIRECT_URIS} redirect_uris"
        )
    if not all(is_allowed_redirect(uri, schemes) for uri in uris):
        raise OAuthError(
            "invalid_redirect_uri",
            "each of redirect_uris must be https, http on a loopback address, or have a "
            "scheme that is allowed here",
        )
    grants = [grant for grant in texts("grant_types", GRANT_TYPES) if grant in GRANT_TYPES]
    if "authorization_code" not in grants or "code" not in texts("response_types", ("code",)):
        raise OAuthError(
            "invalid_client_metadata",
            "only the authorization_code grant with response type code is given",
        )
    method = metadata.get("token_endpoint_auth_method") or "client_secret_basic"
    jwks, jwks_uri = metadata.get("jwks"), metadata.get("jwks_uri")
    keyed = isinstance(jwks, dict) or (
        isinstance(jwks_uri, str) and bool(DOCUMENT_URL.fullmatch(jwks_uri))
    )
    if method not in CLIENT_AUTH_METHODS or (method == "private_key_jwt" and not keyed):
        raise OAuthError(
            "invalid_client_metadata",
            f"token_endpoint_auth_method must be one of {', '.join(CLIENT_AUTH_METHODS)}, the last "
            "with keys",
        )
    name = metadata.get("client_name")
    return OAuthClient(
        id=id,
        name=strip_unsafe(name)[:MAX_NAME_LENGTH] if isinstance(name, str) else "",
        source=source,
        redirect_uris=tuple(uris),
        auth_method=method,
        jwks=jwks if method == "private_key_jwt" and isinstance(jwks, dict) else None,
        jwks_uri=jwks_uri if method == "private_key_jwt" and not isinstance(jwks, dict) else None,
        grant_types=tuple(grants),
    )


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _parse_basic(credentials: str) -> tuple[str, str]:
    try:
        id, _, secret = b64decode(credentials.strip(), validate=True).decode().partition(":")
    except ValueError:
        raise OAuthError("invalid_client", "the Authorization header cannot be read", 401) from None
    return unquote_plus(id), unquote_plus(secret)


def _subject_of(assertion: str | None) -> str | None:
    try:
        subject = jose.decode_unverified(assertion)[1].get("sub") if assertion else None
    except jose.InvalidJwt:
        return None
    return subject if isinstance(subject, str) else None


# --- merged from redirects.py (integrate, then remove this comment)
# Where a client may have its user sent back to.
#
# A URI is taken as text and never repaired: what a browser might read in another way than we do
# (userinfo, backslashes, control characters, dot segments) is no redirect URI. Asked for and
# registered one have to be the same, letter by letter; only the port of a loopback address may
# differ, as a native program takes whichever is free:
# https://www.rfc-editor.org/rfc/rfc8252#section-7.3.

MAX_URI_LENGTH = 2000
SAFE_CHARACTERS = re.compile(r"[!$-;=?-\[\]_a-z~]+", re.ASCII)
"""Printable ASCII without quotes, backslash, `#` (no fragments), `<`, `>`, `^`, `{`, `|`, `}`."""
DOT_SEGMENTS = re.compile(r"/(\.|%2e){1,2}(?=[/?]|$)", re.IGNORECASE)
HTTPS_URI = re.compile(
    r"https://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?(?=[/?]|$)", re.IGNORECASE
)
LOOPBACK_URI = re.compile(rf"(http://(?:{LOOPBACK_SPELLINGS}))(?::[0-9]{{1,5}})?(?=([/?].*)?$)")


def is_allowed_redirect(uri: str, schemes: Collection[str] = ()) -> bool:
    """Whether anybody may register this: https, http to the user's own machine, or one of these
    schemes."""
    if (
        len(uri) > MAX_URI_LENGTH
        or not SAFE_CHARACTERS.fullmatch(uri)
        or DOT_SEGMENTS.search(uri)
        or not _is_sound(uri)
    ):
        return False
    scheme, colon, rest = uri.partition(":")
    return bool(
        HTTPS_URI.match(uri)
        or LOOPBACK_URI.match(uri)
        or (scheme in schemes and colon and rest.startswith("/"))
    )


def _is_sound(uri: str) -> bool:
    """Whether its address, if it is one of IPv6, and its port are some that exist."""
    try:
        return urlsplit(uri).port != 0
    except ValueError:
        return False


def redirect_matches(registered: str, asked: str) -> bool:
    """Whether the URI that is asked for is the one that was registered."""
    if registered == asked:
        return True
    ours, theirs = LOOPBACK_URI.match(registered), LOOPBACK_URI.match(asked)
    return (
        ours is not None
        and theirs is not None
        and is_allowed_redirect(asked)
        and ours.groups() == theirs.groups()
    )


def is_loopback_redirect(uri: str) -> bool:
    """Whether it leads to a program on the user's own machine."""
    return LOOPBACK_URI.match(uri) is not None


def is_https_redirect(uri: str) -> bool:
    """Whether it leads to a site that proves by its certificate who it is."""
    return HTTPS_URI.match(uri) is not None


def redirect_host(uri: str) -> str:
    """What a user is told of it: the host, or the scheme of a native program."""
    scheme, _, rest = uri.partition(":")
    if scheme.lower() not in ("https", "http"):
        return f"{scheme}:"
    return re.split(r"[/?]", rest[2:], maxsplit=1)[0].lower()


def policy_source(uri: str) -> str:
    """The same as a source of a content security policy."""
    scheme, _, _ = uri.partition(":")
    named = scheme.lower() in ("https", "http") and "[" not in redirect_host(
        uri
    )  # policies have no word for IPv6
    return f"{scheme}://{redirect_host(uri)}" if named else f"{scheme}:"
