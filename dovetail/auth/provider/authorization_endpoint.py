"""The endpoints for browsers: the authorization endpoint, and the callback from an upstream
provider.

`sign_in` serves pages of this server that need no client, such as those of a gateway.

The client's request is not stored. The request stays in the URL's query, and is parsed and checked
again at each step. Only the login is stored, and a random cookie identifies its session.

    GET  authorize?…   shows the login page or the consent page, or redirects to the client
    POST authorize?…   action = login | approve | deny | switch, with a CSRF token for this browser
                       and this request
    GET  callback?…    handles the return from the upstream provider; `state` is valid once, and
                       only in the browser that was sent there

The order of the checks is essential for security: first the client, then the redirect URI. Until
both have been checked, every error is shown as a page. After that, errors are sent to the client.
However, a browser is never redirected to an unknown site before the user has agreed:
https://www.rfc-editor.org/rfc/rfc9700#section-4.11.2
"""

import secrets
from collections.abc import Callable, Mapping
from hmac import compare_digest
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...ports import HttpResponse, PublicUrl
from .clients import (
    ClientRegistry,
    OAuthClient,
    is_https_redirect,
    is_loopback_redirect,
    policy_source,
    redirect_host,
)
from .grants import Grant, GrantStore
from .login import Login, LoginEnded, Upstream, UpstreamUnreachable
from .pages import (
    ConsentDetails,
    PageDetails,
    consent_page,
    error_page,
    login_page,
    sign_in_page,
)
from .sessions import (
    LoginProblem,
    LoginSessions,
    check_csrf_token,
    csrf_token,
    read_cookie,
    redirect,
    with_cookie,
)
from .storage import Storage, digest_of, row_key
from .token_endpoint import requested_resource
from .web import OAuthError, ProviderRequest, parse_fields, parse_form, with_query

CONSENT_SECONDS, UPSTREAM_LOGIN_SECONDS = 30 * 86400.0, 600.0
UPSTREAM_SESSION_SECONDS = 3600.0
"""How long a browser stays signed in after a login at the upstream provider, which may have ended
the login in the meantime."""
OFFLINE_ACCESS = "offline_access"
PROMPTS = {"consent", "login", "select_account"}
"""The values of `prompt` that require asking the user every time."""


class AuthorizationRequest(Struct, frozen=True):
    """An authorization request whose client and redirect URI have been checked."""

    http: ProviderRequest
    query: str
    cookie: str
    """Identifies the browser. Empty if the browser has no cookie yet."""
    fields: Mapping[str, str]
    resources: list[str]
    client: OAuthClient
    redirect_uri: str
    resource: str = ""
    """The token's audience. Like `scopes`, the audience is set only after all checks have
    passed."""
    scopes: tuple[str, ...] = ()

    @property
    def issuer(self) -> str:
        return self.http.issuer

    @property
    def url(self) -> str:
        """The URL of this request, without the posted form."""
        return f"{self.issuer}/authorize?{self.query}"

    def answer(self, **parameters: str) -> str:
        """Return the URL that sends the user back to the client."""
        # https://www.rfc-editor.org/rfc/rfc9207#section-2
        state = {"state": self.fields["state"]} if "state" in self.fields else {}
        return with_query(self.redirect_uri, {**parameters, **state, "iss": self.issuer})


class PendingUpstreamLogin(Struct, frozen=True):
    """A user who was sent to the upstream provider."""

    query: str
    browser: str
    nonce: str
    verifier: str
    back: str = ""
    """The page of this server that the user signs in to see. Empty if a client sent the user."""


