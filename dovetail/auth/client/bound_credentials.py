"""Credentials at work, for one server: the thin shell around `flow.py`, with its `Fetch`, `Store`
and `Browser`.

What is kept lives in the store, and what is held here is a copy of it. Before anything is renewed
the copy is made anew under the store's lock, so of all the tasks and programs that share a store,
one renews and the others find it done. A login takes minutes, and therefore has a lock of its own.

Who is refused with a token that has been replaced since just tries again: `headers` notes in the
context of its task which
*edition* of the tokens it handed out. Whose brand-new token is refused is not helped by the next
one: after a renewal comes a login, after a login comes the end.

A server in trouble proves nothing about a token. Only a clear word ends one: `invalid_grant`, or a
server that does not know its client any more.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from msgspec.structs import replace

from ...errors import ConfigError, ConnectFailed, DovetailError, TimedOut, Unauthorized
from ...ports import Fetch, HttpResponse
from ...text import one_line
from ..challenges import AccessRequirements, read_requirements
from ..documents import ErrorReply
from ..dpop import DpopClient
from ..urls import canonical_url, origin, require_confidential
from .discovery import resource_metadata
from .flow import (
    UNKNOWN_CLIENT_ERRORS,
    Flow,
    FlowOptions,
    OpenPage,
    acquire_tokens,
    refresh_tokens,
    registration_of,
)
from .grants import UnattendedGrant, revoke_tokens
from .store import ServerRecord, TokenSet, read_record

if TYPE_CHECKING:
    from .browser import Browser, Visit
    from .store import Store

log = logging.getLogger("dovetail.auth")
R = TypeVar("R")
MAX_STEPS_PER_OPERATION = 2
"""How often more scopes are asked for on account of one operation; with the first login that makes
three."""
MAX_STEPS_IN_A_ROW = 4
"""How often in a row, on account of whatever, before an answer comes that is no refusal."""
MAX_OPERATIONS = 64
MAX_NONCES_IN_A_ROW = 8
"""How often in a row a server may want another nonce."""
RENEW_INTERVAL_SECONDS = 10.0
"""Seconds between attempts to renew what is still good."""
LOGOUT_SECONDS = 5.0
"""Seconds that a logout may take, besides forgetting."""
ENDED_ERRORS = frozenset({"invalid_grant"}) | UNKNOWN_CLIENT_ERRORS
NO_REQUIREMENTS = AccessRequirements()
STORED, RENEWED, NEW = "kept", "renewed", "new"
"""How tokens were come by, until the server takes them; then they are as good as any that were
kept."""

_token_sent: ContextVar[tuple[Any, int]] = ContextVar("dovetail_auth_handed", default=(None, -1))


class BoundCredentials:
    """One server's credentials: `ports.Credentials`, with a login where `grant` is None, else
    without anybody's help."""

    def __init__(
        self,
        plan: FlowOptions,
        fetch: Fetch,
        store: "Store",
        *,
        browser: "Browser | None" = None,
        grant: Callable[[], Awaitable[UnattendedGrant]] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._plan, self._fetch, self._store, self._browser, self._grant, self._now = (
            plan,
            fetch,
            store,
            browser,
            grant,
            now,
        )
        self._key, self._origin = canonical_url(plan.url), origin(plan.url)
        self._fresh = plan.fresh
        self._record: ServerRecord | None = None
        self._proofs = DpopClient()
        self._demand = NO_REQUIREMENTS
        self._refused: str | None = None
        """The token that was refused last, empty for none at all; None once there has been a
        login."""
        self._held, self._edition, self._got = "", 0, STORED
        """The token that is held, the how manieth it is, and how it was come by."""
        self._nonces = self._climb = 0
        self._climbed = -1
        self._steps: dict[tuple[str, str, tuple[str, ...]], tuple[int, int]] = {}
        """For which edition an operation was refused last, and how often that was in vain."""
        self._unsaved = False
        """Whether what is held is newer than what is kept, which could not be written."""
        self._work: set[asyncio.Task[Any]] = set()
        self._not_before = 0.0
        """When renewing what is still good may be tried again."""

    def bind(self, url: str, fetch: Fetch) -> "BoundCredentials":
        """The same, for this URL."""
        plan = replace(self._plan, url=url)
        return BoundCredentials(
            plan, fetch, self._store, browser=self._browser, grant=self._grant, now=self._now
        )

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """What goes with this request; renews what is about to end."""
        kept = self._record or await self._load()
        if origin(url) != self._origin:
            return {}  # a token is for the server that it was got for
        if kept.tokens is not None and not self._fresh and kept.tokens.is_expiring(self._now()):
            kept = await self._ahead(kept.tokens)
        _token_sent.set((self, self._edition))
        tokens = kept.tokens
        if tokens is None or self._fresh:
            return {}
        require_confidential(url)
        found = {"authorization": f"{tokens.scheme} {tokens.access_token}"}
        if tokens.scheme == "DPoP":
            found["dpop"] = self._proofs.header(method, url, tokens.access_token)
        return found

    async def refused(self, method: str, url: str, answer: HttpResponse) -> bool:
        """The server answered 401 or 403."""
        asked = read_requirements(answer)
        kept = self._record or await self._load()
        if origin(url) != self._origin or (
            answer.status == 403 and asked.error != "insufficient_scope"
        ):
            return False
        if (
            kept.tokens is not None
            and self._proofs.wanted(url, answer)
            and self._nonces < MAX_NONCES_IN_A_ROW
        ):
            self._nonces += 1
            return True
        holder, edition = _token_sent.get()
        if holder is self and edition != self._edition:
            return True  # what was refused is not what is held now
        asked = self._demand = replace(
            asked, metadata_url=asked.metadata_url or self._demand.metadata_url or kept.metadata_url
        )
        self._refused = self._held
        if answer.status == 403:
            return await self._lacks(method, url, asked, kept)
        if kept.tokens is not None and self._got == NEW:
            self._got = STORED  # the next request may try anew
            raise Unauthorized(
                f"{self._plan.url} refuses the token that {kept.tokens.issuer} has just given "
                f"out{asked.reason}"
            )
        if asked.api_key:
            raise Unauthorized(
                f"{self._plan.url} wants an API key, and no login: "
                f"headers={{{one_line(asked.api_key, 60)!r}: …}}"
            )
        if not self._fresh and await self._finished(self._renewed(asked)):
            return True
        raise Unauthorized(f"{self._plan.url} wants a login first{asked.reason}", curable=True)

    def heard(self, answer: HttpResponse) -> None:
        """Any other answer: what was sent along was good."""
        self._got, self._nonces, self._climb = STORED, 0, 0
        self._proofs.heard(self._plan.url, answer)

    async def authorize(self) -> None:
        """Log in, with the user's help."""
        if self._grant is not None or self._browser is None:
            lacks = self._demand.scopes if self._demand.error == "insufficient_scope" else ()
            raise Unauthorized(
                f"{self._plan.url} wants a login, and nobody is here to log in",
                curable=True,
                scopes=lacks,
            )
        refused = self._refused
        async with self._store.lock(f"{self._key}#login"):
            kept = await self._load()
            if (
                refused is not None
                and kept.tokens is not None
                and kept.tokens.access_token != refused
            ):
                return  # somebody else was here before
            known, tokens = kept.registrations, None
            try:
                async with self._browser.session() as visit:
                    steps = acquire_tokens(
                        self._plan,
                        kept,
                        self._demand,
                        self._proofs,
                        self._now,
                        redirect_uri=visit.redirect_uri,
                    )
                    tokens = await self._drive(steps, visit)
            finally:
                if tokens is not None or kept.registrations is not known:
                    await self._conclude(kept, tokens)

    async def forget(self) -> bool:
        """Log out: keep nothing, and have the tokens ended by who gave them out, where that can be
        asked for. Whether it is done; where it is not, they end by themselves."""
        async with self._store.lock(self._key):  # whoever is renewing them does not bring them back
            tokens = (await self._load()).tokens
            await self._store.delete(self._key)
            self._hold(ServerRecord(), STORED)
            self._unsaved = False
        if tokens is None:
            return False
        try:
            async with asyncio.timeout(LOGOUT_SECONDS):
                return await self._drive(
                    revoke_tokens(tokens, registration_of(tokens, self._plan.identity))
                )
        except (DovetailError, TimeoutError):
            return False

    async def _conclude(self, login: ServerRecord, tokens: TokenSet | None) -> None:
        """Keep what a login brought; meanwhile others may have renewed what it did not."""
        async with self._store.lock(self._key):
            kept = await self._load()
            kept.registrations = login.registrations
            if tokens is not None:
                kept.tokens, self._refused, self._fresh = tokens, None, False
            await self._save(kept, NEW)

    async def _lacks(
        self, method: str, url: str, asked: AccessRequirements, kept: ServerRecord
    ) -> bool:
        """Scopes are missing: ask for them, but not for ever."""
        operation = (method, urlsplit(url).path, asked.scopes)
        edition, taken = self._steps.pop(operation, (-1, 0))
        before = kept.tokens.requested_scopes if kept.tokens is not None else ()
        if (
            edition != self._edition
        ):  # else somebody was refused at the same time, and one login helps both
            taken = taken + 1 if set(asked.scopes) <= set(before) else 0
        self._climb += self._climbed != self._edition
        edition = self._climbed = self._edition
        wanted = one_line(" ".join(asked.scopes)) or "more than was granted"
        self._steps[operation] = edition, taken
        if taken >= MAX_STEPS_PER_OPERATION or self._climb > MAX_STEPS_IN_A_ROW:
            raise Unauthorized(
                f"{self._plan.url} wants scopes that asking did not bring: {wanted}{asked.reason}",
                scopes=asked.scopes,
            )
        while len(self._steps) > MAX_OPERATIONS:
            del self._steps[next(iter(self._steps))]
        if self._grant is None:
            raise Unauthorized(
                f"{self._plan.url} wants a login for more scopes: {wanted}",
                curable=True,
                scopes=asked.scopes,
            )
        async with self._store.lock(self._key):
            kept = await self._load()
            if edition == self._edition:
                await self._unaided(kept, asked)
        return True

    async def _renewed(self, asked: AccessRequirements) -> bool:
        """Whether tokens that were refused could be replaced without anybody's help."""
        async with self._store.lock(self._key):
            kept = await self._load()
            tokens = kept.tokens
            if tokens is not None and tokens.access_token != self._refused:
                return True  # another program was here before
            if self._grant is not None:
                await self._unaided(kept, asked)
                return True
            if tokens is None or tokens.refresh_token is None or self._got == RENEWED:
                return False
            described = await self._drive(resource_metadata(self._plan.url, asked.metadata_url))
            if described is not None and tokens.issuer not in described.authorization_servers:
                kept.tokens = (
                    None  # it has moved to another authorization server, where these mean nothing
                )
                await self._save(kept)
                return False
            return await self._refresh(kept, tokens)

    async def _ahead(self, ending: TokenSet) -> ServerRecord:
        """Renew tokens before they end, if that can be done; until they do, they are good
        enough."""
        now = self._now()
        if (self._grant is not None or ending.refresh_token is not None) and (
            now >= self._not_before or ending.is_expired(now)
        ):
            self._not_before = now + RENEW_INTERVAL_SECONDS
            try:
                await self._finished(self._renew_ending(now))
            except (ConnectFailed, TimedOut, Unauthorized):
                if ending.is_expired(now):
                    raise
        return self._record or await self._load()

    async def _renew_ending(self, now: float) -> None:
        async with self._store.lock(self._key):
            kept = await self._load()
            if kept.tokens is not None and kept.tokens.is_expiring(now):
                asked = replace(
                    self._demand, metadata_url=self._demand.metadata_url or kept.metadata_url
                )
                await (
                    self._unaided(kept, asked) if self._grant else self._refresh(kept, kept.tokens)
                )

    async def _finished(self, work: Coroutine[Any, Any, R]) -> R:
        """Do this to its end, whoever gives up waiting for it: a refresh token is good once."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._work.discard(task)
        if not task.cancelled():
            task.exception()  # somebody may wait for it, nobody must

    async def _refresh(self, kept: ServerRecord, tokens: TokenSet) -> bool:
        """Whether there are new tokens; under the lock."""
        try:
            got = await self._drive(
                refresh_tokens(tokens, self._plan.identity, self._proofs, self._now)
            )
        except Unauthorized:
            return False  # an answer that means nothing; a login finds out what is wrong
        if isinstance(got, TokenSet):
            kept.tokens = got
        elif got.error in ENDED_ERRORS:
            kept.tokens, kept.requested_scopes = None, tokens.requested_scopes
        if (
            isinstance(got, ErrorReply)
            and got.error in UNKNOWN_CLIENT_ERRORS
            and tokens.registration.source == "registered"
        ):
            kept.forget(tokens.issuer)
        await self._save(kept, RENEWED)
        return isinstance(got, TokenSet)

    async def _unaided(self, kept: ServerRecord, asked: AccessRequirements) -> None:
        """Get tokens by a grant that takes nobody's help; under the lock."""
        assert self._grant is not None
        grant = await self._grant()
        kept.tokens = await self._drive(
            acquire_tokens(self._plan, kept, asked, self._proofs, self._now, grant=grant)
        )
        await self._save(kept, NEW)

    async def _drive(self, steps: Flow[R], visit: "Visit | None" = None) -> R:
        """Do what a flow says."""
        came: Any = None
        problem: DovetailError | None = None
        try:
            while True:
                step = steps.send(came) if problem is None else steps.throw(problem)
                came = problem = None
                try:
                    if not isinstance(step, OpenPage):
                        came = await self._fetch(step)
                    elif visit is not None:
                        came = await visit.go(step.url, step.about)
                except DovetailError as error:
                    problem = error
        except StopIteration as end:
            found: R = end.value
            return found
        finally:
            steps.close()

    async def _load(self) -> ServerRecord:
        """The record as it is kept now."""
        if self._unsaved and self._record is not None:
            return self._record
        kept = read_record(await self._store.load(self._key))
        self._proofs.adopt(kept.jwk)
        return self._hold(kept, STORED)

    async def _save(self, kept: ServerRecord, got: str = STORED) -> None:
        kept.jwk, kept.metadata_url = (
            self._proofs.jwk,
            self._demand.metadata_url or kept.metadata_url,
        )
        self._hold(kept, got)
        try:
            await self._store.save(self._key, kept.encode())
            self._unsaved = False
        except ConfigError as problem:
            if got == NEW and self._grant is None:
                raise  # who logs in wants to stay so
            # The refresh token that is kept was good once: to fall back on it would be to lose the
            # login.
            self._unsaved = True
            log.warning("%s; this program goes on with what it holds, until it ends", problem)
        self._hold(kept, got)  # whoever looked meanwhile has found the old one

    def _hold(self, kept: ServerRecord, got: str) -> ServerRecord:
        token = kept.tokens.access_token if kept.tokens is not None else ""
        if token != self._held:
            self._held, self._got = token, got
            self._edition += 1
        self._record = kept
        return kept
