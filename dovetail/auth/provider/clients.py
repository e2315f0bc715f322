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
from urllib.parse import unquote_plus

import msgspec
from msgspec import Struct

from ...errors import ConfigError
from ...net import LOOPBACK_SPELLINGS
from ...ports import Fetch, HttpRequest, HttpResponse, Site
from ...text import strip_unsafe
from .. import jose
from ..documents import listed
from . import redirects
from .fetching import Documents, Unavailable, moment, parse, pick
from .storage import Storage, key
from .web import LONGEST, Rates, Refused, json

LIFE, UNUSED = 90 * 86400.0, 86400.0
URIS = 10
SECRET = 16
"""Characters that the secret of a known client has at least."""
NAME = 80
ASSERTION_LIFE, SKEW = 600.0, 30.0
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
DOCUMENT = re.compile(r"https://[a-z0-9.-]+(:[0-9]{1,5})?/[^/].*", re.IGNORECASE)
LOCAL_DOCUMENT = re.compile(rf"http://({LOOPBACK_SPELLINGS})(:[0-9]{{1,5}})?/[^/].*")
METHODS = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")
GRANTS = ("authorization_code", "refresh_token")
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


class Client(Struct, frozen=True, omit_defaults=True):
    """A client, wherever it is known from."""

    id: str
    name: str
    source: Source
    redirect_uris: tuple[str, ...] = ()
    method: str = "none"
    secret: str = ""
    """The digest of it."""
    jwks: dict[str, Any] | None = None
    jwks_uri: str | None = None
    grants: tuple[str, ...] = GRANTS
    scopes: tuple[str, ...] | None = None

    def redirect(self, asked: str | None) -> str:
        """Where its user is sent back to; Refused where it may not be there."""
        if asked is None and len(self.redirect_uris) == 1:
            return self.redirect_uris[0]
        if asked is None or not any(redirects.matches(uri, asked) for uri in self.redirect_uris):
            raise Refused(
                "invalid_request", "the redirect URI is not one that this client has registered"
            )
        return asked


