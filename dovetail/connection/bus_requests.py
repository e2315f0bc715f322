"""Requests to another process of a server, whose replies may take minutes.

A question on the bus must be answered soon: the bus forgets it after a while (`QUESTION_LIFE`), and
may not report that the process which works on it has died. So a request has an id, and is repeated
from time to time:

    the other process still works on it    it recognises the id, and goes on
    it has died                            nobody answers, and the request fails
    the asker does not wait any longer     it says so, and the other process stops
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from secrets import token_urlsafe
from typing import Any

import msgspec

from ..errors import DovetailError, ProtocolError
from ..ports import Bus
from .bus import QUESTION_LIFE

REPEAT_SECONDS = QUESTION_LIFE / 2
"""How long to wait for a reply before a request is repeated."""


class BusRequests:
    """The requests on one topic: those of this process, and those of others.

    Args:
        topic: The topic on the bus.
        answer: Returns the reply to a request of another process; None if this process cannot
            answer it. The requester gets the errors that it raises.
    """

    def __init__(self, topic: str, answer: Callable[[Any], Awaitable[bytes | None]]) -> None:
        self._topic, self._leave, self._answer = topic, f"{topic}/leave", answer
        self._bus: Bus | None = None
        self._running: dict[str, asyncio.Task[tuple[bool, bytes] | None]] = {}
        """The requests of other processes that are answered here, by id."""

    def connect(self, bus: Bus) -> None:
        """Answer the requests of other processes, and send them requests.

        Args:
            bus: The bus between the processes.
        """
        self._bus = bus
        bus.on(self._topic, self._on_request)
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
        bus, id, reply = self._bus, token_urlsafe(8), None
        if bus is None:
            return None
        deadline = time.monotonic() + seconds
        try:
            while reply is None and (began := time.monotonic()) < deadline:
                wait = min(REPEAT_SECONDS, deadline - began)
                reply = await bus.ask(self._topic, (id, payload), wait)
                if time.monotonic() - began < wait:
                    break  # nobody can answer; otherwise, there was no reply yet
        finally:
            if reply is None:
                bus.publish(self._leave, id)
        if reply is None:
            return None
        is_error, data = reply
        if is_error:
            raise ProtocolError(*msgspec.json.decode(data))
        return bytes(data)

    async def _on_request(self, question: tuple[str, Any]) -> tuple[bool, bytes] | None:
        id, payload = question
        running = self._running.get(id)
        if running is None:
            running = self._running[id] = asyncio.create_task(self._reply(payload))
            running.add_done_callback(lambda _: self._running.pop(id, None))
        await asyncio.wait([running])
        return None if running.cancelled() else running.result()

    async def _reply(self, payload: Any) -> tuple[bool, bytes] | None:
        try:
            data = await self._answer(payload)
        except ProtocolError as error:
            return True, msgspec.json.encode((error.code, error.message, error.data))
        except DovetailError as error:
            return True, msgspec.json.encode((ProtocolError.code, str(error), None))
        return None if data is None else (False, data)

    def _on_leave(self, id: str) -> None:
        if (running := self._running.get(id)) is not None:
            running.cancel()
