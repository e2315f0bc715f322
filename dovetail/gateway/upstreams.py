"""All servers of a configuration: their entries, their lifecycle, and their names and URIs as one
table.

Servers are started in parallel. Nobody waits for a slow server longer than `Limits.catalog_wait`:
until its lists are known, it has none, and a change is announced when they arrive. Nobody waits
for a server whose lists are known from an earlier run (`known.py`).
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .. import config
from ..aio import TaskSet
from ..config.settings import read_changes
from ..errors import ConfigError, ConnectFailed, DovetailError, InvalidParams, NotFound
from ..limits import Limits
from ..logs import get_logger
from ..ports import Principal
from ..text import closest_name, escape_unsafe, quote
from .catalog import LISTS
from .consent.pins import digest
from .consent.request import ConsentRequest, describe_server
from .known import KnownCatalogs
from .naming import KINDS, SEPARATOR, Kind, LeftOut, NameTable, UpstreamName, default_prefix
from .upstream import EventKind, MakeClient, UpstreamEntry, UpstreamServer

if TYPE_CHECKING:
    from .connect.servers import PerUserServer

log = get_logger("gateway")

SINGLE: Final = "server"
"""The name of the only server of a gateway that was given a target instead of a file."""
MAX_LOGGED: Final = 20
"""The number of names that are logged at a time if callers cannot use them."""
KIND_OF_LIST: Final[Mapping[Kind, str]] = {kind: row.capability for kind, row in LISTS.items()}
"""The notification that announces a change to each list."""


class HostEvent(Struct, frozen=True):
    """Something that happened to a server."""

    kind: EventKind
    """`state` or `catalog`."""
    server: str
    """The name of the server in the configuration."""
    state: str
    """Its state: configured, known, started, failed or refused."""
    error: str | None = None
    """Why it failed or was refused."""


class Source(Struct, frozen=True, eq=False, kw_only=True):
    """The servers that a host or gateway was given, and the settings of their file."""

    entries: Sequence[UpstreamEntry]
    options: config.FileSettings = config.FileSettings()
    is_transparent: bool = False
    """Whether there is one target and no file, so that names stay as they are."""
    many_plain: bool = False
    """Whether several servers may have an empty prefix."""
    in_path: bool = False
    """Whether names and URIs are `prefix_name` and `scheme://prefix/path`, as in FastMCP."""


def read_source(source: Any) -> Source:
    """Return the servers that a source describes.

    Args:
        source: The path of a configuration file, its decoded contents, or any other target of a
            client, which becomes the only server.

    Raises:
        ConfigError: The file cannot be read, or an entry is not valid.
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, Mapping):
        return _read_servers(config.parse(source), "the configuration")
    if _is_config_file(source):
        servers = config.read(source)
        config.refuse_loop(servers, Path(source))
        return _read_servers(servers, str(source))
    return Source(entries=[describe_target(SINGLE, source)], is_transparent=True)


def read_entry(name: str, target: Any, options: config.FileSettings) -> UpstreamEntry:
    """Return the entry of a server that a program adds.

    Args:
        name: The name of the server.
        target: An entry as in a file, the path of another file that has an entry with this name,
            or any other target of a client.
        options: The settings of the file to which the server is added.

    Raises:
        ConfigError: There is no such entry, or it is not valid.
    """
    if isinstance(target, Mapping):
        settings, where = {"defaults": options.defaults}, "the configuration"
        servers = config.parse({"mcpServers": {name: target}, "dovetail": settings})
    elif _is_config_file(target):
        servers, where = config.read(target), str(target)
    else:
        return describe_target(name, target)
    config.choose(servers, name, where)  # raises if it is not there, not valid or disabled
    return _read_server(servers, name, where)


def _is_config_file(target: Any) -> bool:
    """Return whether `Client` would read a target as a file of servers."""
    if not isinstance(target, str | Path) or "://" in str(target):
        return False
    return Path(target).suffix.lower() in config.SUFFIXES


def unknown_name(kind: Kind, name: str) -> NotFound | InvalidParams:
    """Return the error for a name or URI that no server has.

    Args:
        kind: The kind of name.
        name: The name or URI that the caller sent.
    """
    if kind == "resources":
        return NotFound(f"Resource {name} not found", data={"uri": name})
    what = "template" if kind == "templates" else kind.removesuffix("s")
    return InvalidParams(f"Unknown {what}: {escape_unsafe(name)}", parameter="name")


