"""The provider's clients, which are configured, registered, or described by a document at their
URL.

1. *Known*: `Provider(clients=[KnownClient(…)])`. Only known clients may act on their own behalf
   (`client_credentials`).
2. *Described*: the client id is an https URL, and the document at that URL describes the client:
   https://datatracker.ietf.org/doc/html/draft-ietf-oauth-client-id-metadata-document-00
3. *Registered*: the client registered itself (RFC 7591). Anyone may register, so a registration
   does not prove an identity. A registration is deleted if no user consents to the client within a
   day, or if the client is not used for 90 days.

A client authenticates at the token endpoint with the method that it registered (`auth_method`):
none, a secret, or a signed assertion.

**Redirect URIs** are never normalised. URIs that a browser could parse differently (with user
names, backslashes, control characters or dot segments) are refused. The requested URI must be
identical to a registered URI. Only the port of a loopback address may differ, because native
programs use any free port: https://www.rfc-editor.org/rfc/rfc8252#section-7.3
"""

import re
import secrets
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Mapping
from hmac import compare_digest
from typing import Any, Literal
from urllib.parse import unquote_plus, urlsplit

import msgspec
from msgspec import Struct

from ...errors import ConfigError
from ...net import LOOPBACK_SPELLINGS
from ...ports import Fetch, HttpResponse, PublicUrl
from ...text import strip_unsafe
from .. import jose
from ..server.verifiers import TokenRefused, check_times, trusted_fetch
from ..wire import ClientMetadata, decode_object, parse_scopes
from .storage import Storage, digest_of, row_key
from .web import (
    MAX_BODY_BYTES,
    DocumentCache,
    DocumentUnavailable,
    OAuthError,
    ProviderRequest,
    json_response,
    pick_key,
)

USED_LIFETIME_SECONDS, UNUSED_LIFETIME_SECONDS = 90 * 86400.0, 86400.0
MAX_REDIRECT_URIS = 10
MIN_SECRET_LENGTH = 16
MAX_NAME_LENGTH = 80
ASSERTION_LIFETIME_SECONDS, SKEW_SECONDS = 600.0, 30.0
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
CLIENT_AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")
GRANT_TYPES = ("authorization_code", "refresh_token")
Source = Literal["known", "described", "registered"]

MAX_URI_LENGTH = 2000
SAFE_CHARACTERS = re.compile(r"[!$-;=?-\[\]_a-z~]+", re.ASCII)
"""The characters that are allowed in a URI: printable ASCII except quotes, backslashes, `#` (no
fragments), `<`, `>`, `^`, `{`, `|` and `}`."""
DOT_SEGMENTS = re.compile(r"/(\.|%2e){1,2}(?=[/?]|$)", re.IGNORECASE)
HTTPS_URI = re.compile(
    r"https://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?(?=[/?]|$)", re.IGNORECASE
)
LOOPBACK_URI = re.compile(rf"(http://(?:{LOOPBACK_SPELLINGS}))(?::[0-9]{{1,5}})?(?=([/?].*)?$)")
DOCUMENT_URL = re.compile(r"https://[a-z0-9.-]+(:[0-9]{1,5})?/[^/].*", re.IGNORECASE)
LOCAL_DOCUMENT_URL = re.compile(rf"http://({LOOPBACK_SPELLINGS})(:[0-9]{{1,5}})?/[^/].*")


# redirect URIs


def is_allowed_redirect(uri: str, schemes: Collection[str] = ()) -> bool:
    """Return whether a client may register this URI. The URI must use https, http on the user's own
    machine, or one of these schemes."""
    if not _is_unambiguous(uri):
        return False
    try:
        valid_port = urlsplit(uri).port != 0
    except ValueError:  # a malformed port or IPv6 address
        return False
    scheme, colon, rest = uri.partition(":")
    return valid_port and bool(
        HTTPS_URI.match(uri)
        or LOOPBACK_URI.match(uri)
        or (scheme in schemes and colon and rest.startswith("/"))
    )


def _is_unambiguous(uri: str) -> bool:
    return (
        len(uri) <= MAX_URI_LENGTH
        and SAFE_CHARACTERS.fullmatch(uri) is not None
        and not DOT_SEGMENTS.search(uri)
    )


def redirect_matches(registered: str, requested: str) -> bool:
    """Return whether the requested URI matches the registered URI."""
    if registered == requested:
        return True
    ours, theirs = LOOPBACK_URI.match(registered), LOOPBACK_URI.match(requested)
    return (
        ours is not None
        and theirs is not None
        and is_allowed_redirect(requested)
        and ours.groups() == theirs.groups()
    )


def is_loopback_redirect(uri: str) -> bool:
    """Return whether a URI leads to a program on the user's own machine."""
    return LOOPBACK_URI.match(uri) is not None


