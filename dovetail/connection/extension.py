"""What an extension is: a value that a server or a client is given, one for each side.

    greetings = Extension(
        id="com.example/greetings",
        methods=[request("greetings/say", "client", GreetParams, GreetResult)],
        handlers={"greetings/say": say},
    )
    server = Server("demo", extensions=[greetings])

It is declared by its identifier and `settings` in the capabilities; the other side does the same, and what it said can be
asked for with `settings_of`. It may bring

    methods     of its own, requests and notifications, with their params and results as types
    handlers    what answers or hears those that come to this side
    around      wrappers around calls of the core, by method: middleware for that one alone
    kinds       further kinds of result (`resultType`) that a call of the core may be answered with, on the client's side,
                and what makes the result out of them that the caller is waiting for

A method of an extension is answered to those only who declared it too, unless it is not `mutual`: others are told which
extension it takes. Everything else falls back by itself: a wrapper that finds the extension undeclared calls the next one.
https://modelcontextprotocol.io/specification/2026-07-28/basic#extension-negotiation
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from ..errors import ConfigError, MethodNotFound, MissingCapability
from ..ports import Answer, Call, Caller
from ..protocol.base import Result
from ..protocol.capabilities import ClientCapabilities, ServerCapabilities
from ..protocol.methods import Method
from ..revisions import STATELESS
from .middleware import Middleware

Finish: TypeAlias = Callable[[Any, Any, Any], Awaitable[Any]]
"""Takes the client, the params of the request and the result of that kind; gives the result that the caller gets."""
_LABEL = r"[a-z]([a-z0-9-]*[a-z0-9])?"
_ID = re.compile(rf"{_LABEL}(\.{_LABEL})*/[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.IGNORECASE)


class Kind(Struct, frozen=True, eq=False):
    """A further kind of result."""

    type: type[Result]
    finish: Finish


class Extension(Struct, frozen=True, kw_only=True, eq=False):
    """One side's part of an extension."""

    id: str
    settings: Mapping[str, Any] = {}
    methods: Sequence[Method] = ()
    handlers: Mapping[str, Answer] = {}
    around: Mapping[str, Middleware] = {}
    kinds: Mapping[str, Kind] = {}
    mutual: bool = True
    """Whether its methods are for those only who declare it too."""
    handshake: bool = True
    """Whether there is such a thing in the handshake era."""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ConfigError(f"{self.id!r} is no identifier of an extension; write it like 'com.example/name'")
        named = {method.name for method in self.methods}
        taken = sorted(name for name in named if any(name in revision.methods for revision in STATELESS))
        if taken:
            raise ConfigError(f"{self.id}: {', '.join(taken)} belongs to the core; wrap it with around=")
        if strange := sorted(self.handlers.keys() - named):
            raise ConfigError(f"{self.id}: there is a handler for {', '.join(strange)}, but no such method in methods=")


class Extensions:
    """The extensions of one side."""

    def __init__(self, given: Iterable[Extension] = ()) -> None:
        self._all = tuple(given)
        self._methods: dict[str, tuple[Method, Extension]] = {}
        for extension in self._all:
            if sum(one.id == extension.id for one in self._all) > 1:
                raise ConfigError(f"The extension {extension.id} is given twice")
            for method in extension.methods:
                if method.name in self._methods:
                    other = self._methods[method.name][1].id
                    raise ConfigError(f"{method.name} is a method of two extensions: {other} and {extension.id}")
                self._methods[method.name] = method, extension
        self.kinds = {name: kind for one in self._all for name, kind in one.kinds.items()}

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def declared(self) -> dict[str, Any] | None:
        """What goes into the capabilities."""
        return {one.id: dict(one.settings) for one in self._all} or None

    def spoken(self, stateless: bool) -> dict[str, Any] | None:
        """What of it goes to a peer of this era."""
        return {one.id: dict(one.settings) for one in self._all if stateless or one.handshake} or None

    def method(self, name: str, stateless: bool) -> Method | None:
        """The method of that name, where an extension has it in this era."""
        found = self._methods.get(name)
        return found[0] if found is not None and (stateless or found[1].handshake) else None

    def handler(self, name: str) -> Answer | None:
        """What answers or hears a method of that name."""
        found = self._methods.get(name)
        return None if found is None else found[1].handlers.get(name)

    def around(self, name: str) -> tuple[Middleware, ...]:
        """The wrappers around a method of the core, the outermost first."""
        return tuple(one.around[name] for one in self._all if name in one.around)

    def kind_of(self, result: Any) -> Kind | None:
        """The kind that a result is of, where it is not of the core."""
        return self.kinds.get(result.result_type or "") if self.kinds and isinstance(result, Result) else None

    def check(self, method: Method, peer: ServerCapabilities) -> None:
        """MethodNotFound where this is a method of an extension that the server did not declare."""
        _, extension = self._methods[method.name]
        if settings_of(extension.id, peer) is None:
            raise MethodNotFound(f"{method.name}: the server does not offer the extension {extension.id}")

    @property
    def handlers(self) -> dict[str, Answer]:
        """What answers the methods of all of them."""
        return {name: handler for one in self._all for name, handler in one.handlers.items()}

    def admit(self, method: Method, params: Any, caller: Caller) -> None:
        """MissingCapability where this is a method of an extension that the caller did not declare."""
        found = self._methods.get(method.name)
        if found is None or found[0] is not method or not found[1].mutual:
            return
        if settings_of(found[1].id, caller.capabilities) is None:
            raise undeclared(method.name, found[1].id)


NONE = Extensions()
"""No extensions."""


def settings_of(id: str, peer: ClientCapabilities | ServerCapabilities) -> dict[str, Any] | None:
    """What the other side declared of an extension; None where it did not."""
    declared = peer.extensions
    found = declared.get(id) if isinstance(declared, dict) else None
    return found if isinstance(found, dict) else None


def undeclared(what: str, id: str) -> MissingCapability:
    """The refusal of what only those get who declare the extension."""
    return MissingCapability(
        f"{what} is for clients that declare the extension {id}",
        data={"requiredCapabilities": {"extensions": {id: {}}}},
    )


def declares(call: Call, id: str) -> bool:
    """Whether the caller declared an extension."""
    return settings_of(id, call.caller.capabilities) is not None
