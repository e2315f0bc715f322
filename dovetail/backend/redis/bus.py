"""The bus between processes on many machines, over Redis pub/sub.

Every process subscribes to two channels: one for everybody, and an inbox of its own for the answers
to its questions. A message is published once, and Redis replies how many processes receive it. So
an asker knows how many answers to wait for, and if nobody can answer, it waits only for the slowest
process.

A process reports every two seconds that it is alive. The reply contains the time and the members of
the bus. If a member has not reported for five seconds, the others are notified
(`ports.MEMBERS_CHANGED`). A process that cannot reach Redis works alone until it can. It misses
everything published in the meantime, so the bus must never carry the only copy of anything.

Every message is sealed for its channel, with its sender, number and time (by the clock of Redis).
So access to Redis is not enough to make up a message. A message that is older than ten seconds, or
that does not follow the last one of its sender, is dropped.
"""

import asyncio
import time
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import count
from secrets import token_hex
from typing import Any

import msgspec
from msgspec.msgpack import Decoder, encode

from ...aio import LruDict, backoff
from ...connection.bus import (
    ANSWER,
    ASK,
    DEFAULT_TIMEOUT,
    MAX_QUESTIONS,
    PUBLISH,
    TopicHandlers,
)
from ...errors import BackendAway, TooLarge
from ...logs import get_logger
from ...ports import MEMBERS_CHANGED
from ...sealing import Forged, KeyRing
from .client import RedisClient, RedisSubscription
from .scripts import HEARTBEAT

PURPOSE = "backend bus"
TOO_LARGE = "too large"
"""The topic of an answer that says how long the real one is, which cannot be sent."""
LEAVE = 3
"""The kind of the last message of a process that closes. The other kinds are those of the local
bus."""
HEARTBEAT_SECONDS = 2.0
"""How often a process reports that it is alive."""
MEMBER_SECONDS = 5.0
"""How long a process is a member after its last report."""
MAX_AGE_MS = 10_000
"""How old a message may be when it arrives."""
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""The maximum size of a message. Redis disconnects a process that is 32 MiB behind."""
MAX_BACKLOG_BYTES = 4 * MAX_MESSAGE_BYTES
"""The maximum size of the messages that wait to be published."""
MAX_BATCH_BYTES = 1024 * 1024
"""The size of the messages that are published in one request. A longer message is published
alone."""
MAX_SENDERS = 4096
"""How many processes a process remembers, to recognise messages that are repeated."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""The first and longest pauses between two attempts to join, in seconds."""
SLOW_ATTEMPT = 10
"""An attempt after which the pause is the longest."""

log = get_logger("bus")


class BusMessage(msgspec.Struct, array_like=True):
    """A message, a question, an answer, or the last message of a process that closes."""

    sender: str
    """The id of the process."""
    number: int
    """The number of the message. Each message of a sender has a higher number than the one
    before."""
    sent: int
    """When it was sent, in milliseconds by the clock of Redis."""
    kind: int
    topic: str
    payload: msgspec.Raw
    question: int = 0
    """The number that the asker gave to its question."""


class _Question(msgspec.Struct, eq=False):
    """A question of this process."""

    answer: "asyncio.Future[Any]"
    missing: int = 0
    """How many processes have not answered. Answers may arrive before the number of processes is
    known, so it may be negative for a while."""
    is_sent: bool = False

    def on_sent(self, receivers: int) -> None:
        self.missing += receivers
        self.is_sent = True
        self._check()

    def on_answer(self, topic: str, payload: Any) -> None:
        self.missing -= 1
        if payload is not None and not self.answer.done():
            if topic == TOO_LARGE:
                text = "The answer of another process of this server"
                self.answer.set_exception(_too_large(text, payload))
            else:
                self.answer.set_result(payload)
        self._check()

    def _check(self) -> None:
        if self.is_sent and self.missing <= 0 and not self.answer.done():
            self.answer.set_result(None)


_decode = Decoder(BusMessage).decode
_payload = Decoder().decode


