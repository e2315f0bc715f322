"""Requests that wait for their reply: ids, and replies that are late, forged or repeated."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.connection.connection import Connection
from dovetail.connection.encode import MessageEncoder
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
