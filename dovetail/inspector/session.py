"""One connection of the inspector to its server: opening, lists, failure, closing.

A session runs in a task of its own. A server that never answers holds up nothing: the session is
simply replaced. Whatever happens becomes a `state` event, so the page stays usable.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from .. import Client
from ..client.callbacks import ElicitRequest, LogEntry, RootsRequest, SampleRequest
from ..errors import (
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    MethodNotFound,
    NoCommonRevision,
    ProtocolError,
    TimedOut,
    Unauthorized,
)
from ..jsonrpc.messages import encode
from ..limits import Limits
from ..logs import get_logger
from .list_changes import describe_changes
from .lists import LIST_METHODS, decode_lists, read_list
from .questions import elicit_result, sample_result
from .refusal import Refused
from .tap import EventTap

if TYPE_CHECKING:
    from .state import InspectorState

log = get_logger("inspector")

LIMITS = Limits(restarts=0)
"""A server that ends is not started again by itself, because its end is what the user looks for."""
STDERR_LINES = 50
"""How many lines of stderr are shown with a failure."""
CHANGE_SECONDS = 0.05
"""How long to wait for further changes before the lists are read again."""
RESTART = "Correct the server, and restart it."
REMEDIES: tuple[tuple[type[Exception], str], ...] = (
    (NoCommonRevision, "Choose another revision."),
    (Unauthorized, "Log in with the Login panel, or run `dovetail login` and restart."),
    (TimedOut, "The server may hang: restart it, or choose another revision."),
    (ConnectFailed, RESTART),
    (ConnectionClosed, RESTART),
)
"""What to do about each kind of failure."""


class Session:
    """A client, and what its server offers.

    Args:
        state: The inspector.
        number: The number of the connection, which its messages carry.
        revision: The revision to ask for, or None for the newest that both sides have.
    """

    def __init__(self, state: "InspectorState", number: int, revision: str | None) -> None:
        self._state, self.number, self.revision = state, number, revision
        self.client: Client | None = None
        self.status: dict[str, Any] = {}
        self._mask = state.settings.mask
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._is_open = self._is_closed = False
        self._running: asyncio.Task[None] | None = None
        self._relisting: asyncio.Task[None] | None = None

    @property
    def is_current(self) -> bool:
        """Whether no other session has replaced this one."""
        return self._state.session is self

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed on purpose."""
        return self._is_closed

    def start(self, previous: "Session | None") -> None:
        """Open the connection in the background, after the previous one is closed."""
        self._report("opening", "Opening the connection…")
        self._running = self._state.tasks.start(self._run(previous))

    async def _run(self, previous: "Session | None") -> None:
        """Open the connection and read the lists."""
        try:
            if previous is not None:
                await previous.close()
            if self._is_closed:
                return
            self.client = self._make_client()
            self._watch(self.client)
            await self.client.connect()
            await self._set_log_level(self.client)
            self._on_open()
            await self.read_lists()
            await self._state.subscriptions.restore(self.client)
            await self._state.revisions.read_listed(self.client)
        except DovetailError as problem:
            self._fail(problem)
        except Exception as problem:
            log.exception("The connection could not be opened")
            self._fail(problem)

    async def _set_log_level(self, client: Client) -> None:
        """Set the level that the page chose, if the server has levels. A refusal is on the wire,
        and not a reason to close the connection."""
        if self._state.level != "debug" and client.capabilities.logging is not None:
            with suppress(ProtocolError):
                await client.set_log_level(self._state.level)

    async def close(self) -> None:
        """Close the connection and end the server, if we started it."""
        self._is_open, self._is_closed = False, True
        if self.client is not None:
            await self.client.close()
        if self._running is not None and not self._running.done():
            await asyncio.wait([self._running])

    async def wait(self) -> None:
        """Wait until the connection is open and the lists were read, or until that failed."""
        if self._running is not None:
            await asyncio.wait([self._running])

    def _make_client(self) -> Client:
        state = self._state
        settings = state.settings
        tap = EventTap(
            state.events, self.number, settings.show_secrets, state.recorders, state.task_board
        )
        revision = {} if self.revision is None else {"revision": self.revision}
        return settings.make_client(
            **revision,
            tap=tap,
            on_stderr=self._on_stderr,
            **self.client_options() | {"on_log": self._on_log},
        )

    def client_options(self) -> dict[str, Any]:
        """Return the options of every client for this target: nothing is hidden, and the page
        answers the server's questions."""
        apps: dict[str, Any] = {}
        if self._state.apps.why_not is None:
            from ..extensions.apps import APPS

            apps = {"extensions": [APPS]}
        return apps | {
            "limits": LIMITS,
            "cache": False,
            "validate": "off",
            "on_elicit": self._on_elicit,
            "on_sample": _declaring_all(self._on_sample),
            "roots": self.on_roots,
            "on_log": _ignore,  # so that servers send log messages
            "on_progress": _ignore,  # so that servers report progress
        }

    def _watch(self, client: Client) -> None:
        client.on_change("state", self._on_state)
        for kind in ("tools", "resources", "prompts"):
            client.on_change(kind, self._on_change)

    # what the client reports

    def _on_open(self) -> None:
        client = self.client
        assert client is not None
        self._is_open = True
        info, network = client.server_info, client.network
        self._report(
            "open",
            "Connected.",
            name=info.name if info else "",
            version=info.version if info else "",
            title=info.title if info else None,
            transport="" if network is None else network.protocol or "stdio",
            revision=client.revision,
            instructions=client.instructions,
            capabilities=encode(client.capabilities).decode(),
        )

    def _on_state(self, state: str) -> None:
        if state == "connected" and self.status.get("status") == "failed":
            self._on_open()  # a call has opened it again
        elif state == "disconnected" and self._is_open:
            self._is_open = False
            self._fail(ConnectionClosed("The server ended, or closed the connection."))

    def _on_change(self, kind: str) -> None:
        if self._relisting is None and self._is_open:
            self._relisting = self._state.tasks.start(self._relist())

    async def _relist(self) -> None:
        await asyncio.sleep(CHANGE_SECONDS)
        self._relisting = None
        try:
            await self.read_lists()
        except DovetailError as problem:
            log.debug("Could not read the lists: %s", problem)

    def _on_log(self, entry: LogEntry) -> None:
        request_id = getattr(entry, "request_id", None)
        self._state.events.add(
            "log",
            level=entry.level,
            logger=entry.logger,
            data=self._mask(msgspec.json.encode(entry.data).decode()),
            request_id=None if request_id is None else msgspec.json.encode(request_id).decode(),
            connection=self.number,
        )

    def _on_stderr(self, line: str) -> None:
        shown = self._mask(line)
        self._stderr.append(shown)
        self._state.events.add("stderr", text=shown, connection=self.number)
        self._state.recorder.add_stderr(line)
        if self._state.settings.on_stderr is not None:
            self._state.settings.on_stderr(line)

    # questions

    async def _on_elicit(self, request: ElicitRequest) -> Any:
        return elicit_result(await self._state.questions.ask(request))

    async def _on_sample(self, request: SampleRequest) -> Any:
        return sample_result(request, await self._state.questions.ask(request))

    async def on_roots(self, request: RootsRequest) -> Any:
        """Answer with the roots that are set, if the page agrees."""
        answer = await self._state.questions.ask(request)
        return list(self._state.roots) if answer.action == "accept" else None

    # lists

    async def read_lists(self) -> None:
        """Read everything that the server lists, and report it with what has changed."""
        client = self.client
        assert client is not None
        found: dict[str, list[msgspec.Raw] | None] = {}
        failures: dict[str, str] = {}
        for name, (method, field) in LIST_METHODS.items():
            try:
                offered = client.offers(method)
                found[name] = await read_list(client, method, field) if offered else None
            except DovetailError as problem:
                if name == "templates" and isinstance(problem, MethodNotFound):
                    found[name] = None  # no capability says whether a server has templates
                    continue
                found[name] = self._state.lists.get(name)
                failures[name] = str(problem) or type(problem).__name__
        if not self.is_current:
            return
        before, self._state.lists, self._state.failures = self._state.lists, found, failures
        self._state.events.add(
            "lists",
            lists=self._state.list_texts(),
            failures=failures,
            changes=describe_changes(decode_lists(before), decode_lists(found)) if before else [],
        )

    # the state

    def _fail(self, problem: Exception) -> None:
        what, _, stderr = self._mask(str(problem)).partition("\n")
        remedy = next((text for kind, text in REMEDIES if isinstance(problem, kind)), RESTART)
        self._report(
            "failed",
            what or type(problem).__name__,
            what_to_do=remedy,
            stderr="\n".join(self._stderr) or stderr or None,
        )

    def report_closed(self) -> None:
        """Report that the user closed the connection."""
        self._report("closed", "The connection is closed.", what_to_do="Open it again.")

    def _report(self, status: str, message: str, **fields: Any) -> None:
        if not self.is_current:
            return
        kept = ("name", "version", "title", "transport", "revision", "instructions", "capabilities")
        before = self._state.status
        about = {name: before[name] for name in kept if name in before}
        self.status = {
            **about,
            "status": status,
            "message": message,
            "chosen": self.revision,
            "connection": self.number,
            **{name: value for name, value in fields.items() if value is not None},
        }
        self._state.status = self.status
        self._state.events.add("state", **self.status)


def require_open(session: Session | None, what_to_do: str) -> Client:
    """Return the client of a session.

    Args:
        session: The session.
        what_to_do: How a connection is opened, in a sentence.

    Raises:
        Refused: There is no connection. Only this has the status 503, by which the page knows that
            the refusal is over when there is a connection.
    """
    if session is None or session.client is None or session.status.get("status") != "open":
        raise Refused("The server is not connected.", what_to_do, status=503)
    return session.client


def _declaring_all(
    answer: Callable[[SampleRequest], Awaitable[Any]],
) -> Callable[[SampleRequest], Awaitable[Any]]:
    """Return a function for `on_sample` that declares all parts of sampling."""
    declared: Any = partial(answer)
    declared.tools = declared.context = True
    return declared  # type: ignore[no-any-return]


def _ignore(update: Any) -> None:
    pass