def describe_target(name: str, target: Any) -> UpstreamEntry:
    """Return the entry of a server that is not from a file.

    Args:
        name: The name of the server.
        target: A target of a client.

    Raises:
        ConfigError: The target is a server of a file whose entry is not known any more.
    """
    if isinstance(target, config.ChosenServer):
        raise ConfigError(
            f"The target is the server {target.name!r} of a configuration, but consent is asked "
            "for its entry. Pass the entry, or the path of the file."
        )
    is_remote = isinstance(target, str) and "://" in target
    if is_remote:
        written = {"url": target}
    elif isinstance(target, str | Path):
        written = {"command": str(target)}
    elif isinstance(target, list | tuple):
        command, *args = map(str, target) if target else [""]
        written = {"command": command, "args": args}
    else:  # a server in this process, which no answer can outlive
        token = f"process:{secrets.token_hex(16)}"
        return UpstreamEntry(name=name, find_target=lambda: target, digest=token)
    folder = "" if is_remote else str(Path.cwd())
    covered = digest(
        msgspec.json.encode({"entry": written, "folder": folder}, order="sorted").decode()
    )

    def describe() -> ConsentRequest:
        return ConsentRequest(
            kind="reach" if is_remote else "start",
            server=name,
            digest=covered,
            entry=written,
            folder=folder,
        )

    return UpstreamEntry(
        name=name,
        find_target=lambda: target,
        digest=covered,
        written=written,
        is_remote=is_remote,
        describe=describe,
    )


def change_tools(source: Source, changes: Mapping[str, Any]) -> Source:
    """Return a source whose only server has changed tools.

    Args:
        source: A single target.
        changes: The changes, by the server's own names of the tools.

    Raises:
        ConfigError: There is a file, which has them itself, or a change is not valid.
    """
    if not source.is_transparent:
        raise ConfigError(
            'tools= is for a single target. For the servers of a file, write "tools": {"with": …} '
            "into their entries."
        )
    tools = read_changes(changes)
    settings = [replace(one.settings, tools=tools) for one in source.entries]
    entries = [
        replace(one, settings=own) for one, own in zip(source.entries, settings, strict=True)
    ]
    return replace(source, entries=entries)


def _read_servers(servers: config.Servers, where: str) -> Source:
    if servers.problems:
        raise ConfigError(next(iter(servers.problems.values())))
    names = [name for name, server in servers.items() if not server.disabled]
    entries = [_read_server(servers, name, where) for name in names]
    return Source(entries=entries, options=servers.options)


def _read_server(servers: config.Servers, name: str, where: str) -> UpstreamEntry:
    return UpstreamEntry(
        name=name,
        find_target=partial(config.resolve, servers, name, where),
        settings=servers.settings[name],
        fill=servers.variables.fill_all,
        digest=config.entry_digest(servers, name),
        written=servers.written[name],
        is_remote=servers[name].url is not None,
        needs_login=servers[name].needs_login,
        read_values=partial(_read_values, servers, name),
        describe=partial(describe_server, servers, name),
    )


def _read_values(servers: config.Servers, name: str) -> str:
    filled = config.expand(servers[name], variables=servers.variables)
    return msgspec.json.encode(filled, order="sorted").decode()