class Clients:
    """All that can be known of clients."""

    def __init__(
        self,
        known: Iterable[KnownClient],
        storage: Storage,
        documents: Documents,
        *,
        schemes: Collection[str] = (),
        described: bool = True,
        private: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._known = {client.id: _known(client, schemes) for client in known}
        self._storage, self._documents, self._now = storage, documents, now
        self._schemes, self._takes_described, self._private = tuple(schemes), described, private
        self._rates = Rates(100, 6.0, now)

    async def find(
        self, id: str | None, issuer: str, site: Site, address: str | None = None
    ) -> Client:
        """The client of this id, for whoever asks from this address; Refused where there is
        none."""
        if id is None:
            raise Refused("invalid_request", "the client_id is missing")
        if client := self._known.get(id):
            return client
        if row := await self._storage.get(key("client", issuer, id)):
            return msgspec.json.decode(row, type=Client)
        if self._takes_described and self._is_document(id):
            return await self._described(id, site, address)
        raise Refused(
            "invalid_client", "this client is not known here; it may have to register again", 401
        )

    def is_known(self, id: str) -> bool:
        """Whether this is a client that was known from the start."""
        return id in self._known

    async def register(self, request: HttpRequest, issuer: str) -> HttpResponse:
        """The registration endpoint: https://www.rfc-editor.org/rfc/rfc7591#section-3."""
        self._rates.spend(request.address)
        if len(request.body) > LONGEST:
            raise Refused(
                "invalid_client_metadata", f"the metadata is longer than {LONGEST} bytes", 413
            )
        try:
            metadata = parse(request.body)
        except Unavailable:
            raise Refused("invalid_client_metadata", "the body is no JSON object") from None
        client = _read(secrets.token_urlsafe(16), metadata, "registered", self._schemes)
        shown: dict[str, Any] = {}
        if client.method.startswith("client_secret"):
            secret = secrets.token_urlsafe(32)
            client = msgspec.structs.replace(client, secret=_digest(secret))
            shown = {"client_secret": secret, "client_secret_expires_at": 0}
        now = self._now()
        await self._storage.add(
            key("client", issuer, client.id), msgspec.json.encode(client), now + UNUSED
        )
        return json(
            {
                "client_id": client.id,
                "client_id_issued_at": int(now),
                **shown,
                "client_name": client.name,
                "redirect_uris": client.redirect_uris,
                "token_endpoint_auth_method": client.method,
                "grant_types": client.grants,
                "response_types": ["code"],
                "application_type": "web"
                if metadata.get("application_type") == "web"
                else "native",
            },
            201,
        )

    async def used(self, client: Client, issuer: str) -> None:
        """Somebody consented to this client, or it came for a token: remember it for longer."""
        if client.source == "registered":
            row = msgspec.json.encode(client)
            await self._storage.change(
                key("client", issuer, client.id), row, row, self._now() + LIFE
            )

    async def authenticate(
        self, request: HttpRequest, fields: Mapping[str, str], issuer: str, site: Site
    ) -> Client:
        """The client that calls the token endpoint, and can prove it:
        https://www.rfc-editor.org/rfc/rfc6749#section-2.3."""
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        basic = _basic(credentials) if scheme.lower() == "basic" else None
        ways = [basic is not None, "client_secret" in fields, "client_assertion" in fields]
        if sum(ways) > 1:
            raise Refused("invalid_request", "the client proves itself in more than one way")
        headers = {"www-authenticate": 'Basic realm="token"'} if basic else {}
        wrong = Refused(
            "invalid_client", "the client is not known here, or its proof is wrong", 401, headers
        )
        assertion = fields.get("client_assertion")
        id = basic[0] if basic else fields.get("client_id") or _claimed(assertion)
        if fields.get("client_id", id) != id:
            raise Refused(
                "invalid_request", "the client_id is not that of the Authorization header"
            )
        try:
            client = await self.find(id, issuer, site, request.address)
        except Refused as refused:
            raise (wrong if refused.error == "invalid_client" else refused) from None
        if client.method == "private_key_jwt":
            if assertion is None or fields.get("client_assertion_type") != ASSERTION:
                raise wrong
            await self._check_assertion(client, assertion, issuer, site, request.address)
        elif client.secret:
            given = basic[1] if basic else fields.get("client_secret", "")
            if not compare_digest(_digest(given), client.secret):
                raise wrong
        return client

    def _is_document(self, id: str) -> bool:
        if (
            len(id) > redirects.LONGEST
            or not redirects.SAFE.fullmatch(id)
            or redirects.DOTS.search(id)
        ):
            return False
        return bool(DOCUMENT.fullmatch(id) or (self._private and LOCAL_DOCUMENT.fullmatch(id)))

    def _fetch(self, site: Site) -> Fetch:
        return site.reach if self._private and site.reach is not None else site.fetch

    async def _described(self, url: str, site: Site, address: str | None) -> Client:
        try:
            document = await self._documents.get(url, self._fetch(site), address=address)
        except Unavailable as problem:
            raise Refused(
                "invalid_client",
                f"the document that describes this client cannot be had: {problem}",
            ) from None
        if document.get("client_id") != url:
            raise Refused(
                "invalid_client", "the document that describes this client is for another client_id"
            )
        if not isinstance(document.get("client_name"), str) or "client_secret" in document:
            raise Refused(
                "invalid_client",
                "the document that describes this client has no client_name, or has a "
                "client_secret",
            )
        client = _read(
            url, {"token_endpoint_auth_method": "none", **document}, "described", self._schemes
        )
        if client.method.startswith("client_secret"):
            raise Refused(
                "invalid_client", "a client that is described by a document can have no secret"
            )
        return client

    async def _check_assertion(
        self, client: Client, assertion: str, issuer: str, site: Site, address: str | None
    ) -> None:
        # https://www.rfc-editor.org/rfc/rfc7523#section-3
        try:
            header, claims = jose.peek(assertion)
            if client.jwks_uri:
                jwk = await self._documents.key(client.jwks_uri, self._fetch(site), header, address)
            else:
                jwk = pick(client.jwks or {}, header)
            jose.verify(assertion, lambda _: jose.load(jwk), jose.ALGORITHMS)
        except (jose.Unverified, Unavailable) as problem:
            raise Refused(
                "invalid_client", f"the client_assertion is refused: {problem}", 401
            ) from None
        now, jti = self._now(), claims.get("jti")
        ends, starts = moment(claims.get("exp")), moment(claims.get("nbf", 0))
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
                raise Refused("invalid_client", f"the client_assertion is refused: {reason}", 401)
        if not await self._storage.add(
            key("assertion", issuer, client.id, str(jti)), b"", ends + SKEW
        ):
            raise Refused("invalid_client", "the client_assertion was used before", 401)


def _known(client: KnownClient, schemes: Collection[str]) -> Client:
    for uri in client.redirect_uris:
        if not redirects.acceptable(uri, schemes):
            allowed = ", ".join(("https", "http on a loopback address", *schemes))
            raise ConfigError(
                f"{client}: {uri!r} is no redirect URI that is allowed here ({allowed}); say "
                "schemes="
            )
    if client.secret is not None and len(client.secret) < SECRET:
        remedy = 'make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
        raise ConfigError(
            f"{client}: its secret has fewer than {SECRET} characters and could be guessed; "
            f"{remedy}"
        )
    method = (
        "private_key_jwt" if client.jwks else "client_secret_basic" if client.secret else "none"
    )
    return Client(
        id=client.id,
        name=client.name or client.id,
        source="known",
        redirect_uris=tuple(client.redirect_uris),
        method=method,
        secret=_digest(client.secret) if client.secret else "",
        jwks=client.jwks,
        grants=(*GRANTS, "client_credentials") if client.secret or client.jwks else GRANTS,
        scopes=None if client.scopes is None else listed(client.scopes),
    )


def _read(id: str, metadata: Mapping[str, Any], source: Source, schemes: Collection[str]) -> Client:
    """A client as it describes itself; what is not known is ignored:
    https://www.rfc-editor.org/rfc/rfc7591#section-2."""

    def texts(name: str, default: Iterable[str]) -> list[str]:
        value = metadata.get(name)
        if value is None:
            return list(default)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise Refused("invalid_client_metadata", f"{name} must be a list of strings")
        return value

    uris = texts("redirect_uris", ())
    if not 1 <= len(uris) <= URIS:
        raise Refused("invalid_redirect_uri", f"there must be between 1 and {URIS} redirect_uris")
    if not all(redirects.acceptable(uri, schemes) for uri in uris):
        raise Refused(
            "invalid_redirect_uri",
            "each of redirect_uris must be https, http on a loopback address, or have a "
            "scheme that is allowed here",
        )
    grants = [grant for grant in texts("grant_types", GRANTS) if grant in GRANTS]
    if "authorization_code" not in grants or "code" not in texts("response_types", ("code",)):
        raise Refused(
            "invalid_client_metadata",
            "only the authorization_code grant with response type code is given",
        )
    method = metadata.get("token_endpoint_auth_method") or "client_secret_basic"
    jwks, jwks_uri = metadata.get("jwks"), metadata.get("jwks_uri")
    keyed = isinstance(jwks, dict) or (
        isinstance(jwks_uri, str) and bool(DOCUMENT.fullmatch(jwks_uri))
    )
    if method not in METHODS or (method == "private_key_jwt" and not keyed):
        raise Refused(
            "invalid_client_metadata",
            f"token_endpoint_auth_method must be one of {', '.join(METHODS)}, the last with keys",
        )
    name = metadata.get("client_name")
    return Client(
        id=id,
        name=strip_unsafe(name)[:NAME] if isinstance(name, str) else "",
        source=source,
        redirect_uris=tuple(uris),
        method=method,
        jwks=jwks if method == "private_key_jwt" and isinstance(jwks, dict) else None,
        jwks_uri=jwks_uri if method == "private_key_jwt" and not isinstance(jwks, dict) else None,
        grants=tuple(grants),
    )


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _basic(credentials: str) -> tuple[str, str]:
    try:
        id, _, secret = b64decode(credentials.strip(), validate=True).decode().partition(":")
    except ValueError:
        raise Refused("invalid_client", "the Authorization header cannot be read", 401) from None
    return unquote_plus(id), unquote_plus(secret)


def _claimed(assertion: str | None) -> str | None:
    try:
        subject = jose.peek(assertion)[1].get("sub") if assertion else None
    except jose.Unverified:
        return None
    return subject if isinstance(subject, str) else None
