"""Login at another OpenID provider: `Provider(upstream=Upstream("https://accounts.example",
client_id=…))`.

To the upstream we are an ordinary client: discovery, PKCE, `state`, `nonce`, and an ID token that
is verified (signature, issuer, audience, time, nonce). What comes of it is a `Login`: who it is,
and the refresh token by which the upstream is asked now and then whether that still holds. The
upstream's tokens are used for nothing else, and never leave this server.

A user must have consented to the client *here* before being sent there: the upstream knows only us,
and where it does not ask again, any client could otherwise ride on an earlier login.
https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/security-considerations#confused-deputy-problem
"""

import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from ...errors import ConfigError, DovetailError, Unauthorized
from ...ports import HttpRequest, PublicUrl
from ...text import one_line
from .. import jose
from ..documents import ServerMetadata, TokenReply, convert_document
from ..urls import OPENID_METADATA_PATH, require_safe
from .web import (
    FORM_TYPE,
    DocumentCache,
    DocumentUnavailable,
    parse_object,
    to_timestamp,
    with_query,
)

SKEW_SECONDS = 60.0
DEFAULT_LIFETIME_SECONDS = 3600.0
CLAIMS = ("iss", "sub", "email", "email_verified", "name", "preferred_username", "groups")
"""What a tool gets to see of an ID token."""
ENDED_ERRORS = ("invalid_grant", "interaction_required", "login_required")

NameUser = Callable[[Mapping[str, Any]], str | None]
"""Takes the claims of an ID token, and gives the user's id here; None for nobody that may come
in."""


class UpstreamUnreachable(Exception):
    """The upstream does not answer, or not as it should. Nothing is known of the login."""


class LoginEnded(Exception):
    """The upstream says that there is no such login, or no more."""


class Login(Struct, frozen=True):
    """Who logged in at the upstream."""

    user: str = ""
    claims: dict[str, Any] = {}
    refresh_token: str | None = None
    ends: float | None = None
    """When the upstream wants to be asked again."""


