"""What a browser calls: the authorization endpoint, and the way back from an upstream provider.

The request of the client stays in the query of the URL all the way, and is read and judged anew at
each step; nothing is kept of it here. What is kept is who sits at the browser: a random cookie
names a session, once somebody has logged in.

    GET  authorize?…    who is it? may the client?  ──> the login page, the consent page, or back to the client
    POST authorize?…    action = login | approve | deny | switch, with a token that only this browser, for this very
                        request, can have
    GET  callback?…     back from the upstream: `state` is good once, and only in the browser that was sent there

The order in which a request is judged is what makes it safe: first the client, then the redirect
URI, and until both are known to belong together every refusal is a page. After that, refusals go
back to the client; but a browser is not sent on to a site of which nobody here has heard before a
person had a word in it: https://www.rfc-editor.org/rfc/rfc9700#section-4.11.2.
"""  # noqa: E501

import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import blake2b, sha256
from hmac import compare_digest
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ...ports import HttpRequest, HttpResponse, PublicUrl
from . import pages
from .clients import (
    ClientRegistry,
    OAuthClient,
    is_https_redirect,
    is_loopback_redirect,
    policy_source,
    redirect_host,
)
from .grants import Grant, GrantStore
from .passwords import UserDirectory
from .storage import Storage, row_key
from .token_endpoint import requested_resource
from .upstream import Login, LoginEnded, Upstream, UpstreamUnreachable
from .web import NO_STORE, AttemptLimiter, OAuthError, parse_fields, parse_form, with_query

SESSION_LIFE, CONSENT_LIFE, VISIT_LIFE = 8 * 3600.0, 30 * 86400.0, 600.0
OFFLINE_ACCESS = "offline_access"


class AuthorizationRequest(Struct, frozen=True):
    """An authorization request of which client and redirect URI are known to belong together, and
    the rest is sound."""

    issuer: str
    site: PublicUrl
    query: str
    client: OAuthClient
    redirect_uri: str
    state: str | None
    resource: str
    challenge: str
    scopes: tuple[str, ...]
    offline: bool
    ask: bool
    """Whether the user is to be asked in any case."""


class LoginSession(Struct, frozen=True):
    """Who sits at a browser."""

    user: str


class PendingUpstreamLogin(Struct, frozen=True):
    """A user who was sent to the upstream."""

    query: str
    browser: str
    nonce: str
    verifier: str