def is_https_redirect(uri: str) -> bool:
    """Return whether a URI leads to a site that is authenticated by a certificate."""
    return HTTPS_URI.match(uri) is not None


def redirect_host(uri: str) -> str:
    """Return the part of a URI to show to users: its host, or the scheme of a native program."""
    scheme, _, rest = uri.partition(":")
    if scheme.lower() not in ("https", "http"):
        return f"{scheme}:"
    return re.split(r"[/?]", rest[2:], maxsplit=1)[0].lower()


def policy_source(uri: str) -> str:
    """Return a URI as a source for a content security policy."""
    scheme, _, _ = uri.partition(":")
    host = redirect_host(uri)
    # Policies have no syntax for IPv6 addresses.
    is_host = scheme.lower() in ("https", "http") and "[" not in host
    return f"{scheme}://{host}" if is_host else f"{scheme}:"


# clients


class KnownClient(Struct, frozen=True, kw_only=True):
    """A configured client: `Provider(clients=[KnownClient(id="backup", secret="…")])`.

    A client with a `secret` or public keys (`jwks`) is confidential. Any other client is public.

    Args:
        id: The client id.
        secret: The client's secret, which must have at least 16 characters (default: none).
        jwks: The client's public keys as a JWK set, if it authenticates with signed assertions.
        redirect_uris: The URIs that users may be sent back to after a login.
        name: The name that users see (default: the id).
        scopes: The scopes that the client may request on its own behalf, as a tuple or a
            space-separated string (default: all).
    """

    id: str
    secret: str | None = None
    jwks: dict[str, Any] | None = None
    redirect_uris: tuple[str, ...] = ()
    name: str | None = None
    scopes: tuple[str, ...] | str | None = None

    def __repr__(self) -> str:
        return f"KnownClient(id={self.id!r})"


class OAuthClient(Struct, frozen=True, omit_defaults=True):
    """A known, described or registered client."""

    id: str
    name: str
    source: Source
    redirect_uris: tuple[str, ...] = ()
    auth_method: str = "none"
    secret: str = ""
    """The digest of the secret."""
    jwks: dict[str, Any] | None = None
    jwks_uri: str | None = None
    grant_types: tuple[str, ...] = GRANT_TYPES
    scopes: tuple[str, ...] | None = None

    def choose_redirect(self, requested: str | None) -> str:
        """Return the URI that the user is sent back to. Raises OAuthError if the URI is not
        registered."""
        if requested is None and len(self.redirect_uris) == 1:
            return self.redirect_uris[0]
        if requested is None or not any(
            redirect_matches(uri, requested) for uri in self.redirect_uris
        ):
            raise OAuthError(
                "invalid_request", "the redirect URI is not registered for this client"
            )
        return requested