class AuthorizationEndpoint(Struct, frozen=True, eq=False, kw_only=True):
    """The authorization endpoint, and the callback from the upstream provider."""

    clients: ClientRegistry
    grants: GrantStore
    storage: Storage
    sessions: LoginSessions
    upstream: Upstream | None
    default_scopes: tuple[str, ...]
    """The scopes to use for a request that names none. If empty, all scopes are used."""
    name: str | None
    now: Callable[[], float]

    async def authorize(self, request: ProviderRequest) -> HttpResponse:
        """Answer an authorization request: https://www.rfc-editor.org/rfc/rfc6749#section-3.1"""
        auth_request = await self._identify(request, urlsplit(request.url).query)
        try:
            auth_request = _check(auth_request, self.default_scopes)
        except OAuthError as error:
            if auth_request.client.source == "known":
                return _return_error(auth_request, error.error, error.description)
            url = auth_request.answer(error=error.error, error_description=error.description)
            text = (
                "The program that brought you to this page sent an invalid request: "
                f"{error.description}."
            )
            back = redirect_host(auth_request.redirect_uri), url
            return error_page(self._server_name(request.public_url), text, 400, back)
        if request.method == "POST":
            return await self._act(auth_request)
        return await self._show(auth_request)

    async def callback(self, request: ProviderRequest) -> HttpResponse:
        """Handle a user's return from the upstream provider."""
        issuer = request.issuer
        answer, _ = parse_fields(urlsplit(request.url).query)
        row = await self.storage.take(row_key("visit", issuer, answer.get("state", "")))
        pending = None if row is None else msgspec.json.decode(row, type=PendingUpstreamLogin)
        if pending is None or not compare_digest(
            pending.browser, digest_of(read_cookie(request, issuer))
        ):
            raise OAuthError(
                "invalid_request",
                "this login was started in another browser or took too long; start again",
            )
        if pending.back:
            return await self._finish_sign_in(request, pending, answer)
        auth_request = _check(await self._identify(request, pending.query), self.default_scopes)
        try:
            login = await self._exchange(request, pending, answer)
        except LoginEnded as error:
            return _return_error(auth_request, "access_denied", f"the login was refused: {error}")
        except UpstreamUnreachable as error:
            return _return_error(auth_request, "server_error", str(error))
        return await self._grant(auth_request, login)

    async def _exchange(
        self, request: ProviderRequest, pending: PendingUpstreamLogin, answer: Mapping[str, str]
    ) -> Login:
        """Exchange the upstream provider's response for a login."""
        assert self.upstream is not None
        callback = f"{request.issuer}/callback"
        try:
            return await self.upstream.exchange(
                answer, callback, pending.nonce, pending.verifier, request.public_url
            )
        except UpstreamUnreachable:
            raise UpstreamUnreachable(f"{self.upstream.host} cannot be reached") from None

    async def _identify(self, request: ProviderRequest, query: str) -> AuthorizationRequest:
        """Identify the client that sent a request, and check its redirect URI. No error is sent to
        that URI before this check."""
        fields, resources = parse_fields(query)
        client = await self.clients.find(fields.get("client_id"), request)
        uri = client.choose_redirect(fields.get("redirect_uri"))
        cookie = read_cookie(request, request.issuer)
        return AuthorizationRequest(request, query, cookie, fields, resources, client, uri)

    # pages

    async def _show(self, auth_request: AuthorizationRequest) -> HttpResponse:
        """Return the next page or redirect for this browser."""
        cookie = auth_request.cookie or secrets.token_urlsafe(32)
        user = await self._find_user(auth_request)
        details, csrf = self._details(auth_request), csrf_token(cookie, auth_request.query)
        if self.upstream is not None:
            page = consent_page(details, csrf, None)
        elif user is None:
            page = login_page(details, csrf)
        elif await self._has_consented(auth_request, user):
            return await self._grant(auth_request, Login(user))
        else:
            page = consent_page(details, csrf, user)
        return page if auth_request.cookie else with_cookie(page, auth_request.issuer, cookie)

    def _login_page(
        self, auth_request: AuthorizationRequest, problem: str, name: str = "", status: int = 200
    ) -> HttpResponse:
        csrf = csrf_token(auth_request.cookie, auth_request.query)
        return login_page(self._details(auth_request), csrf, problem, name, status)

    def _details(self, auth_request: AuthorizationRequest) -> ConsentDetails:
        client, uri = auth_request.client, auth_request.redirect_uri
        known_by = {
            "known": "this server",
            "described": urlsplit(client.id).netloc,
            "registered": "nobody (self-registered)",
        }
        sources = [policy_source(uri)]
        upstream = None
        if self.upstream is not None:
            # The upstream may redirect its users to other hosts to log in.
            sources += ["https:", policy_source(self.upstream.issuer)]
            upstream = self.upstream.host, ", ".join(self.upstream.scopes)
        host = redirect_host(uri)
        return ConsentDetails(
            server=self._server_name(auth_request.http.public_url),
            client=client.name or "An unnamed client",
            known_by=known_by[client.source],
            back_to=f"{host} (this computer)" if is_loopback_redirect(uri) else host,
            uri=uri,
            scopes=tuple(auth_request.http.scopes[scope] for scope in auth_request.scopes),
            warning=_warning(client, uri),
            form=("'self'", *dict.fromkeys(sources)),
            upstream=upstream,
        )

    def _server_name(self, public_url: PublicUrl) -> str:
        return self.name or urlsplit(public_url.url).netloc

    def show_error(self, error: OAuthError, public_url: PublicUrl) -> HttpResponse:
        """Return the page for an error that cannot be sent to a client."""
        text = f"{error.description[:1].upper()}{error.description[1:]}."
        status = 400 if error.status == 401 else error.status  # 401 is for programs
        page = error_page(self._server_name(public_url), text, status)
        return replace(page, headers={**page.headers, **error.headers})

    # actions of a form

    async def _act(self, auth_request: AuthorizationRequest) -> HttpResponse:
        posted, _ = parse_form(auth_request.http)
        check_csrf_token(posted, auth_request.cookie, auth_request.query)
        match posted.get("action"):
            case "login":
                return await self._login(auth_request, posted)
            case "approve":
                return await self._approve(auth_request)
            case "deny":
                return _return_error(auth_request, "access_denied", "the user denied the request")
            case "switch":
                await self.sessions.end(auth_request.issuer, auth_request.cookie)
                return redirect(auth_request.url)
            case _:
                raise OAuthError("invalid_request", "the form has an unknown action")

    async def _login(
        self, auth_request: AuthorizationRequest, posted: Mapping[str, str]
    ) -> HttpResponse:
        user = await self.sessions.check_password(posted, auth_request.http.address)
        if isinstance(user, LoginProblem):
            page = self._login_page(auth_request, user.text, user.name, user.status)
            return replace(page, headers={**page.headers, **user.headers})
        cookie = await self.sessions.start(auth_request.issuer, user)
        return with_cookie(redirect(auth_request.url), auth_request.issuer, cookie)

    async def _approve(self, auth_request: AuthorizationRequest) -> HttpResponse:
        if self.upstream is not None:
            return await self._send_upstream(self.upstream, auth_request)
        user = await self._find_user(auth_request)
        if user is None:
            return self._login_page(auth_request, "Your session has ended. Log in again.")
        await self._remember_consent(auth_request, user)
        return await self._grant(auth_request, Login(user))

    async def _send_upstream(
        self, upstream: Upstream, auth_request: AuthorizationRequest
    ) -> HttpResponse:
        pending = PendingUpstreamLogin(
            auth_request.query,
            digest_of(auth_request.cookie),
            secrets.token_urlsafe(16),
            secrets.token_urlsafe(32),
        )
        try:
            return await self._visit_upstream(upstream, auth_request.http, pending)
        except UpstreamUnreachable as error:
            return _return_error(auth_request, "temporarily_unavailable", str(error))

    async def _visit_upstream(
        self, upstream: Upstream, request: ProviderRequest, pending: PendingUpstreamLogin
    ) -> HttpResponse:
        """Return the redirect to the upstream provider's login page."""
        state, callback = secrets.token_urlsafe(32), f"{request.issuer}/callback"
        try:
            url = await upstream.login_url(
                callback, state, pending.nonce, pending.verifier, request.public_url
            )
        except UpstreamUnreachable:
            raise UpstreamUnreachable(f"{upstream.host} cannot be reached") from None
        key = row_key("visit", request.issuer, state)
        expires = self.now() + UPSTREAM_LOGIN_SECONDS
        await self.storage.add(key, msgspec.json.encode(pending), expires)
        return redirect(url)

    # pages of this server for users who are signed in

    async def sign_in(self, request: ProviderRequest, purpose: str) -> str | HttpResponse:
        """Return the user who is signed in with this browser, or the page on which they sign in to
        see the page that they requested."""
        cookie = read_cookie(request, request.issuer)
        posted = parse_form(request)[0] if request.method == "POST" else {}
        problem = LoginProblem("", "", 200)
        if posted.get("action") in ("login", "switch"):
            check_csrf_token(posted, cookie, request.url)
        if posted.get("action") == "switch":
            await self.sessions.end(request.issuer, cookie)
            return redirect(request.url)
        if posted.get("action") == "login":
            found = await self.sessions.check_password(posted, request.address)
            if isinstance(found, str):
                new = await self.sessions.start(request.issuer, found)
                return with_cookie(redirect(request.url), request.issuer, new)
            problem = found
        user = await self.sessions.find_user(request.issuer, cookie)
        if user is not None:
            return user
        cookie = cookie or secrets.token_urlsafe(32)
        if self.upstream is not None:
            page = await self._sign_in_upstream(self.upstream, request, cookie)
        else:
            server = self._server_name(request.public_url)
            details = PageDetails(server, purpose, csrf_token(cookie, request.url))
            page = sign_in_page(details, problem.text, problem.name, problem.status)
            page = replace(page, headers={**page.headers, **problem.headers})
        return with_cookie(page, request.issuer, cookie)

    async def _sign_in_upstream(
        self, upstream: Upstream, request: ProviderRequest, cookie: str
    ) -> HttpResponse:
        pending = PendingUpstreamLogin(
            "",
            digest_of(cookie),
            secrets.token_urlsafe(16),
            secrets.token_urlsafe(32),
            back=request.url,
        )
        try:
            return await self._visit_upstream(upstream, request, pending)
        except UpstreamUnreachable as error:
            raise OAuthError("temporarily_unavailable", str(error), 503) from None

    async def _finish_sign_in(
        self, request: ProviderRequest, pending: PendingUpstreamLogin, answer: Mapping[str, str]
    ) -> HttpResponse:
        try:
            login = await self._exchange(request, pending, answer)
        except LoginEnded as error:
            raise OAuthError("access_denied", f"the login was refused: {error}", 403) from None
        except UpstreamUnreachable as error:
            raise OAuthError("server_error", str(error), 503) from None
        if self.clients.is_known(login.user):
            raise OAuthError("access_denied", "this user name is already used as a client id", 403)
        seconds = UPSTREAM_SESSION_SECONDS
        if login.ends is not None:
            seconds = min(seconds, login.ends - self.now())
        cookie = await self.sessions.start(request.issuer, login.user, seconds)
        return with_cookie(redirect(pending.back), request.issuer, cookie)

    # sessions and consents

    async def _find_user(self, auth_request: AuthorizationRequest) -> str | None:
        """Return the user who is logged in with this browser."""
        if self.upstream is not None:
            return None
        return await self.sessions.find_user(auth_request.issuer, auth_request.cookie)

    async def _has_consented(self, auth_request: AuthorizationRequest, user: str) -> bool:
        asks = not PROMPTS.isdisjoint(auth_request.fields.get("prompt", "").split())
        if asks or not is_https_redirect(auth_request.redirect_uri):
            # Any program can listen on a loopback port or register a scheme:
            # https://www.rfc-editor.org/rfc/rfc8252#section-8.6
            return False
        row = await self.storage.get(_consent_key(auth_request, user))
        return row is not None and set(auth_request.scopes) <= _decode_scopes(row)

    async def _remember_consent(self, auth_request: AuthorizationRequest, user: str) -> None:
        key = _consent_key(auth_request, user)
        row = await self.storage.take(key)
        scopes = {*auth_request.scopes, *(_decode_scopes(row) if row else ())}
        data = msgspec.json.encode(sorted(scopes))
        await self.storage.add(key, data, self.now() + CONSENT_SECONDS)

    async def _grant(self, auth_request: AuthorizationRequest, login: Login) -> HttpResponse:
        """Send the user back to the client with a code."""
        client, fields = auth_request.client, auth_request.fields
        # tokens that a client gets for itself have its id as the user
        if self.clients.is_known(login.user):
            return _return_error(
                auth_request, "access_denied", "this user name is already used as a client id"
            )
        renewable = self.upstream is None or login.refresh_token is not None
        wants_refresh = (
            OFFLINE_ACCESS in fields.get("scope", "").split()
            or "refresh_token" in client.grant_types
        )
        grant = Grant(
            user=login.user,
            client=client.id,
            resource=auth_request.resource,
            scopes=auth_request.scopes,
            claims=login.claims,
            challenge=fields["code_challenge"],
            redirect_uri=auth_request.redirect_uri,
            refreshes=renewable and wants_refresh,
            ends=login.ends,
        )
        code = await self.grants.begin(auth_request.issuer, grant, login.refresh_token or "")
        await self.clients.extend(client, auth_request.issuer)
        return redirect(auth_request.answer(code=code))


