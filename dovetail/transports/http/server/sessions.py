"""Sessions without a store: a session id is a sealed token that contains the whole session.

Any process with the keys can serve any request of a session, and opening a session costs the server
no memory. Sessions in use are cached, so that their token is only opened once. A session ends at
the expiry in its token, when it is idle for too long, or by DELETE; the latter two leave a
tombstone in this process and on the bus. A request with an ended or unknown session gets 404, and
the client then opens a new one.
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

import msgspec

from ....errors import InvalidParams
from ....jsonrpc.messages import ErrorResponse, Id, Response
from ....limits import Limits
from ....ports import HTTP, Bus, Call, Caller, Principal
from ....protocol.base import Implementation
from ....protocol.lifecycle import ClientCapabilities
from ....revisions import BY_NAME
from ....sealing import Forged, KeyRing
from .event_store import EventStream

if TYPE_CHECKING:
    from ....connection.dispatcher import Dispatcher


PURPOSE = "session"
ENDED = "ended"
MAX_ID_BYTES = 2048
"""Some proxies do not accept longer headers."""
RECENT_SECONDS = 1.0
"""The order of uses within this time does not matter."""
NO_QUESTIONS: "dict[Id, asyncio.Future[Response | ErrorResponse]]" = {}

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, float, bytes, bytes, Any, Any]).decode


class HttpSession:
    """What this process knows about one session."""

    __slots__ = (
        "asked",
        "caller",
        "elsewhere",
        "expires",
        "get_streams",
        "id",
        "key",
        "leveled",
        "met",
        "newest",
        "open_calls",
        "seen",
        "streams",
        "told",
        "who",
    )  # fmt: skip

    def __init__(
        self, id: str, key: str, caller: Caller, who: bytes, expires: float, seen: float
    ) -> None:
        self.id = id
        self.key = key
        """A digest of the id, which is secret, for logs and the bus."""
        self.caller = caller
        self.who = who
        """A digest of the principal that the session belongs to."""
        self.expires = expires
        self.seen = seen
        """When it was last used, by `time.monotonic()`."""
        self.told = seen
        """When the other processes were last notified that it is in use."""
        self.met = True
        """Whether the other processes were asked about it."""
        self.leveled = 0.0
        """When the client last set a log level, in any process."""
        self.open_calls: dict[Id, Call] = {}
        """Its calls that are running, by request id."""
        self.asked: dict[Id, asyncio.Future[Response | ErrorResponse]] = NO_QUESTIONS
        """The requests to its client that have no response yet."""
        self.get_streams: tuple[EventStream, ...] = ()
        """Streams for messages that belong to no request, the newest last. The newest one with a
        reader gets all messages, the others none."""
        self.streams = 0
        """The number of its open streams."""
        self.newest = 0.0
        """When the newest of its GET streams here was opened; 0 if none has a reader."""
        self.elsewhere = False
        """Whether another process has the newest of its GET streams."""

    def ask(self, id: Id) -> "asyncio.Future[Response | ErrorResponse]":
        """Register a request to the client; the future gets the response."""
        if self.asked is NO_QUESTIONS:
            self.asked = {}
        future = self.asked[id] = asyncio.get_running_loop().create_future()
        return future

    def answered(self, message: Response | ErrorResponse) -> bool:
        """Take a response; returns whether it answers a request of this process."""
        future = self.asked.get(message.id) if message.id is not None else None
        if future is None or future.done():
            return False
        future.set_result(message)
        return True

    @property
    def busy(self) -> bool:
        """Whether it has running calls, open requests or streams."""
        return bool(self.streams or self.open_calls)


class SessionTable:
    """All sessions. Only those in use take memory."""

    def __init__(
        self,
        dispatcher: "Dispatcher",
        ring: KeyRing,
        limits: Limits,
        bus: Bus,
        ended: Callable[[str], None],
    ) -> None:
        self._dispatcher, self._ring, self._limits, self._bus, self._ended = (
            dispatcher,
            ring,
            limits,
            bus,
            ended,
        )
        self._bound = dispatcher.service.info.name.encode()
        """Other servers of the same program have the same keys, but not our sessions."""
        self._open: dict[str, HttpSession] = {}
        """By id, the most recently used last."""
        self._keys: dict[str, HttpSession] = {}
        self._tombstones: dict[str, float] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        bus.on("session/seen", self._seen_elsewhere)
        bus.on("session/ended", self._ended_elsewhere)
        bus.on("session/level", self._level_elsewhere)
        bus.on("session/subscribed", self._subscribed_elsewhere)
        bus.on("session/met", self._met_elsewhere)
        bus.on("session/roots", self._roots_elsewhere)
        bus.on("session/page", self._page_elsewhere)

    def __len__(self) -> int:
        return len(self._open)

    def mint(self, caller: Caller, principal: Principal | None) -> str:
        """Return the id of a new session, which takes no memory until it is used."""
        revision = caller.revision
        expires = time.time() + self._limits.session_life
        said = (
            revision.name,
            expires,
            token_bytes(8),
            principal_key(principal),
            None if caller.info is None else revision.lower(caller.info),
            revision.lower(caller.capabilities),
        )
        id = self._ring.seal(PURPOSE, _encode(said), bound=self._bound)
        if len(id) > MAX_ID_BYTES:
            raise InvalidParams(
                f"clientInfo and capabilities are too long: the session id has {len(id)} bytes"
            )
        return id

    def find(self, id: str, principal: Principal | None = None) -> HttpSession | None:
        """Return the session with this id; None if it is forged, expired, ended or foreign."""
        now = time.monotonic()
        session = self._open.get(id)
        if session is None or session.expires < time.time() or now - session.seen > RECENT_SECONDS:
            session = self._known(id)
        if session is None or session.who != principal_key(principal):
            return None
        self._use(session, now)
        return session

    def _known(self, id: str) -> HttpSession | None:
        """Return the session with this id, whichever user sent it."""
        session = self._open.pop(id, None)
        now = time.time()
        if session is None:
            session = self._unseal(id, now)
            if session is None:
                return None
        self._open[id] = session
        if session.expires < now:
            self._bury(session.key)
            return None
        return session

    def _use(self, session: HttpSession, now: float) -> None:
        """Mark a session as used, and notify the other processes now and then."""
        session.seen = now
        if now - session.told > self._limits.session_idle / 4:
            session.told = now
            self._bus.publish("session/seen", session.key)

    def by_key(self, key: str) -> HttpSession | None:
        """Return the session with this key, if this process knows it."""
        return self._keys.get(key)

    def end(self, session: HttpSession) -> None:
        """End a session, in all processes."""
        self._parted(session, time.time())
        self._bus.publish("session/ended", session.key)

    def _parted(self, session: HttpSession, when: float) -> None:
        self._bury(session.key)
        self._dispatcher.service.session_ended(
            session.caller, HTTP, when - session.expires + self._limits.session_life
        )

    def share(self, session: HttpSession, call: Call) -> None:
        """Apply the settings of a session in all processes."""
        method, caller = call.method.name, session.caller
        if method == "logging/setLevel":
            session.leveled = time.time()
            self._bus.publish("session/level", (session.id, caller.log_level, session.leveled))
        elif method in ("resources/subscribe", "resources/unsubscribe"):
            uri = call.params.uri
            self._bus.publish(
                "session/subscribed", (session.id, uri, uri in caller.subscribed_uris)
            )

    def _unseal(self, id: str, now: float) -> HttpSession | None:
        if len(id) > MAX_ID_BYTES:
            return None
        try:
            name, expires, _, who, info, capabilities = _decode(
                self._ring.open(PURPOSE, id, bound=self._bound)
            )
            revision = BY_NAME[name]
            client = None if info is None else msgspec.convert(info, Implementation)
            caller = self._dispatcher.session_caller(
                revision, client, ClientCapabilities.lift(capabilities)
            )
        except (Forged, KeyError, msgspec.ValidationError):
            return None
        key = blake2b(id.encode(), digest_size=16).hexdigest()
        if (
            expires < now
            or key in self._tombstones
            or revision not in self._dispatcher.service.revisions
        ):
            return None
        session = HttpSession(id, key, caller, who, expires, time.monotonic())
        if len(self._open) >= self._limits.sessions:
            self._evict()
        self._keys[key] = session
        if self._sweeper is None:
            self._sweep_later()
        session.met = self._bus.alone
        caller.on_url_elicitation = partial(self._page_shown, key)
        caller.session_id = key
        return session

    def _evict(self) -> None:
        """Make room: drop the session that was not used for longest and is not busy."""
        for session in self._open.values():
            if not session.busy:
                self._forget(session)
                self._ended(session.key)
                return

    def _forget(self, session: HttpSession) -> None:
        self._open.pop(session.id, None)
        self._keys.pop(session.key, None)

    def _bury(self, key: str) -> None:
        session = self._keys.get(key)
        if session is not None:
            self._forget(session)
            for call in list(session.open_calls.values()):
                self._dispatcher.cancel(call)
        while len(self._tombstones) >= self._limits.tombstones:
            del self._tombstones[next(iter(self._tombstones))]
        self._tombstones[key] = time.monotonic() + self._limits.session_life
        self._ended(key)

    def _sweep(self) -> None:
        """End idle sessions, and drop the tombstones of sessions that have expired anyway."""
        now, ticks = time.time(), time.monotonic()
        for session in list(self._open.values()):
            if session.expires < now:
                self._parted(session, session.expires)
            elif session.busy:
                self._open[session.id] = self._open.pop(session.id)
                self._use(session, ticks)
        for session in list(self._open.values()):
            unused = ticks - session.seen
            if unused >= self._limits.session_idle:
                self._parted(session, now - unused)
        for key, expires in list(self._tombstones.items()):
            if expires > ticks:
                break
            del self._tombstones[key]
        self._sweeper = None
        if self._open or self._tombstones:
            self._sweep_later()

    def _sweep_later(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(
            self._limits.session_idle / 4, self._sweep
        )

    # other processes

    def roots_changed(self, session: HttpSession) -> None:
        """Drop the known roots of a session, in all processes."""
        session.caller.invalidate_roots()
        self._bus.publish("session/roots", session.key)

    def _roots_elsewhere(self, key: str) -> None:
        session = self._keys.get(key)
        if session is not None:
            session.caller.invalidate_roots()

    def _page_shown(self, key: str, page: str) -> None:
        """Note that the user is sent to a page; any process may learn that they are done."""
        self._bus.publish("session/page", (key, page))

    def _page_elsewhere(self, payload: Any) -> None:
        key, page = payload
        session = self._keys.get(key)
        if session is not None:
            session.caller.remember_elicitation(page)

    def parted(self) -> None:
        """Handle the loss of the bus: messages of other processes may be missing, so what they
        would have told is not relied on."""
        for session in self._keys.values():
            session.met = self._bus.alone
            session.caller.invalidate_roots()

    async def meet(self, session: HttpSession) -> bool:
        """Ask the other processes about a session that is new to this one. Returns False if it has
        ended."""
        session.met = True
        known = await self._bus.ask("session/met", session.key)
        if known == ENDED:
            self._bury(session.key)
            return False
        if known is not None:
            level, leveled, subscribed, pages = known
            if leveled > session.leveled:
                session.caller.log_level, session.leveled = level, leveled
            session.caller.subscribed_uris |= frozenset(subscribed)
            for page in pages:
                session.caller.remember_elicitation(page)
        return True

    def _met_elsewhere(self, key: str) -> Any:
        if key in self._tombstones:
            return ENDED
        session = self._keys.get(key)
        if session is None:
            return None
        caller = session.caller
        known = (
            caller.log_level,
            session.leveled,
            list(caller.subscribed_uris),
            caller.elicitation_ids,
        )
        return known if any(known[1:]) else None

    def _seen_elsewhere(self, key: str) -> None:
        session = self._keys.get(key)
        if session is not None:
            session.seen = session.told = time.monotonic()
            self._open[session.id] = self._open.pop(session.id)

    def _ended_elsewhere(self, key: str) -> None:
        self._bury(key)

    def _level_elsewhere(self, payload: Any) -> None:
        id, level, when = payload
        session = self._known(id)
        if (
            session is not None and when > session.leveled
        ):  # an older message was overtaken on its way
            session.caller.log_level, session.leveled = level, when

    def _subscribed_elsewhere(self, payload: Any) -> None:
        id, uri, wanted = payload
        session = self._known(id)
        if session is not None:
            subscribed = session.caller.subscribed_uris
            session.caller.subscribed_uris = subscribed | {uri} if wanted else subscribed - {uri}


def principal_key(principal: Principal | None) -> bytes:
    """Return a digest of a principal."""
    return b"" if principal is None else blake2b(principal.id.encode(), digest_size=16).digest()
