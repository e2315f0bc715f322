"""A recording on the page: its events become the events of the page, and there is no server.

What a session shows beside its messages is found in the messages: the name of the server, the
revision, the lists and the log.
"""

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec import Raw, Struct

from .. import Client
from ..mcplog import (
    HttpEvent,
    LostEvent,
    McplogEvent,
    Recording,
    StderrEvent,
    WireEvent,
)
from ..ports import Direction, HttpExchange, LostMessage
from ..protocol.base import PROTOCOL_VERSION, SERVER_INFO
from .events import MAX_EVENTS, EventBuffer
from .lists import LIST_METHODS
from .refusal import Refused
from .state import InspectorSettings, InspectorState
from .tap import EventTap

NO_SERVER = "This page shows a recording, so there is no server."
CONNECT = "Inspect the server itself: dovetail inspect TARGET --web"


class _RecordedMessage(Struct):
    """The parts of a message that say something about the session."""

    id: int | str | None = None
    method: str | None = None
    params: dict[str, Any] = {}
    result: dict[str, Any] = {}


class _RecordedPage(Struct):
    """A reply with a page of a list."""

    result: dict[str, Raw]


class _ListRequest(Struct, frozen=True):
    """A request for a page of a list, without a reply so far."""

    name: str
    is_first: bool


_decode = msgspec.json.Decoder(_RecordedMessage).decode
_decode_page = msgspec.json.Decoder(_RecordedPage).decode
_LIST_OF = {method: name for name, (method, _) in LIST_METHODS.items()}


def make_state(settings: InspectorSettings) -> InspectorState:
    """Return the state for a server or a recording.

    Args:
        settings: What the terminal decided.
    """
    recording = settings.recording
    return InspectorState(settings) if recording is None else RecordedState(settings, recording)


def refuse(*_: Any, **__: Any) -> NoReturn:
    """Refuse what needs a server.

    Raises:
        Refused: Always.
    """
    raise Refused(NO_SERVER, CONNECT, status=409)


class RecordedState(InspectorState):
    """An inspector that shows a recording.

    Args:
        settings: What the terminal decided.
        recording: The recording.
    """

    def __init__(self, settings: InspectorSettings, recording: Recording) -> None:
        self._now = self._began = _parse_time(recording.header.started)
        super().__init__(settings, EventBuffer(clock=lambda: self._now))
        self._tap = EventTap(self.events, 1, settings.show_secrets)
        self._server: dict[str, Any] = {}
        self._revision = recording.header.revision
        self._requested: dict[int | str | None, _ListRequest] = {}
        unreadable = sum(not self._add(event) for event in recording.events)
        self.status = self._describe(recording, unreadable)
        self.events.add("state", **self.status)

    def start(self) -> None:
        """Do nothing: all events are there."""

    def open(self, revision: str | None = None) -> None:
        """Refuse to open a connection."""
        refuse()

    def close_session(self) -> None:
        """Refuse to close a connection."""
        refuse()

    def start_recording(self) -> None:
        """Refuse to record a recording."""
        refuse()

    @property
    def client(self) -> Client:
        """Refuse to use a server."""
        refuse()

    def _add(self, event: McplogEvent) -> bool:
        """Add an event of the recording; return whether it could be read."""
        self._now = self._began + event.at
        try:
            match event:
                case WireEvent():
                    self._tap.message(event.direction, event.data, self._now)
                    self._read_message(event.direction, event.data)
                case HttpEvent():
                    self._tap.exchange(msgspec.convert(event.exchange, HttpExchange))
                case LostEvent():
                    self._tap.lost(msgspec.convert({"at": self._now, **event.lost}, LostMessage))
                case StderrEvent():
                    self.events.add("stderr", text=self.settings.mask(event.text), connection=1)
        except msgspec.ValidationError:
            return False
        return True

    def _read_message(self, direction: Direction, data: bytes) -> None:
        try:
            message = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if direction == "to_server" and message.method in _LIST_OF:
            request = _ListRequest(_LIST_OF[message.method], "cursor" not in message.params)
            self._requested[message.id] = request
        elif direction == "to_client" and message.method is None and message.id in self._requested:
            self._add_page(self._requested.pop(message.id), data)
        if message.method == "notifications/message":
            self._add_log(message.params)
        meta = message.result.get("_meta") or message.params.get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        info = message.result.get("serverInfo") or meta.get(SERVER_INFO)
        if isinstance(info, dict):
            self._server = info
        if not self._revision and message.method is None:
            self._revision = message.result.get("protocolVersion")
        elif not self._revision:
            self._revision = meta.get(PROTOCOL_VERSION)

    def _add_page(self, request: _ListRequest, data: bytes) -> None:
        """Add a page to a list, as it was sent. An error and what is not a list add nothing."""
        field = LIST_METHODS[request.name][1]
        with suppress(msgspec.DecodeError, KeyError):
            items = msgspec.json.decode(_decode_page(data).result[field], type=list[Raw])
            before = None if request.is_first else self.lists.get(request.name)
            self.lists[request.name] = [*(before or ()), *items]

    def _add_log(self, params: dict[str, Any]) -> None:
        logger = params.get("logger")
        self.events.add(
            "log",
            level=str(params.get("level", "")),
            logger=None if logger is None else str(logger),
            data=self.settings.mask(msgspec.json.encode(params.get("data")).decode()),
            connection=1,
        )

    def _describe(self, recording: Recording, unreadable: int) -> dict[str, Any]:
        """Return the state that the page shows."""
        missing = len(recording.events) - MAX_EVENTS
        notes = [
            f"This is a recording of {self.settings.target}. Nothing can be sent.",
            recording.note,
            f"{unreadable} events could not be read." if unreadable else None,
            f"Only the last {MAX_EVENTS:,} events are shown." if missing > 0 else None,
        ]
        texts = {name: self._server.get(name) for name in ("name", "version", "title")}
        return {
            "status": "recording",
            "message": " ".join(note for note in notes if note),
            "chosen": None,
            "connection": 1,
            "transport": "",
            "revision": self._revision if isinstance(self._revision, str) else None,
            **{name: text for name, text in texts.items() if isinstance(text, str)},
        }


def recorded_settings(
    recording: Recording, path: Path, show_secrets: bool = False
) -> InspectorSettings:
    """Return settings that show a recording.

    Args:
        recording: The recording.
        path: Its file.
        show_secrets: Whether credentials are shown that were recorded.
    """
    target = recording.header.target
    shown = target if isinstance(target, str) else " ".join(target)
    return InspectorSettings(
        target=shown or path.name,
        make_client=refuse,
        command=target,
        show_secrets=show_secrets,
        recording=recording,
    )


def _parse_time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0
