"""Requests to another process of a server, whose replies may take minutes.

A question on the bus must be answered soon: the bus forgets it after a while (`QUESTION_LIFE`), and
may not report that the process which works on it has died. So a request has an id, and the asker
asks for its reply again from time to time:

    the other process still works on it    it recognises the id, and goes on
    it has just replied                    it still has the reply, and sends it again
    it has died                            nobody answers, and the request fails
    the asker has the reply, or does not   it says so, and the other process forgets the request, or
    wait any longer                        stops working on it

Only the request itself is a reason to begin. So it is never processed twice, however late the asker
asks again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from os import urandom
from typing import Any, cast

import msgspec

from ..errors import DovetailError, ProtocolError
from ..ports import Bus
from .bus import QUESTION_LIFE

REPEAT_SECONDS = QUESTION_LIFE / 2
"""How long to wait for a reply before asking for it again."""

EncodedReply = tuple[bool, bytes] | None
"""Whether the reply is an error, and the reply."""


class BusRequests:
    """The requests on one topic: those of this process, and those of others.

    Args:
        topic: The topic on the bus.
        answer: Returns the reply to a request of another process; None if this process cannot
            answer it. The requester gets the errors that it raises.
    """

    def __init__(self, topic: str, answer: Callable[[Any], Awaitable[bytes | None]]) -> None:
        self._topic, self._answer = topic, answer
        self._repeat, self._leave = f"{topic}/repeat", f"{topic}/leave"
        self._bus: Bus | None = None
        self._running: dict[str, asyncio.Task[EncodedReply]] = {}
        """The requests of other processes that are answered here, by id. Those that were answered
        stay until their askers have the reply."""

    def connect(self, bus: Bus) -> None:
        """Answer the requests of other processes, and send them requests.

        Args:
            bus: The bus between the processes.
        """
        self._bus = bus
        bus.on(self._topic, self._on_request)
        bus.on(self._repeat, self._on_repeat)
        bus.on(self._leave, self._on_leave)

    @property
    def is_alone(self) -> bool:
        """Whether there is no other process that could be asked."""
        return self._bus is None or self._bus.alone

    async def ask(self, payload: Any, seconds: float) -> bytes | None:
        """Return the reply of the process that can answer a request; None if there is none, or if
        it does not reply in time.

        Args:
            payload: The request.
            seconds: How long to wait for the reply.

        Raises:
            ProtocolError: The process replied with an error.
        """
        bus, id, reply = self._bus, urandom(8).hex(), None
        if bus is None:
            return None
        deadline = time.monotonic() + seconds
        topic, question = self._topic, cast(Any, (id, payload))
        try:
            while reply is None and (began := time.monotonic()) < deadline:
                wait = min(REPEAT_SECONDS, deadline - began)
                reply = await bus.ask(topic, question, wait)
                if time.monotonic() - began < wait:
                    break  # nobody can answer; otherwise, there was no reply yet
                topic, question = self._repeat, id
        finally:
            bus.publish(self._leave, id)
        if reply is None:
            return None
        is_error, data = reply
        if is_error:
            raise ProtocolError(*msgspec.json.decode(data))
        return bytes(data)

    def _on_request(self, question: tuple[str, Any]) -> Coroutine[Any, Any, EncodedReply]:
        id, payload = question
        # Not in a coroutine: `_on_leave` may be called before one begins to run.
        running = self._running[id] = asyncio.create_task(self._reply(payload))
        running.add_done_callback(partial(self._on_reply, id))
        return _result(running)

    def _on_repeat(self, id: str) -> Coroutine[Any, Any, EncodedReply] | None:
        running = self._running.get(id)
        return None if running is None else _result(running)

    def _on_reply(self, id: str, running: asyncio.Task[EncodedReply]) -> None:
        if running.cancelled() or running.exception() or running.result() is None:
            self._running.pop(id, None)
        else:  # the asker says that it has the reply, unless it dies
            running.get_loop().call_later(QUESTION_LIFE, self._running.pop, id, None)

    def _on_leave(self, id: str) -> None:
        if (running := self._running.pop(id, None)) is not None:
            running.cancel()

    async def _reply(self, payload: Any) -> EncodedReply:
        try:
            data = await self._answer(payload)
        except ProtocolError as error:
            return True, msgspec.json.encode((error.code, error.message, error.data))
        except DovetailError as error:
            return True, msgspec.json.encode((ProtocolError.code, str(error), None))
        return None if data is None else (False, data)


async def _result(running: asyncio.Task[EncodedReply]) -> EncodedReply:
    await asyncio.wait([running])
    return None if running.cancelled() else running.result()
