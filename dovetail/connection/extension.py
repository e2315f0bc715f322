"""Protocol extensions: one object for the server's side and one for the client's side.

    say = Method("greetings/say", "client", SayParams, SayResult)
    greetings = Extension(
        id="com.example/greetings", methods=[say], handlers={"greetings/say": answer}
    )
    server = Server("demo", extensions=[greetings])
    client = Client(server, extensions=[Extension(id="com.example/greetings", methods=[say])])

Each side declares an extension in its capabilities, with its identifier and its `settings`;
`settings_of` returns the settings that the other side declared. An extension may have:

    methods     its own requests and notifications, with the types of their params and results
    handlers    the functions that answer requests and receive notifications on this side
    around      middleware for individual core methods. It runs inside a server's middleware, and
                outside a client's middleware. The first extension is the outermost
    instead     middleware that passes a call on, or answers it with something else, such as a task.
                It runs outside everything in `around`, which therefore always receives the core
                result, regardless of the order in which extensions were added. It does not inspect
                the results that it passes on, so they are not decoded for it
    kinds       additional kinds of result (`resultType`) that a client accepts for core calls, and
                functions that convert them into the result that the caller expects

Only peers that declared the extension may use its methods, unless `mutual` is false. Other peers
receive an error that names the extension. Everything else falls back automatically: if the peer did
not declare the extension, the extension's middleware passes the call on.

The method of each request is looked up in a table for its revision. That table includes extension
methods and is built once, so a lookup costs the same with or without extensions.
https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#extension-negotiation
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from ..errors import ConfigError, MethodNotFound, MissingCapability
from ..ports import Call, Caller, CallHandler
from ..protocol.base import Result
from ..protocol.lifecycle import ClientCapabilities, ServerCapabilities
from ..protocol.methods import METHODS, Method
from ..revisions import STATELESS, Revision
from .middleware import Middleware

Finish: TypeAlias = Callable[[Any, Any, Any], Awaitable[Any]]
"""A function that receives the client, the params of the request and a result of an additional
kind, and returns the result for the caller."""
# Labels, a slash, and the name of a `_meta` key:
# https://modelcontextprotocol.io/specification/2026-07-28/basic#meta
_LABEL = r"[a-z]([a-z0-9-]*[a-z0-9])?"
_ID = rf"(?i:{_LABEL}(\.{_LABEL})*/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)"
UNWRAPPABLE = ("initialize", "ping")
"""The requests that the connection itself answers before they become calls."""
CORE_KINDS = ("complete", "input_required")
"""The kinds of result that an extension cannot define."""


class ResultKind(Struct, frozen=True, eq=False):
    """An additional kind of result (`resultType`) on the client's side."""

    type: type[Result]
    """The type into which the result is decoded."""
    finish: Finish
    """The function that converts this kind of result into the result for the caller."""
    of: tuple[str, ...] = ()
    """The methods that may return this kind of result, or an empty tuple for all methods."""


class Extension(Struct, frozen=True, kw_only=True, eq=False):
    """One side's part of an extension. Contradictions raise ConfigError."""

    id: str
    """The identifier, such as "com.example/name"."""
    settings: Mapping[str, Any] = {}
    """The settings that this side declares."""
    methods: Sequence[Method] = ()
    """The extension's requests and notifications, in both directions."""
    handlers: Mapping[str, CallHandler] = {}
    """The functions that handle requests and notifications from the other side, keyed by method."""
    around: Mapping[str, Middleware] = {}
    """Middleware for core requests, keyed by method."""
    instead: Mapping[str, Middleware] = {}
    """Middleware that may answer core requests with another kind of result, keyed by method."""
    kinds: Mapping[str, ResultKind] = {}
    """Additional kinds of result that a client accepts, keyed by `resultType`."""
    mutual: bool = True
    """Whether only peers that also declare the extension may use its methods."""
    handshake: bool = True
    """Whether the extension exists in the handshake era."""
    silent: bool = False
    """Whether only the other side needs to declare the extension, so this side does not."""

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not re.fullmatch(_ID, self.id):
            raise ConfigError(
                f"{self.id!r} is not a valid extension identifier; use the form 'com.example/name'"
            )
        own_methods, wrapped = (
            {method.name for method in self.methods},
            {*self.around, *self.instead},
        )
        wrong = (
            (
                "is a core method; wrap it with around=",
                (name for name in own_methods if _is_core_method(name, self.handshake)),
            ),
            ("has a handler but is not listed in methods=", self.handlers.keys() - own_methods),
            (
                "cannot be wrapped: only core requests that become calls can be wrapped",
                filter(_is_unwrappable, wrapped),
            ),
            ("is a result type defined by the core", self.kinds.keys() & CORE_KINDS),
        )
        for problem, names in wrong:
            if found := sorted(names):
                raise ConfigError(f"{self.id}: {', '.join(found)} {problem}")

    def is_for(self, peer: ClientCapabilities | ServerCapabilities) -> bool:
        """Return whether a peer may use the extension's methods.

        Args:
            peer: The capabilities of the peer.
        """
        return not self.mutual or settings_of(self.id, peer) is not None


