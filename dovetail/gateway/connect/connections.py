"""What a gateway does for users who log in to servers themselves (`"auth": "oauth"` in an entry).

A call of a user without tokens for a server fails with `UrlRequired`, so each revision sends the
user to a page in its own way: an error that lists the page (2025-11-25), or a question in the
stateless era, after which the call goes on. A client that can do neither gets an error with the
link. A token that the server refuses has the same effect.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...aio import TaskSet
from ...auth.provider.storage import SqliteStorage, Storage
from ...connection.input_requests import as_tool_error, check
from ...databases import MEMORY
from ...errors import (
    CannotAsk,
    ConfigError,
    DovetailError,
    InternalError,
    InvalidParams,
    ToolError,
    UrlRequired,
    missing_extra,
)
from ...logs import get_logger
from ...ports import Call, Guard
from ...protocol.client_features import ElicitParams
from ...protocol.content import TextContent
from ...protocol.tools import ToolResult
from ...text import one_line
from ..consent.sqlite_store import default_store_path
from ..naming import Kind
from ..upstream import UpstreamServer
from .pages import LINK_SECONDS, ConnectPages, Link, poll
from .servers import CONNECT, PerUserServer, find_refusal
from .tokens import RowStorage, UserTokens

if TYPE_CHECKING:
    from ..gateway import Gateway
    from ..upstreams import Source

log = get_logger("gateway")

REUSE_SECONDS: Final = 300.0
"""How long the same link is given to further calls."""
WAIT_SECONDS: Final = 45.0
"""How long a call waits for a user who agreed to connect."""
START_SECONDS: Final = 10.0
"""How long to wait for the lists of a server after a user has connected."""
REQUIREMENTS: Final = (
    'has "auth": "oauth", so each user logs in to it. Write the gateway in a Python file, with '
    "auth=Provider(users=… or upstream=…). Serve the gateway over HTTP with a public URL: dovetail "
    "run gateway.py --http --public-url https://…. If the gateway itself should log in, use "
    '"auth" with "grantType": "client_credentials".'
)


def check_guard(source: "Source", guard: Guard | None) -> None:
    """Raise ConfigError if users cannot log in to the servers of a configuration.

    Args:
        source: The servers.
        guard: The guard of the gateway.
    """
    for entry in source.entries:
        if not entry.needs_login:
            continue
        about = f"The server {entry.name!r} {REQUIREMENTS}"
        if guard is None:
            raise ConfigError(f"auth= is missing. {about}")
        if not getattr(guard, "can_sign_in", hasattr(guard, "sign_in")):
            raise ConfigError(f"{type(guard).__name__} cannot sign in a browser. {about}")
        if entry.settings.share == "all":
            raise ConfigError(
                f"server {entry.name!r}: each user logs in to it, so callers cannot share a "
                'connection. Use "share": "user" or "caller".'
            )


class PendingLink(Struct):
    """A link that was sent to a caller and has not been used yet."""

    link: Link
    names: set[str]
    """What they called."""
    token: bytes
    """The digest of the token that the user had before."""


_decode_link = msgspec.msgpack.Decoder(PendingLink).decode


class UserConnections:
    """The connections of users to the servers that they log in to.

    Args:
        gateway: The gateway.
        store: The `store=` of the gateway: tokens are stored in a file next to it. If it is None
            and the gateway has a backend, they are stored there.
    """

    def __init__(self, gateway: "Gateway", store: Any) -> None:
        assert gateway.guard is not None
        self._gateway, self._store = gateway, store
        self.tokens = UserTokens(self._open_storage, lambda: gateway.ring)
        self.pages = ConnectPages(
            self.tokens,
            gateway.guard,
            gateway.info.title or gateway.name,
            find_server=lambda name: gateway.upstreams.servers.get(name),
            make_client=gateway.make_login_client,
            on_connected=self._on_connected,
        )
        self._polls = TaskSet()
        self._waiting: dict[tuple[str, str, bytes], asyncio.Task[bool | None]] = {}
        """What waits for a user, by user, server and the token that is to be replaced."""

    def _open_storage(self) -> Storage:
        backend = self._gateway.backend
        if backend and self._store is None:
            return RowStorage(backend.rows("connect", durable=True))
        return SqliteStorage(_find_path(self._store))

    # settings

    def prepare(self, source: "Source") -> "Source":
        """Return the servers of a configuration, prepared for users who log in.

        Args:
            source: The servers.
        """
        name = self._gateway.info.title or self._gateway.name
        entries = [
            replace(entry, tokens=self.tokens, client_name=name) if entry.needs_login else entry
            for entry in source.entries
        ]
        return replace(source, entries=entries)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Check the options with which the gateway is served.

        Args:
            options: The options.

        Raises:
            ConfigError: An option is missing.
        """
        if not options.get("public_url"):
            raise ConfigError(f"public_url is missing. A server of the gateway {REQUIREMENTS}")
        storage = self.tokens.storage
        is_in_memory = isinstance(storage, SqliteStorage) and storage.path == MEMORY
        if is_in_memory and (options.get("workers") or 1) > 1:
            raise ConfigError(
                "Workers cannot share the tokens of users in memory. Pass store= with a file."
            )
        ring = self.tokens.ring
        if not ring.encrypts:
            raise missing_extra("Storing the tokens of users", "http")
        if ring.origin == "process" and not is_in_memory:
            log.warning(
                "Users have to connect again when the gateway is restarted, because their tokens "
                "are sealed with random keys. Set DOVETAIL_KEYS, or pass keys=."
            )

    def check_base(self) -> None:
        """Raise ConfigError if the gateway is not served over HTTP with a public URL."""
        if self.pages.base is None:
            raise ConfigError(f"A server of the gateway {REQUIREMENTS}")

    async def close(self) -> None:
        """Give up all logins that are under way."""
        await self.pages.close()
        await self._polls.close()
        storage = self.tokens.storage
        if isinstance(storage, SqliteStorage) and storage.path != MEMORY:
            storage.close()

    # calls

    async def relay(
        self,
        call: Call,
        kind: Kind,
        server: UpstreamServer,
        name: str,
        relay: Callable[[UpstreamServer], Awaitable[Any]],
    ) -> Any:
        """Relay a call to a server as its user uses it.

        Args:
            call: The call.
            kind: The kind of what is called.
            server: The server, to which each user logs in.
            name: The server's own name of what is called.
            relay: Relays the call to the server of the user.

        Raises:
            UrlRequired: The user has to connect first.
        """
        assert isinstance(server, PerUserServer)
        access, is_connecting = self._gateway.access, kind == "tools" and name == CONNECT
        if is_connecting and not access.may_connect(server, _user_of(call)):
            raise InvalidParams(f"You may not connect to {server.name}")
        if not is_connecting and access.is_denied(call, kind, server, name):
            await access.require(call, kind, server, name)  # it says why
        try:
            one = await self._open_server(call, server, name)
            if is_connecting:
                await one.open()
                if CONNECT not in one.catalog.tools:
                    text = f"{server.name} is connected. Its tools are listed now."
                    return ToolResult(content=[TextContent(text)])
            server.calls += 1
            try:
                return await relay(one)
            finally:
                server.calls -= 1
        except DovetailError as problem:
            explained = await self._explain(call, server, name, problem)
            if isinstance(explained, ToolError):
                return as_tool_error(call, explained)
            if explained is problem:
                raise
            raise explained from problem

    async def _open_server(self, call: Call, server: PerUserServer, name: str) -> UpstreamServer:
        """Return a server as the user of a call uses it.

        Args:
            call: The call.
            server: The server.
            name: The server's own name of what is called.

        Raises:
            UrlRequired: The user has to connect first.
            ToolError: The same, and the client cannot send its user to a page.
        """
        user = _user_of(call)
        if call.caller.revision.stateless and call.params.request_state is not None:
            await self._wait(user, server, name)
        if not await server.is_connected(user):
            raise await self._requirement(call, server, name, ())
        return server.for_user(user)

    async def _explain(
        self, call: Call, server: PerUserServer, name: str, problem: Exception
    ) -> Exception:
        """Return the error for a call that failed: if the server refused the user's tokens, what
        the user has to do.

        Args:
            call: The call.
            server: The server.
            name: The server's own name of what was called.
            problem: Why the call failed.
        """
        refusal = find_refusal(problem)
        if refusal is None:
            return problem
        if not refusal.curable:
            log.warning("%s refused the login of %s: %s", server.name, _user_of(call), refusal)
            return InternalError(f"{server.name} refused the login of this user")
        if not refusal.scopes:
            await server.mark_refused(_user_of(call))
        return await self._requirement(call, server, name, refusal.scopes)

    async def _requirement(
        self, call: Call, server: PerUserServer, name: str, scopes: tuple[str, ...]
    ) -> Exception:
        """Return the error that sends a user to a link."""
        link = await self._link(_user_of(call), server, name, scopes)
        url = self.pages.make_url(link)
        what = f"Connect your account at {server.name} first"
        if scopes:
            what = f"Allow more at {server.name} first ({one_line(' '.join(scopes))})"
        page = ElicitParams(message=what, mode="url", url=url, elicitation_id=link.id)
        try:
            check(call, "elicitation/create", page)
        except CannotAsk:
            return ToolError(f"{what}: open {url} in a browser, sign in, and then call this again.")
        return UrlRequired(what, url=url, id=link.id)

    async def _link(
        self, user: str, server: PerUserServer, name: str, scopes: tuple[str, ...]
    ) -> Link:
        """Return a link that was not used yet: the last one, or a new one."""
        now, last = self.tokens.now(), await self._last_link(user, server)
        if last is not None:
            link = last.link
            is_same = (link.digest, link.scopes) == (server.entry.digest, scopes)
            is_young = link.expires - now > LINK_SECONDS - REUSE_SECONDS
            if is_same and is_young and not await self.pages.was_used(link):
                if name not in last.names:
                    await self._remember_link(replace(last, names={*last.names, name}))
                return link
        link = Link(
            token_urlsafe(16), user, server.name, server.entry.digest, now + LINK_SECONDS, scopes
        )
        await self._remember_link(PendingLink(link, {name}, await server.token_digest(user)))
        return link

    async def _last_link(self, user: str, server: PerUserServer) -> PendingLink | None:
        """Return the last link for a user and a server, whichever process sent it."""
        data = await self.tokens.load("link", user, server.name)
        return None if data is None else _decode_link(data)

    async def _remember_link(self, pending: PendingLink) -> None:
        link, data = pending.link, msgspec.msgpack.encode(pending)
        await self.tokens.save(data, "link", link.user, link.server, life=LINK_SECONDS)

    async def _wait(self, user: str, server: PerUserServer, name: str) -> None:
        """Wait for a user who agreed to visit a page. All calls that wait for the same user look
        together, because each look reads the file or asks the backend."""
        pending = await self._last_link(user, server)
        for_scopes = pending is not None and bool(pending.link.scopes) and name in pending.names
        key = (user, server.name, pending.token if pending is not None and for_scopes else b"")

        async def is_done() -> bool | None:
            if pending is not None and for_scopes:
                return await server.token_digest(user) != pending.token or None
            return await server.is_connected(user) or None

        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = self._polls.start(poll(is_done, WAIT_SECONDS))
            waiting.add_done_callback(lambda _: self._waiting.pop(key))
        await asyncio.shield(waiting)

    async def _on_connected(self, server: PerUserServer, link: Link) -> None:
        """Use new tokens of a user. Connections find them by themselves, so calls go on."""
        one = server.for_user(link.user)
        try:
            async with asyncio.timeout(START_SECONDS):
                if one.state == "started":
                    await one.read_again()  # it may list more now
                else:
                    one.health.reset()
                    await one.start()
        except (DovetailError, TimeoutError) as problem:
            log.warning("%s: its lists could not be read: %s", server.name, problem)
        self._gateway.user_connected(link.id)


def _find_path(store: Any) -> str:
    """Return the file for tokens: next to that for consent."""
    path = getattr(store, "path", store)
    if path == MEMORY:
        return MEMORY
    known = isinstance(path, str | Path)
    return str(Path(path if known else default_store_path()).expanduser().with_suffix(".tokens.db"))


def _user_of(call: Call) -> str:
    if call.principal is None:
        raise InvalidParams("This server requires you to authenticate at the gateway")
    return call.principal.id
