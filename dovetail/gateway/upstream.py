"""One configured server: its state, its lists, and its connections.

The *main* connection reads the lists and listens for changes. Calls share it if the transport shows
which call a question from the server belongs to, or if the caller cannot answer questions anyway.
All other calls use a connection of their own, from the pool:

    share     who uses a connection            default for
    all       all callers                      a server that keeps no state
    user      one authenticated caller         credentials or headers of a user
    caller    one session, or one call at a    a server that keeps state, and stdio or WebSocket
              time in the stateless era        with the handshake if the caller can answer

Without authentication, `user` means `caller`. The main connection of a gateway declares that it
shows apps, so that lists are complete. If a server adapts to that in the handshake era, callers
that show none use another connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..aio import TaskSet
from ..client.client import Client
from ..client.reconnect import SET_LEVEL_SECONDS
from ..client.subscriptions import Subscription
from ..config import ServerSettings
from ..connection.input_requests import encode_sorted
from ..errors import (
    ConnectFailed,
    ConnectionClosed,
    ConsentDenied,
    DovetailError,
    InternalError,
)
from ..limits import DEFAULT, Limits
from ..logs import get_logger
from ..ports import Call, Caller
from ..protocol.header_params import HeaderParam
from ..protocol.lifecycle import ClientCapabilities
from ..protocol.tools import CallToolParams
from ..protocol.utilities import Level
from .catalog import Catalog, ItemList, read_catalog, read_list
from .forwarding import forwarded_headers
from .health import Health, State
from .input_requests import (
    OpenQuestions,
    QuestionLimits,
    answerable,
    extensions_of,
    with_extensions,
)
from .known import KnownCatalogs
from .log_levels import WantedLevels
from .naming import Kind
from .pool import SHARED, ActiveCalls, ConnectionPool, PooledClient, PoolKey
from .reports import UpstreamCounts
from .result_cache import ResultCache
from .transforms import ToolChanges

if TYPE_CHECKING:
    from .connect.tokens import UserTokens
    from .consent.request import ConsentRequest

log = get_logger("gateway")

CHANGES: Final[Mapping[str, tuple[Kind, ...]]] = {
    "tools": ("tools",),
    "prompts": ("prompts",),
    "resources": ("resources", "templates", "skills"),
}
"""The lists to read again after each kind of change."""
REFRESH_PAUSE_SECONDS: Final = 0.1
"""How long lists are not read again after they were read because of a change."""
SUBSCRIBE_SECONDS: Final = 0.5
"""How long to wait until a server confirms subscriptions, before its lists are read."""
EventKind = Literal["state", "catalog"]


class TaskLost(InternalError):
    """The process that ran a task has ended, so the task has failed."""


class UpstreamEntry(Struct, frozen=True, eq=False, kw_only=True):
    """One server of a configuration."""

    name: str
    """The name in the file."""
    find_target: Callable[[], Any]
    """Returns what `Client` connects to. Variables of the entry are filled in only now, after
    consent was given."""
    settings: ServerSettings = ServerSettings()
    fill: Callable[[Any], Any] = lambda value: value
    """Returns a hidden value (`tools.with`) with its variables filled in."""
    digest: str = ""
    """The digest of the entry, which consent is bound to."""
    written: Mapping[str, Any] | None = None
    """The entry as the file contains it; None if it is not from a file."""
    is_remote: bool = False
    """Whether the server is reached at a URL, not started here."""
    needs_login: bool = False
    """Whether a user has to log in to the server."""
    read_values: Callable[[], str] | None = None
    """Returns a text that changes with the values of the entry's variables; None if the entry has
    no variables."""
    tokens: "UserTokens | None" = None
    """Where the tokens of users are stored, if each user of a gateway logs in to the server."""
    client_name: str = ""
    """The name that users see at the authorization server."""
    user: str = ""
    """The id of the user, if the server is used on behalf of one."""
    auth: Any = None
    """The credentials of that user."""
    describe: "Callable[[], ConsentRequest] | None" = None
    """Returns the request for consent to start or reach the server; None if it runs in this
    process, so that nobody has to be asked."""


class UpstreamServer:
    """One configured server of a host or gateway.

    Args:
        entry: Its entry.
        make_client: Returns a new client for it. Its arguments are this server, the calls that use
            the connection at any time, what the connection declares that it can answer, and the
            headers of its caller that it carries.
        on_event: Called with this server and `"state"` or `"catalog"` after each change.
        limits: The limits.
        allow_start: Raises ConsentDenied if the server may not be started or reached.
        known: What servers listed in earlier runs (default: None, nothing is known).
        model: The sampling capability for callers that have none.
        extensions: The extensions to declare when lists are read, because callers may have them
            (default: none).
    """

    def __init__(
        self,
        entry: UpstreamEntry,
        *,
        make_client: "MakeClient",
        on_event: "Callable[[UpstreamServer, EventKind], None]",
        limits: Limits = DEFAULT,
        allow_start: "Callable[[UpstreamServer], Awaitable[None]] | None" = None,
        known: KnownCatalogs | None = None,
        model: Mapping[str, Any] | None = None,
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        self._extensions = extensions or {}
        self.entry, self.settings, self.limits = entry, entry.settings, limits
        self.health, self._known = Health(), known
        self.changes = ToolChanges(entry.name, entry.settings.tools.changes, entry.fill)
        """How callers see the tools of the server."""
        self.catalog = self._saved = Catalog()
        self.is_unknown = True
        """Whether the lists of the server are not known yet, but may be later."""
        self.load_known()
        self.counts = UpstreamCounts()
        self.questions = OpenQuestions()
        self.results = ResultCache(limits)
        self.question_limits = QuestionLimits(limits.questions)
        self._make_client, self._on_event = make_client, on_event
        self._allow_start, self.model = allow_start, model
        self._background = TaskSet()
        self._starting: asyncio.Task[None] | None = None
        self._retrying: asyncio.Task[None] | None = None
        self._subscriptions: dict[str, Subscription] = {}
        """The subscriptions of the main connection, by kind of change."""
        self._changed: set[str] = set()
        """The lists that changed and have to be read again."""
        self._refreshing = asyncio.Lock()
        """Held while lists are read."""
        self._main: PooledClient | None = None
        self._pool = ConnectionPool(self._open_pooled, limits, entry.name)
        self._is_closed = False
        self.calls = 0
        """The number of calls that are under way."""
        self._drained: asyncio.Future[None] | None = None
        self._levels = WantedLevels()
        self._level: Level | None = None
        """The level that all connections have asked for."""

    def __repr__(self) -> str:
        return f"<UpstreamServer {self.name} {self.state}>"

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.entry.name

    @property
    def is_idle(self) -> bool:
        """Whether no call uses the server."""
        return not len(self._pool) and (self._main is None or not self._main.calls)

    @property
    def state(self) -> State:
        """The state: configured, known, started, failed or refused."""
        return self.health.state

    @property
    def error(self) -> str | None:
        """Why the server failed or was refused; None if it was not."""
        return self.health.error

    @property
    def revision(self) -> str | None:
        """The protocol revision of the main connection; None if it is not connected."""
        client = self._main and self._main.client
        return client.revision if client and client.state == "connected" else None

    @property
    def has_client(self) -> bool:
        """Whether there is a main connection, even if it is being opened or is lost."""
        return self._main is not None

    @property
    def is_unread(self) -> bool:
        """Whether the server was not asked for its lists in this run, but may be later."""
        return self.is_unknown or self.catalog.is_from_disk

    @property
    def client(self) -> Client:
        """The client of the main connection.

        Raises:
            ConnectionClosed: The server was not started.
        """
        if self._main is None:
            raise ConnectionClosed(f"{self.name} is not started", sent=False)
        return self._main.client

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._pool) + (self._main is not None)

    def names(self, kind: Kind) -> Iterable[str]:
        """Return the names of all that the server offers of a kind.

        Args:
            kind: The kind of list.
        """
        items = self.catalog.items(kind)
        if kind != "tools":
            return items
        is_refused = self.settings.tools.why_refused
        return [
            name
            for name, item in items.items()
            if is_refused(name) is None and self.changes.problem(item) is None
        ]

    def known_for(self, user: str) -> "UpstreamServer":
        """Return the server as a user sees it.

        Args:
            user: The id of the user; empty for none.
        """
        return self

    def holds(self, server: "UpstreamServer") -> bool:
        """Return whether another server is this one or a part of it.

        Args:
            server: The other server.
        """
        return server is self

    # starting and stopping

    def load_known(self) -> None:
        """Use the lists of an earlier run, or of another replica, until the server is started."""
        catalog = None if self._known is None else self._known.load(self.entry)
        if catalog is not None and self.state in ("configured", "known"):
            self.catalog = self._saved = catalog
            self.is_unknown = False
            self.health.on_known()

    async def start(self) -> None:
        """Start or reach the server and read its lists, unless that is done or under way.

        Raises:
            ConsentDenied: The server may not be started.
            ConnectFailed: The server could not be started, or failed a moment ago.
        """
        if self._starting is None:
            if self.state == "started" and self._main is not None:
                return
            self._starting = self._background.start(self._start())
            self._starting.add_done_callback(self._start_done)
        elif self.health.is_tripped:
            self._admit()  # others do not wait for the one that was admitted
        starting = self._starting
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            if not starting.cancelled():
                raise
            raise ConnectionClosed(f"{self.name} was stopped", sent=False) from None

    def _start_done(self, task: "asyncio.Task[None]") -> None:
        if self._starting is task:
            self._starting = None
        if not task.cancelled():
            task.exception()  # mark it as retrieved, in case nobody waits for it

    async def _start(self) -> None:
        if self._is_closed:
            raise ConnectionClosed(f"{self.name} is closed", sent=False)
        self._admit()
        try:
            if self._allow_start is not None:
                await self._allow_start(self)
            main = self._main or self._open_main()
            await main.client.connect()
            await self._read_catalog(main.client)
            self.health.on_started(monotonic())
        except ConsentDenied as refusal:
            self.health.on_refused(str(refusal))
            self.catalog = self._saved = Catalog()
            self.is_unknown = False
            raise
        except DovetailError as problem:
            if self._starting is not asyncio.current_task():  # `stop` closed its client
                raise ConnectionClosed(f"{self.name} was stopped", sent=False) from None
            self.on_failure(problem)
            raise ConnectFailed(f"{self.name}: {problem}") from problem
        finally:
            self._on_event(self, "state")

    def _admit(self) -> None:
        """Raise ConnectFailed if the server failed a moment ago, or keeps failing."""
        if not self.health.admit(monotonic()):
            wait = self.health.wait(monotonic())
            reason = self.error or f"it failed {self.health.failures} times in a row"
            raise ConnectFailed(f"{self.name}: {reason} (next attempt in {ceil(wait)} s)")

    def _open_main(self) -> PooledClient:
        declared = ClientCapabilities.lift({one: {} for one in self.settings.capabilities})
        declared = with_extensions(declared, self._extensions)
        calls = ActiveCalls(SHARED)
        self._subscriptions = {}
        self._main = PooledClient(self._make_client(self, calls, declared, {}), SHARED, calls)
        self._main.client.on_change("state", self._on_client_state)
        return self._main

    async def _read_catalog(self, client: Client) -> None:
        async with self._refreshing:
            await self._subscribe(client)
            self._changed.clear()  # what has changed so far is read now
            self._set_catalog(await read_catalog(client, self.limits))
        self._save_catalog()

    async def _subscribe(self, client: Client) -> None:
        """Subscribe to changes before lists are read, because a change in between would be missed.
        What the server confirms too late, or again on another stream, is read again then."""
        for kind in CHANGES:
            if kind not in self._subscriptions and getattr(client.capabilities, kind) is not None:
                one = client.on_change(kind, self._on_list_change)  # type: ignore[arg-type]
                one.on_active = partial(self._on_list_change, kind)
                self._subscriptions[kind] = one
        opening = [one.ready for one in self._subscriptions.values() if one.ready is not None]
        if opening:
            await asyncio.wait(opening, timeout=SUBSCRIBE_SECONDS)

    def _set_catalog(self, catalog: Catalog) -> None:
        self.catalog, self.is_unknown = catalog, False
        self.results.drop()
        self._on_event(self, "catalog")

    def _save_catalog(self) -> None:
        """Keep what the server lists for later runs. A server may announce any number of changes,
        so this is done only when the lists were read as a whole, and at the end."""
        if self._known is not None and self.catalog is not self._saved:
            self._saved = self.catalog
            self._known.save(self.entry, self.catalog)

    def _on_list_change(self, kind: str) -> None:
        if kind not in self._changed:
            self._changed.add(kind)
            self._background.start(self._refresh_in_turn(kind))

    def refresh_expired(self) -> None:
        """Read expired lists again in the background. Until they arrive, the old ones are used."""
        now = monotonic()
        for change, kinds in CHANGES.items():
            lists = [self.catalog.items(kind) for kind in kinds]
            is_over = any(isinstance(one, ItemList) and one.expires <= now for one in lists)
            if is_over and self.state == "started":
                self._on_list_change(change)

    async def _refresh_in_turn(self, kind: str) -> None:
        """Read lists again, once for all changes that are announced before that begins. A server
        may announce any number of them."""
        async with self._refreshing:
            if kind in self._changed:  # otherwise, all lists were read meanwhile
                self._changed.discard(kind)
                await self.refresh(kind)
                await asyncio.sleep(REFRESH_PAUSE_SECONDS)

    async def refresh(self, change: str) -> None:
        """Read the lists again that a change concerns. If that fails, the old ones stay.

        Args:
            change: `"tools"`, `"prompts"` or `"resources"`.
        """
        try:
            lists: dict[str, Any] = {
                kind: await read_list(self.client, kind, self.limits) for kind in CHANGES[change]
            }
            self._set_catalog(replace(self.catalog, **lists))
        except DovetailError as problem:
            log.warning("%s: could not read its %s again: %s", self.name, change, problem)

    def _on_client_state(self, state: str) -> None:
        if state == "connected" and self._starting is None:
            if self.state == "failed":
                self.health.on_started()
                self._on_event(self, "state")
            self._background.start(self.read_again())  # it may be another version now
        elif state == "disconnected" and self.state == "started":
            self.on_failure(ConnectionClosed("the connection was lost"))

    async def read_again(self) -> None:
        """Read all lists again. If that fails, the old ones stay."""
        try:
            await self._read_catalog(self.client)
        except DovetailError as problem:
            if self._is_closed:
                return
            log.warning("%s: could not read its lists again: %s", self.name, problem)

    def on_failure(self, problem: Exception) -> None:
        """Record that the server could not be started, or that its main connection was lost. A
        server that is not lazy is tried again until it works.

        Args:
            problem: What happened.
        """
        if self.state != "failed" and not self._is_closed:
            log.warning("%s failed: %s", self.name, problem)
        self.health.on_failure(str(problem).removeprefix(f"{self.name}: "), monotonic())
        self._on_event(self, "state")
        if self._retrying is None and not self._is_closed and self.settings.start == "eager":
            self._retrying = self._background.start(self._retry())

    async def _retry(self) -> None:
        try:
            while self.state == "failed" and not self._is_closed:
                await asyncio.sleep(self.health.wait(monotonic()))
                try:
                    await self.start()
                except ConnectFailed as problem:
                    log.debug("%s", problem)  # `on_failure` has logged the first one
        except DovetailError as problem:  # such as ConsentDenied
            log.warning("%s", problem)
        finally:
            if self._retrying is asyncio.current_task():
                self._retrying = None

    def on_connection_lost(self, pooled: PooledClient, problem: Exception) -> None:
        """Record that a call failed because its connection was lost or could not be opened. Only
        the main connection says something about the server: others may have died of what one
        caller did. Over HTTP, a call can fail alone.

        Args:
            pooled: The connection of the call.
            problem: What happened.
        """
        if pooled.client.state == "connected":
            self.health.on_call_failed(monotonic())
        elif pooled.key is SHARED:
            self.on_failure(problem)
        elif self._pool.discard(pooled):
            self.health.on_call_failed(monotonic())

    def on_timeout(self, problem: Exception, pooled: PooledClient | None = None) -> None:
        """Find out in the background whether the server still responds, because a call was not
        answered in time. If the server answers a ping, only the tool is slow. If not, the
        connection is closed, as if it had been lost.

        Args:
            problem: What happened.
            pooled: The connection of the call (default: the main one).
        """
        pooled = pooled or self._main
        if pooled is not None and not pooled.is_checked:
            pooled.is_checked = True
            self._background.start(self._check_responding(pooled, problem))

    async def _check_responding(self, pooled: PooledClient, problem: Exception) -> None:
        connector = pooled.client._connector
        try:
            if connector.state == "connected" and await connector.is_responding():
                return
        finally:
            pooled.is_checked = False
        if pooled is self._main:
            lost = ConnectionClosed(f"{problem}, and no answer to a ping")
            self.on_failure(lost)
            await connector.end_session(lost)
        elif self._pool.discard(pooled):
            self.health.on_call_failed(monotonic())

    async def restart(self) -> None:
        """Close all connections, forget earlier failures, and start the server again."""
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        """Close all connections and forget earlier failures. The server is started again when it is
        used."""
        self.health.reset()
        await self._close_connections()
        self._on_event(self, "state")

    async def drain(self) -> None:
        """Close the server when the calls that are under way have ended, but no later than after
        the time that a call may take."""
        self._is_closed = True
        try:
            if self.calls:
                self._drained = asyncio.get_running_loop().create_future()
                await asyncio.wait([self._drained], timeout=self._call_seconds)
        finally:
            await self.close()

    @property
    def _call_seconds(self) -> float:
        return self.limits.timeout if self.settings.timeout is None else self.settings.timeout

    async def close(self) -> None:
        """Close all connections. The server cannot be started again."""
        self._is_closed = True
        await self._close_connections()

    async def _close_connections(self) -> None:
        self._save_catalog()
        # Detach everything before the first await, so that the server can be started again at once.
        main, self._main = self._main, None
        tasks = (self._starting, self._retrying)
        self._starting = self._retrying = None
        pool, background = self._pool, set(self._background)
        if not self._is_closed:
            self._pool = ConnectionPool(self._open_pooled, self.limits, self.name)
        for task in tasks:
            if task is not None:
                task.cancel()
        if main is not None:
            await main.client.close()
        await pool.close()
        if background:
            await asyncio.wait(background)

    # log levels

    @property
    def log_level(self) -> Level | None:
        """The level that a new connection asks for: the lowest that any caller wants; None if the
        server decides, or if each request has a level of its own."""
        return None if self.catalog.is_stateless else self._levels.lowest

    async def want_level(self, caller: Caller) -> None:
        """Ask the server for the log messages that a caller has chosen. A server that does not
        answer does not delay the caller for long.

        Args:
            caller: The caller.
        """
        if self._levels.add(caller, is_chosen=True):
            await self._update_level()

    async def _update_level(self) -> None:
        level = self.log_level
        if level is None or level == self._level:
            return
        self._level = level
        main = () if self._main is None else (self._main,)
        tasks = [
            self._background.start(_set_level_quietly(one.client, level))
            for one in (*main, *self._pool)
        ]
        if tasks:
            await asyncio.wait(tasks, timeout=SET_LEVEL_SECONDS)

    # connections for calls

    async def open(self) -> Client:
        """Return the client of the main connection, and start the server first if necessary.

        Raises:
            ConsentDenied: The server may not be started.
            ConnectFailed: The server could not be started, or keeps failing.
        """
        if self._main is None or self.state != "started":
            await self.start()
        else:
            self._admit()
        return self.client

    async def acquire(self, call: Call, number: int = 0, connection_id: str = "") -> PooledClient:
        """Return the connection for a call, and start the server first if necessary. Return it with
        `release`.

        Args:
            call: The call.
            number: The number of the connection whose question the call answers, if any.
            connection_id: The id of the connection on which the task of the call was started
                (default: none). If it was closed and the server is a process, the task is lost.

        Raises:
            ConnectFailed: The server could not be started.
            Overloaded: Too many calls are waiting for a connection.
            TaskLost: The process that ran the task has ended.
        """
        if connection_id:
            if (found := self.find_connection(connection_id)) is not None:
                self.calls += 1
                if found.key is not SHARED:
                    return self._pool.use(found, call)
                found.calls.append(call)
                return found
            self.check_task(connection_id)
        if not self.health.is_ready or self._main is None:
            await self.open()
        if not self.catalog.is_stateless and self._levels.add(call.caller):
            await self._update_level()
        if self._main is None:
            raise ConnectionClosed(f"{self.name} was stopped", sent=False)
        key = self.pool_key(call)
        if key is not SHARED:
            pooled = await self._pool.acquire(key, call, number)
        else:
            pooled = self._main
            pooled.calls.append(call)
        self.calls += 1
        return pooled

    def release(
        self, pooled: PooledClient, call: Call, *, asked: bool = False, answered: bool = True
    ) -> None:
        """Return a connection.

        Args:
            pooled: The connection.
            call: The call that used it.
            asked: Whether the server has answered with a question.
            answered: Whether the server has answered the call. If not, it may still ask something.
        """
        self.calls -= 1
        if not self.calls and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if pooled.key is SHARED:
            pooled.calls.end(call, answered=answered)
        elif (
            pooled.key.is_exclusive and (self.is_stateful or not answered) and not pooled.has_tasks
        ):
            self._pool.discard(pooled)  # the next caller must not get what belongs to this one
        else:
            self._pool.release(pooled, call, asked=asked, answered=answered)

    def check_task(self, connection_id: str) -> None:
        """Raise TaskLost if a task was started on a connection to a process that has ended.

        Args:
            connection_id: The id of the connection; empty for a call that is not about a task.
        """
        if connection_id and self.is_process and self.find_connection(connection_id) is None:
            raise TaskLost(f"{self.name} was restarted while this task was running")

    def task_scope(self, connection_id: str) -> str:
        """Return the part of the server within which the id of a task is unique: one process, or
        the whole server (empty).

        Args:
            connection_id: The id of the connection on which the task was started.
        """
        return connection_id if self.is_process else ""

    def find_connection(self, id: str) -> PooledClient | None:
        """Return the open connection with this id, or None.

        Args:
            id: The id (`Client.connection_id`).
        """
        connections = [*self._pool] if self._main is None else [self._main, *self._pool]
        return next((one for one in connections if one.client.connection_id == id), None)

    def session_ended(self, id: str, keep_tasks: bool = False) -> None:
        """Close the connections that only a caller's session used.

        Args:
            id: The id of the session.
            keep_tasks: Whether to leave connections with open tasks until those expire.
        """
        self._pool.discard_session(id, keep_tasks)
        if self._levels.remove(id) and not self._is_closed:
            self._background.start(self._update_level())

    def roots_changed(self, id: str) -> None:
        """Notify the server that the roots of a caller have changed, on the connections that only
        this caller uses. On others, the server asks for the roots each time.

        Args:
            id: The id of the caller's session.
        """
        for pooled in self._pool.of_session(id):
            self._background.start(pooled.client.set_roots(()))

    def pool_key(self, call: Call) -> PoolKey:
        """Return the key of the connection that a call uses.

        Args:
            call: The call.
        """
        declares, can_ask, adapts = b"", False, False
        if not self.catalog.is_stateless and not self.settings.capabilities:
            can = answerable(call, self.settings, self.model)
            # requests about a task use the same connection as the call that started it
            can_ask = bool(can) and (call.method.asks or call.name.startswith("tasks/"))
            adapts = self._adapts_to(call)
            if can or adapts:
                declares = encode_sorted(self._describe(call))
        share = self.settings.share or self._default_share(can_ask)
        if share == "all":
            return PoolKey("shared", "", declares) if can_ask or adapts else SHARED
        principal, session = call.principal, call.caller.session_id
        headers = forwarded_headers(self.settings.forward, call) if self.settings.forward else ()
        if principal is not None and (share == "user" or (self.is_stateful and not session)):
            return PoolKey("user", principal.id, declares, headers)
        return PoolKey("session" if session else "call", session, declares, headers)

    def _adapts_to(self, call: Call) -> bool:
        """Return whether the server may answer a caller differently because of its extensions, and
        the main connection declares others."""
        offered = self.catalog.capabilities.extensions
        if not isinstance(offered, dict) or not offered:
            return False
        declared = extensions_of(call)
        return any(declared.get(id) != self._extensions.get(id) for id in offered)

    def _describe(self, call: Call) -> ClientCapabilities:
        """Return what a connection of a caller declares."""
        can = answerable(call, self.settings, self.model)
        return with_extensions(can, extensions_of(call))

    def _default_share(self, can_ask: bool) -> str:
        if self.settings.forward:
            return "user"
        if self.is_stateful or (can_ask and not self.catalog.knows_parents):
            return "caller"
        return "all"

    def is_repeatable(self, call: Call, name: str) -> bool:
        """Return whether a call may be sent again if the connection was lost after it was sent.
        That a tool may be called twice is believed only of servers that are trusted.

        Args:
            call: The call.
            name: The server's own name of the tool, prompt or resource.
        """
        if call.method.params is not CallToolParams:
            return True
        if not self.settings.trust or name not in self.catalog.tools:
            return False
        return bool(self.catalog.tools[name].definition.is_repeatable)

    def header_params(self, tool: str) -> tuple[HeaderParam, ...]:
        """Return the parameters of a tool that HTTP requests repeat in their headers. The catalog
        has them, so a new connection does not have to list the tools first.

        Args:
            tool: The server's own name of the tool.
        """
        item = self.catalog.tools.get(tool)
        return () if item is None else item.header_params

    def shown_header_params(self, tool: str) -> tuple[HeaderParam, ...]:
        """Return the same for callers, who may see other arguments.

        Args:
            tool: The server's own name of the tool.
        """
        changed = self.changes.find(self.catalog.tools.get(tool))
        return self.header_params(tool) if changed is None else changed.header_params

    @property
    def is_process(self) -> bool:
        """Whether each connection to the server is a process of its own."""
        return self.entry.written is not None and not self.entry.is_remote

    @property
    def is_stateful(self) -> bool:
        """Whether the server keeps state per session: by its settings, or because it offers
        subscriptions in a session."""
        if self.settings.stateful is not None:
            return self.settings.stateful
        if self.catalog.is_stateless:
            return False
        resources = self.catalog.capabilities.resources
        return bool(resources and resources.get("subscribe"))

    def _open_pooled(self, key: PoolKey, call: Call) -> PooledClient:
        calls = ActiveCalls(key)
        declared = self._describe(call)
        if key.kind == "session" and "roots" in declared:
            declared = ClientCapabilities.of(
                {**declared, "roots": call.caller.capabilities["roots"]}
            )
        client = self._make_client(self, calls, declared, dict(key.headers))
        return PooledClient(client, key, calls)


MakeClient = Callable[[UpstreamServer, ActiveCalls, ClientCapabilities, Mapping[str, str]], Client]


async def _set_level_quietly(client: Client, level: Level) -> None:
    client._connector.log_level = level  # for the next connection
    if client.state != "connected" or client.capabilities.logging is None:
        return
    try:
        await client.set_log_level(level)
    except DovetailError as problem:
        log.debug("Could not set the log level: %s", problem)
