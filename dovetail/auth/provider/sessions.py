"""Browsers that are logged in to the provider.

A random cookie identifies the session of a browser, and a form carries a token that only this
browser can know. The cookie changes when the user logs in, because someone else may know the cookie
from before the login.
"""

import secrets
from collections.abc import Callable, Mapping
from hashlib import blake2b, sha256
from hmac import compare_digest

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...ports import HttpRequest, HttpResponse
from .login import UserDirectory
from .storage import Storage, row_key
from .web import NO_STORE, OAuthError

SESSION_SECONDS = 8 * 3600.0


class LoginSession(Struct, frozen=True):
    """The user who is logged in with a browser."""

    user: str


class LoginProblem(Struct, frozen=True):
    """Why a user could not log in with a password."""

    text: str
    name: str
    """The user name that was entered."""
    status: int = 403
    headers: Mapping[str, str] = {}


class LoginSessions(Struct, frozen=True, eq=False):
    """The sessions of all browsers."""

    storage: Storage
    users: UserDirectory | None
    """The users who log in with a password. None if users log in at an upstream provider."""
    now: Callable[[], float]

    async def find_user(self, issuer: str, cookie: str) -> str | None:
        """Return the user who is logged in with the browser that has this cookie."""
        row = await self.storage.get(row_key("session", issuer, cookie)) if cookie else None
        user = None if row is None else msgspec.json.decode(row, type=LoginSession).user
        if user is None or (self.users is not None and not self.users.knows(user)):
            return None
        return user

    async def start(self, issuer: str, user: str, seconds: float = SESSION_SECONDS) -> str:
        """Start a session, and return its cookie."""
        cookie = secrets.token_urlsafe(32)
        row = msgspec.json.encode(LoginSession(user))
        await self.storage.add(row_key("session", issuer, cookie), row, self.now() + seconds)
        return cookie

    async def end(self, issuer: str, cookie: str) -> None:
        """End the session of a browser."""
        await self.storage.delete(row_key("session", issuer, cookie))

    async def check_password(
        self, posted: Mapping[str, str], address: str | None
    ) -> str | LoginProblem:
        """Return the user whose name and password were posted, or why they cannot log in. Raises
        OAuthError if nobody logs in with a password."""
        if self.users is None:
            raise OAuthError("invalid_request", "this server does not support password login")
        name = posted.get("username", "")[:200]
        wait = await self.users.check(name, posted.get("password", ""), address)
        if wait:
            seconds = int(wait) + 1
            text = f"Too many attempts. Try again in {seconds} seconds."
            return LoginProblem(text, name, 429, {"retry-after": str(seconds)})
        if wait is not None:
            return LoginProblem("The user name or password is incorrect.", name)
        return name


def redirect(url: str) -> HttpResponse:
    """Return a redirect after which the browser sends a GET request."""
    # 303, so that the browser does not send the posted form to the new URL.
    return HttpResponse(
        status=303, headers={**NO_STORE, "location": url, "referrer-policy": "no-referrer"}
    )


def csrf_token(cookie: str, form: str) -> str:
    """Return a token that proves that a form was shown in this browser. Only this browser knows the
    cookie."""
    return blake2b(
        form.encode(),
        digest_size=24,
        key=sha256(cookie.encode()).digest(),
        person=b"dovetail form",
    ).hexdigest()


def check_csrf_token(posted: Mapping[str, str], cookie: str, form: str) -> None:
    """Raise OAuthError unless a form was shown in this browser."""
    given = posted.get("csrf", "").encode()
    if not cookie or not compare_digest(given, csrf_token(cookie, form).encode()):
        raise OAuthError(
            "invalid_request", "this form was not shown in this browser; start again", 403
        )


def _cookie_name(issuer: str, purpose: str) -> str:
    # Cookies ignore ports, and `__Host-` cookies ignore paths. The digest keeps the servers of one
    # host apart.
    name = f"dovetail-{purpose}{sha256(issuer.encode()).hexdigest()[:12]}"
    return f"__Host-{name}" if issuer.startswith("https:") else name


def read_cookie(request: HttpRequest, issuer: str, purpose: str = "") -> str:
    """Return the cookie of a browser, or an empty string if it has none yet. `purpose` tells apart
    the cookies of one server."""
    wanted = _cookie_name(issuer, purpose)
    for part in request.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted and 20 <= len(value) <= 100:
            return value
    return ""


def with_cookie(answer: HttpResponse, issuer: str, value: str, purpose: str = "") -> HttpResponse:
    """Return a response that sets the cookie of a browser."""
    secure = "; Secure" if issuer.startswith("https:") else ""
    cookie = (
        f"{_cookie_name(issuer, purpose)}={value}; Path=/; HttpOnly; SameSite=Lax; "
        f"Max-Age={int(SESSION_SECONDS)}{secure}"
    )
    return replace(answer, headers={**answer.headers, "set-cookie": cookie})
