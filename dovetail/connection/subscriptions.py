"""Subscriptions on the server's side. In both eras, they determine which clients are notified of a
change.

Handshake era: every session is notified of changes to lists; the sessions that subscribed to a
resource are notified of its updates. Stateless era: notifications are sent only on a stream that
the client opened with `subscriptions/listen`, and only if the client requested their kind. In
either era, an extension's notifications are sent to the clients that declared the extension. The
service counts the subscriptions to each resource, and so knows when to watch it.
https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions
"""

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping

from msgspec import to_builtins
from msgspec.structs import replace

from ..errors import Overloaded
from ..ports import Call, Caller, Service
from ..protocol.base import SUBSCRIPTION_ID, EmptyResult, ListChangedParams, Params
from ..protocol.client_features import ElicitationCompleteParams
from ..protocol.lifecycle import CancelledParams
from ..protocol.methods import METHODS
from ..protocol.resources import ResourcesChangedParams, UriParams
from ..protocol.tasks import RELATED_TASK, TaskChangedParams, TaskStatusParams
from ..protocol.utilities import ListenParams, ListenResult, LogParams, SubscriptionFilter

LISTS = {
    "notifications/tools/list_changed": "tools_list_changed",
    "notifications/prompts/list_changed": "prompts_list_changed",
    "notifications/resources/list_changed": "resources_list_changed",
}
"""The field of a subscription filter that selects each notification."""
UPDATED = "notifications/resources/updated"
RESOURCES = ("notifications/resources/list_changed", UPDATED)


class ServerSubscriptions:
    """The subscriptions of one server's clients in one event loop."""

    def __init__(self, service: Service) -> None:
        self._service, self._limit = service, service.limits.subscriptions
        self._streams: dict[Call, tuple[SubscriptionFilter, asyncio.Future[None]]] = {}
        self._subscribers: set[Caller] = set()
        """The handshake-era callers that are subscribed to any resource."""
        self._closed = False

    async def subscribe(self, call: Call) -> EmptyResult:
        """Answer `resources/subscribe`."""
        subscribed = call.caller.subscribed_uris
        if len(subscribed) >= self._limit and call.params.uri not in subscribed:
            raise Overloaded(
                f"This client is already subscribed to {self._limit} resources, which is the limit"
            )
        self.set_subscribed(call.caller, subscribed | {call.params.uri})
        return EmptyResult()

    async def unsubscribe(self, call: Call) -> EmptyResult:
        """Answer `resources/unsubscribe`, even if the subscription does not exist."""
        self.set_subscribed(call.caller, call.caller.subscribed_uris - {call.params.uri})
        return EmptyResult()

    def set_subscribed(self, caller: Caller, uris: frozenset[str]) -> None:
        """Set the resources that a handshake-era caller is subscribed to. A caller whose session
        has ended, perhaps while it was being answered, has no subscriptions."""
        if caller.session_ended or self._closed:
            uris = frozenset()
        before, caller.subscribed_uris = caller.subscribed_uris, uris
        (self._subscribers.add if uris else self._subscribers.discard)(caller)
        self._service.count_subscriptions(uris - before, before - uris)

    def end_session(self, caller: Caller) -> None:
        """End the subscriptions of a caller whose session has ended."""
        caller.session_ended = True
        if caller.subscribed_uris:
            self.set_subscribed(caller, frozenset())

    async def listen(self, call: Call) -> ListenResult:
        """Answer `subscriptions/listen`: acknowledge the request, then wait until the client
        cancels it, its token expires or the server shuts down."""
        wanted: SubscriptionFilter = call.params.notifications
        if max(len(wanted.resource_subscriptions or ()), len(wanted.task_ids or ())) > self._limit:
            raise Overloaded(f"A subscription may name at most {self._limit} resources or tasks")
        meta, uris = {SUBSCRIPTION_ID: call.id}, frozenset(wanted.resource_subscriptions or ())
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            ended.set_result(None)
        expires = None if call.principal is None else call.principal.expires
        self._service.count_subscriptions(uris, ())
        try:
            call.connection.notify(
                call,
                "notifications/subscriptions/acknowledged",
                ListenParams(notifications=wanted, meta=meta),
            )
            self._streams[call] = wanted, ended
            async with asyncio.timeout(None if expires is None else expires - time.time()):
                await ended
        except TimeoutError:
            pass
        finally:
            self._streams.pop(call, None)
            self._service.count_subscriptions((), uris)
        # The page on cancellation requires the notification, the page on subscriptions the result;
        # clients accept both.
        goodbye = CancelledParams(
            request_id=call.id, reason="The server ended this subscription", meta=meta
        )
        call.connection.notify(call, "notifications/cancelled", goodbye)
        return ListenResult(meta=meta)

    def end_stream(self, call: Call) -> None:
        """End the stream of a call normally, if it has one."""
        if call in self._streams and not (ended := self._streams[call][1]).done():
            ended.set_result(None)

    def close(self) -> None:
        """End every stream normally, and all other subscriptions."""
        self._closed = True
        for call in self._streams:
            self.end_stream(call)
        for caller in list(self._subscribers):
            self.end_session(caller)

    def matching_streams(self, method: str, params: Params) -> Iterator[tuple[Call, Params]]:
        """Yield the call for each stream that receives this notification, with the params tagged
        for that stream."""
        for call, (wanted, _) in list(self._streams.items()):
            if method in LISTS:
                matches = getattr(wanted, LISTS[method])
            elif isinstance(params, TaskChangedParams):
                matches = params.task_id in (wanted.task_ids or ())
            elif method not in METHODS:
                matches = True  # `notify` checks whether the client declared the extension
            else:
                matches = isinstance(params, UriParams) and _covers(
                    wanted.resource_subscriptions or (), params.uri
                )
            if matches:
                yield call, replace(params, meta={**(params.meta or {}), SUBSCRIPTION_ID: call.id})


