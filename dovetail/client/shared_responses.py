"""The responses that a client shares with other processes, through a backend.

A `SharedCache` with a backend keeps responses in this process, and writes them to the backend, too.
The responses of one URL are a group. When responses are dropped, the version of the group changes,
and with it all its responses in the backend are outdated. Other processes learn about that within
`CHECK_SECONDS`: a client that finds a response in its own process asks for the version if it has
not done so for that long. There is no message that could be lost.

Public responses are shared by clients with the same URL, TLS settings, proxy and credentials.
Private ones are shared by clients that send the same Authorization header, and the same other
headers. If a client sends none, its private responses stay in its process.

While the backend is away, each process uses what it has. It drops responses only for itself, and
for the others as soon as the backend is back and it sends its next request.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..aio import TaskSet
from ..errors import BackendAway, DovetailError

if TYPE_CHECKING:
    from ..backend.protocols import CacheEntries
    from .caching import CachedResponse
    from .targets import Target

CHECK_SECONDS = 1.0
"""How long a process may serve a response that another process has dropped."""
MAX_RESPONSE_BYTES = 4 * 1024 * 1024
"""Larger responses are not shared."""

_decode = msgspec.msgpack.Decoder(tuple[str | None, bytes]).decode
_announcing = TaskSet()


class SharedResponse(NamedTuple):
    """A response from the backend."""

    is_private: bool
    data: bytes
    uri: str | None
    life: float
    """The number of seconds until it expires."""


class ResponseNames(NamedTuple):
    """The keys of a response in the backend, as a public and as a private one."""

    public: str
    private: str | None

    def all(self) -> list[str]:
        return [name for name in self if name is not None]


class ResponseLookup(NamedTuple):
    """What was known before a request was sent."""

    request: tuple[str, str, bytes]
    """The method, the revision and the params."""
    is_fresh: bool
    """Whether the client wants a new response."""
    names: ResponseNames | None
    found: SharedResponse | None
    version: bytes | None


class SharedResponses:
    """The responses of one URL.

    Args:
        entries: The responses of all URLs in the backend.
        url: The URL.
        on_drop: Drops the responses of this URL that this process keeps.
    """

    def __init__(self, entries: "CacheEntries", url: str, on_drop: Callable[[], None]) -> None:
        self._entries, self._group, self._on_drop = entries, digest_of(url), on_drop
        self._seen: bytes | None = None
        """The last version that this process has seen."""
        self._checked_at = float("-inf")
        self._drops = self._announced = 0
        """The number of drops in this process, and of those that the backend knows."""
        self._is_announcing = False

    @property
    def version(self) -> bytes | None:
        """The current version, or None if it is not known."""
        return self._seen if self._drops == self._announced else None

    async def check(self) -> None:
        """Find out whether another process has dropped responses, unless this was done a moment
        ago."""
        with suppress(BackendAway):
            if self._drops != self._announced:
                await self._announce()
            elif monotonic() - self._checked_at >= CHECK_SECONDS:
                self._checked_at = monotonic()
                self._use_version(await self._entries.version(self._group))

    async def find(self, names: ResponseNames) -> SharedResponse | None:
        """Return a response, the private one if there are two."""
        if self._drops != self._announced:
            return None
        with suppress(BackendAway):
            drops = self._drops
            version, (public, *private) = await self._entries.read(self._group, *names.all())
            if drops != self._drops:
                return None
            self._use_version(version)
            entry = next(filter(None, [*private, public]), None)
            if entry is not None:
                uri, data = _decode(entry.data)
                return SharedResponse(entry is not public, data, uri, entry.life)
        return None

    async def keep(
        self, name: str, data: bytes, uri: str | None, life: float, version: bytes | None
    ) -> None:
        """Store a response, unless responses were dropped since `version` was read."""
        if version is None or version != self.version or len(data) > MAX_RESPONSE_BYTES:
            return
        with suppress(BackendAway):
            packed = msgspec.msgpack.encode((uri, data))
            await self._entries.write(self._group, name, packed, life, version)

    async def delete(self, names: ResponseNames) -> None:
        """Delete a response that is older than one that this client has received."""
        try:
            await self._entries.delete(self._group, *names.all())
        except BackendAway:
            self.drop()  # later

    def drop(self) -> None:
        """Drop all responses of this URL in the backend. Until that has happened, this process does
        not use them."""
        self._drops += 1
        if self._is_announcing:
            return
        with suppress(RuntimeError):  # no event loop: the next request announces it
            asyncio.get_running_loop()
            self._is_announcing = True
            _announcing.start(self._announce_all())

    async def _announce_all(self) -> None:
        try:
            with suppress(BackendAway):
                while self._drops != self._announced:
                    await self._announce()
        finally:
            self._is_announcing = False

    async def _announce(self) -> None:
        drops = self._drops
        before, after = await self._entries.drop(self._group)
        self._use_version(before)
        self._seen, self._announced = after, max(drops, self._announced)

    def _use_version(self, version: bytes) -> None:
        if version != self._seen:
            self._on_drop()
            self._seen = version


class ClientResponses:
    """The responses that one client shares.

    Args:
        responses: The responses of its URL.
        target: The URL, and how the client reaches it.
    """

    def __init__(self, responses: SharedResponses, target: "Target") -> None:
        self._responses, self._credentials = responses, target.credentials
        self._server = tuple(map(str, target.cache_key[:3]))
        """The URL, TLS settings and proxy."""
        url = self._server[0]
        self._url = url.replace("ws", "http", 1) if url.startswith("ws") else url
        self._headers = sorted(
            (key.lower(), value) for key, value in (target.headers or {}).items()
        )
        self.check, self.drop = responses.check, responses.drop

    async def look_up(
        self, method: str, revision: str, params: bytes, fresh: bool
    ) -> ResponseLookup:
        """Look for the response to a request, unless `fresh` is true."""
        request = method, revision, params
        names = await self._name(request)
        found = None if fresh or names is None else await self._responses.find(names)
        return ResponseLookup(request, fresh, names, found, self._responses.version)

    async def keep(
        self, lookup: ResponseLookup, kept: "CachedResponse | None", is_public: bool, life: float
    ) -> None:
        """Share the response to a request that was looked up; None if it must not be cached."""
        names = lookup.names
        # If the client has other credentials now, it is not clear to whom the response belongs.
        if names is None or names != await self._name(lookup.request):
            return
        if lookup.is_fresh:
            await self._responses.delete(names)
        name = names.public if is_public else names.private
        if kept is not None and name is not None:
            await self._responses.keep(name, kept.data, kept.uri, life, lookup.version)

    async def _name(self, request: tuple[str, str, bytes]) -> ResponseNames | None:
        """Return the names of the response to a request, or None if the client cannot say who it
        is."""
        authorization = ""
        if self._credentials is not None:
            try:
                found = await self._credentials.headers("POST", self._url)
            except DovetailError:
                return None  # the request fails for the same reason
            authorization = found.get("authorization", "")
            if not authorization:
                return None
        parts = self._server, authorization, request
        has_identity = authorization or any(name == "authorization" for name, _ in self._headers)
        private = digest_of("private", parts, self._headers) if has_identity else None
        return ResponseNames(digest_of("public", parts), private)


def digest_of(*parts: Any) -> str:
    """Return a name that does not reveal its parts."""
    return sha256(msgspec.msgpack.encode(parts)).hexdigest()