class ClientRegistry:
    """Finds, registers and authenticates clients."""

    def __init__(
        self,
        known: Iterable[KnownClient],
        storage: Storage,
        now: Callable[[], float],
        *,
        schemes: Collection[str] = (),
        described: bool = True,
        private: bool = False,
    ) -> None:
        self._known = {client.id: _client_from_config(client, schemes) for client in known}
        self._storage, self._documents, self._now = storage, DocumentCache(now), now
        self._schemes, self._allows_described, self._private = tuple(schemes), described, private

    async def find(self, id: str | None, request: ProviderRequest) -> OAuthClient:
        """Return the client with the id that a request names. Raises OAuthError if there is no such
        client."""
        if id is None:
            raise OAuthError("invalid_request", "the client_id is missing")
        if client := self._known.get(id):
            return client
        if row := await self._storage.get(row_key("client", request.issuer, id)):
            return msgspec.json.decode(row, type=OAuthClient)
        if self._allows_described and self._is_document(id):
            return await self._fetch_described(id, request)
        raise OAuthError(
            "invalid_client", "this client is unknown and may need to register again", 401
        )

    def is_known(self, id: str) -> bool:
        """Return whether a client with this id is configured."""
        return id in self._known

    async def register(self, request: ProviderRequest) -> HttpResponse:
        """Answer a registration request: https://www.rfc-editor.org/rfc/rfc7591#section-3"""
        if len(request.body) > MAX_BODY_BYTES:
            raise OAuthError(
                "invalid_client_metadata",
                f"the metadata is longer than {MAX_BODY_BYTES} bytes",
                413,
            )
        metadata = decode_object(request.body)
        if metadata is None:
            raise OAuthError("invalid_client_metadata", "the body is not a JSON object")
        client = _client_from_metadata(
            secrets.token_urlsafe(16), metadata, "registered", self._schemes
        )
        shown: dict[str, Any] = {}
        if client.auth_method.startswith("client_secret"):
            secret = secrets.token_urlsafe(32)
            client = msgspec.structs.replace(client, secret=digest_of(secret))
            shown = {"client_secret": secret, "client_secret_expires_at": 0}
        now = self._now()
        key = row_key("client", request.issuer, client.id)
        await self._storage.add(key, msgspec.json.encode(client), now + UNUSED_LIFETIME_SECONDS)
        is_web = metadata.get("application_type") == "web"
        reply = {
            "client_id": client.id,
            "client_id_issued_at": int(now),
            **shown,
            "client_name": client.name,
            "redirect_uris": client.redirect_uris,
            "token_endpoint_auth_method": client.auth_method,
            "grant_types": client.grant_types,
            "response_types": ["code"],
            "application_type": "web" if is_web else "native",
        }
        return json_response(reply, 201)

    async def extend(self, client: OAuthClient, issuer: str) -> None:
        """Extend a registration after a user has consented or the client has received a token."""
        if client.source == "registered":
            row = msgspec.json.encode(client)
            key = row_key("client", issuer, client.id)
            await self._storage.change(key, row, row, self._now() + USED_LIFETIME_SECONDS)

    async def authenticate(
        self, request: ProviderRequest, fields: Mapping[str, str]
    ) -> OAuthClient:
        """Return the client that is calling the token endpoint. Raises OAuthError if authentication
        fails: https://www.rfc-editor.org/rfc/rfc6749#section-2.3"""
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        basic = _parse_basic(credentials) if scheme.lower() == "basic" else None
        if (basic is not None) + ("client_secret" in fields) + ("client_assertion" in fields) > 1:
            raise OAuthError(
                "invalid_request", "the client uses more than one authentication method"
            )
        headers = {"www-authenticate": 'Basic realm="token"'} if basic else {}
        failed = OAuthError(
            "invalid_client",
            "the client is unknown, or its authentication failed",
            401,
            headers,
        )
        assertion = fields.get("client_assertion")
        id = basic[0] if basic else fields.get("client_id") or _subject_of(assertion)
        if fields.get("client_id", id) != id:
            raise OAuthError(
                "invalid_request", "the client_id does not match the Authorization header"
            )
        try:
            client = await self.find(id, request)
        except OAuthError as error:
            raise (failed if error.error == "invalid_client" else error) from None
        if client.auth_method == "private_key_jwt":
            if assertion is None or fields.get("client_assertion_type") != ASSERTION:
                raise failed
            await self._check_assertion(client, assertion, request)
        elif client.secret:
            secret = basic[1] if basic else fields.get("client_secret", "")
            if not compare_digest(digest_of(secret), client.secret):
                raise failed
        return client

    def _is_document(self, id: str) -> bool:
        return _is_unambiguous(id) and bool(
            DOCUMENT_URL.fullmatch(id) or (self._private and LOCAL_DOCUMENT_URL.fullmatch(id))
        )

    def _fetch_of(self, public_url: PublicUrl) -> Fetch:
        return trusted_fetch(public_url) if self._private else public_url.fetch

    async def _fetch_described(self, url: str, request: ProviderRequest) -> OAuthClient:
        def refuse(reason: str) -> OAuthError:
            return OAuthError("invalid_client", f"the client's metadata document {reason}")

        try:
            document = await self._documents.get(
                url, self._fetch_of(request.public_url), address=request.address
            )
        except DocumentUnavailable as error:
            raise refuse(f"cannot be fetched: {error}") from None
        if document.get("client_id") != url:
            raise refuse("is for another client_id")
        if not isinstance(document.get("client_name"), str) or "client_secret" in document:
            raise refuse("has no client_name, or has a client_secret")
        metadata = {"token_endpoint_auth_method": "none", **document}
        client = _client_from_metadata(url, metadata, "described", self._schemes)
        if client.auth_method.startswith("client_secret"):
            raise refuse("requests a client_secret, which is only issued to registered clients")
        return client

    async def _check_assertion(
        self, client: OAuthClient, assertion: str, request: ProviderRequest
    ) -> None:
        # https://www.rfc-editor.org/rfc/rfc7523#section-3
        def refuse(reason: object) -> OAuthError:
            return OAuthError("invalid_client", f"the client_assertion was refused: {reason}", 401)

        try:
            header, claims = jose.decode_unverified(assertion)
            if client.jwks_uri:
                fetch = self._fetch_of(request.public_url)
                jwk = await self._documents.key(client.jwks_uri, fetch, header, request.address)
            else:
                jwk = pick_key(client.jwks or {}, header)
            jose.verify(assertion, lambda _: jose.load_key(jwk), jose.ALGORITHMS)
            now = self._now()
            check_times(claims, now, SKEW_SECONDS)
        except (jose.InvalidJwt, TokenRefused, DocumentUnavailable) as error:
            raise refuse(error) from None
        issuer, jti = request.issuer, claims.get("jti")
        latest = now + ASSERTION_LIFETIME_SECONDS + SKEW_SECONDS
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
            (claims["exp"] <= latest, "exp must be within the next ten minutes"),
            (isinstance(jti, str) and jti != "", "the jti claim is missing"),
        )
        for passed, reason in checks:
            if not passed:
                raise refuse(reason)
        key = row_key("assertion", issuer, client.id, str(jti))
        if not await self._storage.add(key, b"", claims["exp"] + SKEW_SECONDS):
            raise refuse("the assertion was already used")


