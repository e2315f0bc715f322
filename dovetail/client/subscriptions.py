"""What a client wants to hear of, in both eras, behind one interface.

Handshake era: `resources/subscribe` once for each URI; list changes come by themselves. Stateless
era: a stream of its own, `subscriptions/listen`, for each handle, whose notifications carry the
stream's id. Either way, what was asked for is asked for again when a new conversation opens. A
stream that ends while the conversation goes on, as it does over HTTP when a server restarts, is
opened again too; what fails time and again, or is refused, is given up.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from types import TracebackType
from typing import Any

from ..connection.client_session import ClientSession
from ..connection.notifications import run_callback
from ..errors import (
    ConfigError,
    ConnectionClosed,
    DovetailError,
    MethodNotFound,
    Overloaded,
    TimedOut,
)
from ..jsonrpc.messages import Id
from ..limits import Limits
from ..protocol.base import SUBSCRIPTION_ID
from ..protocol.methods import METHODS
from ..protocol.resources import UriParams
from ..protocol.utilities import ListenParams, SubscriptionFilter
from .reconnect import ServerLink, backoff

log = logging.getLogger("dovetail.client")

LISTS = {
    "tools": SubscriptionFilter(tools_list_changed=True),
    "resources": SubscriptionFilter(resources_list_changed=True),
    "prompts": SubscriptionFilter(prompts_list_changed=True),
}
KINDS = {f"notifications/{kind}/list_changed": kind for kind in LISTS}
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
STABLE_SECONDS = 5.0
"""Seconds after which a stream that ended counts as having worked."""


class Subscription:
    """One thing to hear of. `await handle` waits until it is in force; `await handle.close()`, or
    `async with`, ends it."""

    def __init__(
        self, owner: "Subscriptions", kind: str, uri: str | None, callback: Callable[[str], Any]
    ) -> None:
        self._owner = owner
        self.kind = kind
        self.uri = uri
        self.callback = callback
        self.stream: Id | None = None
        """The id of its stream, in the stateless era."""
        self.task: asyncio.Task[None] | None = None
        self.ready: asyncio.Future[None] | None = None

    def __await__(self) -> Generator[Any, None, "Subscription"]:
        return self._owner.wait_until_active(self).__await__()

    async def close(self) -> None:
        """Hear no more of it."""
        await self._owner.close(self)

    async def __aenter__(self) -> "Subscription":
        return await self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class Subscriptions:
    """All handles of one client."""

    def __init__(
        self, link: ServerLink, request: Callable[..., Awaitable[Any]], limits: Limits
    ) -> None:
        self._link = link
        self._request = request
        self._limits = limits
        self._subscriptions: list[Subscription] = []

    async def subscribe(self, uri: str, callback: Callable[[str], Any]) -> Subscription:
        """Hear of changes to a resource."""
        session = await self._link.get_session(self._link.timeout)
        handle = Subscription(self, "resource", uri, callback)
        self._subscriptions.append(handle)
        try:
            if _stateless(session):
                await self._link.with_login(partial(self._open_and_wait, handle))
            else:
                await self._request("resources/subscribe", UriParams(uri=uri))
        except BaseException as problem:
            self._subscriptions.remove(handle)
            if handle.task is not None:
                handle.task.cancel()
            if isinstance(problem, TimeoutError) and not isinstance(problem, DovetailError):
                text = f"subscriptions/listen: no acknowledgement within {self._link.timeout:g} s"
                raise TimedOut(text) from None
            raise
        return handle

    def on_change(self, kind: str, callback: Callable[[str], Any]) -> Subscription:
        """Hear of changes to a list, or to the client's state."""
        if kind not in LISTS and kind != "state":
            raise ConfigError(
                f"There are no changes of {kind!r} to hear of; there are {', '.join(LISTS)} "
                "and state"
            )
        handle = Subscription(self, kind, None, callback)
        self._subscriptions.append(handle)
        session = self._link.session
        if session is not None and _stateless(session) and kind in LISTS:
            self._open(handle, session)
        return handle

    async def wait_until_active(self, handle: Subscription) -> Subscription:
        """Wait until a handle is in force; for what only a server can tell there has to be a
        conversation first."""
        if handle.kind != "state":
            await self._link.get_session(self._link.timeout)
        if handle.ready is not None:
            await asyncio.shield(handle.ready)
        return handle

    async def close(self, handle: Subscription) -> None:
        """End one handle; ended twice is ended."""
        if handle not in self._subscriptions:
            return
        self._subscriptions.remove(handle)
        if handle.task is not None:
            handle.task.cancel()
        elif (
            handle.uri is not None
            and not self._is_shared(handle)
            and self._link.session is not None
        ):
            await self._request("resources/unsubscribe", UriParams(uri=handle.uri))

    def cancel_all(self) -> None:
        """The client closes."""
        for handle in self._subscriptions:
            if handle.task is not None:
                handle.task.cancel()

    async def restore(self, session: ClientSession) -> None:
        """A new conversation: ask for everything that was asked for before."""
        if _stateless(session):
            for handle in self._subscriptions:
                if handle.kind != "state":
                    self._open(handle, session)
            return
        for handle in self._subscriptions:
            if handle.task is not None:
                handle.task.cancel()
            handle.task = handle.stream = handle.ready = None  # it was of the other era before
        for uri in dict.fromkeys(
            handle.uri for handle in self._subscriptions if handle.uri is not None
        ):
            try:
                await session.request(
                    METHODS["resources/subscribe"], UriParams(uri=uri), timeout=self._link.timeout
                )
            except DovetailError as error:
                log.warning("Could not subscribe to %s again: %s", uri, error)

    def on_notification(self, method: str, params: Any) -> None:
        """A notification came: tell who asked for it."""
        stream = (params.meta or {}).get(SUBSCRIPTION_ID)
        if method == ACKNOWLEDGED:
            for handle in self._subscriptions:
                if handle.stream == stream and handle.ready is not None and not handle.ready.done():
                    self._acknowledged(handle, handle.ready, params.notifications)
        elif method == UPDATED:
            self._notify(
                params.uri, stream, lambda one: one.uri is not None and _within(params.uri, one.uri)
            )
        elif method in KINDS:
            self._notify(KINDS[method], stream, lambda one: one.kind == KINDS[method])

    def _acknowledged(
        self, handle: Subscription, ready: "asyncio.Future[None]", granted: SubscriptionFilter
    ) -> None:
        """The stream stands; what the server left out of it will never come, so it is not waited
        for."""
        if (
            granted.resource_subscriptions
            if handle.uri
            else getattr(granted, f"{handle.kind}_list_changed")
        ):
            ready.set_result(None)
            return
        log.warning("The server does not tell of changes of %s", handle.uri or handle.kind)
        ready.set_exception(
            MethodNotFound(f"The server does not tell of changes of {handle.uri or handle.kind}")
        )
        ready.exception()  # somebody may wait for it, nobody must
        if handle.task is not None:
            handle.task.cancel()

    def notify_state(self, news: str) -> None:
        """The client's own state changed."""
        self._notify(news, None, lambda one: one.kind == "state")

    def _notify(self, news: str, stream: Id | None, meant: Callable[[Subscription], bool]) -> None:
        for handle in list(self._subscriptions):
            if handle.stream == stream and meant(handle):
                run_callback(handle.callback, news)

    def _is_shared(self, handle: Subscription) -> bool:
        return any(one.uri == handle.uri for one in self._subscriptions if one is not handle)

    async def _open_and_wait(self, handle: Subscription) -> None:
        """Open the stream of a handle, and wait until it stands."""
        self._open(handle, await self._link.get_session(self._link.timeout))
        await asyncio.wait_for(self.wait_until_active(handle), self._link.timeout)

    def _open(self, handle: Subscription, session: ClientSession) -> None:
        if handle.task is not None:
            handle.task.cancel()
        loop = asyncio.get_running_loop()
        handle.ready = loop.create_future()
        handle.task = loop.create_task(self._stream(handle, session))

    async def _stream(self, handle: Subscription, session: ClientSession) -> None:
        """The stream of one handle, again and again while this conversation lasts."""
        ready = handle.ready
        assert ready is not None
        loop, failures = asyncio.get_running_loop(), 0
        ended: DovetailError = ConnectionClosed(
            "The stream of changes ended before it was acknowledged"
        )
        try:
            while failures <= self._limits.restarts:
                began = loop.time()
                if ready.done():
                    ready = handle.ready = (
                        loop.create_future()
                    )  # each stream is acknowledged by itself
                try:
                    await self._listen(handle, session)
                except (ConnectionClosed, Overloaded) as error:
                    ended = error
                failures = 0 if loop.time() - began > STABLE_SECONDS else failures + 1
                await asyncio.sleep(backoff(failures))
                if self._link.session is not session:
                    return
            log.warning("The stream of %s keeps ending: %s", handle.uri or handle.kind, ended)
        except DovetailError as error:
            log.info("There is no stream of %s: %s", handle.uri or handle.kind, error)
            ended = error
        finally:
            if not ready.done():
                ready.set_exception(ended)
                ready.exception()  # somebody may wait for it, nobody must

    async def _listen(self, handle: Subscription, session: ClientSession) -> None:
        """One stream, from request to end."""

        def started(id: Id) -> None:
            handle.stream = id

        wanted = (
            SubscriptionFilter(resource_subscriptions=[handle.uri])
            if handle.uri
            else LISTS[handle.kind]
        )
        params = ListenParams(notifications=wanted)
        await session.request(
            METHODS["subscriptions/listen"], params, timeout=None, started=started
        )


def _stateless(session: ClientSession) -> bool:
    return session.agreed_revision.stateless


def _within(uri: str, subscribed: str) -> bool:
    return uri == subscribed or uri.startswith(subscribed.rstrip("/") + "/")
