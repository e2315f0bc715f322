"""Cancel a call from another task, by the id of its request.

A call runs in the task of its caller. To cancel the call, that task is cancelled while it is inside
`OpenCall`, which then turns the CancelledError into RequestCancelled, in the same way as
`asyncio.timeout` does. So everything that happens when a caller is cancelled happens here, too: the
server is notified, callbacks that are answering a question end, and a task that runs the call on
the server is cancelled.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..connection.notifications import run_callback
from ..errors import RequestCancelled
from ..jsonrpc.messages import Id

OnRequestId = Callable[[Id], Any]
"""A function that receives the id of a request just before the request is sent."""


class OpenCall:
    """The part of a task that makes one call.

    A call has more than one request if the server asks a question, or if the request has to be sent
    again. Each of their ids identifies the call until the call ends.

    Args:
        calls: The open calls of the client, by the ids of their requests.
        on_request_id: Called with the id of each request that is sent for the call.
    """

    __slots__ = ("_before", "_calls", "_ids", "_is_cancelled", "_on_request_id", "_task")

    def __init__(self, calls: "dict[Id, OpenCall]", on_request_id: OnRequestId | None) -> None:
        self._calls, self._on_request_id = calls, on_request_id
        self._ids: list[Id] = []
        self._is_cancelled = False

    def started(self, id: Id) -> None:
        """Register a request of this call, which is about to be sent."""
        self._ids.append(id)
        self._calls[id] = self
        if self._on_request_id is not None:
            run_callback(self._on_request_id, id)

    def cancel(self, reason: str | None) -> bool:
        """Cancel the call. Return False if it was already cancelled."""
        if self._is_cancelled:
            return False
        self._is_cancelled = True
        return self._task.cancel(reason)

    def __enter__(self) -> "OpenCall":
        task = asyncio.current_task()
        assert task is not None
        self._task, self._before = task, task.cancelling()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for id in self._ids:
            if self._calls.get(id) is self:  # a new connection may have used the id again
                del self._calls[id]
        if not self._is_cancelled:
            return
        # If the caller's task was also cancelled by others, the CancelledError has to go on.
        if self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            reason = f": {error}" if str(error) else ""
            raise RequestCancelled(f"The request was cancelled{reason}") from None