def _client_from_config(client: KnownClient, schemes: Collection[str]) -> OAuthClient:
    for uri in client.redirect_uris:
        if not is_allowed_redirect(uri, schemes):
            allowed = ", ".join(("https", "http on a loopback address", *schemes))
            raise ConfigError(
                f"{client}: the redirect URI {uri!r} is not allowed. Use one of {allowed}, or pass "
                "Provider(schemes=…)."
            )
    if client.secret is not None and len(client.secret) < MIN_SECRET_LENGTH:
        raise ConfigError(
            f"{client}: the secret has fewer than {MIN_SECRET_LENGTH} characters and could be "
            "guessed. Create one with: "
            'python -c "import secrets; print(secrets.token_urlsafe(32))"'
        )
    secret_method = "client_secret_basic" if client.secret else "none"
    return OAuthClient(
        id=client.id,
        name=client.name or client.id,
        source="known",
        redirect_uris=tuple(client.redirect_uris),
        auth_method="private_key_jwt" if client.jwks else secret_method,
        secret=digest_of(client.secret) if client.secret else "",
        jwks=client.jwks,
        grant_types=(*GRANT_TYPES, "client_credentials")
        if client.secret or client.jwks
        else GRANT_TYPES,
        scopes=None if client.scopes is None else parse_scopes(client.scopes),
    )


def _client_from_metadata(
    id: str, metadata: Mapping[str, Any], source: Source, schemes: Collection[str]
) -> OAuthClient:
    """Return the client that this metadata describes. Unknown fields are ignored:
    https://www.rfc-editor.org/rfc/rfc7591#section-2"""
    try:
        described = msgspec.convert(metadata, ClientMetadata)
    except msgspec.ValidationError as error:
        raise OAuthError("invalid_client_metadata", f"the metadata is malformed: {error}") from None
    uris = described.redirect_uris
    if not 1 <= len(uris) <= MAX_REDIRECT_URIS:
        raise OAuthError(
            "invalid_redirect_uri",
            f"redirect_uris must contain between 1 and {MAX_REDIRECT_URIS} URIs",
        )
    if not all(is_allowed_redirect(uri, schemes) for uri in uris):
        raise OAuthError(
            "invalid_redirect_uri",
            "each redirect URI must use https, http on a loopback address, or another allowed "
            "scheme",
        )
    requested = GRANT_TYPES if described.grant_types is None else described.grant_types
    grants = tuple(grant for grant in requested if grant in GRANT_TYPES)
    response_types = described.response_types
    if "authorization_code" not in grants or "code" not in (
        ("code",) if response_types is None else response_types
    ):
        raise OAuthError(
            "invalid_client_metadata",
            "only the authorization_code grant with the response type code is supported",
        )
    method = described.token_endpoint_auth_method or "client_secret_basic"
    signs = method == "private_key_jwt"
    has_keys = described.jwks is not None or DOCUMENT_URL.fullmatch(described.jwks_uri or "")
    if method not in CLIENT_AUTH_METHODS or (signs and not has_keys):
        raise OAuthError(
            "invalid_client_metadata",
            f"token_endpoint_auth_method must be one of {', '.join(CLIENT_AUTH_METHODS)}; "
            "private_key_jwt requires keys",
        )
    return OAuthClient(
        id=id,
        name=strip_unsafe(described.client_name or "")[:MAX_NAME_LENGTH],
        source=source,
        redirect_uris=tuple(uris),
        auth_method=method,
        jwks=described.jwks if signs else None,
        jwks_uri=described.jwks_uri if signs and described.jwks is None else None,
        grant_types=grants,
    )


def _parse_basic(credentials: str) -> tuple[str, str]:
    try:
        id, _, secret = b64decode(credentials.strip(), validate=True).decode().partition(":")
    except ValueError:
        raise OAuthError(
            "invalid_client", "the Authorization header cannot be decoded", 401
        ) from None
    return unquote_plus(id), unquote_plus(secret)


def _subject_of(assertion: str | None) -> str | None:
    try:
        subject = jose.decode_unverified(assertion)[1].get("sub") if assertion else None
    except jose.InvalidJwt:
        return None
    return subject if isinstance(subject, str) else None
