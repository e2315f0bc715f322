"""What the replicas of a gateway share if they have a backend: consent, and the lists of servers.

The tokens of users are shared by `connect/`, and calls that wait for an answer by the connection
layer, whose bus finds the process that holds them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..ports import Bus
from .consent.shared_store import ConsentRow, SharedConsentStore

if TYPE_CHECKING:
    from ..backend import Backend
    from .gateway import Gateway

CONSENT: Final = "gateway/consent"
"""The topic on which a change of consent is announced."""
DEFAULT_NAME: Final = "gateway"
"""The name of a gateway that was not given another one."""


class Replicas:
    """The replicas of a gateway, as one of them sees them.

    Args:
        gateway: The gateway.
        share_consent: Whether the gateway has no consent store of its own.
    """

    def __init__(self, gateway: "Gateway", *, share_consent: bool) -> None:
        self._gateway, self._share_consent = gateway, share_consent
        self._bus: Bus | None = None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Use the backend, if there is one, before the servers are started."""
        backend, known = self._gateway.backend, self._gateway.known
        if not backend:
            yield
            return
        if self._share_consent:
            self._share_consent = False
            store = open_shared_store(backend, self._gateway.name)
            store.announce = self._announce_consent
            self._gateway.access.consent.use_shared(store)
        upstreams = self._gateway.upstreams
        await known.read_shared(
            backend.rows("catalogs"), (one.entry for one in upstreams.servers.values())
        )
        upstreams.load_known()
        try:
            yield
        finally:
            self._bus = None
            await known.finish()

    def connect(self, bus: Bus) -> None:
        """Use the bus between the replicas.

        Args:
            bus: The bus.
        """
        self._bus = bus
        bus.on(CONSENT, self._on_consent)

    def _announce_consent(self, row: ConsentRow) -> None:
        if self._bus is not None:
            announce_consent(self._bus, row)
        self._gateway.access.on_stored(row, self._gateway.upstreams.all())

    async def _on_consent(self, payload: Any) -> None:
        row = msgspec.convert(payload, ConsentRow)
        await self._gateway.access.on_announced(row, self._gateway.upstreams.all)


def announce_consent(bus: Bus, row: ConsentRow) -> None:
    """Tell other replicas that a row has changed.

    Args:
        bus: The bus between the replicas.
        row: The row.
    """
    bus.publish(CONSENT, msgspec.to_builtins(row))


def open_shared_store(backend: "Backend", name: str) -> SharedConsentStore:
    """Return the consent that the replicas of a gateway share.

    Args:
        backend: The backend.
        name: The name of the gateway.
    """
    options = ["--backend", str(backend.client.address)]
    if name != DEFAULT_NAME:
        options += ["--name", name]
    return SharedConsentStore(backend.rows, tuple(options))
