"""The endpoints that a browser calls: authorization, and the callback of an upstream provider.

The client's request stays in the query of the URL all the way, and is parsed and checked again at
each step; none of it is stored. Only the login is stored: after it, a random cookie identifies the
session.

    GET  authorize?…   Who is it, and may the client? The login page, the consent page, or back to
                       the client.
    POST authorize?…   action = login | approve | deny | switch, with a token that only this
                       browser, for this very request, can have
    GET  callback?…    Back from the upstream: `state` is valid once, and only in the browser that
                       was sent there.

The order of the checks is what makes this safe: first the client, then the redirect URI. Until both
are known to belong together, every error is a page. After that, errors go back to the client. But a
browser is not redirected to a site that is unknown here before a person has agreed:
https://www.rfc-editor.org/rfc/rfc9700#section-4.11.2.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import blake2b, sha256
from hmac import compare_digest
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...ports import HttpRequest, HttpResponse, PublicUrl
from .clients import (
    ClientRegistry,
    OAuthClient,
    is_https_redirect,
    is_loopback_redirect,
    policy_source,
    redirect_host,
)
from .grants import Grant, GrantStore
from .login import Login, LoginEnded, Upstream, UpstreamUnreachable, UserDirectory
from .pages import ConsentDetails, consent_page, error_page, login_page
from .storage import Storage, row_key
from .token_endpoint import requested_resource
from .web import NO_STORE, AttemptLimiter, OAuthError, parse_fields, parse_form, with_query

SESSION_SECONDS, CONSENT_SECONDS, UPSTREAM_LOGIN_SECONDS = 8 * 3600.0, 30 * 86400.0, 600.0
OFFLINE_ACCESS = "offline_access"


class AuthorizationRequest(Struct, frozen=True):
    """An authorization request that was checked."""

    issuer: str
    public_url: PublicUrl
    query: str
    client: OAuthClient
    redirect_uri: str
    state: str | None
    resource: str
    challenge: str
    scopes: tuple[str, ...]
    offline: bool
    ask: bool
    """Whether the user has to be asked in any case."""


class LoginSession(Struct, frozen=True):
    """Who uses a browser."""

    user: str


class PendingUpstreamLogin(Struct, frozen=True):
    """A user who was sent to the upstream."""

    query: str
    browser: str
    nonce: str
    verifier: str


class AuthorizationEndpoint:
    """The authorization endpoint, and the callback of the upstream."""

    def __init__(
        self,
        clients: ClientRegistry,
        grants: GrantStore,
        storage: Storage,
        *,
        users: UserDirectory | None,
        upstream: Upstream | None,
        list_scopes: Callable[[PublicUrl], Mapping[str, str]],
        default_scopes: tuple[str, ...] = (),
        name: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clients, self._grants, self._storage = clients, grants, storage
        self._users, self._upstream, self._list_scopes = users, upstream, list_scopes
        self._default_scopes = default_scopes
        """The scopes of a request that names none; if empty, all scopes."""
        self._name, self._now = name, now
        self._limiter = AttemptLimiter(300, 0.2, now)

    async def authorize(
        self, request: HttpRequest, issuer: str, public_url: PublicUrl
    ) -> HttpResponse:
        """Answer an authorization request: https://www.rfc-editor.org/rfc/rfc6749#section-3.1."""
        query = urlsplit(request.url).query
        self._limiter.require(request.address)
        fields, resources = parse_fields(query)
        client = await self._clients.find(
            fields.get("client_id"), issuer, public_url, request.address
        )
        uri = client.choose_redirect(fields.get("redirect_uri"))
        cookie = _read_cookie(request, issuer)
        try:
            auth_request = self._check(fields, resources, query, client, uri, issuer, public_url)
        except OAuthError as error:
            ask = client.source != "known"
            return self._return_error(uri, fields.get("state"), issuer, public_url, error, ask=ask)
        if request.method == "POST":
            return await self._act(request, auth_request, cookie)
        return await self._show(auth_request, cookie)

    async def callback(
        self, request: HttpRequest, issuer: str, public_url: PublicUrl
    ) -> HttpResponse:
        """Handle the return of a user from the upstream."""
        cookie = _read_cookie(request, issuer)
        answer, _ = parse_fields(urlsplit(request.url).query)
        row = await self._storage.take(row_key("visit", issuer, answer.get("state", "")))
        pending = None if row is None else msgspec.json.decode(row, type=PendingUpstreamLogin)
        if pending is None or not compare_digest(pending.browser, _digest(cookie)):
            raise OAuthError(
                "invalid_request",
                "this login was started in another browser, or took too long; start again",
            )
        fields, resources = parse_fields(pending.query)
        client = await self._clients.find(
            fields.get("client_id"), issuer, public_url, request.address
        )
        uri = client.choose_redirect(fields.get("redirect_uri"))
        auth_request = self._check(
            fields, resources, pending.query, client, uri, issuer, public_url
        )
        assert self._upstream is not None
        try:
            login = await self._upstream.exchange(
                answer, f"{issuer}/callback", pending.nonce, pending.verifier, public_url
            )
        except LoginEnded as error:
            return self._refuse(auth_request, "access_denied", f"the login was refused: {error}")
        except UpstreamUnreachable:
            return self._refuse(
                auth_request, "server_error", f"{self._upstream.host} cannot be reached"
            )
        return await self._grant(auth_request, login)

    def _check(
        self,
        fields: Mapping[str, str],
        resources: list[str],
        query: str,
        client: OAuthClient,
        uri: str,
        issuer: str,
        public_url: PublicUrl,
    ) -> AuthorizationRequest:
        if fields.get("response_type") != "code":
            raise OAuthError("unsupported_response_type", "response_type must be code")
        if (
            fields.get("response_mode", "query") != "query"
            or "request" in fields
            or "request_uri" in fields
        ):
            raise OAuthError(
                "invalid_request", "only plain parameters with response_mode query are supported"
            )
        challenge = fields.get("code_challenge", "")
        if fields.get("code_challenge_method") != "S256" or not 43 <= len(challenge) <= 128:
            raise OAuthError(
                "invalid_request",
                "PKCE is required: a code_challenge with code_challenge_method S256",
            )
        resource = requested_resource(resources, public_url) or public_url.base
        requested = tuple(dict.fromkeys(fields.get("scope", "").split()))
        existing = self._list_scopes(public_url)
        scopes = tuple(scope for scope in requested if scope in existing)
        named = [scope for scope in requested if scope != OFFLINE_ACCESS]
        if named and not scopes:
            raise OAuthError("invalid_scope", "none of these scopes exists here")
        prompts = {"consent", "login", "select_account"}
        return AuthorizationRequest(
            issuer=issuer,
            public_url=public_url,
            query=query,
            client=client,
            redirect_uri=uri,
            state=fields.get("state"),
            resource=resource,
            challenge=challenge,
            scopes=scopes if named else self._default_scopes or tuple(existing),
            offline=OFFLINE_ACCESS in requested,
            ask=not prompts.isdisjoint(fields.get("prompt", "").split()),
        )

    # pages

    async def _show(
        self,
        auth_request: AuthorizationRequest,
        cookie: str,
        problem: str = "",
        name: str = "",
        status: int = 200,
    ) -> HttpResponse:
        """Return what comes next in this browser."""
        value = cookie or secrets.token_urlsafe(32)
        session = await self._find_session(auth_request.issuer, cookie)
        details, csrf = self._details(auth_request), _csrf(value, auth_request.query)
        if self._upstream is not None:
            page = consent_page(details, csrf, None)
        elif session is None:
            page = login_page(details, csrf, problem, name, status)
        elif await self._has_consented(auth_request, session.user):
            return await self._grant(auth_request, Login(session.user))
        else:
            page = consent_page(details, csrf, session.user)
        return page if cookie else _with_cookie(page, auth_request.issuer, value)

    def _details(self, auth_request: AuthorizationRequest) -> ConsentDetails:
        client, uri, descriptions = (
            auth_request.client,
            auth_request.redirect_uri,
            self._list_scopes(auth_request.public_url),
        )
        known_by = {
            "known": "this server",
            "described": urlsplit(client.id).netloc,
            "registered": "nobody: it registered itself",
        }
        sources = [policy_source(uri)]
        upstream = None
        if self._upstream is not None:
            # The upstream may send its users anywhere to log in.
            sources += ["https:", policy_source(self._upstream.issuer)]
            upstream = self._upstream.host, ", ".join(self._upstream.scopes)
        host = redirect_host(uri)
        return ConsentDetails(
            server=self._server_name(auth_request.public_url),
            client=client.name or "A client without a name",
            known_by=known_by[client.source],
            back_to=f"{host} (this computer)" if is_loopback_redirect(uri) else host,
            uri=uri,
            scopes=tuple(descriptions[scope] for scope in auth_request.scopes),
            warning=_warning(client, uri),
            form=("'self'", *dict.fromkeys(sources)),
            upstream=upstream,
        )

    def _server_name(self, public_url: PublicUrl) -> str:
        return self._name or urlsplit(public_url.url).netloc

    # actions of a form

    async def _act(
        self, request: HttpRequest, auth_request: AuthorizationRequest, cookie: str
    ) -> HttpResponse:
        posted, _ = parse_form(request)
        if not cookie or not compare_digest(
            posted.get("csrf", "").encode(), _csrf(cookie, auth_request.query).encode()
        ):
            raise OAuthError(
                "invalid_request",
                "this form is not from a page that was shown in this browser; start again",
                403,
            )
        match posted.get("action"):
            case "login":
                return await self._login(request, auth_request, cookie, posted)
            case "approve":
                return await self._approve(auth_request, cookie)
            case "deny":
                return self._refuse(auth_request, "access_denied", "the user denied the request")
            case "switch":
                await self._storage.delete(row_key("session", auth_request.issuer, cookie))
                return _redirect(f"{auth_request.issuer}/authorize?{auth_request.query}")
            case _:
                raise OAuthError("invalid_request", "this form has no such button")

    async def _login(
        self,
        request: HttpRequest,
        auth_request: AuthorizationRequest,
        cookie: str,
        posted: Mapping[str, str],
    ) -> HttpResponse:
        if self._users is None:
            raise OAuthError("invalid_request", "users do not log in on this page")
        name = posted.get("username", "")[:200]
        wait = await self._users.check(name, posted.get("password", ""), request.address)
        if wait:
            seconds = int(wait) + 1
            problem = f"Too many attempts. Try again in {seconds} seconds."
            page = await self._show(auth_request, cookie, problem, name, 429)
            headers = {**page.headers, "retry-after": str(seconds)}
            return replace(page, status=429, headers=headers)
        if wait is not None:
            problem = "The user name or the password is wrong."
            return await self._show(auth_request, cookie, problem, name, 403)
        # A new cookie: someone else may know the one from before the login.
        value = secrets.token_urlsafe(32)
        row = msgspec.json.encode(LoginSession(name))
        key = row_key("session", auth_request.issuer, value)
        await self._storage.add(key, row, self._now() + SESSION_SECONDS)
        page = _redirect(f"{auth_request.issuer}/authorize?{auth_request.query}")
        return _with_cookie(page, auth_request.issuer, value)

    async def _approve(self, auth_request: AuthorizationRequest, cookie: str) -> HttpResponse:
        if self._upstream is not None:
            return await self._send_upstream(self._upstream, auth_request, cookie)
        session = await self._find_session(auth_request.issuer, cookie)
        if session is None:
            return await self._show(auth_request, cookie, "Your session has ended. Log in again.")
        await self._remember_consent(auth_request, session.user)
        return await self._grant(auth_request, Login(session.user))

    async def _send_upstream(
        self, upstream: Upstream, auth_request: AuthorizationRequest, cookie: str
    ) -> HttpResponse:
        state, nonce = secrets.token_urlsafe(32), secrets.token_urlsafe(16)
        verifier, callback = secrets.token_urlsafe(32), f"{auth_request.issuer}/callback"
        try:
            url = await upstream.login_url(
                callback, state, nonce, verifier, auth_request.public_url
            )
        except UpstreamUnreachable:
            return self._refuse(
                auth_request, "temporarily_unavailable", f"{upstream.host} cannot be reached"
            )
        pending = PendingUpstreamLogin(auth_request.query, _digest(cookie), nonce, verifier)
        key = row_key("visit", auth_request.issuer, state)
        expires = self._now() + UPSTREAM_LOGIN_SECONDS
        await self._storage.add(key, msgspec.json.encode(pending), expires)
        return _redirect(url)

    # sessions and consents

    async def _find_session(self, issuer: str, cookie: str) -> LoginSession | None:
        row = await self._storage.get(row_key("session", issuer, cookie)) if cookie else None
        session = None if row is None else msgspec.json.decode(row, type=LoginSession)
        return session if session and self._users and self._users.knows(session.user) else None

    async def _has_consented(self, auth_request: AuthorizationRequest, user: str) -> bool:
        if auth_request.ask or not is_https_redirect(auth_request.redirect_uri):
            # Any program can listen on a loopback port or take over a scheme:
            # https://www.rfc-editor.org/rfc/rfc8252#section-8.6
            return False
        row = await self._storage.get(_consent_key(auth_request, user))
        return row is not None and set(auth_request.scopes) <= _decode_scopes(row)

    async def _remember_consent(self, auth_request: AuthorizationRequest, user: str) -> None:
        key = _consent_key(auth_request, user)
        row = await self._storage.take(key)
        scopes = {*auth_request.scopes, *(_decode_scopes(row) if row else ())}
        data = msgspec.json.encode(sorted(scopes))
        await self._storage.add(key, data, self._now() + CONSENT_SECONDS)

    # back to the client

    async def _grant(self, auth_request: AuthorizationRequest, login: Login) -> HttpResponse:
        client = auth_request.client
        if self._clients.is_known(login.user):  # the tokens of a client carry its id as the user
            return self._refuse(auth_request, "access_denied", "this name is taken by a client")
        renewable = self._upstream is None or login.refresh_token is not None
        grant = Grant(
            user=login.user,
            client=client.id,
            resource=auth_request.resource,
            scopes=auth_request.scopes,
            claims=login.claims,
            challenge=auth_request.challenge,
            redirect_uri=auth_request.redirect_uri,
            refreshes=renewable and (auth_request.offline or "refresh_token" in client.grant_types),
            ends=login.ends,
        )
        code = await self._grants.begin(auth_request.issuer, grant, login.refresh_token or "")
        await self._clients.extend(client, auth_request.issuer)
        return _redirect(
            _answer(
                auth_request.redirect_uri, auth_request.state, auth_request.issuer, {"code": code}
            )
        )

    def _refuse(
        self, auth_request: AuthorizationRequest, error: str, description: str
    ) -> HttpResponse:
        refusal = OAuthError(error, description)
        return self._return_error(
            auth_request.redirect_uri,
            auth_request.state,
            auth_request.issuer,
            auth_request.public_url,
            refusal,
            ask=False,
        )

    def _return_error(
        self,
        uri: str,
        state: str | None,
        issuer: str,
        public_url: PublicUrl,
        error: OAuthError,
        *,
        ask: bool,
    ) -> HttpResponse:
        """Send an error back to the client; with `ask`, only if the user follows a link."""
        parameters = {"error": error.error, "error_description": error.description}
        url = _answer(uri, state, issuer, parameters)
        if not ask:
            return _redirect(url)
        text = f"The program that sent you here made a mistake: {error.description}."
        title = "This request cannot be answered"
        return error_page(
            self._server_name(public_url), title, text, 400, (redirect_host(uri), url)
        )

    def show_error(self, error: OAuthError, public_url: PublicUrl) -> HttpResponse:
        """Return the page for a request that cannot be sent back to a client."""
        text = f"{error.description[:1].upper()}{error.description[1:]}."
        status = 400 if error.status == 401 else error.status  # 401 is for programs
        title = "This request cannot be answered"
        page = error_page(self._server_name(public_url), title, text, status)
        return replace(page, headers={**page.headers, **error.headers})


