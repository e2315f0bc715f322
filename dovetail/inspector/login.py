"""The login of the inspector's target, step by step.

There is no second implementation of OAuth: the login is that of a `Client` with the credentials of
`dovetail login`. Its requests pass a gate, which holds them until the user lets their step begin.
The tap of the client reports what was sent and received. The user opens the login page with a
click, and the library's own listener on this machine receives the redirect.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from .. import Client
from ..errors import DovetailError
from ..limits import Limits
from ..logs import get_logger
from ..ports import AuthStep, AuthStepName, Fetch, HttpRequest, HttpResponse
from .login_steps import ORDER, STEPS, show_step, step_state
from .refusal import Refused
from .tap import EventTap

if TYPE_CHECKING:
    from ..auth import Visit
    from .state import InspectorState

log = get_logger("inspector")

NO_LOGIN = "Only servers at a URL have a login. This server is a process that the inspector starts."
LoginStatus = Literal["idle", "running", "paused", "done", "failed", "cancelled"]
Gate = Callable[[AuthStepName, HttpRequest], Awaitable[None]]
"""Waits until a step may begin."""


class LoginTarget(Struct, frozen=True):
    """How to log in to the target."""

    make_credentials: Callable[[Any], Any]
    """Returns credentials that log in with this `Browser`, even if a login is saved."""
    describe: Callable[[], Awaitable[dict[str, Any] | None]]
    """Returns the saved login without its secrets, or None."""


class SteppedLogin:
    """The last login that the page started.

    Args:
        state: The inspector.
    """

    def __init__(self, state: "InspectorState") -> None:
        self._state = state
        self._steps: list[AuthStep] = []
        """The requests that have ended."""
        self._current: AuthStep | None = None
        """The request that is being sent, or that waits to be sent."""
        self._last: AuthStepName = "call"
        """The step to stop after."""
        self._resumed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._status: LoginStatus = "idle"
        self._message = ""
        self._link: str | None = None
        self._saved: dict[str, Any] | None = None

    @property
    def target(self) -> LoginTarget:
        """How to log in.

        Raises:
            Refused: The target has no login.
        """
        found = self._state.settings.login
        if isinstance(found, str):
            raise Refused(found, status=409)
        return found

    # what the page does

    async def read(self) -> None:
        """Report the saved login and the steps to the page."""
        if not isinstance(self._state.settings.login, str):
            self._saved = await self.target.describe()
        self._report()

    async def run(self, last: AuthStepName, again: bool) -> None:
        """Start a login, or go on with the one that is paused.

        Args:
            last: The step to stop after.
            again: Whether to start from the beginning.
        """
        target = self.target
        if self._running is not None and not again:
            self._last = last
            self._resumed.set()
            return
        await self.cancel()
        self._steps, self._last, self._message = [], last, ""
        self._begin("challenge", HttpRequest(method="POST"))
        self._running = self._state.tasks.start(self._run(target))

    async def cancel(self) -> None:
        """End the login that is running, if there is one."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def forget(self) -> None:
        """Delete the saved login, ask its issuer to revoke the tokens, and restart the connection,
        which used them."""
        target = self.target
        await self.cancel()
        self._steps, self._current, self._last = [], None, "revocation"
        client = self._make_client(target)
        try:
            revoked = await client.log_out()
        finally:
            await client.close()
        existed, self._saved = self._saved, await target.describe()
        text = "The saved login was deleted." if existed or revoked else "No login was saved."
        self._end("idle", text + " Its tokens were revoked." * revoked)
        self._state.restart()

    # the login

    async def _run(self, target: LoginTarget) -> None:
        try:
            async with self._make_client(target):
                pass  # the connection is open, so the login has succeeded
            self._saved = await target.describe()
            is_new = any(step.name == "token" for step in self._steps)
            self._end("done", "Logged in." if is_new else "The server does not require a login.")
            if self._state.status["status"] == "failed":
                self._state.restart()
        except DovetailError as problem:
            self._fail(str(problem) or type(problem).__name__)
        except Exception as problem:
            log.exception("The login failed")
            self._fail(str(problem) or type(problem).__name__)
        except asyncio.CancelledError:
            self._end("cancelled", "The login was cancelled.")
            raise
        finally:
            self._running = None

    def _make_client(self, target: LoginTarget) -> Client:
        settings = self._state.settings
        tap = _LoginTap(self._on_step, self._state, self._state.count_connection())
        credentials = target.make_credentials(_LinkBrowser(self))
        auth = _GatedCredentials(credentials, self.begin_step)
        return settings.make_client(auth=auth, tap=tap, limits=Limits(restarts=0), cache=False)

    async def begin_step(self, name: AuthStepName, request: HttpRequest) -> None:
        """Wait until a step may begin. This is the gate."""
        self._begin(name, request)
        while ORDER[name] > ORDER[self._last]:
            self._status, self._message = "paused", f"Paused before: {STEPS[name].title}."
            self._resumed.clear()
            self._report()
            await self._resumed.wait()
        self._status, self._message = "running", ""
        self._report()

    def _begin(self, name: AuthStepName, request: HttpRequest) -> None:
        from ..auth.client.taps import mask_step

        now = time.time()
        step = AuthStep(name=name, request=request, started=now, ended=now)
        self._current = step if self._state.settings.show_secrets else mask_step(step)
        self._status = "running"
        self._report()

    def show_link(self, url: str | None) -> None:
        """Offer a page for the user to open, or withdraw it."""
        self._link = url
        self._report()

    def _on_step(self, step: AuthStep) -> None:
        self._steps.append(step)
        if self._current is not None and self._current.name == step.name:
            self._current = None
        self._report()

    def _fail(self, message: str) -> None:
        if self._current is not None and not any(step.problem for step in self._steps):
            self._steps.append(replace(self._current, problem=message))
        self._end("failed", message)

    def _end(self, status: LoginStatus, message: str) -> None:
        self._status, self._message = status, message
        self._current = self._link = None
        self._report()

    # the page

    def _report(self) -> None:
        self._state.report_changed("login", self.fields())

    def fields(self) -> dict[str, Any]:
        """Return what the page shows."""
        if isinstance(self._state.settings.login, str):
            return {"why_not": self._state.settings.login}
        shown = [*self._steps, *(() if self._current is None else (self._current,))]
        return {
            "status": self._status,
            "message": self._message,
            "link": self._link,
            "saved": self._saved,
            "steps": [
                {
                    "name": name,
                    "title": rule.title,
                    "requirement": rule.requirement,
                    "reference": rule.reference,
                    "state": step_state(name, self._steps, self._current, self._status == "paused"),
                    "requests": [show_step(step) for step in shown if step.name == name],
                }
                for name, rule in STEPS.items()
                if name != "revocation" or any(step.name == name for step in shown)
            ],
        }


