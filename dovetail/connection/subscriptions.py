"""How a client hears of changes, in both eras, on the server's end.

Handshake era: list changes go to every caller, updates of a resource to those that subscribed to
it. Stateless era: nothing goes out but on a stream that the client opened with
`subscriptions/listen`, filtered by what it asked for. What an extension tells goes, in either era,
to those who declared it.
https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions
"""

import asyncio
import time
from collections.abc import Collection, Iterator

from msgspec.structs import replace

from ..errors import Overloaded
from ..ports import Call, Caller
from ..protocol.base import SUBSCRIPTION_ID, EmptyResult, ListChangedParams, Params
from ..protocol.client_features import ElicitationCompleteParams
from ..protocol.lifecycle import CancelledParams
from ..protocol.methods import METHODS
from ..protocol.resources import UriParams
from ..protocol.tasks import RELATED_TASK, TaskChangedParams, TaskStatusParams
from ..protocol.utilities import ListenParams, ListenResult, LogParams, SubscriptionFilter

LISTS = {
    "notifications/tools/list_changed": "tools_list_changed",
    "notifications/prompts/list_changed": "prompts_list_changed",
    "notifications/resources/list_changed": "resources_list_changed",
}
"""The field of a filter that asks for each list's changes."""
UPDATED = "notifications/resources/updated"


class ServerSubscriptions:
    """What the callers of one server want to hear of."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._streams: dict[Call, tuple[SubscriptionFilter, asyncio.Future[None]]] = {}

    async def subscribe(self, call: Call) -> EmptyResult:
        """`resources/subscribe`."""
        subscribed = call.caller.subscribed_uris
        if len(subscribed) >= self._limit and call.params.uri not in subscribed:
            raise Overloaded(
                f"This client is subscribed to {self._limit} resources, which is the limit"
            )
        call.caller.subscribed_uris = subscribed | {call.params.uri}
        return EmptyResult()

    async def unsubscribe(self, call: Call) -> EmptyResult:
        """`resources/unsubscribe`; done already is done too."""
        call.caller.subscribed_uris = call.caller.subscribed_uris - {call.params.uri}
        return EmptyResult()

    async def listen(self, call: Call) -> ListenResult:
        """`subscriptions/listen`: acknowledge, then stay until the client cancels, its token
        expires or the server ends."""
        wanted: SubscriptionFilter = call.params.notifications
        if max(len(wanted.resource_subscriptions or ()), len(wanted.task_ids or ())) > self._limit:
            raise Overloaded(f"A subscription may name {self._limit} resources or tasks at most")
        meta = {SUBSCRIPTION_ID: call.id}
        call.connection.notify(
            call,
            "notifications/subscriptions/acknowledged",
            ListenParams(notifications=wanted, meta=meta),
        )
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._streams[call] = wanted, ended
        expires = call.principal.expires if call.principal is not None else None
        late = (
            None
            if expires is None
            else ended.get_loop().call_later(max(0.0, expires - time.time()), _end, ended)
        )
        try:
            await ended
        finally:
            del self._streams[call]
            if late is not None:
                late.cancel()
        # The page on cancellation wants the one, the page on subscriptions the other; clients take
        # either.
        goodbye = CancelledParams(
            request_id=call.id, reason="The server ends this subscription", meta=meta
        )
        call.connection.notify(call, "notifications/cancelled", goodbye)
        return ListenResult(meta=meta)

    def end_streams(self, call: Call | None = None) -> None:
        """The server ends every stream, or that of one call, in good order."""
        for one, (_, ended) in self._streams.items():
            if call is None or one is call:
                _end(ended)

    def matching_streams(self, method: str, params: Params) -> Iterator[tuple[Call, Params]]:
        """Each stream of the stateless era that is told of this change, with the params tagged for
        it."""
        for call, (wanted, _) in list(self._streams.items()):
            if method in LISTS:
                told = getattr(wanted, LISTS[method])
            elif isinstance(params, TaskChangedParams):
                told = params.task_id in (wanted.task_ids or ())
            elif method not in METHODS:
                told = True  # where the extension was declared, which is looked at on the way out
            else:
                told = isinstance(params, UriParams) and _covers(
                    wanted.resource_subscriptions or (), params.uri
                )
            if told:
                yield call, replace(params, meta={**(params.meta or {}), SUBSCRIPTION_ID: call.id})


def is_subscribed(caller: Caller, method: str, params: Params) -> bool:
    """Whether a caller of the handshake era is told of this change."""
    if method not in caller.revision.methods:
        return False
    if isinstance(params, ElicitationCompleteParams):
        return params.elicitation_id in caller.elicitation_ids
    if (task := related_task_id(params)) is not None:
        return task in caller.task_ids
    return method != UPDATED or (
        isinstance(params, UriParams) and _covers(caller.subscribed_uris, params.uri)
    )


def coalescing_key(params: Params) -> str:
    """What a change concerns, where that is one thing and no list."""
    if isinstance(params, ElicitationCompleteParams):
        return params.elicitation_id
    if (task := related_task_id(params)) is not None:
        return (
            f"{task} {id(params)}" if isinstance(params, LogParams) else task
        )  # no log message takes another's place
    if isinstance(params, ListChangedParams):
        return ""
    return (
        params.uri if isinstance(params, UriParams) else str(id(params))
    )  # what else there is takes nothing's place


def related_task_id(params: Params) -> str | None:
    """The task that a change concerns, or that what is told belongs to."""
    if isinstance(params, TaskStatusParams | TaskChangedParams):
        return params.task_id
    related = None if params.meta is None else params.meta.get(RELATED_TASK)
    return related["taskId"] if isinstance(related, dict) else None


def merge_changes(before: Params | None, now: Params) -> Params:
    """Two changes of one list as one."""
    if not isinstance(before, ListChangedParams) or not isinstance(now, ListChangedParams):
        return now
    added = [*(before.added or []), *(now.added or [])]
    removed = [*(before.removed or []), *(now.removed or [])]
    return ListChangedParams(added=added, removed=removed)


def _end(stream: "asyncio.Future[None]") -> None:
    if not stream.done():
        stream.set_result(None)


def _covers(uris: Collection[str], uri: str) -> bool:
    """Whether one of the URIs is this one, or holds it as a sub-resource."""
    return uri in uris or any(uri.startswith(one.rstrip("/") + "/") for one in uris)