def _warning(client: OAuthClient, uri: str) -> str:
    if client.source != "known" and not is_https_redirect(uri):
        problem = "This client runs on your computer, and any program there could use its name."
    elif client.source == "registered":
        problem = "Nobody has checked this client or its name."
    else:
        return ""
    return f"{problem} Allow it only if you have just started it yourself."


def _answer(uri: str, state: str | None, issuer: str, parameters: Mapping[str, str]) -> str:
    # https://www.rfc-editor.org/rfc/rfc9207#section-2
    returned = {} if state is None else {"state": state}
    return with_query(uri, {**parameters, **returned, "iss": issuer})


def _redirect(url: str) -> HttpResponse:
    # 303: what was posted here must not be posted there.
    return HttpResponse(
        status=303, headers={**NO_STORE, "location": url, "referrer-policy": "no-referrer"}
    )


def _consent_key(auth_request: AuthorizationRequest, user: str) -> str:
    host = redirect_host(auth_request.redirect_uri)
    return row_key("consent", auth_request.issuer, user, auth_request.client.id, host)


def _decode_scopes(row: bytes) -> set[str]:
    return msgspec.json.decode(row, type=set[str])


def _digest(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()


def _csrf(cookie: str, query: str) -> str:
    """Return what proves that a form was shown in this browser, for this request: nobody else knows
    the cookie."""
    return blake2b(
        query.encode(),
        digest_size=24,
        key=sha256(cookie.encode()).digest(),
        person=b"dovetail form",
    ).hexdigest()


def _cookie_name(issuer: str) -> str:
    # Cookies ignore ports, and `__Host-` cookies ignore paths. The digest keeps the servers of one
    # host apart.
    name = f"dovetail-{sha256(issuer.encode()).hexdigest()[:12]}"
    return f"__Host-{name}" if issuer.startswith("https:") else name


def _read_cookie(request: HttpRequest, issuer: str) -> str:
    wanted = _cookie_name(issuer)
    for part in request.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted and 20 <= len(value) <= 100:
            return value
    return ""


def _with_cookie(answer: HttpResponse, issuer: str, value: str) -> HttpResponse:
    secure = "; Secure" if issuer.startswith("https:") else ""
    cookie = (
        f"{_cookie_name(issuer)}={value}; Path=/; HttpOnly; SameSite=Lax; "
        f"Max-Age={int(SESSION_SECONDS)}{secure}"
    )
    return replace(answer, headers={**answer.headers, "set-cookie": cookie})