def is_subscribed(caller: Caller, method: str, params: Params) -> bool:
    """Return whether a handshake-era caller receives this notification."""
    if method not in caller.revision.methods or caller.is_shut_down:
        return False
    if isinstance(params, ElicitationCompleteParams):
        return params.elicitation_id in caller.elicitation_ids
    if (task := related_task_id(params)) is not None:
        return task in caller.task_ids
    return method != UPDATED or (
        isinstance(params, UriParams) and _covers(caller.subscribed_uris, params.uri)
    )


def coalescing_key(params: Params) -> str:
    """Return the key that identifies the subject of a change. If several changes in one iteration
    of the event loop have the same key, only the last is sent (`merge_changes`)."""
    if isinstance(params, ElicitationCompleteParams):
        return params.elicitation_id
    task = related_task_id(params)
    if task is not None and not isinstance(params, LogParams):
        return task
    if isinstance(params, ListChangedParams):
        return ""
    if isinstance(params, UriParams):
        return params.uri
    return str(id(params))  # log messages and notifications of extensions are not coalesced


def related_task_id(params: Params) -> str | None:
    """Return the id of the task that a notification is about or belongs to."""
    if isinstance(params, TaskStatusParams | TaskChangedParams):
        return params.task_id
    related = None if params.meta is None else params.meta.get(RELATED_TASK)
    return related["taskId"] if isinstance(related, dict) else None


def merge_changes(before: Params | None, now: Params) -> Params:
    """Combine two changes to the same list."""
    if not isinstance(before, ListChangedParams) or not isinstance(now, ListChangedParams):
        return now
    added = [*(before.added or []), *(now.added or [])]
    removed = [*(before.removed or []), *(now.removed or [])]
    return ListChangedParams(added=added, removed=removed)


def changed_resources(
    changes: Mapping[tuple[str, str], Params], *, together: bool
) -> list[ResourcesChangedParams]:
    """Return the params of `resources/changed` for these changes: the URIs of all resources that
    were updated, added or removed. All URIs are in one message if `together` is true; otherwise,
    each URI is in its own message."""
    found = [params for (method, _), params in changes.items() if method in RESOURCES]
    uris = list(dict.fromkeys(uri for params in found for uri in _changed_uris(params)))
    groups = [[uri] for uri in uris] if uris and not together else [uris] if found else []
    return [ResourcesChangedParams(updated=group) for group in groups]


def _changed_uris(params: Params) -> list[str]:
    if isinstance(params, UriParams):
        return [params.uri]
    if not isinstance(params, ListChangedParams):
        return []
    # Resources that were added in another process are dicts.
    added = [to_builtins(item) for item in params.added or []]
    return [
        *(item.get("uri") or item["uriTemplate"] for item in added),
        *(params.removed or []),
    ]


def _covers(uris: Collection[str], uri: str) -> bool:
    """Return whether one of the URIs is this URI or an ancestor of it."""
    return uri in uris or any(uri.startswith(parent.rstrip("/") + "/") for parent in uris)
