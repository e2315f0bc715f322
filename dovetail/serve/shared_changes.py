"""Changes of a server's lists and resources, which its processes announce to each other."""

import asyncio
from collections.abc import Collection
from typing import Any

from ..jsonrpc.messages import encode
from ..ports import Bus, ChangeListener, Service
from ..protocol.base import Params
from ..revisions import decode

TOPIC = "change"


class SharedChanges:
    """Publishes the changes in this process, and notifies listeners of the changes in others.

    Args:
        service: The server.
        bus: The bus that connects the processes, in the current event loop.
        listeners: The functions to notify.
    """

    def __init__(self, service: Service, bus: Bus, listeners: Collection[ChangeListener]) -> None:
        self._service, self._bus, self._listeners = service, bus, listeners
        self._loop = asyncio.get_running_loop()
        bus.on(TOPIC, self._on_remote_change)
        # Each process watches the files itself.
        self.stop = service.add_listener(self._on_local_change, local=False)
        """Publish no more changes."""

    def _on_local_change(self, method: str, params: Params) -> None:
        """Publish a change in this process to the other processes. Can be called from any
        thread."""
        if self._bus.alone:
            return
        try:
            self._loop.call_soon_threadsafe(self._bus.publish, TOPIC, (method, encode(params)))
        except RuntimeError:
            pass  # the loop is closed

    def _on_remote_change(self, payload: Any) -> None:
        method, raw = payload
        row = self._service.extensions.find_method(method, None)
        if row is None:
            return  # from an extension that this process does not have
        params = decode(raw, row.params)
        for listener in list(self._listeners):
            listener(method, params)