class UpstreamSet:
    """The servers of one host or gateway.

    Args:
        source: The servers.
        make_client: Returns a new client for a server.
        allow_start: Raises ConsentDenied if a server may not be started.
        limits: The limits.
        known: What servers listed in earlier runs; None if nothing is known.
        reserved: Names that no server may offer.
        model: The sampling capability for callers that have none.
        extensions: The extensions to declare when lists are read (default: none).
    """

    def __init__(
        self,
        source: Source,
        *,
        make_client: MakeClient,
        allow_start: Callable[[UpstreamServer], Awaitable[None]],
        limits: Limits,
        known: KnownCatalogs | None,
        reserved: Iterable[str] = (),
        model: Mapping[str, Any] | None = None,
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        self._model, self._extensions = model, extensions
        self.limits, self.options = limits, source.options
        self._make_client, self._allow_start, self._known = make_client, allow_start, known
        self._listeners: list[Callable[[UpstreamServer, EventKind], Any]] = []
        self.is_transparent = source.is_transparent
        """Whether names and URIs stay as they are."""
        self._background = TaskSet()
        self._starting: dict[UpstreamServer, asyncio.Task[None]] = {}
        self._deadline = 0.0
        self._users, self._lifecycle = 0, asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reserved = tuple(reserved)
        self._left_out: set[LeftOut] = set()
        self.is_running = False
        """Whether servers may be started."""
        self._draining = TaskSet()
        """The servers that were removed and still have calls."""
        self.servers = {entry.name: self._create(entry) for entry in source.entries}
        self.names = NameTable(
            self._prefixes(self.servers),
            reserved,
            many_plain=source.many_plain,
            in_path=source.in_path,
        )
        self._add_known_names(self.servers.values())

    def _create(self, entry: UpstreamEntry) -> UpstreamServer:
        kind: type[UpstreamServer] = UpstreamServer
        if entry.tokens is not None:
            from .connect.servers import PerUserServer

            kind = PerUserServer
        return kind(
            entry,
            make_client=self._make_client,
            on_event=self._on_event,
            limits=self.limits,
            allow_start=self._allow_start,
            known=None if entry.tokens is not None else self._known,
            model=self._model,
            extensions=self._extensions,
        )

    @property
    def _per_user(self) -> "list[PerUserServer]":
        found: list[Any] = [one for one in self.servers.values() if one.entry.tokens is not None]
        return found

    def _prefixes(self, servers: Mapping[str, UpstreamServer]) -> dict[str, str | None]:
        if self.is_transparent:
            return dict.fromkeys(servers)
        return {name: prefix_of(server) for name, server in servers.items()}

    # events

    def on_event(self, listener: Callable[[UpstreamServer, EventKind], Any]) -> None:
        """Call a function after each change to a server.

        Args:
            listener: Called with the server and `"state"` or `"catalog"`.
        """
        self._listeners.append(listener)

    def _on_event(self, server: UpstreamServer, kind: EventKind) -> None:
        owner = self.servers.get(server.name)
        if owner is None or not owner.holds(server):
            return  # it was removed
        if kind == "catalog":
            self._update_names(owner)
        elif server.state == "refused" and owner is server:
            for one in KINDS:
                self.names.update(server.name, one, ())
        for listener in self._listeners:
            listener(server, kind)

    def _update_names(self, server: UpstreamServer) -> None:
        for kind in KINDS:
            self.names.update(server.name, kind, server.names(kind))
        self._log_left_out()

    def left_out(self) -> list[LeftOut]:
        """Return all that the servers list and callers cannot use, and changes (`tools.with`) to
        tools that do not exist."""
        found = self.names.left_out()
        for server in self.servers.values():
            if server.changes and not server.is_unknown and server.entry.tokens is None:
                found += server.changes.left_out(server.catalog)
        return found

    def _log_left_out(self) -> None:
        before, self._left_out = self._left_out, set(self.left_out())
        new = sorted(self._left_out - before, key=lambda one: (one.server, one.kind, one.name))
        for one in new[:MAX_LOGGED]:
            log.warning("%s: left out %s: %s", one.server, quote(one.name), one.reason)
        if len(new) > MAX_LOGGED:
            log.warning("%d more names were left out (see /health)", len(new) - MAX_LOGGED)

    def _add_known_names(self, servers: Iterable[UpstreamServer]) -> None:
        for server in servers:
            is_per_user = server.entry.tokens is not None
            self.names.qualify(server.name, is_per_user)
            self.names.alias(server.name, server.changes.names)
            if is_per_user or server.state == "known":
                self._update_names(server)

    # lifecycle

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Run the servers as long as at least one context is open. The first one starts them, and
        the last one stops them.

        Raises:
            ConfigError: The servers run in another event loop.
        """
        loop = asyncio.get_running_loop()
        if self._users and loop is not self._loop:
            raise ConfigError("The servers of a gateway run in one event loop at a time")
        self._users += 1
        try:
            async with self._lifecycle:
                if self._users == 1:
                    self._loop = loop
                    await self.start()
            await self._wait_until_started(self._unknown())  # `initialize` tells what there is
            yield
        finally:
            self._users -= 1
            async with self._lifecycle:
                if not self._users:
                    await self.close()
                    self.servers = {
                        name: self._create(old.entry) for name, old in self.servers.items()
                    }
                    self._add_known_names(self.servers.values())

    def load_known(self) -> None:
        """Use lists of other replicas for the servers that were not started yet."""
        for server in self.servers.values():
            server.load_known()
        self._add_known_names(self.servers.values())

    async def start(self) -> None:
        """Start all servers that are not lazy, in the background."""
        self.is_running = True
        self._start_eager(self.servers.values())

    @property
    def has_users(self) -> bool:
        """Whether there are servers that each user sees differently."""
        return bool(self._per_user)

    def seen_by(self, user: str) -> list[UpstreamServer]:
        """Return the servers as a user sees them.

        Args:
            user: The id of the user; empty for none.
        """
        return [server.known_for(user) for server in self.servers.values()]

    def all(self) -> dict[str, UpstreamServer]:
        """Return all servers, and those of each user, by unique names."""
        found = dict(self.servers)
        for server in self._per_user:
            found |= {f"{server.name}\n{one.entry.user}": one for one in server.all_users()}
        return found

    async def _start_for(self, user: str) -> None:
        """Start the servers to which a user is connected, and wait for their lists."""
        starting = []
        for server in self._per_user:
            one = await server.seen_by(user)
            if one is not server and one.is_unknown:
                starting.append(self._background.start(server.start_for(user)))
        if starting:
            await asyncio.wait(starting, timeout=self.limits.catalog_wait)

    def _start_eager(self, servers: Iterable[UpstreamServer]) -> None:
        self._start(server for server in servers if server.settings.start == "eager")

    def _start(self, servers: Iterable[UpstreamServer]) -> None:
        self._deadline = asyncio.get_running_loop().time() + self.limits.catalog_wait
        for server in servers:
            task = self._starting[server] = self._background.start(_start_quietly(server))
            task.add_done_callback(partial(self._on_start_done, server))

    def _on_start_done(self, server: UpstreamServer, task: "asyncio.Task[None]") -> None:
        if self._starting.get(server) is task:
            del self._starting[server]

    def _unknown(self) -> list[UpstreamServer]:
        return [server for server in self.servers.values() if server.is_unknown]

    async def wait_for_catalogs(self, principal: Principal | None = None) -> None:
        """Wait until the lists of all servers are known, but no longer than `Limits.catalog_wait`
        after the start. Lazy servers whose lists are not known are started for that. Lists that are
        too old are read again in the background.

        Args:
            principal: The caller. Servers to which this user is connected are started, too.
        """
        for server in self.all().values():
            server.refresh_expired()
        unknown = self._unknown()
        lazy = [
            server
            for server in unknown
            if server.settings.start == "lazy"
            and server not in self._starting
            and server.health.wait(monotonic()) == 0
        ]
        if lazy and self.is_running:
            self._start(lazy)
        await self._wait_until_started(unknown)
        if self.has_users and principal is not None:
            await self._start_for(principal.id)

    async def _wait_until_started(self, servers: Iterable[UpstreamServer]) -> None:
        tasks = [self._starting[server] for server in servers if server in self._starting]
        left = self._deadline - asyncio.get_running_loop().time()
        if tasks and left > 0:
            await asyncio.wait(tasks, timeout=left)

    async def resolve(
        self, kind: Kind, name: str, principal: Principal | None = None
    ) -> UpstreamName:
        """Return what a name or URI from a caller stands for. Start the server first if its lists
        were not read yet.

        Args:
            kind: The kind of name. A template may also be the URI of a resource.
            name: The name or URI that the caller sent.
            principal: The caller.

        Raises:
            InvalidParams: There is no such tool, prompt or template.
            NotFound: There is no such resource.
            ConsentDenied: The server may not be started.
            ConnectFailed: The server could not be started.
        """
        found = self.names.from_caller(kind, name)
        found = found or await self._resolve_unknown(kind, name, principal)
        if found is None and kind == "templates":
            found = self.names.from_caller("resources", name)
        if found is None:
            raise unknown_name(kind, name)
        return found

    async def _resolve_unknown(
        self, kind: Kind, name: str, principal: Principal | None
    ) -> UpstreamName | None:
        if kind in ("tools", "prompts"):
            owner = self.names.owner(name)
            if owner is not None and self.servers[owner].entry.tokens is not None:
                return await self._resolve_for(owner, kind, name, principal)
            if owner is not None and self.servers[owner].is_unread:
                await self.servers[owner].start()
        elif self.names.unknown(kind) or self._starting:
            await self.wait_for_catalogs(principal)
            await self._wait_until_started(self._starting)
        return self.names.from_caller(kind, name)

    async def _resolve_for(
        self, owner: str, kind: Kind, name: str, principal: Principal | None
    ) -> UpstreamName | None:
        """Return what a name stands for at a server to which users log in. If the user is not
        connected yet, it is what the name looks like."""
        if principal is None:
            return None
        await self._start_for(principal.id)
        found, server = self.names.from_caller(kind, name), self.servers[owner]
        if found is not None or server.known_for(principal.id) is not server:
            return found
        plain = name.removeprefix(f"{prefix_of(server)}{SEPARATOR}")
        return self.names.from_alias(kind, plain, owner)

    def add(self, entry: UpstreamEntry) -> UpstreamServer:
        """Add a server at the end. If the servers have been started, start it unless it is lazy.

        Args:
            entry: Its entry.

        Raises:
            ConfigError: The name or prefix is in use.
        """
        if entry.name in self.servers:
            raise ConfigError(f"There is already a server {entry.name!r}")
        server = self.servers[entry.name] = self._create(entry)
        try:
            self.names.set_servers(self._prefixes(self.servers))
        except ConfigError:
            del self.servers[entry.name]
            raise
        self._add_known_names([server])
        if self.is_running:
            self._start_eager([server])
        return server

    async def remove(self, name: str) -> None:
        """Stop a server and remove its tools.

        Args:
            name: The name of the server.

        Raises:
            ConfigError: There is no such server.
        """
        server = self.find(name)
        del self.servers[name]
        self.names.set_servers(self._prefixes(self.servers))
        await server.close()
        self._announce(server)

    def _announce(self, server: UpstreamServer) -> None:
        for listener in self._listeners:
            listener(server, "catalog")

    def replace_all(self, source: Source, reserved: Iterable[str]) -> list[UpstreamServer]:
        """Replace the servers by those of a file that was read again. A server whose entry did not
        change keeps running, and new ones are started.

        Args:
            source: The servers.
            reserved: Names that no server may offer.

        Returns:
            The servers that were removed. Pass them to `drain`.

        Raises:
            ConfigError: Two prefixes are equal. Nothing was changed.
        """
        servers: dict[str, UpstreamServer] = {}
        for entry in source.entries:
            old = self.servers.get(entry.name)
            is_same = old is not None and entry.digest == old.entry.digest
            servers[entry.name] = old if old is not None and is_same else self._create(entry)
        NameTable(self._prefixes(servers))  # may raise
        stopped = [old for name, old in self.servers.items() if servers.get(name) is not old]
        started = [new for name, new in servers.items() if self.servers.get(name) is not new]
        kept = {name: server for name, server in servers.items() if server not in started}
        self.names.set_servers(self._prefixes(kept))  # forget what the others listed
        self.names.set_servers(self._prefixes(servers))
        self.names.reserve(reserved)
        self.servers, self.options = servers, source.options
        self._add_known_names(started)
        self._start_eager(started)
        return stopped

    async def drain(self, removed: Sequence[UpstreamServer]) -> None:
        """Stop servers that were removed: at once if they have no calls, and otherwise in the
        background when their calls have ended.

        Args:
            removed: The servers.
        """
        draining = [self._draining.start(server.drain()) for server in removed]
        idle = [task for task, server in zip(draining, removed, strict=True) if not server.calls]
        for server in removed:
            self._announce(server)
        if idle:
            await asyncio.wait(idle)

    async def restart(self, servers: Iterable[UpstreamServer]) -> None:
        """Stop servers, and start them again in the background.

        Args:
            servers: The servers.
        """
        await asyncio.gather(*(server.stop() for server in servers))
        self._start(servers)

    def find(self, name: str) -> UpstreamServer:
        """Return a server by its name in the configuration.

        Args:
            name: The name of the server.

        Raises:
            ConfigError: There is no such server.
        """
        if name in self.servers:
            return self.servers[name]
        close = closest_name(name, self.servers)
        advice = f". Did you mean {close!r}?" if close else ""
        raise ConfigError(f"There is no server {name!r}{advice}")

    async def close(self) -> None:
        """Stop all servers."""
        self.is_running = False
        await asyncio.gather(
            self._background.close(),
            self._draining.close(),
            *(server.close() for server in self.servers.values()),
        )


async def _start_quietly(server: UpstreamServer) -> None:
    try:
        await server.start()
    except ConnectFailed:
        pass  # it was logged
    except DovetailError as problem:
        log.warning("%s", problem)


def prefix_of(server: UpstreamServer) -> str:
    """Return the prefix of a server's names: from its settings, or from its name in the file."""
    prefix = server.settings.prefix
    return default_prefix(server.name) if prefix is None else prefix
