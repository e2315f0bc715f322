"""One interface for the subscriptions of a client in both eras.

- In the handshake era, `resources/subscribe` is sent once for each URI. List changes, and updates
  in the draft dialect, arrive without a request.
- In the stateless era, each subscription has one stream (`subscriptions/listen`), and its
  notifications carry the stream's id.

When a new connection opens, everything is subscribed again. A stream is also opened again if it
ends while the connection stays open, as happens over HTTP when a server restarts. A stream that
fails repeatedly or is refused is abandoned.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from time import monotonic
from typing import Any

from msgspec import Struct

from ..connection.client_session import ClientSession
from ..connection.notifications import run_callback
from ..errors import (
    ConfigError,
    ConnectionClosed,
    DovetailError,
    MethodNotFound,
    NotFound,
    Overloaded,
)
from ..jsonrpc.messages import Id
from ..logs import get_logger
from ..protocol.base import SUBSCRIPTION_ID
from ..protocol.methods import METHODS
from ..protocol.resources import UriParams
from ..protocol.utilities import ListenParams, SubscriptionFilter
from .reconnect import Connector, backoff, time_limit

log = get_logger("client")

LISTS = {
    "tools": SubscriptionFilter(tools_list_changed=True),
    "resources": SubscriptionFilter(resources_list_changed=True),
    "prompts": SubscriptionFilter(prompts_list_changed=True),
}
KINDS = {f"notifications/{kind}/list_changed": kind for kind in LISTS}
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
STABLE_SECONDS = 5.0
"""A stream that lasts this long resets the count of failures."""


class Subscription(Struct, eq=False):
    """A subscription. Await the subscription to wait until it is active. End the subscription with
    `await close()`, or use it with `async with`."""

    _owner: "Subscriptions"
    kind: str
    uri: str | None
    callback: Callable[[str], Any]
    stream: Id | None = None
    """The id of the stream, in the stateless era."""
    task: "asyncio.Task[None] | None" = None
    ready: "asyncio.Future[None] | None" = None
    on_active: Callable[[], Any] | None = None
    """Called each time the server has confirmed a stream: changes before that were not reported."""

    @property
    def subject(self) -> str:
        """What the subscription is for, as shown in log messages: a URI or the kind of list."""
        return self.uri or self.kind

    def __await__(self) -> Generator[Any, None, "Subscription"]:
        return self._owner.wait_until_active(self).__await__()

    async def close(self) -> None:
        """Unsubscribe."""
        await self._owner.close(self)

    async def __aenter__(self) -> "Subscription":
        return await self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Subscriptions:
    """All subscriptions of one client."""

    def __init__(self, connector: Connector, request: Callable[..., Awaitable[Any]]) -> None:
        self._connector = connector
        self._request = request
        self._subscriptions: list[Subscription] = []

    async def subscribe(self, uri: str, callback: Callable[[str], Any]) -> Subscription:
        """Subscribe to changes to a resource."""
        session = await self._connector.get_session()
        handle = Subscription(self, "resource", uri, callback)
        self._subscriptions.append(handle)
        try:
            if session.agreed_revision.stateless:
                await self._connector.with_login(partial(self._open_and_wait, handle))
            elif _has_requests(session):
                await self._request("resources/subscribe", UriParams(uri=uri))
            else:
                _check_notifications(session, uri)
        except BaseException:
            self._subscriptions.remove(handle)
            if handle.task is not None:
                handle.task.cancel()
            raise
        return handle

    def on_change(self, kind: str, callback: Callable[[str], Any]) -> Subscription:
        """Subscribe to changes to a list, or to the client's state."""
        if kind not in LISTS and kind != "state":
            raise ConfigError(f"on_change() accepts {', '.join(LISTS)} or state, not {kind!r}")
        handle = Subscription(self, kind, None, callback)
        self._subscriptions.append(handle)
        session = self._connector.session
        if session is not None and session.agreed_revision.stateless and kind in LISTS:
            self._open(handle, session)
        return handle

    async def wait_until_active(self, handle: Subscription) -> Subscription:
        """Wait until a subscription is active. Connect first, unless the subscription watches the
        client's own state."""
        if handle.kind != "state":
            await self._connector.get_session()
        if handle.ready is not None:
            await asyncio.shield(handle.ready)
        return handle

    async def close(self, handle: Subscription) -> None:
        """End one subscription. You may call this method repeatedly."""
        if handle not in self._subscriptions:
            return
        self._subscriptions.remove(handle)
        if handle.task is not None:
            handle.task.cancel()
        elif handle.uri is not None and self._connector.session is not None:
            if any(other.uri == handle.uri for other in self._subscriptions):
                return
            if _has_requests(self._connector.session):
                await self._request("resources/unsubscribe", UriParams(uri=handle.uri))

    def cancel_all(self) -> None:
        """Cancel all streams because the client is closing."""
        for handle in self._subscriptions:
            if handle.task is not None:
                handle.task.cancel()

    async def restore(self, session: ClientSession) -> None:
        """Subscribe to everything again on a new connection."""
        if session.agreed_revision.stateless:
            for handle in self._subscriptions:
                if handle.kind != "state":
                    self._open(handle, session)
            return
        for handle in self._subscriptions:
            if handle.task is not None:
                handle.task.cancel()
            handle.task = handle.stream = handle.ready = None  # these belonged to the other era
        if not _has_requests(session):
            return
        for uri in dict.fromkeys(handle.uri for handle in self._subscriptions if handle.uri):
            try:
                await session.request(
                    METHODS["resources/subscribe"],
                    UriParams(uri=uri),
                    timeout=self._connector.timeout,
                )
            except DovetailError as error:
                log.warning("Could not subscribe to %s again: %s", uri, error)

    def on_notification(self, method: str, params: Any) -> None:
        """Call the callbacks for a notification."""
        stream = (params.meta or {}).get(SUBSCRIPTION_ID)
        if method == ACKNOWLEDGED:
            for handle in self._subscriptions:
                if handle.stream == stream and handle.ready is not None and not handle.ready.done():
                    self._acknowledged(handle, handle.ready, params.notifications)
        elif method == UPDATED:
            for handle in list(self._subscriptions):
                if handle.stream == stream and handle.uri and is_within(params.uri, handle.uri):
                    run_callback(handle.callback, params.uri)
        elif method in KINDS:
            self._notify(KINDS[method], KINDS[method], stream)

    def _acknowledged(
        self, handle: Subscription, ready: "asyncio.Future[None]", granted: SubscriptionFilter
    ) -> None:
        """Mark a stream as active; fail if the server did not grant the request."""
        field = "resource_subscriptions" if handle.uri else f"{handle.kind}_list_changed"
        if getattr(granted, field):
            ready.set_result(None)
            if handle.on_active is not None:
                handle.on_active()
            return
        problem = f"The server does not report changes to {handle.subject}"
        log.warning("%s", problem)
        error = (
            NotFound(problem, data={"uri": handle.uri}) if handle.uri else MethodNotFound(problem)
        )
        ready.set_exception(error)
        ready.exception()  # mark it as retrieved, in case nothing awaits it
        if handle.task is not None:
            handle.task.cancel()

    def notify_state(self, state: str) -> None:
        """Call the callbacks for the client's own state."""
        self._notify("state", state)

    def _notify(self, kind: str, change: str, stream: Id | None = None) -> None:
        for handle in list(self._subscriptions):
            if handle.kind == kind and handle.stream == stream:
                run_callback(handle.callback, change)

    async def _open_and_wait(self, handle: Subscription) -> None:
        """Open the stream of a subscription, and wait until it is active."""
        self._open(handle, await self._connector.get_session())
        async with time_limit(self._connector.timeout, "subscriptions/listen: no acknowledgement"):
            await self.wait_until_active(handle)

    def _open(self, handle: Subscription, session: ClientSession) -> None:
        if handle.task is not None:
            handle.task.cancel()
        handle.ready = asyncio.Future()
        handle.task = asyncio.create_task(self._stream(handle, session))

    async def _stream(self, handle: Subscription, session: ClientSession) -> None:
        """Keep the stream of one subscription open for as long as this connection lasts."""
        ready = handle.ready
        assert ready is not None
        failures = 0
        ended: DovetailError = ConnectionClosed(
            "The stream ended before the server confirmed the subscription"
        )
        try:
            while failures <= self._connector.limits.restarts:
                began = monotonic()
                if ready.done():  # each stream is confirmed separately
                    ready = handle.ready = asyncio.Future()
                try:
                    await self._listen(handle, session)
                except (ConnectionClosed, Overloaded) as error:
                    ended = error
                failures = 0 if monotonic() - began > STABLE_SECONDS else failures + 1
                await asyncio.sleep(backoff(failures))
                if self._connector.session is not session:
                    return
            log.warning(
                "Gave up subscribing to %s, because its stream keeps ending: %s",
                handle.subject,
                ended,
            )
        except DovetailError as error:
            log.info("Could not subscribe to %s: %s", handle.subject, error)
            ended = error
        finally:
            if not ready.done():
                ready.set_exception(ended)
                ready.exception()  # mark it as retrieved, in case nothing awaits it

    async def _listen(self, handle: Subscription, session: ClientSession) -> None:
        """Run one stream, from the request to its end."""
        wanted = LISTS.get(handle.kind)
        if wanted is None:
            wanted = SubscriptionFilter(resource_subscriptions=[handle.subject])
        await session.request(
            METHODS["subscriptions/listen"],
            ListenParams(notifications=wanted),
            timeout=None,
            started=partial(setattr, handle, "stream"),
        )


def _has_requests(session: ClientSession) -> bool:
    """Return whether a client must request updates. In the draft dialect, every client receives
    updates."""
    return "resources/subscribe" in session.agreed_revision.methods


def _check_notifications(session: ClientSession, uri: str) -> None:
    resources = session.server_capabilities.resources
    if resources is None or not resources.list_changed:
        raise MethodNotFound(f"The server does not report changes to {uri}")


def is_within(uri: str, outer: str) -> bool:
    """Return whether a URI is equal to `outer` or below it."""
    return uri == outer or uri.startswith(outer.rstrip("/") + "/")
