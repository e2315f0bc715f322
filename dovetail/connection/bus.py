"""The implementations of `ports.Bus`, which connects the processes of a server.

`NoBus` is for a server with one process. Otherwise, a `Hub` listens on a Unix socket, in a
directory that only this user can enter, and each process joins it as a member (`join`). A frame
consists of a four-byte length and the MessagePack encoding of these fields:

    kind      topic    payload   number
    PUBLISH   a topic  anything  0            the hub sends it to all other members
    ASK       a topic  anything  the asker's  the hub sends it to all other members, with the hub's
                                              own number
    ANSWER    ""       or nil    the hub's    the hub sends the asker the first answer that is not
                                              nil, or the last answer if all are nil

The hub does not read payloads, but it counts the members that have yet to answer. So if no member
has an answer, the asker waits only for the slowest member, not until the deadline. A member that
leaves is treated as if it had no answer, and the others are notified (`ports.MEMBERS_CHANGED`).

No operation blocks on a peer. A member is dropped if it sends invalid data, or if it does not read
and its backlog is full. The other members are not affected. A member that loses its connection to
the hub works alone until it reconnects. Such a member misses everything published in the meantime,
so the bus must never carry the only copy of anything.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any

import msgspec
from msgspec.msgpack import Decoder, encode

from ..aio import TaskSet, backoff
from ..limits import DEFAULT
from ..logs import get_logger
from ..ports import MEMBERS_CHANGED

MAX_FRAME_BYTES = DEFAULT.outgoing + 4 * DEFAULT.events
"""The maximum size of a frame, which holds one message and everything that was buffered before it
in its stream."""
MAX_BACKLOG_BYTES = 2 * MAX_FRAME_BYTES
"""The maximum number of bytes queued for one member. More frames may arrive while a member reads
one."""
DEFAULT_TIMEOUT = 1.0
"""The default timeout of a question, in seconds."""
RELAYED_BYTES_PER_SECOND = MAX_FRAME_BYTES // 8
"""The lowest expected relay speed, which determines how much time is added to a question's
deadline."""
QUESTION_LIFE = 60.0
"""The number of seconds after which the hub forgets a question that a member never answered."""
MAX_QUESTIONS = 4096
"""The maximum number of open questions per member."""
MAX_HANDLERS = 4096
"""The maximum number of handlers that run as tasks in one member at the same time."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""The shortest and longest pauses between two attempts to reach the hub, in seconds. The pause
doubles after each attempt."""

PUBLISH, ASK, ANSWER = range(3)
NIL = msgspec.Raw(encode(None))
HUB_NUMBER_BYTES = 64
"""The bytes reserved in each frame because the hub's numbers are longer than its members'
numbers."""

Handler = Callable[[Any], Any]
log = get_logger("bus")


class Frame(msgspec.Struct, array_like=True):
    """One frame."""

    kind: int
    topic: str
    payload: msgspec.Raw
    number: int


_decode = Decoder(Frame).decode
_payload = Decoder().decode


class NoBus:
    """The bus for a server with one process."""

    alone = True

    def on(self, topic: str, handler: Handler) -> None:
        """Do nothing, because there is no other process that could call the handler."""

    def publish(self, topic: str, payload: Any) -> None:
        """Do nothing."""

    async def ask(self, topic: str, payload: Any, timeout: float = DEFAULT_TIMEOUT) -> Any:
        """Return None."""
        return None

    async def close(self) -> None:
        """Do nothing."""


class TopicHandlers:
    """The part that all buses have in common: the handlers of one process."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._handling = TaskSet()

    def on(self, topic: str, handler: Handler) -> None:
        """Set the handler for messages and questions on a topic, replacing any earlier handler."""
        self._handlers[topic] = handler

    def _call_handler(
        self, topic: str, payload: Any, answer: Callable[[Any], None] | None = None
    ) -> None:
        """Call the handler for a topic.

        Args:
            topic: The topic.
            payload: The message or question.
            answer: Called once with the answer to a question (None: no answer).
        """
        result = None
        try:
            if (handler := self._handlers.get(topic)) is not None:
                result = handler(payload)
        except Exception:
            log.exception("The handler for %r failed", topic)
        if not asyncio.iscoroutine(result):
            if answer is not None:
                answer(result)
        elif len(self._handling) >= MAX_HANDLERS:
            result.close()
            log.warning("Did not handle %r: %d handlers are already running", topic, MAX_HANDLERS)
            if answer is not None:
                answer(None)
        else:
            self._handling.start(self._wait(topic, result, answer))

    async def _wait(
        self,
        topic: str,
        running: Coroutine[Any, Any, Any],
        answer: Callable[[Any], None] | None,
    ) -> None:
        result = None
        try:
            result = await running
        except Exception:
            log.exception("The handler for %r failed", topic)
        if answer is not None:
            answer(result)


