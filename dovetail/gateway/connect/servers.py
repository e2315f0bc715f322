"""A server to which each user of a gateway logs in: one `UpstreamServer` for each user.

What a server lists may depend on its user, such as the names of documents. So connections, lists,
state and failures all belong to one user, and nothing that was read with the token of one user
reaches another. The server itself, which nobody is logged in to, lists only the tool `connect`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ...aio import LruDict, Sweeper, TaskSet
from ...auth import OAuth
from ...auth.client.browser import Browser
from ...auth.urls import login_key
from ...config import ChosenServer
from ...errors import DovetailError, Unauthorized
from ...ports import Caller
from ...protocol.raw import encode_raw
from ..catalog import LIST_KINDS, Catalog, Item
from ..naming import Kind
from ..upstream import EventKind, UpstreamServer
from .tokens import UserTokenStore

CONNECT: Final = "connect"
"""The tool that is listed for users who are not connected."""
MAX_USERS: Final = 1000
"""The number of users whose lists are kept for one server."""
MAX_REFUSED: Final = 10_000
"""The number of users for whom a refused token is remembered."""


class PerUserServer(UpstreamServer):
    """A configured server to which each user logs in. Its arguments are those of UpstreamServer;
    its entry has `tokens`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._options = options
        self._users: OrderedDict[str, UpstreamServer] = OrderedDict()
        """The servers of the users who are connected, the longest unused first."""
        self._used: dict[str, float] = {}
        """When each of them was last used."""
        self._refused: LruDict[str, bytes] = LruDict(MAX_REFUSED)
        """The digest of the last token of each user that the server refused."""
        self._listed: dict[str, bytes] = {}
        """A digest of what the server lists for each of them."""
        self._closing = TaskSet()
        self._sweeper = Sweeper(max(self.limits.upstream_idle / 4, 0.05), self._sweep)
        self.catalog = Catalog(tools={CONNECT: _connect_tool(self.name)})

    @cached_property
    def url(self) -> str:
        """The URL of the server, with its variables filled in."""
        return self._target.config.url or ""

    @property
    def _target(self) -> ChosenServer:
        found: ChosenServer = self.entry.find_target()
        return found

    def store(self, user: str) -> UserTokenStore:
        """Return the store of a user's tokens.

        Args:
            user: The id of the user.
        """
        assert self.entry.tokens is not None
        return self.entry.tokens.store(user, self.name, self.entry.digest)

    def credentials(
        self, user: str, browser: Browser | None = None, scopes: Iterable[str] = ()
    ) -> OAuth:
        """Return the credentials of a user.

        Args:
            user: The id of the user.
            browser: The browser in which the user logs in now (default: None, the stored login is
                used).
            scopes: Scopes to request in addition to those of the entry.
        """
        chosen = self._target.config.auth
        options = {} if chosen is None or isinstance(chosen, str) else chosen.options
        options["scopes"] = [*options.get("scopes", ()), *scopes]
        return OAuth(
            **options,
            client_name=self.entry.client_name,
            store=self.store(user),
            browser=browser or False,
            fresh=browser is not None,
        )

    # users

    async def is_connected(self, user: str) -> bool:
        """Return whether there are tokens of a user that the server has not refused.

        Args:
            user: The id of the user.
        """
        digest = await self.token_digest(user)
        return bool(digest) and self._refused.get(user) != digest

    async def token_digest(self, user: str) -> bytes:
        """Return a digest of a user's token, which changes when it is replaced; empty if there is
        none.

        Args:
            user: The id of the user.
        """
        tokens = await self.store(user).find(login_key(self.url))
        if tokens is None:
            return b""
        return blake2b(tokens.access_token.encode(), digest_size=16).digest()

    async def mark_refused(self, user: str) -> None:
        """Remember that the server does not accept the tokens of a user any more.

        Args:
            user: The id of the user.
        """
        self._refused[user] = await self.token_digest(user)

    def for_user(self, user: str) -> UpstreamServer:
        """Return the server as a user who is connected uses it.

        Args:
            user: The id of the user.
        """
        server = self._users.get(user)
        if server is None:
            entry = replace(
                self.entry,
                settings=replace(self.settings, start="lazy"),
                auth=self.credentials(user),
                tokens=None,
                user=user,
            )
            options = {**self._options, "on_event": self._on_user_event, "known": None}
            server = self._users[user] = UpstreamServer(entry, **options)
            server.counts, server.question_limits = self.counts, self.question_limits
            while len(self._users) > MAX_USERS:
                self._forget(next(iter(self._users)))
            self._sweeper.start()
        self._users.move_to_end(user)
        self._used[user] = asyncio.get_running_loop().time()
        return server

    async def seen_by(self, user: str) -> UpstreamServer:
        """Return the server as a user sees it in lists: this one if the user is not connected.

        Args:
            user: The id of the user.
        """
        if await self.is_connected(user):
            return self.for_user(user)
        if user in self._users:  # they were connected before
            self._forget(user)
            self._on_event(self, "catalog")
        return self

    async def start_for(self, user: str) -> None:
        """Start the server for a user who is connected. If it refuses the user's tokens, the user
        sees the tool `connect` again.

        Args:
            user: The id of the user.
        """
        try:
            await self.for_user(user).start()
        except DovetailError as problem:
            if find_refusal(problem) is not None:
                await self.mark_refused(user)
                await self.seen_by(user)

    def _on_user_event(self, server: UpstreamServer, kind: EventKind) -> None:
        """Pass on what happens to the server of a user, except lists that are the same as before:
        they are read again whenever it is started."""
        if kind == "catalog":
            listed = _digest_lists(server.catalog)
            if self._listed.get(server.entry.user) == listed:
                return
            self._listed[server.entry.user] = listed
        self._on_event(server, kind)

    def known_for(self, user: str) -> UpstreamServer:
        """Return the server as `seen_by` has found it.

        Args:
            user: The id of the user; empty for none.
        """
        return self._users.get(user, self)

    def holds(self, server: UpstreamServer) -> bool:
        """Return whether a server is this one, or that of one of the users.

        Args:
            server: The server.
        """
        return server is self or self._users.get(server.entry.user) is server

    def all_users(self) -> list[UpstreamServer]:
        """Return the servers of all users who are connected."""
        return list(self._users.values())

    def names(self, kind: Kind) -> Iterable[str]:
        """Return all names of a kind, of all users.

        Args:
            kind: The kind of list.
        """
        found = dict.fromkeys(self.catalog.items(kind))
        for server in self._users.values():
            found.update(dict.fromkeys(server.names(kind)))
        return found

    def _forget(self, user: str) -> None:
        self._used.pop(user, None)
        self._listed.pop(user, None)
        self._closing.start(self._users.pop(user).close())

    def _sweep(self) -> bool:
        """Close connections that were not used for long. Lists are kept."""
        oldest = asyncio.get_running_loop().time() - self.limits.upstream_idle
        for user, server in self._users.items():
            if self._used.get(user, oldest) < oldest and server.is_idle and server.connections:
                self._closing.start(server.stop())
        return bool(self._users)

    # what UpstreamServer does, for all users

    @property
    def connections(self) -> int:
        """The number of open connections of all users."""
        return sum(server.connections for server in self._users.values())

    async def start(self) -> None:
        """Do nothing: the server is reached when a user is connected."""

    async def stop(self) -> None:
        """Close the connections of all users."""
        await asyncio.gather(*(server.stop() for server in self.all_users()))

    async def close(self) -> None:
        """Close the connections of all users. The server cannot be used again."""
        self._sweeper.cancel()
        await asyncio.gather(*(server.close() for server in self.all_users()))
        await self._closing.wait()
        self._users.clear()
        await super().close()

    def session_ended(self, id: str, keep_tasks: bool = False) -> None:
        """Close the connections that only a caller's session used.

        Args:
            id: The id of the session.
            keep_tasks: Whether to leave connections with open tasks until those expire.
        """
        for server in self._users.values():
            server.session_ended(id, keep_tasks)

    def roots_changed(self, id: str) -> None:
        """Notify the server that the roots of a caller have changed.

        Args:
            id: The id of the caller's session.
        """
        for server in self._users.values():
            server.roots_changed(id)

    async def want_level(self, caller: Caller) -> None:
        """Ask for the log messages that a caller has chosen, if they are connected.

        Args:
            caller: The caller.
        """
        server = None if caller.principal is None else self._users.get(caller.principal.id)
        if server is not None:
            await server.want_level(caller)

    async def drain(self) -> None:
        """Close the connections of all users after their calls have ended."""
        await asyncio.gather(*(server.drain() for server in self.all_users()))
        await self.close()


def _connect_tool(name: str) -> Item:
    fields: Mapping[str, Any] = {
        "name": CONNECT,
        "description": (
            f"Connect the user's own account at {name}. The tools of {name} are listed after that."
        ),
        "inputSchema": {"type": "object", "properties": {}},
    }
    raw = {key: encode_raw(value) for key, value in fields.items()}
    return Item("tools", CONNECT, raw)


def _digest_lists(catalog: Catalog) -> bytes:
    found = blake2b(digest_size=16)
    for kind in LIST_KINDS:
        for item in catalog.items(kind).values():
            found.update(msgspec.json.encode([kind, item.fields]))
    return found.digest()


def find_refusal(problem: BaseException | None) -> Unauthorized | None:
    """Return the refusal of a user's tokens that an error is about, or None.

    Args:
        problem: The error.
    """
    while problem is not None and not isinstance(problem, Unauthorized):
        problem = problem.__cause__
    return problem
