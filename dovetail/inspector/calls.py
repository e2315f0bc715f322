"""Calls that the page started. They run here, so they survive a reload of the page.

While a call runs, `CURRENT_CALL` names it: requests that it sends and questions that the server
asks meanwhile belong to it. The result is the text of the server's reply, so numbers and the order
of keys stay as they were sent.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from time import monotonic, time
from typing import Any

import msgspec
from msgspec import Raw, Struct

from .. import Client
from ..aio import TaskSet
from ..errors import DovetailError, ProtocolError
from ..jsonrpc.messages import encode
from ..limits import MIB
from ..logs import get_logger
from .events import EventBuffer, to_fields
from .refusal import Refused

log = get_logger("inspector")

MAX_CALLS = 200
MAX_RESULT_BYTES = 32 * MIB
"""The size of all results that are kept."""

OnUpdate = Callable[[Any], None]
SendCall = Callable[[Client, OnUpdate], Awaitable[Any]]
"""Sends a request and returns its result. The second parameter is the call's `on_progress`."""


class CallRecord(Struct, kw_only=True, omit_defaults=True):
    """One call, as the page sees it."""

    call: str
    method: str
    name: str
    params: str
    connection: int
    started: float
    status: str = ""
    request_id: str | None = None
    result: str | None = None
    error: dict[str, Any] | None = None
    ms: float | None = None
    progress: dict[str, Any] | None = None


class _TaskOutcome(Struct):
    """The result in the state of a task."""

    result: Raw = Raw()


_outcome = msgspec.json.Decoder(_TaskOutcome)


class RunningCall:
    """A call and what its messages say about it."""

    def __init__(self, record: CallRecord) -> None:
        self.record = record
        self._replies: dict[str, bytes] = {}
        """The text of the last result, by the method of its request."""

    def on_request(self, id: str, method: str) -> None:
        """Record a request that belongs to this call."""
        if method == self.record.method:
            self.record.request_id = id

    def on_reply(self, method: str, result: bytes) -> None:
        """Keep the result of such a request."""
        self._replies[method] = result

    def result_text(self, result: Any) -> str:
        """Return the final result as text: as it was received, unless it was put together from
        several replies."""
        found: bytes | None = self._replies.get("tasks/result") or self._task_outcome()
        if not found and not any(method.startswith("tasks/") for method in self._replies):
            found = self._replies.get(self.record.method)
        return (found or encode(result)).decode(errors="replace")

    def _task_outcome(self) -> bytes:
        """Return the result in the last state of the call's task; empty if there is none."""
        is_poll = self.record.method == "tasks/get"
        state = None if is_poll else self._replies.get("tasks/get")
        return b"" if state is None else bytes(_outcome.decode(state).result)


CURRENT_CALL: ContextVar[RunningCall | None] = ContextVar("CURRENT_CALL", default=None)


class Calls:
    """The calls that are running, and the newest of those that have ended."""

    def __init__(self, events: EventBuffer) -> None:
        self._events = events
        self.records: dict[str, CallRecord] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks = TaskSet()
        self._number = self._size = 0

    @property
    def only_running(self) -> str | None:
        """The call that is running, if it is the only one."""
        return next(iter(self._running)) if len(self._running) == 1 else None

    def start(
        self,
        client: Client,
        connection: int,
        method: str,
        name: str,
        params: str,
        send: SendCall,
    ) -> str:
        """Start a call and return its id.

        Args:
            client: The client that sends it.
            connection: The number of its connection.
            method: The method of the request.
            name: The tool, prompt or resource that it is about; may be empty.
            params: The params, as JSON text, for the page.
            send: Sends the request.
        """
        self._number += 1
        id = str(self._number)
        record = CallRecord(
            call=id, method=method, name=name, params=params,
            connection=connection, started=round(time(), 6), status="running",
        )  # fmt: skip
        self.records[id] = record
        self._report(record)
        task = self._running[id] = self._tasks.start(self._run(record, client, send))
        task.add_done_callback(lambda _: self._running.pop(id, None))
        return id

    async def wait(self, id: str) -> CallRecord:
        """Wait for the end of a call, and return it.

        Args:
            id: The id of the call, which was started just now.
        """
        record = self.records[id]
        if id in self._running:
            await asyncio.wait([self._running[id]])
        return record

    def find(self, id: str) -> CallRecord:
        """Return a call.

        Args:
            id: The id of the call.

        Raises:
            Refused: There is no such call, or it was too long ago.
        """
        if id not in self.records:
            raise Refused(f"There is no call {id!r}.", status=404)
        return self.records[id]

    def cancel(self, id: str) -> None:
        """Cancel a call. A call that has ended stays as it is."""
        self.find(id)
        if id in self._running:
            self._running[id].cancel()

    def end(self, connection: int, why: str) -> None:
        """End the calls of a connection with an error.

        Args:
            connection: The number of the connection.
            why: What the page shows.
        """
        for id, task in self._running.items():
            record = self.records[id]
            if record.connection == connection:
                record.error = {"type": "ConnectionClosed", "message": why}
                task.cancel()

    async def close(self) -> None:
        """Cancel all calls."""
        await self._tasks.close()

    async def _run(self, record: CallRecord, client: Client, send: SendCall) -> None:
        running = RunningCall(record)
        CURRENT_CALL.set(running)
        began = monotonic()

        def on_progress(update: Any) -> None:
            record.progress = {
                "progress": update.progress,
                "total": update.total,
                "message": update.message,
            }
            fields = to_fields(record)
            del fields["params"]  # the page has them already
            self._events.add("call", **fields)

        try:
            result = await send(client, on_progress)
            record.result = running.result_text(result)
            record.status = "error" if getattr(result, "is_error", False) else "done"
        except asyncio.CancelledError:
            record.status = "cancelled" if record.error is None else "error"
        except DovetailError as problem:
            record.status, record.error = "error", describe_error(problem)
        except Exception as problem:
            log.exception("The call %s failed", record.method)
            record.status, record.error = "error", describe_error(problem)
        finally:
            record.ms = round((monotonic() - began) * 1000, 3)
            self._size += len(record.result or "")
            self._report(record)
            self._forget_old()

    def _report(self, record: CallRecord) -> None:
        self._events.add("call", **to_fields(record))

    def _forget_old(self) -> None:
        while len(self.records) > MAX_CALLS or self._size > MAX_RESULT_BYTES:
            ended = (id for id, record in self.records.items() if record.status != "running")
            oldest = next(ended, None)
            if oldest is None:
                return
            self._size -= len(self.records.pop(oldest).result or "")


def describe_error(problem: Exception) -> dict[str, Any]:
    """Return an error for the page."""
    error: dict[str, Any] = {
        "type": type(problem).__name__,
        "message": str(problem) or type(problem).__name__,
    }
    if isinstance(problem, ProtocolError):
        error["code"] = problem.code
        if problem.data is not None:
            error["data"] = msgspec.json.encode(problem.data).decode()
    return error
