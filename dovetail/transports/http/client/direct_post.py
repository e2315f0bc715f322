"""Requests that are sent without a task.

Most requests are small, and most responses are JSON and arrive whole. Nothing has to wait in
between: the request is written to an idle connection, and its response is handled when it arrives.
That takes less than half of the CPU time of a task. Everything else, such as an event stream or a
refusal, is handed over to a task, together with the response that has begun.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ....aio import BoundedDict
from ....errors import ConfigError, InvalidParams
from ....limits import KIB
from .http_transport import HttpTransport
from .messages import JSON, OutgoingMessage, RequestHeaders

if TYPE_CHECKING:
    from .http1_client import PreparedPost
    from .http1_connection import Http1Response

MAX_BODY_BYTES = 64 * KIB
MAX_PREPARED = 256
"""The number of tools, prompts and resources whose encoded headers are kept."""


class Slots(asyncio.Semaphore):
    """A semaphore that can also be used without waiting."""

    def take_now(self) -> bool:
        """Take a slot if one is free, and return whether that was so."""
        if self._value <= 0 or self._waiters:
            return False
        self._value -= 1
        return True


class DirectPost(asyncio.Future[None]):
    """A request that was sent without a task. It is done when its response was handled or handed
    over."""

    response: "Http1Response"

    def __init__(self, message: OutgoingMessage, data: bytes, slots: Slots) -> None:
        super().__init__()
        self.message, self.data, self._slots = message, data, slots

    def cancel(self, msg: Any = None) -> bool:
        """Close the connection, unless the request is done."""
        if not self.done():
            self.response.close()
            self._slots.release()
        return super().cancel(msg)


class DirectPoster:
    """The part of a channel that sends requests without a task.

    Each request takes one of the `slots`. `on_body` is called with the body of a response that is
    complete, and `on_other` if a task has to handle the response and release the slot.
    """

    def __init__(
        self,
        transport: HttpTransport,
        headers: RequestHeaders,
        slots: Slots,
        on_body: Callable[[OutgoingMessage, bytes], None],
        on_other: Callable[[DirectPost], None],
    ) -> None:
        self._transport, self._headers, self._slots = transport, headers, slots
        self._client = transport.direct_client
        self._on_body, self._on_other = on_body, on_other
        self._prepared: BoundedDict[tuple[Any, ...], PreparedPost] = BoundedDict(MAX_PREPARED)

    def post(self, message: OutgoingMessage, data: bytes) -> DirectPost | None:
        """Send a request, or return None if it needs a task."""
        client = self._client
        key = None if client is None else self._headers.key_for(message)
        if client is None or key is None or len(data) > MAX_BODY_BYTES:
            return None
        prepared = self._prepared.get((self._transport.url, key)) or self._prepare(message, key)
        if prepared is None or not self._slots.take_now():
            return None
        post = DirectPost(message, data, self._slots)
        response = client.begin(prepared, data, partial(self._on_change, post))
        if response is None:
            self._slots.release()
            return None
        post.response = response
        return post

    def _prepare(self, message: OutgoingMessage, key: tuple[Any, ...]) -> "PreparedPost | None":
        assert self._client is not None
        url, shown = self._transport.url, self._transport.shown
        try:
            headers = self._transport.merge_headers(self._headers.for_message(message))
            prepared = self._client.prepare(url, headers, shown)
        except (ConfigError, InvalidParams):
            return None  # the task reports it
        self._prepared[url, key] = prepared
        return prepared

    def _on_change(self, post: DirectPost, response: "Http1Response") -> None:
        if post.done() or not (response.status or response.failure):
            return
        post.set_result(None)
        if (
            response.complete
            and response.status == 200
            and response.headers.get("content-type") == JSON
            and "content-encoding" not in response.headers
        ):
            body = response.take()
            response.close()
            self._slots.release()
            self._on_body(post.message, body)
        else:
            response.stop_calling()
            self._on_other(post)