class AuthorizationEndpoint:
    """The endpoints."""

    def __init__(
        self,
        clients: ClientRegistry,
        grants: GrantStore,
        storage: Storage,
        *,
        users: UserDirectory | None,
        upstream: Upstream | None,
        offer: Callable[[PublicUrl], Mapping[str, str]],
        usual: tuple[str, ...] = (),
        name: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clients, self._grants, self._storage = clients, grants, storage
        self._users, self._upstream, self._offer = users, upstream, offer
        self._usual = usual
        """What a client gets that names no scopes; without any, all that there are."""
        self._name, self._now = name, now
        self._rates = AttemptLimiter(300, 0.2, now)

    async def authorize(self, request: HttpRequest, issuer: str, site: PublicUrl) -> HttpResponse:
        """The authorization endpoint: https://www.rfc-editor.org/rfc/rfc6749#section-3.1."""
        query = urlsplit(request.url).query
        self._rates.require(request.address)
        found, resources = parse_fields(query)
        client = await self._clients.find(found.get("client_id"), issuer, site, request.address)
        uri = client.redirect(found.get("redirect_uri"))
        cookie = _cookie(request.headers.get("cookie", ""), _cookie_name(issuer))
        try:
            wish = self._wish(found, resources, query, client, uri, issuer, site)
        except OAuthError as refused:
            return self._back(
                uri, found.get("state"), issuer, site, refused, ask=client.source != "known"
            )
        if request.method == "POST":
            return await self._act(request, wish, cookie)
        return await self._show(wish, cookie)

    async def callback(self, request: HttpRequest, issuer: str, site: PublicUrl) -> HttpResponse:
        """The way back from the upstream."""
        cookie = _cookie(request.headers.get("cookie", ""), _cookie_name(issuer))
        answer, _ = parse_fields(urlsplit(request.url).query)
        row = await self._storage.take(row_key("visit", issuer, answer.get("state", "")))
        visit = None if row is None else msgspec.json.decode(row, type=PendingUpstreamLogin)
        if visit is None or not compare_digest(visit.browser, _digest(cookie)):
            raise OAuthError(
                "invalid_request",
                "this login was begun in another browser, or took too long; start again",
            )
        found, resources = parse_fields(visit.query)
        client = await self._clients.find(found.get("client_id"), issuer, site, request.address)
        wish = self._wish(
            found,
            resources,
            visit.query,
            client,
            client.redirect(found.get("redirect_uri")),
            issuer,
            site,
        )
        assert self._upstream is not None
        try:
            login = await self._upstream.exchange(
                answer, f"{issuer}/callback", visit.nonce, visit.verifier, site
            )
        except LoginEnded as problem:
            return self._refuse(
                wish, OAuthError("access_denied", f"the login was refused: {problem}")
            )
        except UpstreamUnreachable:
            return self._refuse(
                wish, OAuthError("server_error", f"{self._upstream.host} cannot be reached")
            )
        return await self._grant(wish, login)

    # judging

    def _wish(
        self,
        found: Mapping[str, str],
        resources: list[str],
        query: str,
        client: OAuthClient,
        uri: str,
        issuer: str,
        site: PublicUrl,
    ) -> AuthorizationRequest:
        if found.get("response_type") != "code":
            raise OAuthError("unsupported_response_type", "response_type must be code")
        if (
            found.get("response_mode", "query") != "query"
            or "request" in found
            or "request_uri" in found
        ):
            raise OAuthError(
                "invalid_request", "only plain parameters with response_mode query are understood"
            )
        challenge = found.get("code_challenge", "")
        if found.get("code_challenge_method") != "S256" or not 43 <= len(challenge) <= 128:
            raise OAuthError(
                "invalid_request",
                "PKCE is needed: a code_challenge with code_challenge_method S256",
            )
        resource = requested_resource(resources, site) or site.base
        asked = tuple(dict.fromkeys(found.get("scope", "").split()))
        offered = self._offer(site)
        scopes = tuple(scope for scope in asked if scope in offered)
        named = [scope for scope in asked if scope != OFFLINE_ACCESS]
        if named and not scopes:
            raise OAuthError("invalid_scope", "none of these scopes exists here")
        return AuthorizationRequest(
            issuer=issuer,
            site=site,
            query=query,
            client=client,
            redirect_uri=uri,
            state=found.get("state"),
            resource=resource,
            challenge=challenge,
            scopes=scopes if named else self._usual or tuple(offered),
            offline=OFFLINE_ACCESS in asked,
            ask=not {"consent", "login", "select_account"}.isdisjoint(
                found.get("prompt", "").split()
            ),
        )

    # showing

    async def _show(
        self,
        wish: AuthorizationRequest,
        cookie: str,
        problem: str = "",
        name: str = "",
        status: int = 200,
    ) -> HttpResponse:
        """What comes next in this browser."""
        fresh = cookie or secrets.token_urlsafe(32)
        session = await self._session(wish.issuer, cookie)
        asked, csrf = self._asked(wish), _csrf(fresh, wish.query)
        if self._upstream is not None:
            shown = pages.consent_page(asked, csrf, None)
        elif session is None:
            shown = pages.login_page(asked, csrf, problem, name, status)
        elif await self._remembered(wish, session.user):
            return await self._grant(wish, Login(session.user))
        else:
            shown = pages.consent_page(asked, csrf, session.user)
        return shown if cookie else _with_cookie(shown, wish.issuer, fresh)

    def _asked(self, wish: AuthorizationRequest) -> pages.ConsentDetails:
        client, uri, words = wish.client, wish.redirect_uri, self._offer(wish.site)
        known_by = {
            "known": "this server",
            "described": f"{urlsplit(client.id).netloc}",
            "registered": "nobody: it registered itself",
        }
        hosts = [policy_source(uri)]
        if self._upstream is not None:  # and from there to wherever it has its own users log in
            hosts += ["https:", policy_source(self._upstream.issuer)]
        return pages.ConsentDetails(
            server=self._server(wish.site),
            client=client.name or "A client without a name",
            known_by=known_by[client.source],
            back_to=f"{redirect_host(uri)} (this computer)"
            if is_loopback_redirect(uri)
            else redirect_host(uri),
            uri=uri,
            scopes=tuple(words[scope] for scope in wish.scopes),
            warning=_warning(client, uri),
            form=("'self'", *dict.fromkeys(hosts)),
            upstream=None
            if self._upstream is None
            else (self._upstream.host, ", ".join(self._upstream.scopes)),
        )

    def _server(self, site: PublicUrl) -> str:
        return self._name or urlsplit(site.url).netloc

    # acting

    async def _act(
        self, request: HttpRequest, wish: AuthorizationRequest, cookie: str
    ) -> HttpResponse:
        posted, _ = parse_form(request)
        if not cookie or not compare_digest(
            posted.get("csrf", "").encode(), _csrf(cookie, wish.query).encode()
        ):
            raise OAuthError(
                "invalid_request",
                "this form is not from a page that was shown in this browser; start again",
                403,
            )
        act = self._ACTIONS.get(posted.get("action", ""))
        if act is None:
            raise OAuthError("invalid_request", "this form has no such button")
        answer: HttpResponse = await act(self, request, wish, cookie, posted)
        return answer

    async def _login(
        self,
        request: HttpRequest,
        wish: AuthorizationRequest,
        cookie: str,
        posted: Mapping[str, str],
    ) -> HttpResponse:
        if self._users is None:
            raise OAuthError("invalid_request", "nobody logs in on this page")
        name = posted.get("username", "")[:200]
        wait = await self._users.check(name, posted.get("password", ""), request.address)
        if wait:
            problem = f"Too many attempts. Try again in {int(wait) + 1} seconds."
            shown = await self._show(wish, cookie, problem, name, 429)
            return HttpResponse(
                status=429,
                headers={**shown.headers, "retry-after": str(int(wait) + 1)},
                body=shown.body,
            )
        if wait is not None:
            return await self._show(wish, cookie, "User name or password is wrong.", name, 403)
        fresh = secrets.token_urlsafe(
            32
        )  # a session from before the login is worth nothing after it
        row = msgspec.json.encode(LoginSession(name))
        await self._storage.add(
            row_key("session", wish.issuer, fresh), row, self._now() + SESSION_LIFE
        )
        return _with_cookie(_to(f"{wish.issuer}/authorize?{wish.query}"), wish.issuer, fresh)

    async def _switch(
        self,
        request: HttpRequest,
        wish: AuthorizationRequest,
        cookie: str,
        posted: Mapping[str, str],
    ) -> HttpResponse:
        await self._storage.delete(row_key("session", wish.issuer, cookie))
        return _to(f"{wish.issuer}/authorize?{wish.query}")

    async def _deny(
        self,
        request: HttpRequest,
        wish: AuthorizationRequest,
        cookie: str,
        posted: Mapping[str, str],
    ) -> HttpResponse:
        return self._refuse(wish, OAuthError("access_denied", "the user said no"))

    async def _approve(
        self,
        request: HttpRequest,
        wish: AuthorizationRequest,
        cookie: str,
        posted: Mapping[str, str],
    ) -> HttpResponse:
        if self._upstream is not None:
            return await self._visit(self._upstream, wish, cookie)
        session = await self._session(wish.issuer, cookie)
        if session is None:
            return await self._show(wish, cookie, "Your session has ended. Sign in again.")
        await self._remember(wish, session.user)
        return await self._grant(wish, Login(session.user))

    _ACTIONS: dict[str, Any] = {
        "login": _login,
        "switch": _switch,
        "deny": _deny,
        "approve": _approve,
    }

    async def _visit(
        self, upstream: Upstream, wish: AuthorizationRequest, cookie: str
    ) -> HttpResponse:
        state, nonce, verifier = (
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(16),
            secrets.token_urlsafe(32),
        )
        try:
            url = await upstream.visit(f"{wish.issuer}/callback", state, nonce, verifier, wish.site)
        except UpstreamUnreachable:
            return self._refuse(
                wish, OAuthError("temporarily_unavailable", f"{upstream.host} cannot be reached")
            )
        row = msgspec.json.encode(
            PendingUpstreamLogin(wish.query, _digest(cookie), nonce, verifier)
        )
        await self._storage.add(row_key("visit", wish.issuer, state), row, self._now() + VISIT_LIFE)
        return _to(url)

    # what is remembered

    async def _session(self, issuer: str, cookie: str) -> LoginSession | None:
        row = await self._storage.get(row_key("session", issuer, cookie)) if cookie else None
        session = None if row is None else msgspec.json.decode(row, type=LoginSession)
        return session if session and self._users and self._users.knows(session.user) else None

    async def _remembered(self, wish: AuthorizationRequest, user: str) -> bool:
        if wish.ask or not is_https_redirect(wish.redirect_uri):
            # Any program can listen on a loopback port or take a scheme:
            # https://www.rfc-editor.org/rfc/rfc8252#section-8.6
            return False
        row = await self._storage.get(_consent(wish, user))
        return row is not None and set(wish.scopes) <= set(msgspec.json.decode(row, type=list[str]))

    async def _remember(self, wish: AuthorizationRequest, user: str) -> None:
        name = _consent(wish, user)
        row = await self._storage.take(name)
        scopes = {*wish.scopes, *(msgspec.json.decode(row, type=list[str]) if row else ())}
        await self._storage.add(
            name, msgspec.json.encode(sorted(scopes)), self._now() + CONSENT_LIFE
        )

    # the way back

    async def _grant(self, wish: AuthorizationRequest, login: Login) -> HttpResponse:
        client = wish.client
        if self._clients.is_known(login.user):  # whose own tokens go by that name
            return self._refuse(wish, OAuthError("access_denied", "this name is taken by a client"))
        renewable = self._upstream is None or login.refresh_token is not None
        grant = Grant(
            user=login.user,
            client=client.id,
            resource=wish.resource,
            scopes=wish.scopes,
            claims=login.claims,
            challenge=wish.challenge,
            redirect_uri=wish.redirect_uri,
            refreshes=renewable and (wish.offline or "refresh_token" in client.grant_types),
            ends=login.ends,
        )
        code = await self._grants.begin(wish.issuer, grant, login.refresh_token or "")
        await self._clients.used(client, wish.issuer)
        return _to(_answer(wish.redirect_uri, wish.state, wish.issuer, {"code": code}))

    def _refuse(self, wish: AuthorizationRequest, refused: OAuthError) -> HttpResponse:
        return self._back(wish.redirect_uri, wish.state, wish.issuer, wish.site, refused, ask=False)

    def _back(
        self,
        uri: str,
        state: str | None,
        issuer: str,
        site: PublicUrl,
        refused: OAuthError,
        *,
        ask: bool,
    ) -> HttpResponse:
        told = {"error": refused.error, "error_description": refused.description}
        url = _answer(uri, state, issuer, told)
        if not ask:
            return _to(url)
        text = f"The program that sent you here made a mistake: {refused.description}."
        return pages.error_page(
            self._server(site),
            "This request cannot be answered",
            text,
            400,
            (redirect_host(uri), url),
        )

    def refuse(self, refused: OAuthError, site: PublicUrl) -> HttpResponse:
        """The page of a request that leads nowhere."""
        text = f"{refused.description[:1].upper()}{refused.description[1:]}."
        status = 400 if refused.status == 401 else refused.status  # which is for programs
        shown = pages.error_page(
            self._server(site), "This request cannot be answered", text, status
        )
        return HttpResponse(
            status=shown.status, headers={**shown.headers, **refused.headers}, body=shown.body
        )


def _warning(client: OAuthClient, uri: str) -> str:
    if client.source == "known" or is_https_redirect(uri):
        return (
            ""
            if client.source != "registered"
            else (
                "Nobody has checked this client or its name. Allow it only if you have just "
                "started it yourself."
            )
        )
    return (
        "This client runs on your computer, and any program there could use its name. "
        "Allow it only if you have just started it yourself."
    )


def _answer(uri: str, state: str | None, issuer: str, told: Mapping[str, str]) -> str:
    # https://www.rfc-editor.org/rfc/rfc9207#section-2
    return with_query(uri, {**told, **({} if state is None else {"state": state}), "iss": issuer})


def _to(url: str) -> HttpResponse:
    # 303: what was posted here must not be posted there.
    return HttpResponse(
        status=303, headers={**NO_STORE, "location": url, "referrer-policy": "no-referrer"}
    )


def _consent(wish: AuthorizationRequest, user: str) -> str:
    return row_key("consent", wish.issuer, user, wish.client.id, redirect_host(wish.redirect_uri))


def _digest(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()


def _csrf(cookie: str, query: str) -> str:
    """What proves that a form was shown in this browser, for this request: nobody else knows the
    cookie."""
    return blake2b(
        query.encode(),
        digest_size=24,
        key=sha256(cookie.encode()).digest(),
        person=b"dovetail form",
    ).hexdigest()


def _cookie_name(issuer: str) -> str:
    # Cookies know no ports, and `__Host-` ones no paths: the name keeps servers on one host apart.
    name = f"dovetail-{sha256(issuer.encode()).hexdigest()[:12]}"
    return f"__Host-{name}" if issuer.startswith("https:") else name


def _cookie(header: str, name: str) -> str:
    for part in header.split(";"):
        found, _, value = part.strip().partition("=")
        if found == name and 20 <= len(value) <= 100:
            return value
    return ""


def _with_cookie(answer: HttpResponse, issuer: str, value: str) -> HttpResponse:
    secure = "; Secure" if issuer.startswith("https:") else ""
    cookie = (
        f"{_cookie_name(issuer)}={value}; Path=/; HttpOnly; SameSite=Lax; "
        f"Max-Age={int(SESSION_LIFE)}{secure}"
    )
    return HttpResponse(
        status=answer.status, headers={**answer.headers, "set-cookie": cookie}, body=answer.body
    )