def _check(
    auth_request: AuthorizationRequest, default_scopes: tuple[str, ...]
) -> AuthorizationRequest:
    """Check an authorization request, and return it with its resource and scopes. Raises
    OAuthError."""
    fields, public_url = auth_request.fields, auth_request.http.public_url
    if fields.get("response_type") != "code":
        raise OAuthError("unsupported_response_type", "response_type must be code")
    if (
        fields.get("response_mode", "query") != "query"
        or "request" in fields
        or "request_uri" in fields
    ):
        raise OAuthError(
            "invalid_request",
            "request objects and response modes other than query are not supported",
        )
    challenge = fields.get("code_challenge", "")
    if fields.get("code_challenge_method") != "S256" or not 43 <= len(challenge) <= 128:
        raise OAuthError(
            "invalid_request",
            "PKCE is required: send a code_challenge with code_challenge_method S256",
        )
    resource = requested_resource(auth_request.resources, public_url) or public_url.base
    requested = dict.fromkeys(fields.get("scope", "").split())
    requested.pop(OFFLINE_ACCESS, None)
    existing = auth_request.http.scopes
    scopes = tuple(scope for scope in requested if scope in existing)
    if requested and not scopes:
        raise OAuthError("invalid_scope", "none of the requested scopes exist")
    scopes = scopes or default_scopes or tuple(existing)
    return replace(auth_request, resource=resource, scopes=scopes)


def _return_error(auth_request: AuthorizationRequest, error: str, description: str) -> HttpResponse:
    return redirect(auth_request.answer(error=error, error_description=description))


def _warning(client: OAuthClient, uri: str) -> str:
    if client.source != "known" and not is_https_redirect(uri):
        problem = "This client runs on your computer, where any program could use its name."
    elif client.source == "registered":
        problem = "Nobody has verified this client or its name."
    else:
        return ""
    return f"{problem} Allow this client only if you have just started it yourself."


def _consent_key(auth_request: AuthorizationRequest, user: str) -> str:
    host = redirect_host(auth_request.redirect_uri)
    return row_key("consent", auth_request.issuer, user, auth_request.client.id, host)


def _decode_scopes(row: bytes) -> set[str]:
    return msgspec.json.decode(row, type=set[str])