class _LoginTap(EventTap):
    """The inspector's tap, which also passes the steps to the login and to recordings. Messages of
    the login's connection are not recorded, because a recording can be replayed."""

    def __init__(
        self, on_step: Callable[[AuthStep], None], state: "InspectorState", connection: int
    ) -> None:
        super().__init__(state.events, connection, state.settings.show_secrets)
        self._on_step, self._recorders = on_step, state.recorders

    def auth_step(self, step: AuthStep) -> None:
        """Pass on a step."""
        for recorder in self._recorders:
            recorder.auth_step(step)
        self._on_step(step)


class _GatedCredentials:
    """Credentials whose requests wait at a gate."""

    def __init__(self, credentials: Any, gate: Gate) -> None:
        self._credentials, self._gate = credentials, gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._credentials, name)

    def bind(self, url: str, fetch: Fetch) -> "_GatedCredentials":
        """Return these credentials for one server."""

        async def send(request: HttpRequest) -> HttpResponse:
            await self._gate(getattr(request, "step", "token"), request)
            return await fetch(request)

        return _GatedCredentials(self._credentials.bind(url, send), self._gate)

    async def authorize(self) -> None:
        """Log in, and wait at the gate before the request is sent again."""
        await self._credentials.authorize()
        await self._gate("call", HttpRequest(method="POST"))


class _LinkBrowser:
    """A `Browser` that shows a link on the page."""

    def __init__(self, login: SteppedLogin) -> None:
        self._login = login

    @asynccontextmanager
    async def session(self) -> AsyncIterator["_LinkVisit"]:
        """Listen on this machine for the redirect during one visit."""
        from ..auth import LoopbackBrowser

        async with LoopbackBrowser(open=False, tell=lambda text: None).session() as visit:
            yield _LinkVisit(visit, self._login)


class _LinkVisit:
    def __init__(self, visit: "Visit", login: SteppedLogin) -> None:
        self._visit, self._login = visit, login
        self.redirect_uri = visit.redirect_uri

    async def go(self, url: str, about: str) -> Mapping[str, str]:
        """Show the link, and wait for the redirect."""
        await self._login.begin_step("authorize", HttpRequest(method="GET", url=url))
        self._login.show_link(url)
        try:
            return await self._visit.go(url, about)
        finally:
            self._login.show_link(None)
