"""The streams and polls that handshake-era clients open with GET for messages that do not belong to
a request.

A session may have several GET streams. Each message is sent only on the newest stream, regardless
of which process has that stream. A process that opens a stream notifies the others, which then send
nothing. A GET with the id of the last event resumes any stream in its session, even if another
process has that stream.

A call's stream stays in the process that runs the call. That process sends the messages that it has
kept and forwards later messages. A stream that does not belong to a call moves to the new process.
Every process receives the messages for such a stream, so the old process drops the stream. If a
message or a process is lost, the stream ends, and the client resumes it. If there is a log
(`logged_events.py`), it has what the client of a lost process has not read.

If the client does not accept a call's own stream, a poll also carries the call's notifications and
questions. These messages wait in the process that received the last poll or, if there was no poll,
in the call's process.

One user may have tokens with different scopes. A change is sent on a stream only if the token that
opened the stream allows it. A client whose token has fewer scopes cannot resume the stream and
receives a new stream.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypeAlias

from ....errors import BackendAway, InvalidRequest, Overloaded, TooLarge
from ....limits import Limits
from ....logs import get_logger
from ....ports import Bus, Principal
from ....protocol.base import Params
from ....protocol.methods import METHODS
from ....revisions import Revision
from .asgi import (
    Headers,
    Receive,
    Send,
    begin_stream,
    refuse,
    send_body,
    send_stream,
    wait_disconnected,
)
from .event_store import POLL, STANDALONE, EventStore, EventStream, MessagesDropped
from .policy import RequestHead
from .sessions import HttpSession, OpenRequest

if TYPE_CHECKING:
    from ....connection.dispatcher import Dispatcher
    from .logged_events import LoggedEventStore, StreamPart


log = get_logger("http")

Wait: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
HANDOVER_SECONDS = 10.0
"""How long another process may take to hand over a stream, which may be large."""
MAX_HANDOVER_BYTES = 256 * 1024
"""The size of the messages that a process hands over on the bus if there is a log for longer
ones."""
MAX_FORWARDED_BYTES = 4 * 1024 * 1024
"""The size of a message that is forwarded on the bus if there is a log. For a longer one, the
reader's stream ends, and its client resumes it."""


