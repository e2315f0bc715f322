"""Sessions without a store: a session id is a sealed token that says all there is to know of its
session.

Any process that has the keys serves any request of a session, and opening one costs the server
nothing. What was opened lately is kept, so that the seal is broken once. A session ends by the
expiry in its token, by going unused, or by DELETE: the latter two leave a tombstone in this
process, and on the bus. An ended session is the same as one that never was: 404, upon which a
client opens a new one.
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
LONGEST = 2048
"""A header longer than this does not pass every proxy."""
LATELY = 1.0
"""Seconds within which the order of use does not matter."""
NOTHING_ASKED: "dict[Id, asyncio.Future[Response | ErrorResponse]]" = {}

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, float, bytes, bytes, Any, Any]).decode


class HttpSession:
    """One session as this process knows it."""

    __slots__ = (
        "asked", "caller", "elsewhere", "expires", "id", "key", "leveled", "met",
        "newest", "open_calls", "seen", "standing", "streams", "told", "who",
    )  # fmt: skip

    def __init__(
        self, id: str, key: str, caller: Caller, who: bytes, expires: float, seen: float
    ) -> None:
        self.id = id
        self.key = key
        """What it goes by where its id, which is a secret, must not be said."""
        self.caller = caller
        self.who = who
        """Whose it is, as a digest."""
        self.expires = expires
        self.seen = seen
        """When it was last used, by a clock that nobody puts forward or back:
        `time.monotonic()`."""
        self.told = seen
        """When the other processes were last told that it is in use."""
        self.met = True
        """Whether the other processes were asked what they know of it."""
        self.leveled = 0.0
        """When it last set a log level, in whichever process."""
        self.open_calls: dict[Id, Call] = {}
        """Its calls that are being answered, by request id."""
        self.asked: dict[Id, asyncio.Future[Response | ErrorResponse]] = NOTHING_ASKED
        """The questions that its client has not answered yet."""
        self.standing: tuple[EventStream, ...] = ()
        """Streams for what belongs to no request, the newest last. Of those that are read, the
        newest hears of everything, the others of nothing."""
        self.streams = 0
        """How many of its streams are open."""
        self.newest = 0.0
        """When the newest of its standing streams here was opened; 0 where nobody reads one."""
        self.elsewhere = False
        """Whether another process has the newest of its standing streams."""

    def ask(self, id: Id) -> "asyncio.Future[Response | ErrorResponse]":
        """A question is on its way; the future is for the answer."""
        if self.asked is NOTHING_ASKED:
            self.asked = {}
        future = self.asked[id] = asyncio.get_running_loop().create_future()
        return future

    def answered(self, message: Response | ErrorResponse) -> bool:
        """Whether this answers a question of ours."""
        future = self.asked.get(message.id) if message.id is not None else None
        if future is None or future.done():
            return False
        future.set_result(message)
        return True

    @property
    def busy(self) -> bool:
        """Whether it is in use right now."""
        return bool(self.streams or self.open_calls)


class SessionTable:
    """All sessions, of which only those in use take any room."""

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
        """Another server of the same program has the same keys, but not our sessions."""
        self._open: dict[str, HttpSession] = {}
        """By id, the one that was used last at the end."""
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
        """The id of a new session. Nothing is kept of it until it is used."""
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
        if len(id) > LONGEST:
            raise InvalidParams(
                f"clientInfo and capabilities are too long: the session id would be {len(id)} bytes"
            )
        return id

    def find(self, id: str, principal: Principal | None = None) -> HttpSession | None:
        """The session with this id; None where it is forged, someone else's, expired or ended."""
        now = time.monotonic()
        session = self._open.get(id)
        if session is None or session.expires < time.time() or now - session.seen > LATELY:
            session = self._known(id)
        if session is None or session.who != principal_key(principal):
            return None
        self._use(session, now)
        return session

    def _known(self, id: str) -> HttpSession | None:
        """The session with this id, whoever uses it."""
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
        """It is in use, which the other processes hear now and then."""
        session.seen = now
        if now - session.told > self._limits.session_idle / 4:
            session.told = now
            self._bus.publish("session/seen", session.key)

    def by_key(self, key: str) -> HttpSession | None:
        """The session that goes by this key, if this process knows it."""
        return self._keys.get(key)

    def end(self, session: HttpSession) -> None:
        """DELETE: here and everywhere."""
        self._parted(session, time.time())
        self._bus.publish("session/ended", session.key)

    def _parted(self, session: HttpSession, when: float) -> None:
        self._bury(session.key)
        self._dispatcher.service.session_ended(
            session.caller, HTTP, when - session.expires + self._limits.session_life
        )

    def share(self, session: HttpSession, call: Call) -> None:
        """What a session asked for holds in every process."""
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
        if len(id) > LONGEST:
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
        """Room for one more: the one that was unused longest and holds nothing."""
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
        """End what went unused, and forget the tombstones of what has expired anyway."""
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
        """Its roots are to be asked for again, wherever they are known."""
        session.caller.invalidate_roots()
        self._bus.publish("session/roots", session.key)

    def _roots_elsewhere(self, key: str) -> None:
        session = self._keys.get(key)
        if session is not None:
            session.caller.invalidate_roots()

    def _page_shown(self, key: str, page: str) -> None:
        """Its user is sent to a page; that they are done there may be told by any process."""
        self._bus.publish("session/page", (key, page))

    def _page_elsewhere(self, payload: Any) -> None:
        key, page = payload
        session = self._keys.get(key)
        if session is not None:
            session.caller.remember_elicitation(page)

    def parted(self) -> None:
        """What other processes said may not have come here: nothing is relied on that they would
        have had to say."""
        for session in self._keys.values():
            session.met = self._bus.alone
            session.caller.invalidate_roots()

    async def meet(self, session: HttpSession) -> bool:
        """This process sees it for the first time: what do the others know of it? False where it
        has ended."""
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
        ):  # what is older was overtaken on its way here
            session.caller.log_level, session.leveled = level, when

    def _subscribed_elsewhere(self, payload: Any) -> None:
        id, uri, wanted = payload
        session = self._known(id)
        if session is not None:
            subscribed = session.caller.subscribed_uris
            session.caller.subscribed_uris = subscribed | {uri} if wanted else subscribed - {uri}


def principal_key(principal: Principal | None) -> bytes:
    """Whose something is, as a digest."""
    return b"" if principal is None else blake2b(principal.id.encode(), digest_size=16).digest()