class BusConnection(asyncio.Protocol):
    """One end of the connection between the hub and a member, which sends and receives whole
    frames. Frames sent in one iteration of the event loop are written together. Frames are queued
    here until the peer reads them, because asyncio restarts its own backlog count with each
    write."""

    def __init__(
        self,
        on_connect: "Callable[[BusConnection], None]",
        on_frame: "Callable[[BusConnection, Frame], None]",
        on_disconnect: "Callable[[BusConnection], None]",
    ) -> None:
        self._on_connect, self._on_frame = on_connect, on_frame
        self._on_disconnect = on_disconnect
        self._buffer = bytearray()
        self._queue: list[bytes] = []
        self._size = 0
        self._writable = True
        self._transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._on_connect(self)

    def data_received(self, data: bytes) -> None:
        """Handle each complete frame."""
        buffer, start = self._buffer, 0
        buffer += data
        try:
            while not self._transport.is_closing() and start + 4 <= len(buffer):
                body = start + 4
                size = int.from_bytes(buffer[start:body])
                if size > MAX_FRAME_BYTES:
                    raise ValueError(f"a frame claims to be {size} bytes long")
                if body + size > len(buffer):
                    break
                frame = _decode(bytes(memoryview(buffer)[body : body + size]))
                start = body + size
                self._handle(frame)
        except (ValueError, RecursionError) as error:  # msgspec raises ValueErrors
            self.drop(f"sent invalid data ({error})")
        del buffer[:start]

    def _handle(self, frame: Frame) -> None:
        try:
            self._on_frame(self, frame)
        except Exception:  # our own error, or a third process's: not the sender's fault
            log.exception("Could not handle a frame from the bus")

    def connection_lost(self, error: Exception | None) -> None:
        self._on_disconnect(self)

    def send(self, data: bytes) -> bool:
        """Queue a frame. Return False if the queue is full or the connection is closing."""
        if self._transport.is_closing() or self._size > MAX_BACKLOG_BYTES:
            return False
        if not self._queue:
            asyncio.get_running_loop().call_soon(self._flush)
        self._queue.append(data)
        self._size += len(data)
        return True

    def _flush(self) -> None:
        if self._writable and self._queue:
            self._transport.write(b"".join(self._queue))
            self._queue.clear()
            self._size = 0

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._flush()

    def drop(self, why: str) -> None:
        """Close the connection immediately and log the reason."""
        if not self._transport.is_closing():
            log.warning("Disconnecting a process from the bus because it %s", why)
            self._transport.abort()

    def close(self) -> None:
        """Close the connection after all queued data has been written."""
        self._flush()
        self._transport.close()


def _framed(kind: int, topic: str, payload: Any, number: int) -> bytes:
    body = encode((kind, topic, payload, number))
    return len(body).to_bytes(4) + body


class RelayedQuestion(msgspec.Struct, eq=False):
    """A question that the hub relays."""

    asker: BusConnection
    number: int
    """The number that the asker assigned to the question."""
    until: float
    waiting: set[BusConnection]
    """The members that have not answered yet."""