class GetStreams:
    """The GET streams at one endpoint."""

    def __init__(
        self,
        dispatcher: "Dispatcher",
        limits: Limits,
        events: EventStore,
        bus: Bus,
        poll_seconds: float | None,
        ping_interval: float | None,
        logged_events: "LoggedEventStore | None" = None,
    ) -> None:
        self._dispatcher, self._limits, self._events = dispatcher, limits, events
        self._logged_events = logged_events
        self._bus, self._poll_seconds, self._ping_interval = bus, poll_seconds, ping_interval
        self._sessions: dict[str, HttpSession] = {}
        """The sessions that have a GET stream in this process, keyed by session key."""
        self._borrowed: dict[str, EventStream] = {}
        """The streams from other processes that are read in this process, keyed by id."""
        self.open = 0
        """The number of open event streams at the whole endpoint."""
        self._closing = False
        bus.on("stream/newest", self._on_newest)
        bus.on("stream/resume", self._on_resume)
        bus.on("stream/message", self._on_forwarded)
        bus.on("poll/messages", self._on_poll_messages)

    async def get(
        self,
        session: HttpSession,
        principal: Principal | None,
        head: RequestHead,
        headers: Headers,
        receive: Receive,
        send: Send,
        wait_expired: Wait | None,
    ) -> None:
        """Answer a GET with a stream, which ends when the client's access expires."""
        self.enter(session)
        loop = asyncio.get_running_loop()
        watcher: asyncio.Task[None] | None = None
        expiry: asyncio.Task[None] | None = None
        pinger: asyncio.Task[None] | None = None
        found: EventStream | None = None
        try:
            stream, after = await self._find(session, principal, head.last_event_id)
            found = stream
            if stream.id.startswith(STANDALONE):
                stream.principal = principal
                self._listen(session, stream)
            watcher = loop.create_task(wait_disconnected(receive))
            watcher.add_done_callback(lambda _: stream.wake())
            if wait_expired is not None:
                expiry = loop.create_task(wait_expired())
                expiry.add_done_callback(lambda _: watcher.cancel())
            if stream.id.startswith(STANDALONE):
                pinger = self._start_pinging(session, stream, watcher)
            await begin_stream(send, headers)
            prime = after == 0 and session.caller.revision.priming
            await send_stream(
                stream, after, send, self._limits, watcher.done, ids=True, prime=prime
            )
        finally:
            if watcher is not None:
                watcher.cancel()
            if expiry is not None:
                expiry.cancel()
            if pinger is not None:
                pinger.cancel()
            self.leave(session)
            if found is not None and not found.attached:  # otherwise it has another reader now
                self._on_left(session, found)

    def _start_pinging(
        self, session: HttpSession, stream: EventStream, watcher: "asyncio.Task[None]"
    ) -> "asyncio.Task[None] | None":
        """Ping the client at regular intervals. If the client does not answer, end the watcher and
        thereby the stream."""
        interval = self._ping_interval
        if interval is None or not session.caller.revision.pings:
            return None

        async def ping() -> None:
            while True:
                await asyncio.sleep(interval)
                id = f"{session.key[:8]}-{token_hex(8)}"
                answer = asyncio.get_running_loop().create_future()
                session.open_requests[id] = OpenRequest(answer)
                stream.push(
                    self._dispatcher.encoder.encode_request(
                        id, session.caller.revision, METHODS["ping"], None
                    )
                )
                try:
                    async with asyncio.timeout(self._limits.ping_timeout):
                        await answer
                except TimeoutError:
                    log.info("Closing an event stream: its client does not answer pings")
                    watcher.cancel()
                    return
                finally:
                    session.end_request(id)

        return asyncio.get_running_loop().create_task(ping())

    async def poll(
        self,
        session: HttpSession,
        principal: Principal | None,
        headers: Headers,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a GET with all waiting messages. If no message is waiting, wait for the first
        one."""
        await self._take_poll(session, principal)
        self.enter(session)
        stream = self._poll_stream(session)
        if not _may_resume(stream, _scopes(principal)):
            self._events.drop(stream)
            stream = self._poll_stream(session)
        stream.principal = principal
        self._listen(session, stream)
        reader = stream.attach(stream.dropped)
        watcher = asyncio.get_running_loop().create_task(wait_disconnected(receive))
        watcher.add_done_callback(lambda _: stream.wake())
        try:
            if not stream.held and not stream.done:
                await asyncio.wait([reader], timeout=self._poll_seconds)
            held, last = stream.held, stream.count
            if not watcher.done():  # otherwise the messages wait for the next poll
                await send_body(
                    send,
                    b"[" + b",".join(held) + b"]" if held else b"",
                    200 if held else 204,
                    headers,
                )
                stream.forget(last)
        finally:
            watcher.cancel()
            stream.detach(reader)
            self.leave(session)

    async def _take_poll(self, session: HttpSession, principal: Principal | None) -> None:
        """Take the messages that a process which has ended left for this session's next poll."""
        if self._logged_events is None or session.is_poll_taken:
            return
        try:
            messages = await self._logged_events.take_poll(session.key, _scopes(principal))
        except BackendAway:
            return  # the next poll tries again
        session.is_poll_taken = True
        for data in messages:
            self._poll_stream(session).push(data)

    def replaces_stream(self, session: HttpSession, head: RequestHead) -> bool:
        """Return whether a call's messages wait for a poll, because its client polls or does not
        accept a stream."""
        return head.json and (
            not head.streams or any(one.id.startswith(POLL) for one in session.get_streams)
        )

    def send_by_poll(self, session: HttpSession, data: bytes) -> None:
        """Keep a call's message for the session's next poll, regardless of the process that
        receives the poll."""
        if session.has_remote_stream:
            self._bus.publish("poll/messages", (session.key, [data]))
        else:
            self._poll_stream(session).push(data)

    def _poll_stream(self, session: HttpSession) -> EventStream:
        """Return the messages that wait for the session's next poll."""
        stream = next((one for one in self._held(session) if one.id.startswith(POLL)), None)
        if stream is None:
            stream = self._events.open(session.key, POLL)
            stream.on_drop = partial(self._on_poll_missed, session)
            session.get_streams = (*session.get_streams, stream)
            self._sessions[session.key] = session
        return stream

    def _on_poll_missed(self, session: HttpSession) -> None:
        """End the calls whose questions were not fetched by a poll before the timeout."""
        for call in list(session.open_calls.values()):
            if call.open_questions and call.connection.polls:
                text = (
                    f"{call.name} asked the client a question, but the client did not poll for it"
                )
                self._dispatcher.abort(call, InvalidRequest(text))

    def enter(self, session: HttpSession | None) -> None:
        """Add one to the number of open streams. Raise RequestRefused if too many streams are
        open."""
        if self._closing:
            raise refuse(Overloaded("This server is shutting down"))
        if self.open >= self._limits.streams:
            raise refuse(
                Overloaded(f"All {self._limits.streams} event streams are in use. Try again later.")
            )
        if session is not None:
            if session.stream_count >= self._limits.session_streams:
                text = (
                    f"This session already has {session.stream_count} event streams, which is the "
                    "limit"
                )
                raise refuse(Overloaded(text))
            session.stream_count += 1
        self.open += 1

    def leave(self, session: HttpSession | None) -> None:
        """Subtract one from the number of open streams."""
        self.open -= 1
        if session is not None:
            session.stream_count -= 1

    # finding and dropping streams

    async def _find(
        self, session: HttpSession, principal: Principal | None, last: str | None
    ) -> tuple[EventStream, int]:
        """Return the stream for a GET, and the number of the last message that the client has
        received."""
        id, _, number = (last or "").rpartition("-")
        if not id:
            return self._events.open(session.key, STANDALONE), 0
        after = int(number) if number.isdigit() and len(number) < 16 else -1
        scopes = _scopes(principal)
        stream = self._events.find(session.key, id)
        if stream is None:
            try:
                stream = await self._borrow(session, id, after, scopes)
            except BackendAway as error:
                if not id.startswith(STANDALONE):
                    raise refuse(error) from None
        elif not _may_resume(stream, scopes):
            stream = None
        if stream is None and id.startswith(STANDALONE):
            # The kept messages are lost, but the client can get later ones on a new stream.
            return self._events.open(session.key, STANDALONE), 0
        try:
            if stream is None:
                raise MessagesDropped
            stream.since(after)
        except MessagesDropped:
            hint = (
                " If another process has the stream, use workers= or a shared bus."
                if self._bus.alone
                else ""
            )
            raise refuse(
                InvalidRequest(f"The rest of stream {id[:32]!r} is not available.{hint}")
            ) from None
        return stream, after

    def _listen(self, session: HttpSession, stream: EventStream) -> None:
        session.get_streams = (*(one for one in session.get_streams if one is not stream), stream)
        self._sessions[session.key] = session
        session.has_remote_stream, session.newest_stream_at = False, time.time()
        self._bus.publish("stream/newest", (session.key, session.newest_stream_at, stream.id))

    def _held(self, session: HttpSession) -> tuple[EventStream, ...]:
        """Return the session's streams, except those that the client did not resume before the
        timeout."""
        session.get_streams = tuple(
            one for one in session.get_streams if self._events.find(session.key, one.id)
        )
        return session.get_streams

    def _on_left(self, session: HttpSession, stream: EventStream) -> None:
        if not stream.id.startswith(STANDALONE):
            self._give_back(stream)
            return
        is_read = stream.done and (self._logged_events is None or stream.sent == stream.count)
        if is_read or stream.count == 0:  # there is no message that a client could resume from
            self._events.drop(stream)
            session.get_streams = tuple(one for one in session.get_streams if one is not stream)
        if session.newest_stream_at and not any(one.attached for one in session.get_streams):
            session.newest_stream_at = 0.0
            self._bus.publish("stream/newest", (session.key, 0.0, ""))
        if not session.get_streams:
            self._sessions.pop(session.key, None)

    # change notifications

    def notify(self, method: str, params: Params) -> None:
        """Send a notification to each session that has a stream, but only on its newest stream."""
        encoded: dict[Revision, bytes | None] = {}
        for session in list(self._sessions.values()):
            if not self._held(session):
                del self._sessions[session.key]
                continue
            read = (one for one in reversed(session.get_streams) if one.attached)
            stream = next(read, session.get_streams[-1])
            if session.has_remote_stream or not self._dispatcher.is_subscribed(
                session.caller, stream.principal, method, params
            ):
                continue
            revision = session.caller.revision
            if revision not in encoded:
                encoded[revision] = self._dispatcher.encode_notification(revision, method, params)
            data = encoded[revision]
            if data is not None:
                stream.push(data)

    def ended(self, key: str) -> None:
        """End all streams of a session that has ended."""
        session = self._sessions.pop(key, None)
        if session is not None:
            session.get_streams = ()
        self._events.end(key)

    def close(self) -> None:
        """End all GET streams, including streams from other processes that are read in this
        process."""
        self._closing = True
        for session in list(self._sessions.values()):
            for stream in session.get_streams:
                stream.finish()
        for stream in self._borrowed.values():
            stream.finish()

    # other processes

    def on_bus_lost(self) -> None:
        """Handle the loss of the bus. Other processes may have exited, including those whose
        streams this process reads and those that had a session's newest stream."""
        for stream in self._borrowed.values():
            stream.finish()
        for key in list(self._sessions):
            self._on_newest((key, 0.0, ""))

    def _on_newest(self, payload: Any) -> None:
        key, when, id = payload
        session = self._sessions.get(key)
        if session is None:
            return
        moved = self._events.find(key, id)
        if moved is not None:  # the other process has it from now on
            self._events.drop(moved)
            moved.finish()
            self._on_left(session, moved)
        ours = session.newest_stream_at
        # Messages of two processes may cross.
        session.has_remote_stream = when > ours or (session.has_remote_stream and when > 0)
        if session.has_remote_stream:
            self._hand_over_poll(session)
        if ours > when and not session.has_remote_stream:  # the other process must know
            self._bus.publish("stream/newest", (key, ours, ""))

    def _hand_over_poll(self, session: HttpSession) -> None:
        """Pass the messages that are waiting for a poll to the process that received the poll."""
        for stream in session.get_streams:
            if stream.id.startswith(POLL) and stream.held:
                self._bus.publish("poll/messages", (session.key, stream.held))
                stream.forget(stream.count)

    def _on_poll_messages(self, payload: Any) -> None:
        key, messages = payload
        session = self._sessions.get(key)
        if session is not None and not session.has_remote_stream:
            for data in messages:
                self._poll_stream(session).push(data)

    async def _borrow(
        self, session: HttpSession, id: str, after: int, scopes: list[str]
    ) -> EventStream | None:
        """Take over a stream from another process to read it in this process. If that process has
        gone, read what is in the log."""
        if self._bus.alone and self._logged_events is None:
            return None
        stream, held = EventStream(session.key, self._limits.events, id), None
        if (before := self._borrowed.get(id)) is not None:
            before.finish()  # its client has reopened it
        self._borrowed[id] = stream
        try:
            held = await self._ask_for_stream(session, id, after, scopes)
        finally:
            if held is None or id.startswith(STANDALONE):
                self._give_back(stream)
        if held is None:
            return None
        stream.refill(*held)
        if id.startswith(STANDALONE):
            self._events.keep(stream)
        return stream

    async def _ask_for_stream(
        self, session: HttpSession, id: str, after: int, scopes: list[str]
    ) -> "StreamPart | None":
        wanted, answer = (session.key, id, after, scopes), None
        with suppress(TooLarge):  # the other process has logged it
            answer = await self._bus.ask("stream/resume", wanted, HANDOVER_SECONDS)
        if self._logged_events is None:
            part: StreamPart | None = answer
            return part
        if answer is None:
            return await self._logged_events.read(*wanted)
        count, messages, done = answer
        if isinstance(messages, str):  # too long for the bus
            messages = await self._logged_events.take_handover(messages)
        return None if messages is None else (count, messages, done)

    def _give_back(self, stream: EventStream) -> None:
        if self._borrowed.get(stream.id) is stream:
            del self._borrowed[stream.id]

    def _on_resume(self, payload: Any) -> Any:
        key, id, after, scopes = payload
        stream = self._events.find(key, id)
        try:
            if stream is None or not _may_resume(stream, scopes):
                raise MessagesDropped
            held = stream.since(after)
        except MessagesDropped:
            return None
        stream.on_push = self._forward
        stream.release()  # the reader in this process has lost its client
        found = stream.count, held, stream.done
        if self._logged_events is not None and sum(map(len, held)) > MAX_HANDOVER_BYTES:
            return self._logged_events.hand_over(found)
        return found

    def _forward(self, stream: EventStream, data: bytes | None) -> None:
        if self._logged_events is not None and data is not None and len(data) > MAX_FORWARDED_BYTES:
            data = None
        self._bus.publish("stream/message", (stream.id, stream.count, data))

    def _on_forwarded(self, payload: Any) -> None:
        id, count, data = payload
        stream = self._borrowed.get(id)
        if stream is None:
            return
        if data is None:
            stream.finish()
        else:
            stream.push_numbered(count, data)


def _scopes(principal: Principal | None) -> list[str]:
    return [] if principal is None else list(principal.scopes)


def _may_resume(stream: EventStream, scopes: list[str]) -> bool:
    """Return whether a token with these scopes may read the messages that were kept for the
    stream's reader."""
    return set(_scopes(stream.principal)).issubset(scopes)
