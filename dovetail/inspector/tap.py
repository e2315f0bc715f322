"""What the inspector sees of a connection: every message, HTTP request and lost message becomes an
event."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from ..masking import mask_message
from ..ports import AuthStep, Direction, HttpExchange, LostMessage, Tap
from .calls import CURRENT_CALL, RunningCall
from .events import EventBuffer, cut_text, to_fields
from .task_board import TaskBoard

MAX_PENDING = 10_000
"""How many requests without a reply are remembered."""


class _MessageParts(Struct):
    """The parts of a message that show what it is."""

    id: Raw = Raw()
    method: str | None = None
    result: Raw = Raw()
    error: Raw = Raw()


class _ResultParts(Struct):
    """The part of a result that says whether a tool failed. It may be anything."""

    is_error: Raw = msgspec.field(default=Raw(), name="isError")


_envelope = msgspec.json.Decoder(_MessageParts)
_result = msgspec.json.Decoder(_ResultParts)


class EventTap(Tap):
    """Turns what passes on one connection into events, and passes it on to recordings.

    Args:
        events: Where the events go.
        connection: The number of the connection.
        show_secrets: Whether credentials are shown.
        others: Further taps, such as a recording. The list may change.
        tasks: What keeps the tasks that the messages are about.
    """

    def __init__(
        self,
        events: EventBuffer,
        connection: int,
        show_secrets: bool,
        others: Sequence[Tap] = (),
        tasks: TaskBoard | None = None,
    ) -> None:
        self._tasks = tasks
        self._events, self.connection, self._others = events, connection, others
        self.show_secrets = show_secrets
        self._pending: dict[bytes, tuple[RunningCall, str]] = {}
        """The requests of calls that have no reply yet, by id."""

    def message(self, direction: Direction, data: bytes, at: float) -> None:
        """Add a `wire` event."""
        for other in self._others:
            other.message(direction, data, at)
        try:
            envelope = _envelope.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            envelope = _MessageParts()  # a batch, not a message, or nested too deeply
        running = self._find_call(direction, envelope)
        text, whole = cut_text(data if self.show_secrets else mask_message(data))
        self._events.add(
            "wire",
            whole=whole,
            direction=direction,
            text=text,
            bytes=len(data),
            connection=self.connection,
            id=_to_text(envelope.id),
            method=envelope.method,
            error=True if _is_error(envelope) else None,
            call=None if running is None else running.record.call,
            more=None if whole is None else True,
        )
        if self._tasks is not None:
            self._tasks.on_message(direction, data, self.connection, bytes(envelope.id), running)

    def _find_call(self, direction: Direction, envelope: _MessageParts) -> RunningCall | None:
        """Return the call that a message belongs to, and let the call know."""
        id = bytes(envelope.id)
        if not id:
            return None
        if envelope.method is None and direction == "to_client":
            running, method = self._pending.pop(id, (None, ""))
            if running is not None and envelope.result:
                running.on_reply(method, bytes(envelope.result))
            return running
        running = CURRENT_CALL.get() if direction == "to_server" else None
        if running is None or running.record.status != "running" or envelope.method is None:
            return None
        if len(self._pending) >= MAX_PENDING:
            self._pending.clear()
        self._pending[id] = running, envelope.method
        running.on_request(id.decode(), envelope.method)
        return running

    def exchange(self, exchange: HttpExchange) -> None:
        """Add an `http` event."""
        for other in self._others:
            other.exchange(exchange)
        fields = to_fields(exchange)
        if exchange.message_id is not None:
            fields["message_id"] = msgspec.json.encode(exchange.message_id).decode()
        self._events.add("http", connection=self.connection, **fields)

    def auth_step(self, step: AuthStep) -> None:
        """Pass on a step of a login. The page shows those of `login.py`."""
        for other in self._others:
            other.auth_step(step)

    def lost(self, lost: LostMessage) -> None:
        """Add a `lost` event."""
        for other in self._others:
            other.lost(lost)
        data = lost.data if self.show_secrets else mask_message(lost.data)
        fields = to_fields(lost) | {"data": data.decode(errors="replace")}
        self._events.add("lost", connection=self.connection, **fields)


def _is_error(envelope: _MessageParts) -> bool:
    """Return whether a reply is an error, or the result of a tool that failed."""
    if envelope.error or not envelope.result:
        return bool(envelope.error)
    try:
        return bytes(_result.decode(envelope.result).is_error) == b"true"
    except msgspec.DecodeError:  # not an object
        return False


def _to_text(id: Raw) -> str | None:
    return bytes(id).decode() or None