class Hub:
    """The hub, which relays frames between the members."""

    def __init__(self) -> None:
        self._members: set[BusConnection] = set()
        self._questions: dict[int, RelayedQuestion] = {}
        self._numbers = count(1)
        self._server: asyncio.AbstractServer | None = None

    async def start(self, listening: socket.socket) -> None:
        """Start accepting members."""
        loop = asyncio.get_running_loop()
        # Not create_unix_server: from Python 3.13 on, it removes the address when it closes, and
        # the next hub needs that address.
        self._server = await loop.create_server(self._joined, sock=listening)

    async def close(self) -> None:
        """Disconnect all members."""
        if self._server is not None:
            self._server.close()
        for member in self._members:
            member.close()

    def _joined(self) -> BusConnection:
        return BusConnection(self._members.add, self._relay, self._left)

    def _left(self, member: BusConnection) -> None:
        self._members.discard(member)
        for number, question in list(self._questions.items()):
            if member in question.waiting:
                self._answered(member, number, NIL)
        self._send_to_others(member, _framed(PUBLISH, MEMBERS_CHANGED, None, 0))

    def _relay(self, member: BusConnection, frame: Frame) -> None:
        if frame.kind == PUBLISH:
            self._send_to_others(member, _framed(PUBLISH, frame.topic, frame.payload, 0))
        elif frame.kind == ASK:
            self._ask(member, frame)
        elif frame.kind == ANSWER:
            self._answered(member, frame.number, frame.payload)
        else:
            member.drop(f"sent a frame of unknown kind {frame.kind}")

    def _send_to_others(self, sender: BusConnection, data: bytes) -> set[BusConnection]:
        """Send a frame to all other members, and return the members that can receive it."""
        reached = set()
        for member in self._members - {sender}:
            if member.send(data):
                reached.add(member)
            else:
                member.drop("has stopped reading")
        return reached

    def _ask(self, asker: BusConnection, frame: Frame) -> None:
        now = asyncio.get_running_loop().time()
        for oldest, question in list(self._questions.items()):
            if question.until >= now:
                break
            del self._questions[oldest]
        number = next(self._numbers)
        waiting = self._send_to_others(asker, _framed(ASK, frame.topic, frame.payload, number))
        self._questions[number] = RelayedQuestion(asker, frame.number, now + QUESTION_LIFE, waiting)
        if not waiting:
            self._answered(asker, number, NIL)

    def _answered(self, member: BusConnection, number: int, payload: msgspec.Raw) -> None:
        question = self._questions.get(number)
        if question is None:
            return  # another member answered first, or the question expired
        question.waiting.discard(member)
        if payload != NIL or not question.waiting:
            del self._questions[number]
            question.asker.send(_framed(ANSWER, "", payload, question.number))


