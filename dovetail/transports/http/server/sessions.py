"""Sessions without a store: a session id is a sealed token that contains the whole session.

Any process that has the keys can serve any request in a session, and opening a session does not use
any memory on the server. Sessions in use are cached, so each token is opened only once. A session
ends when its token expires, when it has been idle for too long, or when the client sends a DELETE.
An idle timeout leaves a tombstone in this process. A DELETE leaves one in every process, through
the bus and, if there is one, the shared backend (`shared_sessions.py`). The tombstone of a DELETE
is kept until the token has expired, so that nobody can use a session that its client has ended. A
request with an ended or unknown session is answered with 404, and the client then opens a new
session.
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from ....aio import BoundedDict, Sweeper, TaskSet
from ....errors import BackendAway, InvalidParams, Overloaded, TooLarge
from ....jsonrpc.messages import Error, ErrorResponse, Id, Response, decode, encode
from ....limits import Limits
from ....ports import HTTP, Bus, Call, Caller, Principal
from ....protocol.base import Implementation
from ....protocol.lifecycle import ClientCapabilities, ProgressParams
from ....revisions import BY_NAME
from ....sealing import Forged, KeyRing
from .event_store import EventStream

if TYPE_CHECKING:
    from ....connection.dispatcher import Dispatcher
    from .shared_sessions import SharedSessions


PURPOSE = "session"
ENDED = "ended"
MAX_ID_BYTES = 2048
"""The maximum length of a session id, because some proxies do not accept longer headers."""
MAX_UNINITIALIZED = 10_000
"""The maximum number of sessions whose `notifications/initialized` this process waits for."""
MAX_WITHDRAWN = 64
"""The number of withdrawn requests that a session remembers."""
LOG_LEVEL, ELICITATIONS, TASKS, SUBSCRIBED = "level", "elicitations", "tasks", "subscribed "
"""The names of a session's settings in a shared backend. A digest of a URI follows the last one."""
RECENT_SECONDS = 1.0
"""A session used within this time keeps its place in the order of use."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, float, bytes, bytes, Any, Any]).decode


OnProgress = Callable[[ProgressParams], None]


class OpenRequest(msgspec.Struct, eq=False):
    """A request to the client that has no response yet."""

    response: "asyncio.Future[Response | ErrorResponse]"
    on_progress: OnProgress | None = None


class HttpSession(msgspec.Struct, eq=False):
    """The state of one session in this process."""

    id: str
    key: str
    """A digest of the secret id, used in logs and on the bus."""
    caller: Caller
    principal_digest: bytes
    """A digest of the principal that owns the session."""
    expires: float
    used_at: float
    """When the session was last used (`time.monotonic()`)."""
    announced_at: float
    """When the other processes were last notified that the session is in use."""
    is_synced: bool
    """Whether this process knows what the other processes know about the session."""
    syncing: "asyncio.Task[bool] | None" = None
    """The task that finds out what the other processes know."""
    is_loaded: bool = False
    """Whether this process has read the record of the session. Since then it knows when the session
    was last used."""
    is_poll_taken: bool = False
    """Whether this process has taken the messages that another one left for the next poll."""
    log_level_set_at: float = 0.0
    """When the client last set a log level in any process."""
    open_calls: dict[Id, Call] = {}
    """The running calls, keyed by request id."""
    open_requests: dict[Id, OpenRequest] = {}
    """The requests to the client that have no response yet."""
    withdrawn_requests: dict[Id, None] = {}
    """The newest requests that ended without a response, which may still arrive."""
    get_streams: tuple[EventStream, ...] = ()
    """The streams for messages that do not belong to a request, newest last. All messages are sent
    on the newest stream that has a reader."""
    stream_count: int = 0
    """The number of open streams."""
    newest_stream_at: float = 0.0
    """When the newest GET stream in this process was opened, or 0 if no stream has a reader."""
    has_remote_stream: bool = False
    """Whether another process has the newest GET stream."""

    def on_response(self, message: Response | ErrorResponse) -> bool:
        """Handle a response, and return whether it answers a request from this process. A response
        to a request that was withdrawn is ignored: its client cannot have known that."""
        if message.id is None:
            return False
        request = self.open_requests.get(message.id)
        if request is None:
            return message.id in self.withdrawn_requests
        if request.response.done():
            return False
        request.response.set_result(message)
        return True

    def end_request(self, id: Id) -> None:
        """Stop waiting for the response to a request."""
        response = self.open_requests.pop(id).response
        if response.cancelled() or not response.done():
            self.withdrawn_requests[id] = None
            if len(self.withdrawn_requests) > MAX_WITHDRAWN:
                del self.withdrawn_requests[next(iter(self.withdrawn_requests))]

    def on_progress(self, update: ProgressParams) -> bool:
        """Handle a progress notification, and return whether it belongs to a request from this
        process."""
        request = self.open_requests.get(update.progress_token)
        if request is None:
            return False
        if request.on_progress is not None and not request.response.done():
            request.on_progress(update)
        return True

    @property
    def busy(self) -> bool:
        """Whether the session has running calls or open streams."""
        return bool(self.stream_count or self.open_calls)


class SessionTable:
    """All sessions. Only sessions in use take up memory."""

    def __init__(
        self,
        dispatcher: "Dispatcher",
        keys: KeyRing,
        limits: Limits,
        bus: Bus,
        on_end: Callable[[str], None],
        shared: "SharedSessions | None" = None,
    ) -> None:
        self._dispatcher, self._keys, self._limits = dispatcher, keys, limits
        self._bus, self._on_end, self._shared = bus, on_end, shared
        self._tasks = TaskSet()
        self._bus_losses = 0
        """How often messages from other processes may have been lost."""
        self._bound = dispatcher.service.info.name.encode()
        """The name of this server. Other servers in the same program share this server's keys but
        not its sessions."""
        self._open: dict[str, HttpSession] = {}
        """The sessions, keyed by id, with the most recently used session last."""
        self._by_key: dict[str, HttpSession] = {}
        self._tombstones: dict[str, float] = {}
        """When each ended session may be forgotten (`time.monotonic()`)."""
        self._idle_ended: dict[str, None] = {}
        """The tombstones of idle sessions, which are removed to make room for others."""
        self.uninitialized = BoundedDict[str, asyncio.Event](MAX_UNINITIALIZED)
        """The sessions that this process opened and whose clients have not sent
        `notifications/initialized` yet, keyed by session key."""
        self._sweeper = Sweeper(limits.session_idle / 4, self._sweep)
        bus.on("session/ended", self._bury)
        bus.on("session/initialized", self._on_initialized)
        bus.on("session/sync", self._on_sync)
        bus.on("session/level", self._on_log_level)
        bus.on("session/subscribed", self._on_subscribed)
        self._on_message("session/used", self._on_used)
        self._on_message("session/roots", self._drop_roots)
        self._on_message(
            "session/elicitation", lambda session, id: session.caller.remember_elicitation(id)
        )
        self._on_message("session/task", lambda session, id: session.caller.remember_task(id))
        self._on_message("session/cancel", self._cancel)
        self._on_message("session/shutdown", _on_shutdown)
        self._on_message("session/response", _on_remote_response)
        self._on_message("session/progress", _on_remote_progress)

    def _on_message(self, topic: str, handle: Callable[..., Any]) -> None:
        """Register a handler for other processes' messages about sessions that this process also
        has. A payload consists of a session key and the remaining arguments of `handle`."""

        def receive(payload: Any) -> Any:
            key, *rest = payload
            session = self._by_key.get(key)
            return None if session is None else handle(session, *rest)

        self._bus.on(topic, receive)

    def __len__(self) -> int:
        return len(self._open)

    def mint(self, caller: Caller, principal: Principal | None) -> str:
        """Return the id of a new session. Once the client has sent `notifications/initialized`, the
        session takes up no memory until it is used."""
        revision = caller.revision
        expires = time.time() + self._limits.session_life
        content = (
            revision.name,
            expires,
            token_bytes(8),
            digest_principal(principal),
            None if caller.info is None else revision.lower(caller.info),
            revision.lower(caller.capabilities),
        )
        # The client knows what it contains: its own declaration, and a digest of its own name.
        id = self._keys.seal(PURPOSE, _encode(content), bound=self._bound, hide=False)
        if len(id) > MAX_ID_BYTES:
            raise InvalidParams(
                f"clientInfo and capabilities are too long: the session id would be {len(id)} "
                "bytes long",
                parameter="clientInfo",
            )
        self.uninitialized[digest_id(id)] = asyncio.Event()
        return id

    def on_initialized(self, session: HttpSession) -> None:
        """Let the process that opened the session send requests to its client."""
        if not self._on_initialized(session.key):
            self._bus.publish("session/initialized", session.key)

    def _on_initialized(self, key: str) -> bool:
        event = self.uninitialized.pop(key, None)
        if event is not None:
            event.set()
        return event is not None

    def find(self, id: str, principal: Principal | None = None) -> HttpSession | None:
        """Return the session with this id, or None if it is forged, expired, ended or owned by
        another user."""
        now = time.monotonic()
        session = self._open.get(id)
        if (
            session is None
            or session.expires < time.time()
            or now - session.used_at > RECENT_SECONDS
        ):
            session = self._find(id)
        if session is None or session.principal_digest != digest_principal(principal):
            return None
        self._mark_used(session, now)
        return session

    def _find(self, id: str) -> HttpSession | None:
        """Return the session with this id, regardless of the user."""
        session = self._open.pop(id, None)
        now = time.time()
        if session is None:
            session = self._unseal(id, now)
            if session is None:
                return None
        self._open[id] = session
        if session.expires < now:
            self._drop(session.key)
            return None
        return session

    def _mark_used(self, session: HttpSession, now: float) -> None:
        """Mark a session as used, and notify the other processes from time to time."""
        session.used_at = now
        if now - session.announced_at > self._limits.session_idle / 4:
            session.announced_at = now
            self._bus.publish("session/used", (session.key,))
            if self._shared is not None:
                self._shared.mark_used(session.key)

    async def end(self, session: HttpSession) -> None:
        """End a session in all processes. Raise Overloaded if this process cannot remember that the
        session has ended, or if that could not be stored for the others. In the second case, the
        session ends in this process now, and in the others when the backend is back."""
        self._check_room()
        try:
            if self._shared is None:
                self._bus.publish("session/ended", session.key)
            else:
                await self._shared.end(session.key, session.expires)
        finally:
            if session.key not in self._tombstones:  # otherwise it has ended in the meantime
                self._bury(session.key)
                self._report_ended(session, time.time())

    def end_soon(self, session: HttpSession) -> None:
        """End a session, as `end` does, without waiting until its end is stored."""
        self._check_room()

        async def end() -> None:
            try:
                await self.end(session)
            except Overloaded:
                pass  # a notification has no response

        self._tasks.start(end())

    def _check_room(self) -> None:
        if not self._make_room():
            raise Overloaded(
                "The session cannot be ended now: the server already remembers "
                f"{len(self._tombstones)} ended sessions (Limits.tombstones). Try again later."
            )

    def _report_ended(self, session: HttpSession, when: float) -> None:
        self._dispatcher.service.session_ended(
            session.caller, HTTP, when - session.expires + self._limits.session_life
        )

    def share(self, session: HttpSession, call: Call) -> None:
        """Share a session's changed setting with the other processes."""
        method, caller = call.method.name, session.caller
        if method == "logging/setLevel":
            now = session.log_level_set_at = time.time()
            message = session.id, caller.log_level, now
            self._share(session.key, LOG_LEVEL, caller.log_level, "session/level", message)
        elif method in ("resources/subscribe", "resources/unsubscribe"):
            uri = call.params.uri
            wanted = uri in caller.subscribed_uris
            name = SUBSCRIBED + blake2b(uri.encode(), digest_size=16).hexdigest()
            message = session.id, uri, wanted
            self._share(session.key, name, uri if wanted else UNSET, "session/subscribed", message)
        elif method == "shutdown":
            self._bus.publish("session/shutdown", (session.key,))

    def _share(self, key: str, name: str, value: Any, topic: str, message: Any) -> None:
        """Store a setting of a session, and announce it to the other processes."""
        announce = partial(self._bus.publish, topic, message)
        if self._shared is None:
            announce()
        else:
            data = None if value is UNSET else _encode(value)
            self._shared.change(key, name, data, announce)

    def _unseal(self, id: str, now: float) -> HttpSession | None:
        if len(id) > MAX_ID_BYTES:
            return None
        try:
            name, expires, _, principal_digest, info, capabilities = _decode(
                self._keys.open(PURPOSE, id, bound=self._bound, hidden=False)
            )
            revision = BY_NAME[name]
            client = None if info is None else msgspec.convert(info, Implementation)
            caller = Caller(
                revision,
                client,
                ClientCapabilities.lift(capabilities),
                state=self._dispatcher.state,
            )
        except (Forged, KeyError, msgspec.ValidationError):
            return None
        key = digest_id(id)
        if (
            expires < now
            or key in self._tombstones
            or revision not in self._dispatcher.service.revisions
        ):
            return None
        ticks = time.monotonic()
        session = HttpSession(
            *(id, key, caller, principal_digest, expires, ticks, ticks),
            is_synced=self._bus.alone and self._shared is None,
        )
        if len(self._open) >= self._limits.sessions:
            self._evict()
        self._by_key[key] = session
        self._sweeper.start()
        caller.on_url_elicitation = partial(self._on_url_elicitation, key)
        caller.on_task = partial(self._on_task, key)
        caller.session_id = key
        return session

    def _evict(self) -> None:
        """Make room by dropping the least recently used session that is not busy."""
        for session in self._open.values():
            if not session.busy:
                self._forget(session)
                self._on_end(session.key)
                return

    def _forget(self, session: HttpSession) -> None:
        self._open.pop(session.id, None)
        self._by_key.pop(session.key, None)
        self._dispatcher.subscriptions.end_session(session.caller)

    def _bury(self, key: str) -> None:
        """End a session in this process, and remember its end until its token has expired."""
        session, life = self._by_key.get(key), self._limits.session_life
        if session is not None:  # its token may be from a process with another limit
            life = max(life, session.expires - time.time())
        self._tombstones[key] = time.monotonic() + life
        self._sweeper.start()
        self._drop(key)

    def _bury_idle(self, key: str) -> None:
        if self._make_room():
            self._idle_ended[key] = None
            self._bury(key)
        else:
            self._drop(key)  # the client may come back, as after a restart

    def _make_room(self) -> bool:
        """Return whether there is room for a tombstone. If necessary, make room by removing an idle
        session's tombstone."""
        if len(self._tombstones) < self._limits.tombstones:
            return True
        oldest = next(iter(self._idle_ended), None)
        if oldest is not None:
            self._forget_ended(oldest)
        return oldest is not None

    def _forget_ended(self, key: str) -> None:
        self._tombstones.pop(key, None)
        self._idle_ended.pop(key, None)

    def _drop(self, key: str) -> None:
        """End the streams and calls of a session in this process."""
        session = self._by_key.get(key)
        if session is not None:
            self._forget(session)
            for call in list(session.open_calls.values()):
                self._dispatcher.cancel(call)
        self._on_end(key)

    def _sweep(self) -> bool:
        """End idle and expired sessions, and drop tombstones that are no longer needed."""
        now, ticks = time.time(), time.monotonic()
        for session in list(self._open.values()):
            if session.expires < now:
                self._drop(session.key)
                self._report_ended(session, session.expires)
            elif session.busy:
                self._open[session.id] = self._open.pop(session.id)
                self._mark_used(session, ticks)
        for session in list(self._open.values()):
            unused = ticks - session.used_at
            if unused >= self._limits.session_idle:
                self._bury_idle(session.key)
                self._report_ended(session, now - unused)
        for key, expires in list(self._tombstones.items()):
            if expires > ticks:
                break
            self._forget_ended(key)
        return bool(self._open or self._tombstones)

    # other processes

    def roots_changed(self, session: HttpSession) -> None:
        """Drop a session's cached roots in all processes."""
        self._drop_roots(session)
        self._bus.publish("session/roots", (session.key,))

    def _drop_roots(self, session: HttpSession) -> None:
        session.caller.invalidate_roots()
        self._dispatcher.service.roots_changed(session.caller)

    def _on_url_elicitation(self, key: str, id: str) -> None:
        """Share the id of a URL elicitation, because any process may learn that the user has
        finished it."""
        session = self._by_key.get(key)
        ids = (id,) if session is None else session.caller.elicitation_ids
        self._share(key, ELICITATIONS, ids, "session/elicitation", (key, id))

    def _on_task(self, key: str, id: str) -> None:
        """Share the id of a task, because any process may have the stream on which the client
        receives its messages. It is announced at once, because the task begins at once."""
        self._bus.publish("session/task", (key, id))
        session = self._by_key.get(key)
        if self._shared is not None and session is not None:
            ids = _encode(session.caller.task_ids)
            self._shared.change(key, TASKS, ids, lambda: None)

    def cancel_request(self, session: HttpSession, id: Id | None) -> None:
        """Cancel a session's call, which may be running in another process."""
        if not self._cancel(session, id):
            self._bus.publish("session/cancel", (session.key, id))

    def _cancel(self, session: HttpSession, id: Id | None) -> bool:
        call = None if id is None else session.open_calls.get(id)
        if call is not None:
            self._dispatcher.cancel(call)
        return call is not None

    async def deliver_response(
        self, session: HttpSession, message: Response | ErrorResponse
    ) -> bool:
        """Deliver a response to the process that is waiting for it. Return False if no process is
        waiting. Raise TooLarge if it is too long for the bus; then the process that is waiting
        receives this error instead."""
        if session.on_response(message):
            return True
        ask = partial(self._bus.ask, "session/response")
        try:
            return bool(await ask((session.key, encode(message))))
        except TooLarge as error:
            refused = ErrorResponse(message.id, Error(error.code, error.message, error.data))
            if await ask((session.key, encode(refused))):
                raise
            return False

    def deliver_progress(self, session: HttpSession, update: ProgressParams) -> None:
        """Deliver a progress notification to the process that sent the request."""
        token = update.progress_token
        if not session.on_progress(update) and isinstance(token, str):  # as all our tokens are
            payload = (session.key, token, update.progress, update.total, update.message)
            self._bus.publish("session/progress", payload)

    def on_bus_lost(self) -> None:
        """Handle the loss of the bus, and its return. Messages from other processes may be missing,
        so ask those processes again and drop the cached roots."""
        self._bus_losses += 1
        for session in self._by_key.values():
            session.is_synced = self._bus.alone and self._shared is None
            self._drop_roots(session)
        if self._shared is not None and not self._bus.alone:
            self._shared.write()
            for key in list(self._idle_ended):  # it may have been used in another process
                self._forget_ended(key)

    async def sync(self, session: HttpSession) -> bool:
        """Find out what the other processes know about a session that is new to this process.
        Return False if the session has ended."""
        if session.syncing is None:
            session.syncing = self._tasks.start(self._sync(session))
        return await asyncio.shield(session.syncing)

    async def _sync(self, session: HttpSession) -> bool:
        losses, is_known, is_open = self._bus_losses, False, True
        try:
            if self._shared is None:
                is_open = await self._ask_others(session)
            else:
                is_open = await self._read_record(session, self._shared)
            is_known = True
        except BackendAway:  # the next request tries again
            is_open = await self._ask_others(session)
        finally:
            session.syncing = None
            session.is_synced = is_known and losses == self._bus_losses
        return is_open and session.key not in self._tombstones

    async def _read_record(self, session: HttpSession, shared: "SharedSessions") -> bool:
        """Read what is stored about a session. Return False if it has ended."""
        settings = await shared.load(session.key, session.expires, in_use=session.is_loaded)
        session.is_loaded, session.is_poll_taken = True, False
        if settings is None:
            self._bury_idle(session.key)  # this tombstone may be forgotten, because it is stored
            return False
        self._apply(session, settings)
        return True

    def _apply(self, session: HttpSession, settings: Mapping[str, bytes | None]) -> None:
        """Apply the stored settings of a session."""
        caller, uris = session.caller, set(session.caller.subscribed_uris)
        for name, data in settings.items():
            if data is None:
                continue
            value = msgspec.msgpack.decode(data)
            if name == LOG_LEVEL:
                caller.log_level = value
            elif name == ELICITATIONS:
                caller.elicitation_ids = tuple(value)
            elif name == TASKS:
                for id in {*value} - {*caller.task_ids}:
                    caller.remember_task(id)
            elif name.startswith(SUBSCRIBED):
                uris.add(value)
        self._dispatcher.subscriptions.set_subscribed(caller, frozenset(uris))

    async def _ask_others(self, session: HttpSession) -> bool:
        """Ask the other processes about a session. Return False if it has ended."""
        known = await self._bus.ask("session/sync", session.key)
        if known == ENDED:
            self._bury(session.key)
            return False
        if known is not None:
            level, set_at, subscribed, elicitation_ids, task_ids = known
            if set_at > session.log_level_set_at:
                session.caller.log_level, session.log_level_set_at = level, set_at
            self._dispatcher.subscriptions.set_subscribed(
                session.caller, session.caller.subscribed_uris.union(subscribed)
            )
            for id in elicitation_ids:
                session.caller.remember_elicitation(id)
            for id in task_ids:
                session.caller.remember_task(id)
        return True

    async def close(self) -> None:
        """Store what is not stored yet."""
        await self._tasks.wait()
        if self._shared is not None:
            await self._shared.close()

    def _on_sync(self, key: str) -> Any:
        if key in self._tombstones:
            return ENDED
        session = self._by_key.get(key)
        if session is None:
            return None
        caller = session.caller
        known = (
            caller.log_level,
            session.log_level_set_at,
            list(caller.subscribed_uris),
            caller.elicitation_ids,
            caller.task_ids,
        )
        return known if any(known[1:]) else None

    def _on_used(self, session: HttpSession) -> None:
        session.used_at = session.announced_at = time.monotonic()
        self._open[session.id] = self._open.pop(session.id)

    def _on_log_level(self, payload: Any) -> None:
        id, level, when = payload
        session = self._find(id)
        # Otherwise, a later message has overtaken this one.
        if session is not None and when > session.log_level_set_at:
            session.caller.log_level, session.log_level_set_at = level, when

    def _on_subscribed(self, payload: Any) -> None:
        id, uri, wanted = payload
        session = self._find(id)
        if session is not None:
            subscribed = session.caller.subscribed_uris
            self._dispatcher.subscriptions.set_subscribed(
                session.caller, subscribed | {uri} if wanted else subscribed - {uri}
            )


def _on_shutdown(session: HttpSession) -> None:
    session.caller.is_shut_down = True


def _on_remote_response(session: HttpSession, data: bytes) -> bool | None:
    message = decode(data)
    return (isinstance(message, Response | ErrorResponse) and session.on_response(message)) or None


def _on_remote_progress(
    session: HttpSession, token: str, progress: float, total: float | None, message: str | None
) -> None:
    session.on_progress(
        ProgressParams(progress_token=token, progress=progress, total=total, message=message)
    )


def digest_id(id: str) -> str:
    """Return the key of a session."""
    return blake2b(id.encode(), digest_size=16).hexdigest()


def digest_principal(principal: Principal | None) -> bytes:
    """Return a digest of a principal."""
    return b"" if principal is None else blake2b(principal.id.encode(), digest_size=16).digest()
