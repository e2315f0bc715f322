"""Manage one server's tokens by running `flow.py` with a `Fetch`, a `Store` and a `Browser`.

The stored record is authoritative, and `BoundCredentials` only holds a copy. Before tokens are
renewed, the record is loaded again under the store's lock. If several tasks and programs share a
store, one of them renews the tokens and the others load the result. A login can take minutes, so it
uses a separate lock.

If a request was refused because of a token that has since been replaced, the request is sent again.
To detect this case, `headers` records the *generation* of the token in the context of the calling
task. If the server refuses a token that came from a renewal, the user has to log in. If it refuses
a token that came from a login, an error is raised.

A server error says nothing about a token. A token is discarded only after `invalid_grant`, or if
the authorization server no longer recognises the client.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar
from urllib.parse import urlsplit

from msgspec.structs import replace

from ...aio import LruDict, TaskSet
from ...errors import ConfigError, ConnectFailed, DovetailError, TimedOut, Unauthorized
from ...logs import get_logger
from ...ports import AuthStep, Fetch, HttpResponse
from ...text import one_line
from ..dpop import DpopClient
from ..urls import login_key, origin, require_confidential
from ..wire import AccessRequirements, ErrorReply, read_requirements
from .browser import Browser, Visit
from .discovery import FlowOptions, resource_metadata
from .flow import (
    UNKNOWN_CLIENT_ERRORS,
    Flow,
    acquire_tokens,
    refresh_tokens,
    registration_of,
    run_flow,
)
from .grants import UnattendedGrant, revoke_tokens
from .store import ServerRecord, Store, TokenSet, read_record

log = get_logger("auth")
R = TypeVar("R")
MAX_STEPS_PER_OPERATION = 2
"""How many times additional scopes are requested for one operation, not counting the first
login."""
MAX_STEPS_IN_A_ROW = 4
"""How many times in a row additional scopes are requested, across all operations, if no request
succeeds in between."""
MAX_OPERATIONS = 64
MAX_NONCES_IN_A_ROW = 8
RENEW_INTERVAL_SECONDS = 10.0
"""The minimum interval between attempts to renew a token that is still valid."""
LOGOUT_SECONDS = 5.0
"""The timeout for revoking tokens."""
ENDED_ERRORS = frozenset({"invalid_grant"}) | UNKNOWN_CLIENT_ERRORS
STORED, RENEWED, NEW = "stored", "renewed", "new"
"""Where the current token came from. A token counts as stored once the server has accepted it."""

_token_sent: ContextVar[tuple[Any, int]] = ContextVar(
    "dovetail_auth_token_sent", default=(None, -1)
)


class BoundCredentials:
    """Credentials for one server (`ports.Credentials`). If `grant` is None, a user has to log
    in."""

    def __init__(
        self,
        options: FlowOptions,
        fetch: Fetch,
        store: Store,
        *,
        browser: Browser | None = None,
        grant: Callable[[], Awaitable[UnattendedGrant]] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._options, self._fetch, self._store = options, fetch, store
        self._browser, self._grant, self._now = browser, grant, now
        self._key, self._origin = login_key(options.url), origin(options.url)
        self._fresh = options.fresh
        self._record: ServerRecord | None = None
        self._dpop = DpopClient()
        self._required = AccessRequirements()
        self._refused: str | None = None
        """The last token that the server refused. Empty if the request had no token, and None after
        a login."""
        self._token, self._generation, self._source = "", 0, STORED
        """The current token, its generation and its source."""
        self._nonces = self._steps_in_a_row = 0
        self._last_step = -1
        """The last generation that lacked scopes."""
        self._step_ups: LruDict[tuple[str, str, tuple[str, ...]], tuple[int, int]] = LruDict(
            MAX_OPERATIONS
        )
        """For each operation, the last generation that lacked scopes, and how many times requesting
        them had no effect."""
        self._unsaved = False
        """Whether this record is newer than the stored one because saving it failed."""
        self._tasks = TaskSet()
        self._not_before = 0.0
        """The earliest time at which to try again to renew a token that is still valid."""
        self._on_step: Callable[[AuthStep], None] | None = None

    def set_on_step(self, on_step: Callable[[AuthStep], None]) -> None:
        """Call `on_step` with each step of a login. Secrets in it are not masked."""
        self._on_step = on_step

    async def _run(self, steps: Flow[R], visit: Visit | None = None) -> R:
        """Run a flow, and report its steps to the tap, if there is one."""
        if self._on_step is not None:
            from .taps import tap_flow

            steps = tap_flow(steps, self._on_step, "" if visit is None else visit.redirect_uri)
        return await run_flow(steps, self._fetch, visit)

    def bind(self, url: str, fetch: Fetch) -> "BoundCredentials":
        """Return the same credentials for another server."""
        options = replace(self._options, url=url)
        return BoundCredentials(
            options, fetch, self._store, browser=self._browser, grant=self._grant, now=self._now
        )

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers for a request, after renewing a token that is about to expire."""
        record = self._record or await self._load()
        if origin(url) != self._origin:
            return {}  # a token is sent only to the server that it was issued for
        if record.tokens is not None and not self._fresh and record.tokens.is_expiring(self._now()):
            record = await self._renew_ahead(record.tokens)
        _token_sent.set((self, self._generation))
        tokens = record.tokens
        if tokens is None or self._fresh:
            return {}
        require_confidential(url)
        found = {"authorization": f"{tokens.scheme} {tokens.access_token}"}
        if tokens.scheme == "DPoP":
            found["dpop"] = self._dpop.proof_header(method, url, tokens.access_token)
        return found

    async def on_refused(self, method: str, url: str, answer: HttpResponse) -> bool:
        """Handle a 401 or 403 response. Returns whether the request should be sent again."""
        required = read_requirements(answer)
        record = self._record or await self._load()
        lacks_scopes = answer.status == 403
        if origin(url) != self._origin or (lacks_scopes and required.error != "insufficient_scope"):
            return False
        if (
            record.tokens is not None
            and self._dpop.should_retry(url, answer)
            and self._nonces < MAX_NONCES_IN_A_ROW
        ):
            self._nonces += 1
            return True
        sender, generation = _token_sent.get()
        if sender is self and generation != self._generation:
            return True  # the refused token is not the current one
        known_url = self._required.metadata_url
        required = replace(required, metadata_url=required.metadata_url or known_url)
        self._required, self._refused = required, self._token
        if lacks_scopes:
            return await self._step_up(method, url, required, record)
        if record.tokens is not None and self._source == NEW:
            self._source = STORED  # the next request may try again
            raise Unauthorized(
                f"{self._options.url} refused the token that {record.tokens.issuer} just "
                f"issued{required.reason}"
            )
        if required.api_key:
            header = one_line(required.api_key, 60)
            raise Unauthorized(
                f"{self._options.url} requires an API key, not a login. Pass "
                f"headers={{{header!r}: …}}",
                key_header=header,
            )
        if not self._fresh and await self._run_to_end(self._replace_refused(required)):
            return True
        raise Unauthorized(
            f"{self._options.url} requires you to log in{required.reason}", curable=True
        )

    def on_response(self, answer: HttpResponse) -> None:
        """Handle any other response. Such a response means that the credentials were accepted."""
        self._source, self._nonces, self._steps_in_a_row = STORED, 0, 0
        self._dpop.remember_nonce(self._options.url, answer)

    async def authorize(self) -> None:
        """Have the user log in."""
        if self._grant is not None or self._browser is None:
            missing = self._required.scopes if self._required.error == "insufficient_scope" else ()
            raise Unauthorized(
                f"{self._options.url} requires a login, but no user is available to log in",
                curable=True,
                scopes=missing,
            )
        refused = self._refused
        async with self._store.lock(f"{self._key}#login"):
            record = await self._load()
            if (
                refused is not None
                and record.tokens is not None
                and record.tokens.access_token != refused
            ):
                return  # another task or program has logged in
            known, tokens = record.registrations, None
            try:
                async with self._browser.session() as visit:
                    steps = acquire_tokens(
                        self._options,
                        record,
                        self._required,
                        self._dpop,
                        self._now,
                        redirect_uri=visit.redirect_uri,
                    )
                    tokens = await self._run(steps, visit)
            finally:
                if tokens is not None or record.registrations is not known:
                    await self._save_login(record, tokens)

    async def forget(self) -> bool:
        """Delete the stored login, and revoke its tokens at their issuer.

        Returns:
            Whether the tokens were revoked. Tokens that were not revoked stay valid until they
            expire.
        """
        async with self._store.lock(self._key):  # a renewal in progress must not restore them
            tokens = (await self._load()).tokens
            await self._store.delete(self._key)
            self._hold(ServerRecord(), STORED)
            self._unsaved = False
        if tokens is None:
            return False
        client = registration_of(tokens, self._options)
        try:
            async with asyncio.timeout(LOGOUT_SECONDS):
                return await self._run(revoke_tokens(tokens, client))
        except (DovetailError, TimeoutError):
            return False

    async def _save_login(self, login: ServerRecord, tokens: TokenSet | None) -> None:
        """Store the result of a login. A failed login has no tokens, and must not overwrite tokens
        that another task or program has renewed."""
        async with self._store.lock(self._key):
            record = await self._load()
            record.registrations = login.registrations
            if tokens is not None:
                record.tokens, self._refused, self._fresh = tokens, None, False
            await self._save(record, NEW)

    async def _step_up(
        self, method: str, url: str, required: AccessRequirements, record: ServerRecord
    ) -> bool:
        """Request missing scopes, but only a limited number of times."""
        operation = (method, urlsplit(url).path, required.scopes)
        generation, in_vain = self._step_ups.pop(operation) or (-1, 0)
        before = record.tokens.requested_scopes if record.tokens is not None else ()
        # If the generation is the same, two requests ran concurrently, and one login is enough for
        # both.
        if generation != self._generation:
            in_vain = in_vain + 1 if set(required.scopes) <= set(before) else 0
        self._steps_in_a_row += self._last_step != self._generation
        generation = self._last_step = self._generation
        scopes = one_line(" ".join(required.scopes)) or "(not named by the server)"
        self._step_ups[operation] = generation, in_vain
        if in_vain >= MAX_STEPS_PER_OPERATION or self._steps_in_a_row > MAX_STEPS_IN_A_ROW:
            raise Unauthorized(
                f"{self._options.url} requires scopes that were requested but not granted: "
                f"{scopes}{required.reason}",
                scopes=required.scopes,
            )
        async with self._store.lock(self._key):
            record = await self._load()
            if record.tokens is not None and record.tokens.access_token != self._refused:
                return True  # another program has replaced them
            if self._grant is None:
                raise Unauthorized(
                    f"{self._options.url} requires you to log in with more scopes: {scopes}",
                    curable=True,
                    scopes=required.scopes,
                )
            if generation == self._generation:
                await self._acquire_unattended(record, required)
        return True

    async def _replace_refused(self, required: AccessRequirements) -> bool:
        """Replace refused tokens. Returns False if the user has to log in."""
        async with self._store.lock(self._key):
            record = await self._load()
            tokens = record.tokens
            if tokens is not None and tokens.access_token != self._refused:
                return True  # another program has replaced them
            if self._grant is not None:
                await self._acquire_unattended(record, required)
                return True
            if tokens is None or tokens.refresh_token is None or self._source == RENEWED:
                return False
            steps = resource_metadata(self._options.url, required.metadata_url)
            found = await self._run(steps)
            if found is not None and tokens.issuer not in found.authorization_servers:
                # The server now uses another authorization server, which does not know these
                # tokens.
                record.tokens = None
                await self._save(record)
                return False
            return await self._refresh(record, tokens)

    async def _renew_ahead(self, expiring: TokenSet) -> ServerRecord:
        """Renew the tokens before they expire. If that fails, the current tokens are used until
        they expire."""
        now = self._now()
        if (self._grant is not None or expiring.refresh_token is not None) and (
            now >= self._not_before or expiring.is_expired(now)
        ):
            self._not_before = now + RENEW_INTERVAL_SECONDS
            try:
                await self._run_to_end(self._renew_expiring(now))
            except (ConnectFailed, TimedOut, Unauthorized):
                if expiring.is_expired(now):
                    raise
        return self._record or await self._load()

    async def _renew_expiring(self, now: float) -> None:
        async with self._store.lock(self._key):
            record = await self._load()
            if record.tokens is None or not record.tokens.is_expiring(now):
                return  # another task or program has renewed them
            if self._grant is None:
                await self._refresh(record, record.tokens)
                return
            await self._acquire_unattended(record, self._required)

    async def _run_to_end(self, work: Coroutine[Any, Any, R]) -> R:
        """Await work that continues even if the caller is cancelled, because a refresh token is
        valid only once."""
        task = self._tasks.start(work)
        # The caller may have been cancelled, so retrieve the exception here.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _refresh(self, record: ServerRecord, tokens: TokenSet) -> bool:
        """Exchange the refresh token while holding the lock. Returns False on failure."""
        try:
            steps = refresh_tokens(tokens, self._options, self._dpop, self._now)
            reply = await self._run(steps)
        except Unauthorized:
            return False  # the response is invalid; a login will show the cause
        if isinstance(reply, TokenSet):
            record.tokens = reply
        elif reply.error in ENDED_ERRORS:
            record.tokens, record.requested_scopes = None, tokens.requested_scopes
        if (
            isinstance(reply, ErrorReply)
            and reply.error in UNKNOWN_CLIENT_ERRORS
            and tokens.registration.source == "registered"
        ):
            record.forget(tokens.issuer)
        await self._save(record, RENEWED)
        return isinstance(reply, TokenSet)

    async def _acquire_unattended(self, record: ServerRecord, required: AccessRequirements) -> None:
        """Get tokens without user interaction while holding the lock."""
        assert self._grant is not None
        grant = await self._grant()
        steps = acquire_tokens(self._options, record, required, self._dpop, self._now, grant=grant)
        record.tokens = await self._run(steps)
        await self._save(record, NEW)

    async def _load(self) -> ServerRecord:
        """Load the stored record and return it."""
        if self._unsaved and self._record is not None:
            return self._record
        record = read_record(await self._store.load(self._key))
        self._dpop.use_key(record.jwk)
        if self._required.metadata_url is None:
            self._required = replace(self._required, metadata_url=record.metadata_url)
        return self._hold(record, STORED)

    async def _save(self, record: ServerRecord, source: str = STORED) -> None:
        record.jwk = self._dpop.jwk
        record.metadata_url = self._required.metadata_url
        self._hold(record, source)
        try:
            await self._store.save(self._key, record.encode())
            self._unsaved = False
        except ConfigError as error:
            if source == NEW and self._grant is None:
                raise  # the user expects to stay logged in
            # The stored refresh token has been used, so loading it again would lose the login.
            self._unsaved = True
            log.warning("%s. The new tokens will be lost when this program ends.", error)
        self._hold(record, source)  # another task may have loaded the old record in the meantime

    def _hold(self, record: ServerRecord, source: str) -> ServerRecord:
        token = record.tokens.access_token if record.tokens is not None else ""
        if token != self._token:
            self._token, self._source = token, source
            self._generation += 1
        self._record = record
        return record