class Extensions:
    """The extensions used by one side."""

    def __init__(self, extensions: Iterable[Extension] = ()) -> None:
        self._all: tuple[Extension, ...] = ()
        self._methods: dict[str, tuple[Method, Extension]] = {}
        self.layers: dict[str, tuple[Middleware, ...]] = {}
        """The middleware around each core method, outermost first."""
        self.kinds: dict[str, ResultKind] = {}
        self._tables: dict[Revision | None, dict[str, Method]] = {}
        for extension in extensions:
            self.add(extension)

    def add(self, extension: Extension) -> None:
        """Add an extension, or raise ConfigError if it conflicts with another extension."""
        for other in self._all:
            if other.id == extension.id:
                raise ConfigError(
                    f"The extension {extension.id} was added twice; a server adds the tasks, "
                    "skills and apps extensions automatically"
                )
            for kind in sorted(other.kinds.keys() & extension.kinds.keys()):
                raise ConfigError(
                    f"Two extensions define the result type {kind}: {other.id} and {extension.id}"
                )
        methods = {method.name: (method, extension) for method in extension.methods}
        for name in sorted(methods.keys() & self._methods.keys()):
            raise ConfigError(
                f"Two extensions define the method {name}: {self._methods[name][1].id} and "
                f"{extension.id}"
            )
        self._all += (extension,)
        self._methods |= methods
        self.kinds |= extension.kinds
        self.layers = {}
        for layers in (*(one.instead for one in self._all), *(one.around for one in self._all)):
            for name, layer in layers.items():
                self.layers[name] = (*self.layers.get(name, ()), layer)
        self._tables = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Extension]:
        return iter(self._all)

    # negotiation

    @property
    def declared(self) -> dict[str, Any] | None:
        """The `extensions` capability for the stateless era, or None if it is empty."""
        return self.declared_for(stateless=True)

    def declared_for(self, stateless: bool) -> dict[str, Any] | None:
        """Return the `extensions` capability for a peer of this era, or None if it is empty."""
        return {
            extension.id: dict(extension.settings)
            for extension in self._all
            if not extension.silent and (stateless or extension.handshake)
        } or None

    def admit(self, method: Method, params: Any, caller: Caller) -> None:
        """Raise an error if a method belongs to an extension that the caller did not declare."""
        if self.is_offered_to(method, caller.capabilities):
            return
        refusal = missing_extension(method.name, self._methods[method.name][1].id)
        if caller.revision.stateless:
            raise refusal
        # The handshake era has no code for this: a method that was not negotiated does not exist.
        raise MethodNotFound(refusal.message, data=refusal.data)

    def check(self, method: Method, peer: ServerCapabilities) -> None:
        """Raise MethodNotFound if a method belongs to an extension that the server did not
        declare."""
        _, extension = self._methods[method.name]
        if not extension.is_for(peer):
            raise MethodNotFound(
                f"{method.name}: the server does not offer the extension {extension.id}"
            )

    def is_offered_to(self, method: Method, peer: ClientCapabilities | ServerCapabilities) -> bool:
        """Return whether a peer may use a method. The method must belong to the core or to an
        extension that the peer declared."""
        found = self._methods.get(method.name)
        return found is None or found[0] is not method or found[1].is_for(peer)

    # methods

    def find_method(self, name: str, revision: Revision | None) -> Method | None:
        """Return a method that is defined by a revision, or by an extension for that revision's
        era. Without a revision, search all revisions."""
        try:
            return self._tables[revision].get(name)
        except KeyError:
            return self._tables.setdefault(revision, self._build_table(revision)).get(name)

    def all_methods(self) -> Iterable[Method]:
        """Return the methods from all revisions and extensions."""
        return [*METHODS.values(), *(method for method, _ in self._methods.values())]

    def _build_table(self, revision: Revision | None) -> dict[str, Method]:
        if revision is None:
            return METHODS | {name: method for name, (method, _) in self._methods.items()}
        core = {
            alias: METHODS[name]
            for name in revision.methods
            for alias in (name, revision.wire_name(name))
        }
        return core | {
            name: method
            for name in self._methods
            if (method := self.extension_method(name, revision.stateless)) is not None
        }

    def extension_method(self, name: str, stateless: bool) -> Method | None:
        """Return an extension's method in this era, or None if no extension defines it."""
        found = self._methods.get(name)
        return found[0] if found is not None and (stateless or found[1].handshake) else None

    def find_handler(
        self, method: Method, peer: ClientCapabilities | ServerCapabilities
    ) -> CallHandler | None:
        """Return an extension's handler for this method. Return None if no handler exists or the
        peer may not send this method."""
        found = self._methods.get(method.name)
        this_side = "server" if isinstance(peer, ClientCapabilities) else "client"
        if found is None or method.sender == this_side or not self.is_offered_to(method, peer):
            return None
        return found[1].handlers.get(method.name)

    def layers_inside(self, extension: Extension, name: str) -> tuple[Middleware, ...]:
        """Return the middleware that a call still passes through after this extension's
        `instead`."""
        layers = self.layers[name]
        return layers[layers.index(extension.instead[name]) + 1 :]

    def find_kind(self, name: str | None, method: Method) -> ResultKind | None:
        """Return the kind of result with this name if the method may return it."""
        kind = self.kinds.get(name) if name is not None else None
        return kind if kind is not None and (not kind.of or method.name in kind.of) else None

    def kind_of(self, result: Any) -> ResultKind | None:
        """Return the kind of a result, or None if the core defines it."""
        if not self.kinds or not isinstance(result, Result):
            return None
        kind = self.kinds.get(result.result_type or "")
        return kind if kind is not None and isinstance(result, kind.type) else None


