"""One interface for the subscriptions of a client in both eras.

- In the handshake era, `resources/subscribe` is sent once for each URI. List changes, and updates
  in the draft dialect, arrive without a request.
- In the stateless era, notifications arrive on a stream (`subscriptions/listen`), and carry its id.
  Subscriptions to lists that are made together share a stream. A subscription to a resource has a
  stream of its own, so that the server stops watching the resource when the subscription ends.

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

LISTS = ("tools", "resources", "prompts")
KINDS = {f"notifications/{kind}/list_changed": kind for kind in LISTS}
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
NOT_CONFIRMED = "The stream ended before the server confirmed the subscription"
STABLE_SECONDS = 5.0
"""A stream that lasts this long resets the count of failures."""


class Subscription(Struct, eq=False):
    """A subscription. Await the subscription to wait until it is active. End the subscription with
    `await close()`, or use it with `async with`."""

    _owner: "Subscriptions"
    kind: str
    uri: str | None
    callback: Callable[[str], Any]
    stream: "ListenStream | None" = None
    """The stream, in the stateless era."""
    ready: "asyncio.Future[None] | None" = None
    on_active: Callable[[], Any] | None = None
    """Called each time the server has confirmed a stream: changes before that were not reported."""

    @property
    def subject(self) -> str:
        """What the subscription is for, as shown in log messages: a URI or the kind of list."""
        return self.uri or self.kind

    def is_on(self, stream_id: Id | None) -> bool:
        """Return whether a notification with this stream id is for the subscription."""
        return (None if self.stream is None else self.stream.id) == stream_id

    def fail(self, error: DovetailError) -> None:
        """End the wait for an active subscription, if there is one."""
        if self.ready is not None and not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # mark it as retrieved, in case nothing awaits it

    def __await__(self) -> Generator[Any, None, "Subscription"]:
        return self._owner.wait_until_active(self).__await__()

    async def close(self) -> None:
        """Unsubscribe."""
        await self._owner.close(self)

    async def __aenter__(self) -> "Subscription":
        return await self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class ListenStream(Struct, eq=False):
    """A stream of notifications, and the subscriptions that share it."""

    handles: list[Subscription]
    id: Id | None = None
    """The id of its latest request; None before the first one is sent."""
    task: "asyncio.Task[None] | None" = None
    is_confirmed: bool = False
    """Whether the server has confirmed the latest request, and the stream is open."""

    @property
    def filter(self) -> SubscriptionFilter:
        """What the subscriptions are for, together."""
        uris = [handle.uri for handle in self.handles if handle.uri is not None]
        kinds = {handle.kind for handle in self.handles}
        return SubscriptionFilter(
            tools_list_changed="tools" in kinds or None,
            resources_list_changed="resources" in kinds or None,
            prompts_list_changed="prompts" in kinds or None,
            resource_subscriptions=uris or None,
        )

    @property
    def subject(self) -> str:
        """What the stream is for, as shown in log messages."""
        return ", ".join(dict.fromkeys(handle.subject for handle in self.handles))


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
            _leave(handle)
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
        if handle.stream is not None:
            _leave(handle)
            handle.fail(ConnectionClosed("The subscription was closed"))
        elif handle.uri is not None and self._connector.session is not None:
            if any(other.uri == handle.uri for other in self._subscriptions):
                return
            if _has_requests(self._connector.session):
                await self._request("resources/unsubscribe", UriParams(uri=handle.uri))

    def cancel_all(self) -> None:
        """Cancel all streams because the client is closing."""
        for handle in self._subscriptions:
            if handle.stream is not None and handle.stream.task is not None:
                handle.stream.task.cancel()

    async def restore(self, session: ClientSession) -> None:
        """Subscribe to everything again on a new connection."""
        for handle in self._subscriptions:
            _leave(handle)
        if session.agreed_revision.stateless:
            for handle in self._subscriptions:
                if handle.kind != "state":
                    self._open(handle, session)
            return
        for handle in self._subscriptions:
            handle.fail(ConnectionClosed(NOT_CONFIRMED))
            handle.ready = None  # it belonged to the other era
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
        stream_id = (params.meta or {}).get(SUBSCRIPTION_ID)
        if method == ACKNOWLEDGED:
            for handle in self._subscriptions:
                if handle.is_on(stream_id) and handle.ready is not None and not handle.ready.done():
                    self._acknowledged(handle, handle.ready, params.notifications)
        elif method == UPDATED:
            for handle in list(self._subscriptions):
                if handle.is_on(stream_id) and handle.uri and is_within(params.uri, handle.uri):
                    run_callback(handle.callback, params.uri)
        elif method in KINDS:
            self._notify(KINDS[method], KINDS[method], stream_id)

    def _acknowledged(
        self, handle: Subscription, ready: "asyncio.Future[None]", granted: SubscriptionFilter
    ) -> None:
        """Mark a subscription as active; fail if the server did not grant it."""
        field = "resource_subscriptions" if handle.uri else f"{handle.kind}_list_changed"
        if getattr(granted, field):
            if handle.stream is not None:
                handle.stream.is_confirmed = True
            ready.set_result(None)
            if handle.on_active is not None:
                handle.on_active()
            return
        problem = f"The server does not report changes to {handle.subject}"
        log.warning("%s", problem)
        error = (
            NotFound(problem, data={"uri": handle.uri}) if handle.uri else MethodNotFound(problem)
        )
        handle.fail(error)
        _leave(handle)

    def notify_state(self, state: str) -> None:
        """Call the callbacks for the client's own state."""
        self._notify("state", state)

    def _notify(self, kind: str, change: str, stream_id: Id | None = None) -> None:
        for handle in list(self._subscriptions):
            if handle.kind == kind and handle.is_on(stream_id):
                run_callback(handle.callback, change)

    async def _open_and_wait(self, handle: Subscription) -> None:
        """Open the stream of a subscription, and wait until it is active."""
        _leave(handle)
        self._open(handle, await self._connector.get_session())
        async with time_limit(self._connector.timeout, "subscriptions/listen: no acknowledgement"):
            await self.wait_until_active(handle)

    def _open(self, handle: Subscription, session: ClientSession) -> None:
        """Open a stream for a subscription, or let it share one."""
        if handle.ready is None or handle.ready.done():
            handle.ready = asyncio.Future()
        stream = None if handle.uri else self._find_shareable(handle)
        if stream is None:
            stream = ListenStream([])
            stream.task = asyncio.create_task(self._keep_open(stream, session))
        elif stream.is_confirmed:
            handle.ready.set_result(None)
        handle.stream = stream
        stream.handles.append(handle)

    def _find_shareable(self, handle: Subscription) -> ListenStream | None:
        """Return a stream that can also serve this subscription: one that is not open yet, or one
        for the same list."""
        for other in self._subscriptions:
            stream = None if other.uri else other.stream
            if stream is None or stream.task is None or stream.task.done():
                continue
            if stream.id is None or other.kind == handle.kind:
                return stream
        return None

    async def _keep_open(self, stream: ListenStream, session: ClientSession) -> None:
        """Keep a stream open for as long as this connection lasts."""
        failures = 0
        ended: DovetailError = ConnectionClosed(NOT_CONFIRMED)
        try:
            await asyncio.sleep(0)  # subscriptions that are made together share the stream
            while failures <= self._connector.limits.restarts:
                began = monotonic()
                for handle in stream.handles:
                    if handle.ready is None or handle.ready.done():
                        handle.ready = asyncio.Future()  # each request is confirmed separately
                try:
                    await session.request(
                        METHODS["subscriptions/listen"],
                        ListenParams(notifications=stream.filter),
                        timeout=None,
                        started=partial(setattr, stream, "id"),
                    )
                except (ConnectionClosed, Overloaded) as error:
                    ended = error
                stream.is_confirmed = False
                failures = 0 if monotonic() - began > STABLE_SECONDS else failures + 1
                await asyncio.sleep(backoff(failures))
                if self._connector.session is not session:
                    return
            log.warning(
                "Gave up subscribing to %s, because its stream keeps ending: %s",
                stream.subject,
                ended,
            )
        except DovetailError as error:
            log.info("Could not subscribe to %s: %s", stream.subject, error)
            ended = error
        finally:
            for handle in stream.handles:
                handle.fail(ended)


def _leave(handle: Subscription) -> None:
    """Take a subscription off its stream, and end the stream if nothing else uses it."""
    stream, handle.stream = handle.stream, None
    if stream is not None:
        stream.handles.remove(handle)
        if not stream.handles and stream.task is not None:
            stream.task.cancel()


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
