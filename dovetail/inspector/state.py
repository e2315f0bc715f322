"""Everything that the inspector knows. The page is a view of it: a reload or a second tab loses
nothing."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from .. import Client
from ..aio import TaskSet
from ..errors import DovetailError
from ..masking import mask_line
from ..mcplog import Recording
from ..ports import Tap
from ..protocol.utilities import Level
from .apps import Apps
from .calls import Calls, SendCall
from .comparisons import Comparisons
from .events import EventBuffer, to_fields
from .known_revisions import KnownRevisions
from .lists import LIST_METHODS, RawLists
from .login import NO_LOGIN, LoginTarget, SteppedLogin
from .questions import Questions
from .recorder import SessionRecorder
from .saved import describe_saved
from .session import Session, require_open
from .subscriptions import ResourceSubscriptions
from .task_board import TaskBoard

if TYPE_CHECKING:
    from .checks.history import Digests

RESTARTED = "The server was restarted before it answered. Send the call again."
NOT_OPEN = {"status": "closed", "message": "The connection is closed.", "chosen": None}


class InspectorSettings(Struct, frozen=True, kw_only=True):
    """What the terminal decided. The page cannot change any of it."""

    target: str
    """The target as it is shown, without secrets."""
    make_client: Callable[..., Client]
    """Returns a client for the target. Called with options of `Client`, such as `revision`."""
    command: str | list[str] = ""
    """The target as `Client` accepts it; exports and recordings name it without its secrets."""
    server: str | None = None
    """The server to use, if the target is a configuration file."""
    revision: str | None = None
    """The revision that the terminal chose. The page may choose another."""
    env: Mapping[str, str] = {}
    """The environment variables that the terminal set for the server."""
    headers: Mapping[str, str] = {}
    """The HTTP headers that the terminal gave."""
    cwd: str | None = None
    """The folder in which the server is started, if the terminal named one."""
    roots: tuple[Path, ...] = ()
    """The folders that the server may be given as roots."""
    show_secrets: bool = False
    """Whether credentials are shown."""
    on_stderr: Callable[[str], None] | None = None
    """Called with each line that the server writes to stderr."""
    on_notice: Callable[[str], None] | None = None
    """Called with a sentence about the inspector itself, for the terminal."""
    record_to: Path | None = None
    """The file to record to from the start (default: recording is off, and each recording gets a
    new file)."""
    recording: Recording | None = None
    """A recording to show instead of a server."""
    login: LoginTarget | str = NO_LOGIN
    """How to log in to the target, or why there is no login."""

    def mask(self, text: str) -> str:
        """Return a text of the server without its credentials, unless they are shown.

        Args:
            text: One or more lines, which may be JSON.
        """
        return text if self.show_secrets else mask_line(text)


class InspectorState:
    """The connection, its events, its calls and its open questions.

    Args:
        settings: What the terminal decided.
        events: Where events go (default: a new ring buffer).
    """

    def __init__(self, settings: InspectorSettings, events: EventBuffer | None = None) -> None:
        self.settings = settings
        self.events = events or EventBuffer()
        self.calls = Calls(self.events)
        self.questions = Questions(self.events, self.calls)
        self.task_board = TaskBoard(self.events, self._cancel_task)
        self.comparisons = Comparisons(self)
        self.revisions = KnownRevisions(self)
        self.login = SteppedLogin(self)
        self.apps = Apps(self)
        self.tasks = TaskSet()
        """Work in the background, which `close` cancels."""
        self.recorders: list[Tap] = []
        """Taps that record the traffic."""
        self.recorder = SessionRecorder(self)
        self.session: Session | None = None
        self.status: dict[str, Any] = dict(NOT_OPEN)
        self.how_to_open = "Restart it."
        """What the page advises while there is no connection."""
        self.lists: RawLists = {}
        self.failures: dict[str, str] = {}
        self.roots = settings.roots
        self.level: Level = "debug"
        self.subscriptions = ResourceSubscriptions(self.events)
        self.verified: list[str] = []
        """The files of skills that were read and verified: the URI and the digest of each."""
        self.checked: Digests | None = None
        """The digests of descriptions that checks compare with; None before the first check."""
        self.runs: asyncio.Task[None] | None = None
        """The run of saved calls, or the last one."""
        self._connections = 0
        if settings.record_to is not None:
            self.start_recording()

    # the connection

    def start(self) -> None:
        """Begin with what the terminal named."""
        self.open()

    def open(self, revision: str | None = None) -> None:
        """Start to open the target. Whatever was open is closed first.

        Args:
            revision: The revision to ask for (default: what the terminal chose).
        """
        previous = self.session
        self.subscriptions.on_close()
        if previous is not None:
            self.calls.end(previous.number, RESTARTED)
        self.session = Session(self, self.count_connection(), revision)
        self.session.start(previous)

    def count_connection(self) -> int:
        """Return the number of a new connection."""
        self._connections += 1
        return self._connections

    def restart(self, revision: str | None = None) -> None:
        """Start the target again, in the same revision unless another is given.

        Args:
            revision: The revision to ask for.
        """
        if revision is None and self.session is not None:
            revision = self.session.revision
        self.open(revision)

    def close_session(self) -> None:
        """Close the connection, and keep the page."""
        if self.session is not None:
            self.session.report_closed()
            self.tasks.start(self.session.close())

    async def close(self) -> None:
        """End everything."""
        self.events.close()
        await self.calls.close()
        # Before its task is cancelled, because that one may still close the previous session.
        if self.session is not None:
            await self.session.close()
        await self.tasks.close()
        if self.session is not None:  # work in the background may have opened another
            await self.session.close()
        self.recorder.stop()

    def start_recording(self) -> None:
        """Begin a new recording.

        Raises:
            ConfigError: The file cannot be created.
            Refused: It cannot be written to.
        """
        self.recorder.start()

    @property
    def client(self) -> Client:
        """The client of the open connection.

        Raises:
            Refused: There is no open connection.
        """
        return require_open(self.session, self.how_to_open)

    def start_call(self, method: str, name: str, params: str, send: SendCall) -> str:
        """Start a call that survives a reload of the page, and return its id.

        Args:
            method: The method of the request.
            name: The tool, prompt or resource that it is about; may be empty.
            params: The params, as JSON text.
            send: Sends the request with a client and an `on_progress`.

        Raises:
            Refused: There is no open connection.
        """
        client, session = self.client, self.session
        assert session is not None
        return self.calls.start(client, session.number, method, name, params, send)

    def _cancel_task(self, task: str) -> None:
        async def cancel() -> None:
            with suppress(DovetailError):  # it may be over, or the connection closed
                await self.client.task(task).cancel()

        self.tasks.start(cancel())

    # the page

    def report_changed(self, what: str, value: Any) -> None:
        """Tell the page that a part of the snapshot has changed.

        Args:
            what: The name of the part.
            value: Its new value.
        """
        self.events.add("changed", what=what, value=value)

    def list_texts(self) -> dict[str, str | None]:
        """Return each list as JSON text, or None if the server does not offer it. There are none
        before they were read."""
        if not self.lists:
            return {}
        texts: dict[str, str | None] = {}
        for name in LIST_METHODS:
            items = self.lists.get(name)
            texts[name] = None if items is None else msgspec.json.encode(items).decode()
        return texts

    def snapshot(self) -> dict[str, Any]:
        """Return everything that the page shows, as of the event `n`."""
        return {
            "n": self.events.last,
            "target": self.settings.target,
            "state": self.status,
            "revisions": self.revisions.names,
            "comparison": self.comparisons.fields(),
            "lists": self.list_texts(),
            "failures": self.failures,
            "calls": list(map(to_fields, self.calls.records.values())),
            "questions": [question.fields() for question in self.questions.open.values()],
            "answered": list(self.questions.answered),
            "always": list(map(to_fields, self.questions.always.values())),
            "roots": [str(root) for root in self.roots],
            "allowed_roots": [str(root) for root in self.settings.roots],
            "level": self.level,
            "recording": self.recorder.status(),
            "saved": describe_saved(),
            "subscriptions": self.subscriptions.uris,
            "verified": self.verified,
            "tasks": list(map(to_fields, self.task_board.records.values())),
            "apps": {"why_not": self.apps.why_not},
        }