class LocalBus(TopicHandlers):
    """One process's connection to the bus."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.alone = True
        self._path = path
        self._asks: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count(1)
        self._connection: BusConnection | None = None
        self._lost = asyncio.Event()
        self.tried = asyncio.Event()
        """An event that is set after the first attempt to reach the hub."""
        self._reconnecting = asyncio.create_task(self._stay_connected())

    def publish(self, topic: str, payload: Any) -> None:
        """Send a message to every other process."""
        self._send(PUBLISH, topic, payload, 0)

    async def ask(self, topic: str, payload: Any, timeout: float = DEFAULT_TIMEOUT) -> Any:
        """Ask all other processes a question. Return the first answer that is not None, or None if
        no such answer arrives before the timeout."""
        if len(self._asks) >= MAX_QUESTIONS:
            log.warning("Did not ask %r: %d questions are already open", topic, MAX_QUESTIONS)
            return None
        number = next(self._numbers)
        answer = self._asks[number] = asyncio.get_running_loop().create_future()
        try:
            size = self._send(ASK, topic, payload, number)
            if not size:
                return None
            async with asyncio.timeout(timeout + size / RELAYED_BYTES_PER_SECOND):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._asks[number]

    async def close(self) -> None:
        """Leave the bus."""
        self._reconnecting.cancel()
        await asyncio.wait([self._reconnecting])
        await self._handling.close()
        if self._connection is not None:
            self._connection.close()
            self._gone(self._connection)

    async def _stay_connected(self) -> None:
        """Connect to the hub, and reconnect whenever the connection is lost."""
        loop, attempt = asyncio.get_running_loop(), 0
        while True:
            self._lost.clear()
            try:
                await loop.create_unix_connection(
                    lambda: BusConnection(self._joined, self._on_frame, self._gone), self._path
                )
            except OSError as error:
                write = log.debug if self.tried.is_set() else log.warning
                write("Cannot reach the bus at %s: %s", self._path, error)
            else:
                attempt = 0
                self.tried.set()
                await self._lost.wait()
                log.info("Lost the connection to the bus at %s; reconnecting", self._path)
            self.tried.set()
            await asyncio.sleep(backoff(attempt, FIRST_PAUSE, LONGEST_PAUSE))
            attempt += 1

    def _joined(self, connection: BusConnection) -> None:
        self.alone, self._connection = False, connection
        self._handle(MEMBERS_CHANGED, None, 0)

    def _gone(self, connection: BusConnection) -> None:
        self.alone, self._connection = True, None
        self._lost.set()
        self._handle(MEMBERS_CHANGED, None, 0)
        for answer in self._asks.values():
            if not answer.done():
                answer.set_result(None)

    def _send(self, kind: int, topic: str, payload: Any, number: int) -> int:
        """Send a frame and return its size in bytes, or 0 if it cannot be sent."""
        if self._connection is None:
            log.debug("Did not send %r over the bus: no hub is connected", topic)
            return 0
        try:
            data = _framed(kind, topic, payload, number)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            log.error("Cannot send %r over the bus: %s", topic, error)
            return 0
        if len(data) > MAX_FRAME_BYTES - HUB_NUMBER_BYTES:
            log.error(
                "Cannot send %r over the bus: the frame is %d bytes long; the limit is %d",
                topic,
                len(data),
                MAX_FRAME_BYTES - HUB_NUMBER_BYTES,
            )
            return 0
        if not self._connection.send(data):
            log.debug("Did not send %r over the bus: the queue to the hub is full", topic)
            return 0
        return len(data)

    def _on_frame(self, connection: BusConnection, frame: Frame) -> None:
        payload = _payload(frame.payload)
        if frame.kind != ANSWER:
            self._handle(frame.topic, payload, frame.number)
        elif (answer := self._asks.get(frame.number)) is not None and not answer.done():
            answer.set_result(payload)

    def _handle(self, topic: str, payload: Any, number: int) -> None:
        """Call the handler for a topic. If the frame has a number, send the answer back."""
        answer = partial(self._answer, topic, number) if number else None
        self._call_handler(topic, payload, answer)

    def _answer(self, topic: str, number: int, answer: Any) -> None:
        if not self._send(ANSWER, "", answer, number):
            log.debug("Could not send the answer to %r", topic)
            self._send(ANSWER, "", None, number)


async def join(path: str) -> LocalBus:
    """Join the bus whose hub listens at this path. The member works alone until a hub is
    listening."""
    bus = LocalBus(path)
    await bus.tried.wait()
    return bus


def private_socket() -> tuple[str, socket.socket]:
    """Return a socket for a hub, in a new directory that only this user can enter. The caller must
    remove the directory."""
    import tempfile

    temporary = tempfile.gettempdir()
    # the path of a Unix socket must be short
    directory = tempfile.mkdtemp(
        prefix="dovetail-", dir=temporary if len(temporary) < 64 else "/tmp"
    )
    path = os.path.join(directory, "bus")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(128)
    return path, listening
