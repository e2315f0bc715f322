"""The resources whose changes are reported. A restart of the server does not end a subscription."""

from .. import Client
from ..client.subscriptions import Subscription
from ..errors import ConnectionClosed, DovetailError
from ..logs import get_logger
from .events import EventBuffer

log = get_logger("inspector")


class ResourceSubscriptions:
    """The subscriptions, by URI.

    Args:
        events: Where changes are reported, as `updated` events.
    """

    def __init__(self, events: EventBuffer) -> None:
        self._events = events
        self._active: dict[str, Subscription] = {}
        self._ended: list[str] = []
        """The URIs of connections before, which are to be subscribed to again."""

    @property
    def uris(self) -> list[str]:
        """What is subscribed to."""
        return [*self._active]

    async def add(self, client: Client, uri: str) -> None:
        """Subscribe to a resource, unless that is done already.

        Args:
            client: The client of the open connection.
            uri: The URI of the resource.
        """
        if uri in self._active:
            return
        subscription = await client.subscribe(uri, self._on_update)
        if uri in self._active:  # two pages asked at the same time
            await subscription.close()
            return
        self._active[uri] = subscription
        self._report()

    async def remove(self, uri: str) -> bool:
        """Unsubscribe from a resource, and return whether it was subscribed to.

        Args:
            uri: The URI of the resource.
        """
        subscription = self._active.pop(uri, None)
        if subscription is None:
            return False
        self._report()
        await subscription.close()
        return True

    def on_close(self) -> None:
        """Remember the subscriptions of a connection that is replaced."""
        if self._active:
            self._ended, self._active = [*self._ended, *self.uris], {}
            self._report()

    async def restore(self, client: Client) -> None:
        """Subscribe again on a new connection. A resource that is gone is left out.

        Args:
            client: The client of the new connection.
        """
        for uri in [*self._ended]:
            try:
                await self.add(client, uri)
            except ConnectionClosed:  # the next connection restores the others
                return
            except DovetailError as problem:
                log.debug("Could not subscribe to %s again: %s", uri, problem)
            self._ended.remove(uri)

    def _on_update(self, uri: str) -> None:
        self._events.add("updated", uri=uri)

    def _report(self) -> None:
        self._events.add("changed", what="subscriptions", value=self.uris)