def settings_of(id: str, peer: ClientCapabilities | ServerCapabilities) -> dict[str, Any] | None:
    """Return the settings that the other side declared for an extension, or None if it did not
    declare the extension.

    Args:
        id: The identifier of the extension.
        peer: The capabilities of the other side.
    """
    declared = peer.extensions
    found = declared.get(id) if isinstance(declared, dict) else None
    return found if isinstance(found, dict) else None


def missing_extension(what: str, id: str) -> MissingCapability:
    """Return the error for a client that did not declare an extension.

    Args:
        what: The feature that needs the extension, as the subject of the message.
        id: The identifier of the extension.
    """
    return MissingCapability(
        f"{what} requires a client that declares the extension {id}",
        data={"requiredCapabilities": {"extensions": {id: {}}}},
    )


def has_declared(call: Call, id: str) -> bool:
    """Return whether the other side declared an extension. On a server, the other side is the
    caller; on a client, it is the server.

    Args:
        call: The call.
        id: The identifier of the extension.
    """
    return settings_of(id, call.caller.capabilities) is not None


def notify(call: Call, method: str, params: Any) -> None:
    """Send an extension's notification as part of a call on a server. Do nothing if nobody is
    waiting for the call any more or the caller did not declare the extension.

    Args:
        call: The call that the notification belongs to.
        method: The name of the notification.
        params: Its params.
    """
    call.connection.notify(call, method, params)


def _is_core_method(name: str, handshake: bool) -> bool:
    """Return whether the core defines this method in one of the extension's eras."""
    return name in METHODS if handshake else any(name in revision.methods for revision in STATELESS)


def _is_unwrappable(name: str) -> bool:
    method = METHODS.get(name)
    return method is None or method.result is None or name in UNWRAPPABLE
