"""Requests that wait for their reply: ids, and replies that are late, forged or repeated."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dovetail.connection.connection import Connection
from dovetail.connection.encode import MessageEncoder
from dovetail.errors import TimedOut
from dovetail.limits import DEFAULT
from dovetail.ports import Incoming
from dovetail.protocol.methods import METHODS
from dovetail.revisions import HANDSHAKE

PING = METHODS["ping"]


class Silent:
    """A channel that keeps what is sent, and delivers what the test says."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def start(self, receive: Callable[[Incoming], None], ended: Any) -> None:
        self._receive = receive

    def send(self, data: bytes) -> None:
        self.sent.append(msgspec.json.decode(data))

    def deliver(self, message: Any) -> None:
        self._receive(msgspec.json.encode({"jsonrpc": "2.0", **message}))

    async def drain(self) -> None: ...

    async def close(self) -> None: ...


class Handler:
    reports_malformed = answers_requests = True
    revision = HANDSHAKE[-1]

    def on_close(self, reason: Exception | None) -> None: ...


async def asking(count: int) -> tuple[Silent, list["asyncio.Task[Any]"]]:
    """Send requests, and return the channel with the tasks that wait for the replies."""
    channel = Silent()
    connection = Connection(channel, DEFAULT, MessageEncoder(DEFAULT.outgoing))
    connection.start(Handler())  # type: ignore[arg-type]
    tasks = [
        asyncio.create_task(connection.request(Handler.revision, PING, None)) for _ in range(count)
    ]
    await asyncio.sleep(0)
    return channel, tasks


async def test_each_request_gets_an_id_of_its_own() -> None:
    channel, tasks = await asking(100)
    assert len({message["id"] for message in channel.sent}) == 100
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_reply_settles_the_request_with_its_id() -> None:
    channel, (first, second) = await asking(2)
    one, two = (message["id"] for message in channel.sent)
    channel.deliver({"id": two, "result": {"n": 2}})
    channel.deliver({"id": one, "result": {"n": 1}})
    assert bytes(await first) == b'{"n":1}'
    assert bytes(await second) == b'{"n":2}'


async def test_a_repeated_reply_is_dropped() -> None:
    channel, (task,) = await asking(1)
    id = channel.sent[0]["id"]
    channel.deliver({"id": id, "result": {"n": 1}})
    channel.deliver({"id": id, "result": {"n": 2}})
    assert bytes(await task) == b'{"n":1}'


async def test_a_forged_reply_is_dropped_and_disturbs_nothing() -> None:
    channel, (task,) = await asking(1)
    id = channel.sent[0]["id"]
    for forged in (id + 1, str(id), "", -1):
        channel.deliver({"id": forged, "result": {}})
    channel.deliver({"id": None, "error": {"code": -32700, "message": "?"}})
    await asyncio.sleep(0)
    assert not task.done()
    channel.deliver({"id": id, "result": {"n": 1}})
    assert bytes(await task) == b'{"n":1}'


async def test_the_two_directions_do_not_share_their_ids() -> None:
    channel, (task,) = await asking(1)
    id = channel.sent[0]["id"]
    channel.deliver({"id": id, "method": "ping"})
    await asyncio.sleep(0)
    assert not task.done()
    channel.deliver({"id": id, "result": {}})
    assert bytes(await task) == b"{}"


# deadlines


def scheduled(connection: Connection) -> list[Any]:
    """The timers of a connection that are running."""
    timers: list[Any] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    own = connection._check_deadlines
    return [timer for timer in timers if timer._callback == own and not timer.cancelled()]


def open_connection() -> tuple[Silent, Connection]:
    channel = Silent()
    connection = Connection(channel, DEFAULT, MessageEncoder(DEFAULT.outgoing))
    connection.start(Handler())  # type: ignore[arg-type]
    return channel, connection


async def test_one_timer_serves_all_requests() -> None:
    channel, connection = open_connection()
    for number in range(1, 51):
        task = asyncio.create_task(
            connection.request(Handler.revision, PING, None, timeout=60 + number)
        )
        await asyncio.sleep(0)
        channel.deliver({"id": number, "result": {}})
        await task
        assert len(scheduled(connection)) == 1
    await connection.close()
    assert scheduled(connection) == []


async def test_a_deadline_counts_although_an_earlier_request_has_a_later_one() -> None:
    channel, connection = open_connection()
    patient = asyncio.create_task(connection.request(Handler.revision, PING, None, timeout=60))
    await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises(TimedOut, match=r"within 0\.05 s"):
            await connection.request(Handler.revision, PING, None, timeout=0.05)
    assert not patient.done()
    channel.deliver({"id": 1, "result": {}})
    await patient
    await connection.close()


async def test_a_paused_deadline_continues_with_the_time_that_was_left() -> None:
    _, connection = open_connection()
    request = asyncio.create_task(connection.request(Handler.revision, PING, None, timeout=0.1))
    await asyncio.sleep(0)
    connection.pause_deadlines(True)
    await asyncio.sleep(0.3)
    assert not request.done()
    connection.pause_deadlines(False)
    with pytest.raises(TimedOut):
        await request
    await connection.close()
