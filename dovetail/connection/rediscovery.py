"""What a server of the stateless era offers by now.

A server may add its first tool, resource or prompt at any time. So before a client concludes that
the server does not offer a method, it asks with `server/discover`. It need not ask if a stream for
changes to that list (`subscriptions/listen`) has been open since it asked last, because the server
would have reported the change. Requests that ask at the same time share the answer.
"""

import asyncio
from typing import TYPE_CHECKING

from ..errors import TimedOut
from ..jsonrpc.messages import Id
from ..protocol.base import SUBSCRIPTION_ID
from ..protocol.methods import METHODS, Method
from ..protocol.utilities import ListenParams

if TYPE_CHECKING:
    from .client_session import ClientSession

LISTS = ("tools", "resources", "prompts")
Streams = dict[Id, frozenset[str]]
"""The lists whose changes are reported on each stream."""


class Rediscovery:
    """The repeated discovery of one server."""

    def __init__(self, session: "ClientSession") -> None:
        self._session = session
        self._confirmed: Streams = {}
        """The streams that the server has confirmed."""
        self._checked: Streams = {}
        """Those of them that were confirmed before the latest discovery."""
        self._running: asyncio.Task[None] | None = None

    def on_confirmed(self, params: ListenParams) -> None:
        """Remember a stream that the server has confirmed, and forget those that have ended."""
        self._confirmed = {id: kinds for id, kinds in self._confirmed.items() if self._is_open(id)}
        granted, id = params.notifications, (params.meta or {}).get(SUBSCRIPTION_ID)
        if id is not None:
            kinds = (kind for kind in LISTS if getattr(granted, f"{kind}_list_changed"))
            self._confirmed[id] = frozenset(kinds)

    async def run(self, method: Method, timeout: float | None) -> None:
        """Ask the server what it offers by now, if it may have changed since it was asked last."""
        kind = method.capability.partition(".")[0]
        if any(kind in kinds and self._is_open(id) for id, kinds in self._checked.items()):
            return
        if self._running is None:
            self._running = self._session.loop.create_task(self._discover(timeout))
            self._running.add_done_callback(self._on_done)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._running)
        except TimedOut:
            raise
        except TimeoutError:
            raise TimedOut(f"{method.name}: no answer within {timeout:g} s") from None

    async def _discover(self, timeout: float | None) -> None:
        confirmed, session = dict(self._confirmed), self._session
        found = await session.request(METHODS["server/discover"], None, timeout=timeout)
        session.server_capabilities, self._checked = found.capabilities, confirmed

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._running = None
        if not task.cancelled():
            task.exception()  # mark it as retrieved, in case nothing awaits it

    def _is_open(self, id: Id) -> bool:
        return self._session.connection.is_waiting(id)
