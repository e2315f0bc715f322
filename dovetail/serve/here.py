"""The application of a server in one event loop: all that is bound to it, from the desk that
answers to the conversations that are held."""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ..connection.bus import Alone
from ..connection.desk import ServerDesk
from ..connection.outgoing import Outgoing
from ..jsonrpc.codec import encode
from ..ports import PARTED, Bus, Channel, Service, Visitor
from ..protocol.base import Params
from ..revisions import decode
from ..sealing import KeyRing
from ..transports.http.policy import Policy
from ..transports.http.server import Endpoint
from ..transports.http.sessions import Sessions
from ..transports.http.standing import Standing
from ..transports.http.streams import Events
from .conversation import Note, serve
from .gate import Gate
from .metrics import Exposition, Metrics
from .options import Options

if TYPE_CHECKING:
    from ..transports.http.sse import Pairs

log = logging.getLogger("dovetail.http")


class Here:
    """The application in one event loop."""

    def __init__(
        self,
        service: Service,
        options: Options,
        rules: Policy,
        ring: KeyRing,
        events: Events,
        bus: Bus,
        state: Any,
        gate: Gate | None,
        metrics: Metrics | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._service, self._bus, self._state, self._gate = service, bus, state, gate
        limits = service.limits
        self._ring = lambda: ring
        self.desk = ServerDesk(
            service, state, Outgoing(limits.outgoing, service.redact), self._tell, self._ring
        )
        self.standing = Standing(self.desk, limits, events, bus, options.long_polling)
        self.sessions: Sessions | None = None
        if rules.sessions:
            if ring.origin == "process" and bus.alone and _several_processes():
                log.warning(
                    "Several workers do not share a key for session ids: set DOVETAIL_KEYS, "
                    "the same for all of them"
                )
            self.sessions = Sessions(self.desk, ring, limits, bus, self.standing.ended)
        self.endpoint = Endpoint(
            self.desk,
            rules,
            limits,
            sessions=self.sessions,
            standing=self.standing,
            events=events,
            bus=bus,
            json_only=options.json_only,
            gate=gate,
        )
        self._conversations: set[asyncio.Task[None]] = set()
        self._notes: set[Note] = set()
        self._pairs: Pairs | None = None
        bus.on("change", self._changed_elsewhere)
        bus.on(PARTED, self._parted)
        self.exposition = None if metrics is None else Exposition(metrics, self._standing_now, bus)
        self._unlisten: Callable[[], None] = lambda: None
        if not isinstance(bus, Alone):
            self._unlisten = service.listen(
                self._changed, watched=False
            )  # each process looks at the files by itself

    # conversations over a channel

    async def converse(self, channel: Channel, visitor: Visitor) -> None:
        """Hold a conversation of WebSocket or of the old pair, as part of this application's life,
        until the client leaves or may not stay."""
        conversation = serve(
            self._service,
            channel,
            lambda: nullcontext(self._state),
            grace=0,
            notes=self._notes,
            ring=self._ring,
            visitor=visitor,
        )
        task = asyncio.create_task(conversation)
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)
        staying = [] if self._gate is None else [asyncio.create_task(self._gate.outstayed(visitor))]
        try:
            await asyncio.wait([task, *staying], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (task, *staying):
                one.cancel()  # where it was us who were cancelled, or it is not to go on
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    @property
    def full(self) -> bool:
        """Whether there are as many conversations as there may be."""
        return len(self._conversations) >= self._service.limits.streams

    @property
    def pairs(self) -> "Pairs":
        """The conversations of the old SSE pair."""
        if self._pairs is None:
            from ..transports.http.sse import Pairs

            limits = self._service.limits
            self._pairs = Pairs(
                limits, self.converse, self._bus, limit=limits.streams, keepalive=limits.keepalive
            )
        return self._pairs

    def _standing_now(self) -> dict[str, float]:
        return {
            "mcp_server_sessions": 0 if self.sessions is None else len(self.sessions),
            "mcp_server_streams": self.standing.open,
            "mcp_server_conversations": len(self._conversations),
        }

    # changes, from here and elsewhere

    def _tell(self, method: str, params: Params) -> None:
        self.standing.tell(method, params)

    def _changed(self, method: str, params: Params) -> None:
        """A change in this process, from any thread: the others have clients that want to hear of
        it too."""
        try:
            self.loop.call_soon_threadsafe(self._bus.publish, "change", (method, encode(params)))
        except RuntimeError:
            pass  # the loop is closed

    def _changed_elsewhere(self, payload: Any) -> None:
        method, raw = payload
        row = self.desk.method(method, None)
        if row is None:
            return  # of an extension that this process was not given
        params = decode(raw, row.params)
        for note in (self.desk.note, *self._notes):
            note(method, params)

    def _parted(self, _: Any) -> None:
        self.standing.parted()
        if self.sessions is not None:
            self.sessions.parted()

    async def close(self, grace: float) -> None:
        """End every stream and conversation, then the calls, all within the grace."""
        self._unlisten()
        self.desk.close()
        for task in list(self._conversations):
            task.cancel()
        await self.endpoint.close(grace)
        await self._bus.close()


def _several_processes() -> bool:
    """Whether this is likely one of several workers that do not descend from one program of
    ours."""
    from multiprocessing import parent_process

    if parent_process() is not None:
        return False  # a child of multiprocessing has its parent's key
    return (
        "gunicorn" in os.environ.get("SERVER_SOFTWARE", "")
        or int(os.environ.get("WEB_CONCURRENCY", "1") or 1) > 1
    )