class RedisBus(TopicHandlers):
    """One process's membership of the bus. `join_bus` creates it.

    Args:
        client: The connections.
        ring: The keys that seal the messages.
        prefix: What the keys and channels of this server begin with.
    """

    def __init__(self, client: RedisClient, ring: KeyRing, prefix: str) -> None:
        super().__init__()
        self.alone = True
        self.id = token_hex(8)
        self._client, self._ring = client, ring
        self._channel, self._inboxes = f"{prefix}bus", f"{prefix}inbox:"
        self._members_key = f"{prefix}members"
        self._members: set[str] = set()
        """The other members."""
        self.member_count = 1
        """The number of members, including this process, when this process last reported."""
        self._clock_offset = 0.0
        """The difference between the clock of Redis and the monotonic clock, in milliseconds."""
        self._heartbeat_at = 0.0
        """When this process last reported, by the monotonic clock."""
        self._numbers, self._question_numbers = count(1), count(1)
        self._last_numbers: LruDict[str, int] = LruDict(MAX_SENDERS)
        """The number of the last message of each sender."""
        self._questions: dict[int, _Question] = {}
        self._unanswered: set[tuple[str, int]] = set()
        """The questions of others that are being answered: the asker, and its number."""
        self._outgoing: deque[tuple[str, bytes, _Question | None]] = deque()
        """The channel and data of each message to be published, and the question if it is one."""
        self._outgoing_bytes = 0
        self._has_outgoing = asyncio.Event()
        self._warned: set[str] = set()
        """The reasons for ignoring messages that were logged."""
        self.tried = asyncio.Event()
        """An event that is set after the first attempt to join."""
        self._membership = asyncio.create_task(self._stay_connected())

    def publish(self, topic: str, payload: Any) -> None:
        """Send a message to every other process."""
        with suppress(TooLarge):  # it was logged
            self._send(self._channel, PUBLISH, topic, payload)

    async def ask(self, topic: str, payload: Any, timeout: float = DEFAULT_TIMEOUT) -> Any:
        """Ask all other processes a question. Return the first answer that is not None, or None if
        no such answer arrives before the timeout. Raise TooLarge if the question or an answer is
        too long for the bus."""
        if len(self._questions) >= MAX_QUESTIONS:
            log.warning("Did not ask %r: %d questions are already open", topic, MAX_QUESTIONS)
            return None
        number = next(self._question_numbers)
        question = _Question(asyncio.get_running_loop().create_future())
        self._questions[number] = question
        try:
            if not self._send(self._channel, ASK, topic, payload, number, question):
                return None
            async with asyncio.timeout(timeout):
                return await question.answer
        except TimeoutError:
            return None
        finally:
            del self._questions[number]

    async def close(self) -> None:
        """Leave the bus."""
        was_alone = self.alone
        if not was_alone:
            for asker, number in list(self._unanswered):
                self._answer(asker, number, None)
            self._send(self._channel, LEAVE, "", None)
        unsent = list(self._outgoing)
        self._membership.cancel()
        await asyncio.wait([self._membership])
        await self._handling.close()
        if not was_alone:
            try:
                await self._client.pipeline(
                    [("ZREM", self._members_key, self.id)]
                    + [("PUBLISH", channel, data) for channel, data, _ in unsent]
                )
            except BackendAway:
                pass  # the others notice that this process no longer reports

    # membership

    async def _stay_connected(self) -> None:
        """Join the bus, and join again whenever the connection is lost."""
        attempt = 0
        while True:
            try:
                async with self._client.subscribe(
                    self._channel, self._inboxes + self.id
                ) as subscription:
                    await self._send_heartbeat()
                    self._on_joined()
                    attempt = 0
                    await self._exchange_messages(subscription)
            except BackendAway:
                log.debug("Cannot reach the bus at %s", self._client.address)
            except Exception:  # our own error; without this task, the process would stay alone
                log.exception("Leaving the bus at %s for a moment", self._client.address)
                attempt = SLOW_ATTEMPT
            finally:
                self._on_lost()
            await asyncio.sleep(backoff(attempt, FIRST_PAUSE, LONGEST_PAUSE))
            attempt += 1

    async def _exchange_messages(self, subscription: RedisSubscription) -> None:
        """Send and receive messages, and send heartbeats, until something fails."""
        tasks = [
            asyncio.create_task(self._receive(subscription)),
            asyncio.create_task(self._send_heartbeats(subscription)),
            asyncio.create_task(self._send_outgoing()),
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_heartbeats(self, subscription: RedisSubscription) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            await subscription.ping()
            await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        now, ids = await self._client.run_script(
            HEARTBEAT, [self._members_key], self.id, int(MEMBER_SECONDS * 1000)
        )
        last, self._heartbeat_at = self._heartbeat_at, time.monotonic()
        self._clock_offset = now - self._heartbeat_at * 1000
        members = {id.decode(errors="replace") for id in ids}  # anybody may have added some
        before, self._members = self._members, members - {self.id}
        self.member_count = 1 + len(self._members)
        # After a long pause, messages may have arrived too late.
        was_paused = not self.alone and self._heartbeat_at - last > MEMBER_SECONDS
        if was_paused or before - self._members:
            self._call_handler(MEMBERS_CHANGED, None)

    def _on_joined(self) -> None:
        self.alone = False
        self.tried.set()
        self._call_handler(MEMBERS_CHANGED, None)

    def _on_lost(self) -> None:
        self.tried.set()
        if self.alone:
            return
        self.alone = True
        self._members.clear()
        self._unanswered.clear()
        self._outgoing.clear()
        self._outgoing_bytes = 0
        for question in self._questions.values():
            if not question.answer.done():
                question.answer.set_result(None)
        self._call_handler(MEMBERS_CHANGED, None)

    # sending

    def _send(
        self,
        channel: str,
        kind: int,
        topic: str,
        payload: Any,
        number: int = 0,
        question: _Question | None = None,
    ) -> bool:
        """Queue a message. Return False if it cannot be sent. Raise TooLarge if it is too long."""
        if self.alone:
            log.debug("Did not send %r over the bus: Redis is away", topic)
            return False
        try:
            raw = msgspec.Raw(encode(payload))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            log.error("Cannot send %r over the bus: %s", topic, error)
            return False
        if len(raw) > MAX_MESSAGE_BYTES:
            log.error(
                "Cannot send %r over the bus: the message is %d bytes long; the limit is %d. Let "
                "clients and tools send less, for example a link to the data",
                *(topic, len(raw), MAX_MESSAGE_BYTES),
            )
            raise _too_large("The message to another process of this server", len(raw))
        if self._outgoing_bytes > MAX_BACKLOG_BYTES:
            log.debug("Did not send %r over the bus: the queue to Redis is full", topic)
            return False
        message = BusMessage(self.id, next(self._numbers), self._now(), kind, topic, raw, number)
        data = self._ring.seal_bytes(PURPOSE, encode(message), bound=channel.encode())
        self._outgoing.append((channel, data, question))
        self._outgoing_bytes += len(data)
        self._has_outgoing.set()
        return True

    async def _send_outgoing(self) -> None:
        while True:
            await self._has_outgoing.wait()
            self._has_outgoing.clear()
            while self._outgoing:
                batch, size = [], 0
                while self._outgoing and size < MAX_BATCH_BYTES:
                    batch.append(self._outgoing.popleft())
                    size += len(batch[-1][1])
                self._outgoing_bytes -= size
                replies = await self._client.pipeline(
                    [("PUBLISH", channel, data) for channel, data, _ in batch]
                )
                for (_, _, question), receivers in zip(batch, replies, strict=True):
                    if question is not None:
                        question.on_sent(receivers - 1)  # this process receives it, too

    def _now(self) -> int:
        """Return the time by the clock of Redis, in milliseconds."""
        return round(time.monotonic() * 1000 + self._clock_offset)

    # receiving

    async def _receive(self, subscription: RedisSubscription) -> None:
        while True:
            received = await subscription.receive()
            if received is not None and (message := self._open(*received)) is not None:
                try:
                    self._on_message(message)
                except Exception:  # the connection is not to blame, so keep it
                    log.exception("Could not handle a message from the bus")

    def _open(self, channel: bytes, data: bytes) -> BusMessage | None:
        """Return a message of another process, or None."""
        try:
            message = _decode(self._ring.open_bytes(PURPOSE, data, bound=channel))
        except (Forged, ValueError, RecursionError):  # msgspec raises ValueErrors
            self._warn(
                "was not sealed with the keys of this process. Do all processes have the same "
                "DOVETAIL_KEYS?"
            )
            return None
        if message.sender == self.id:
            return None
        if abs(self._now() - message.sent) > MAX_AGE_MS:
            self._warn(f"was sent more than {MAX_AGE_MS // 1000} s ago")
            return None
        if message.number <= (self._last_numbers.get(message.sender) or 0):
            self._warn("was received before")
            return None
        self._last_numbers[message.sender] = message.number
        return message

    def _warn(self, reason: str) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            log.warning("Ignoring a message on the bus, and others like it: it %s", reason)

    def _on_message(self, message: BusMessage) -> None:
        payload = _payload(message.payload)
        if message.kind == ANSWER:
            if (question := self._questions.get(message.question)) is not None:
                question.on_answer(message.topic, payload)
        elif message.kind == LEAVE:
            self._members.discard(message.sender)
            self._call_handler(MEMBERS_CHANGED, None)
        elif message.kind == ASK:
            self._unanswered.add((message.sender, message.question))
            answer = partial(self._answer, message.sender, message.question)
            self._call_handler(message.topic, payload, answer)
        else:
            self._call_handler(message.topic, payload)

    def _answer(self, asker: str, number: int, answer: Any) -> None:
        self._unanswered.discard((asker, number))
        inbox = self._inboxes + asker
        try:
            if not self._send(inbox, ANSWER, "", answer, number):
                self._send(inbox, ANSWER, "", None, number)
        except TooLarge as error:
            self._send(inbox, ANSWER, TOO_LARGE, error.data["size"], number)


def _too_large(what: str, size: int) -> TooLarge:
    return TooLarge(
        f"{what} is {size} bytes long; the limit is {MAX_MESSAGE_BYTES}. Send less, for example a "
        "link to the data",
        data={"size": size, "limit": MAX_MESSAGE_BYTES},
    )


async def join_bus(client: RedisClient, ring: KeyRing, prefix: str) -> RedisBus:
    """Join the bus of a server. If Redis is away, the process works alone until it is back."""
    bus = RedisBus(client, ring, prefix)
    await bus.tried.wait()
    return bus