class Upstream:
    """An OpenID provider at which the users of this server log in."""

    def __init__(
        self,
        issuer: str,
        *,
        client_id: str,
        client_secret: str | None = None,
        scopes: Sequence[str] = ("openid", "profile", "email"),
        user: NameUser | None = None,
        parameters: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        try:
            self.issuer = require_safe(issuer, "the issuer of Upstream")
        except Unauthorized as error:
            raise ConfigError(str(error)) from None
        self.host = urlsplit(issuer).netloc
        self._id, self._secret = client_id, client_secret
        self.scopes, self._parameters = (
            tuple(dict.fromkeys(("openid", *scopes))),
            dict(parameters or {}),
        )
        self._user = user or (lambda claims: str(claims["sub"]))
        self._now, self._documents = now, DocumentCache(now)

    def __repr__(self) -> str:
        return f"Upstream({self.issuer!r}, client_id={self._id!r})"

    async def visit(
        self, callback: str, state: str, nonce: str, verifier: str, site: PublicUrl
    ) -> str:
        """Where the user is sent to log in."""
        metadata = await self._discover(site)
        scopes = self.scopes
        if "offline_access" in (metadata.scopes_supported or ()):
            scopes = tuple(dict.fromkeys((*scopes, "offline_access")))
        parameters = {
            "response_type": "code",
            "client_id": self._id,
            "redirect_uri": callback,
            "scope": " ".join(scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": jose.s256(verifier),
            "code_challenge_method": "S256",
        }
        return with_query(metadata.authorization_endpoint or "", {**self._parameters, **parameters})

    async def exchange(
        self, answer: Mapping[str, str], callback: str, nonce: str, verifier: str, site: PublicUrl
    ) -> Login:
        """Who came back from there; LoginEnded where the upstream, or `user=`, lets nobody in."""
        metadata = await self._discover(site)
        named = answer.get("iss")  # https://www.rfc-editor.org/rfc/rfc9207#section-2.4
        if named != self.issuer and (
            named or metadata.authorization_response_iss_parameter_supported
        ):
            raise LoginEnded("the answer comes from another provider")
        if "code" not in answer:
            raise LoginEnded(
                one_line(
                    answer.get("error_description") or answer.get("error") or "no code came back"
                )
            )
        form = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": callback,
            "code_verifier": verifier,
        }
        reply = await self._ask(metadata, form, site)
        claims = await self._verified(reply.id_token or "", metadata, site)
        if claims.get("nonce") != nonce:
            raise LoginEnded("the ID token is not taken: it is for another login")
        return self._login(claims, reply, reply.refresh_token is not None)

    async def renew(self, login: Login, site: PublicUrl) -> Login:
        """Ask whether a login still holds, and for whom; LoginEnded where it does not."""
        metadata = await self._discover(site)
        form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token or ""}
        reply = await self._ask(metadata, form, site)
        if reply.id_token is None:
            kept = reply.refresh_token or login.refresh_token
            return replace(login, refresh_token=kept, ends=self._ends(reply, True))
        # https://openid.net/specs/openid-connect-core-1_0.html#RefreshTokenResponse
        renewed = self._login(await self._verified(reply.id_token, metadata, site), reply, True)
        if (renewed.user, renewed.claims["sub"]) != (login.user, login.claims.get("sub")):
            raise LoginEnded("it is somebody else's by now")
        return replace(renewed, refresh_token=reply.refresh_token or login.refresh_token)

    def _login(self, claims: dict[str, Any], reply: TokenReply, renewable: bool) -> Login:
        user = self._user(claims)
        if user is None:
            raise LoginEnded("this account may not use this server")
        shown = {name: claims[name] for name in CLAIMS if name in claims}
        return Login(user, shown, reply.refresh_token, self._ends(reply, renewable))

    def _ends(self, reply: TokenReply, renewable: bool) -> float | None:
        """Our tokens live no longer than the upstream's; where it does not say how long, an hour,
        unless it can be asked."""
        if reply.expires_in is None:
            return None if renewable else self._now() + DEFAULT_LIFETIME_SECONDS
        return self._now() + reply.expires_in

    async def _discover(self, site: PublicUrl) -> ServerMetadata:
        url = self.issuer.rstrip("/") + OPENID_METADATA_PATH
        try:
            metadata = convert_document(
                await self._documents.get(url, site.fetch_trusted or site.fetch), ServerMetadata
            )
            if metadata is None or metadata.issuer != self.issuer:
                raise DocumentUnavailable("its metadata is for another issuer")
            for endpoint in (
                metadata.authorization_endpoint,
                metadata.token_endpoint,
                metadata.jwks_uri,
            ):
                require_safe(endpoint or "", "an endpoint of it")
        except (DocumentUnavailable, Unauthorized) as problem:
            raise UpstreamUnreachable(f"{self.issuer}: {problem}") from None
        return metadata

    async def _ask(
        self, metadata: ServerMetadata, form: dict[str, str], site: PublicUrl
    ) -> TokenReply:
        headers = {"content-type": FORM_TYPE, "accept": "application/json"}
        methods = metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
        if self._secret is not None and "client_secret_basic" in methods:
            pair = f"{quote_plus(self._id)}:{quote_plus(self._secret)}"
            headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            form = {
                **form,
                "client_id": self._id,
                **({"client_secret": self._secret} if self._secret else {}),
            }
        request = HttpRequest(
            url=metadata.token_endpoint or "", headers=headers, body=urlencode(form).encode()
        )
        try:
            answer = await (site.fetch_trusted or site.fetch)(request)
            document = parse_object(answer.body)
        except (DovetailError, DocumentUnavailable) as problem:
            raise UpstreamUnreachable(f"{self.issuer}: {problem}") from None
        if answer.status in (400, 401, 403) and document.get("error") in ENDED_ERRORS:
            raise LoginEnded(str(document["error"]))
        reply = convert_document(document, TokenReply)
        if answer.status != 200 or reply is None:
            raise UpstreamUnreachable(
                f"{self.issuer}: its token endpoint answered {answer.status} "
                f"{one_line(str(document.get('error', '')))}"
            )
        return reply

    async def _verified(
        self, token: str, metadata: ServerMetadata, site: PublicUrl
    ) -> dict[str, Any]:
        """The claims of an ID token:
        https://openid.net/specs/openid-connect-core-1_0.html#IDTokenValidation."""
        try:
            header, _ = jose.decode_unverified(token)
            jwk = await self._documents.key(
                metadata.jwks_uri or "", site.fetch_trusted or site.fetch, header
            )
            algorithms = (jwk["alg"],) if isinstance(jwk.get("alg"), str) else jose.ALGORITHMS
            _, claims = jose.verify(token, lambda _: jose.load_key(jwk), algorithms)
        except jose.InvalidJwt as problem:
            raise LoginEnded(f"the ID token is not taken: {problem}") from None
        except DocumentUnavailable as problem:
            raise UpstreamUnreachable(f"{self.issuer}: its keys cannot be had: {problem}") from None
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        now, ends, made = (
            self._now(),
            to_timestamp(claims.get("exp")),
            to_timestamp(claims.get("iat")),
        )
        checks = (
            (claims.get("iss") == self.issuer, "it is by another issuer"),
            (self._id in audiences, "it is for another client"),
            (
                len(audiences) == 1 or claims.get("azp") == self._id,
                "it was asked for by another client",
            ),
            (now < ends + SKEW_SECONDS, "it has expired"),
            (made <= now + SKEW_SECONDS, "it is from the future"),
            (isinstance(claims.get("sub"), str) and claims["sub"] != "", "it names nobody"),
        )
        for sound, reason in checks:
            if not sound:
                raise LoginEnded(f"the ID token is not taken: {reason}")
        return claims
